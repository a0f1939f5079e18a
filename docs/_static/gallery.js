// The filter of the cookbook's list: a card stays if each word that is typed begins one of its words, or is a longer form of
// one, as "rounding" is of "round".
"use strict";

document.querySelectorAll(".card-filter").forEach((form) => {
  const field = form.querySelector("input");
  const split = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const FORM = 4; // letters of a word, from which on a longer one may be a form of it
  const alike = (word, typed) => word.startsWith(typed) || (word.length >= FORM && typed.startsWith(word));
  const cards = [...document.querySelectorAll(".sphx-glr-thumbcontainer")].map((card) => {
    const section = card.closest("section");
    return { card, section, words: split(`${section.querySelector("h2").textContent} ${card.dataset.words} ${card.textContent}`) };
  });
  const filter = () => {
    const wanted = split(field.value);
    cards.forEach((one) => {
      one.card.hidden = !wanted.every((typed) => one.words.some((word) => alike(word, typed)));
    });
    const shown = cards.filter(({ card }) => !card.hidden);
    cards.forEach(({ section }) => (section.hidden = !shown.some((one) => one.section === section)));
    form.querySelector("output").textContent = wanted.length ? `${shown.length} of ${cards.length} pages` : "";
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter(); // what the browser has kept in the field
});
