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
