// The filter of the cookbook's list: the cards stay that have the most of the typed words. A word is had by a word that it
// begins, or that it is a form of, as "rounding" is of "round". The search of the site knows more words.
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
  const filter = () => {
    const typed = [...new Set(split(field.value))];
    const had = cards.map(({ words }) => typed.filter((one) => words.some((word) => alike(word, one))).length);
    const most = Math.max(...had);
    cards.forEach(({ card }, i) => (card.hidden = typed.length > 0 && (!most || had[i] < most)));
    form.closest("article").classList.toggle("filtered", typed.length > 0);
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
