// The filter of the cookbook's list: a card stays if it has each word that is typed, or the word that it begins or is a form
// of, as "rounding" is of "round". A word that no card has says nothing, and the search of the site may know it.
"use strict";

document.querySelectorAll(".card-filter").forEach((form) => {
  const FORM = 4; // letters of a word, from which on a longer one may be a form of it
  const field = form.querySelector("input");
  const split = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const cards = [...document.querySelectorAll(".sphx-glr-thumbcontainer")].map((card) => {
    const section = card.closest("section");
    return { card, section, words: split(`${section.querySelector("h2").textContent} ${card.dataset.words} ${card.textContent}`) };
  });
  const alike = (word, typed) => word.startsWith(typed) || (word.length >= FORM && typed.startsWith(word));
  const has = ({ words }, typed) => words.some((word) => alike(word, typed));
  const filter = () => {
    const typed = split(field.value);
    const wanted = typed.filter((word) => cards.some((one) => has(one, word)));
    const lost = typed.length > 0 && !wanted.length;
    cards.forEach((one) => (one.card.hidden = lost || !wanted.every((word) => has(one, word))));
    const shown = cards.filter(({ card }) => !card.hidden);
    cards.forEach(({ section }) => (section.hidden = !shown.some((one) => one.section === section)));
    const search = Object.assign(document.createElement("a"), { textContent: "Search the whole site" });
    search.href = `${form.getAttribute("action")}?q=${encodeURIComponent(field.value)}`;
    form.querySelector("output").replaceChildren(...(typed.length ? [`${shown.length} of ${cards.length} pages. `, search] : []));
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter(); // what the browser has kept in the field
});
