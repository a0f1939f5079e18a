// A slider shows one of the positions that the page has, each computed when the site was built. See sliders.py.
"use strict";

document.querySelectorAll(".slider").forEach((slider) => {
  const frames = JSON.parse(slider.dataset.frames);
  const input = slider.querySelector("input");
  const show = () => {
    const { said, line, dots } = frames[input.value];
    slider.querySelector(".slider-line").setAttribute("d", line);
    slider.querySelector(".slider-dots").setAttribute("d", dots);
    slider.querySelector("figcaption").textContent = said;
    input.setAttribute("aria-valuetext", said);
  };
  input.addEventListener("input", show);
  slider.querySelector("label").hidden = false;
  show(); // what the browser has kept in the field
});
