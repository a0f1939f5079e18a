// The toggles of the sidebar are pictures: a screen reader needs their names.
document.querySelectorAll("summary:has(.toctree-toggle)").forEach((summary) => {
  const section = summary.closest("li").querySelector("a").textContent.trim();
  summary.setAttribute("aria-label", `Pages of ${section}`);
});

// A copied file starts with its imports and helpers. On the page the source is shown from the Function on, which is
// what one came for; what stands above it is a scroll away.
document.querySelectorAll(".recipe-source pre").forEach((source) => {
  const name = source.closest(".recipe").id.replace("recipe-", "");
  const words = [...source.querySelectorAll(".nc, .nf")];
  const own = words.find((word) => word.textContent.replace("Function", "").toLowerCase() === name.replaceAll("_", "").toLowerCase());
  const start = own ?? words.find((word) => word.textContent === name);
  if (start) source.scrollTop = start.offsetTop - source.offsetTop - 12;
});

// The matrix shows what is so on one release of torch; without this, on that which the page names.
document.querySelectorAll(".releases").forEach((choice) => {
  choice.hidden = false;
  choice.addEventListener("change", (event) => {
    document.querySelectorAll(".capability-matrix [data-releases]").forEach((verdict) => {
      verdict.hidden = !verdict.dataset.releases.split(" ").includes(event.target.value);
    });
  });
});
