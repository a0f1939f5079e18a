// The toggles of the sidebar are pictures: a screen reader needs their names.
document.querySelectorAll("summary:has(.toctree-toggle)").forEach((summary) => {
  const section = summary.closest("li").querySelector("a").textContent.trim();
  summary.setAttribute("aria-label", `Pages of ${section}`);
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

// The field of the landing page hands its text over to the page that explains it.
document.querySelectorAll(".paste-door").forEach((form) => {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.href = `${form.getAttribute("action")}#paste=${encodeURIComponent(form.elements.text.value)}`;
  });
});

// A drawer of a phone closes by a button too.
document.querySelectorAll(".bd-sidebar").forEach((drawer) => {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "drawer-close", textContent: "×" });
  button.setAttribute("aria-label", "Close the menu");
  button.addEventListener("click", () => button.closest("dialog")?.close());
  drawer.prepend(button);
});

// The menu behind "More" closes as menus do.
const more = document.querySelectorAll(".bd-header .more details");
document.addEventListener("click", ({ target }) => more.forEach((menu) => (menu.open = menu.open && menu.contains(target))));
document.addEventListener("keydown", ({ key }) => key === "Escape" && more.forEach((menu) => (menu.open = false)));

// A page has many copy buttons, made by another script: each says what it copies. What it copies is named by
// the words that introduce it, or by its section.
document.addEventListener("DOMContentLoaded", () => {
  const headings = new Map();
  document.querySelectorAll("button.copybtn").forEach((button) => {
    const command = button.closest(".install-line") && "the command that installs the package";
    const heading = button.closest("section")?.querySelector("h1, h2, h3, h4, h5, h6");
    const section = heading?.textContent.replace(/#$/, "").trim() ?? "this page";
    const specimen = button.closest(".specimen")?.querySelector("p > strong")?.textContent;
    const place = [section, specimen].filter(Boolean).join(", ");
    const number = (headings.get(place) ?? 0) + 1;
    if (!command) headings.set(place, number);
    const code = `the code of “${place}”${number > 1 ? `, part ${number}` : ""}`;
    button.setAttribute("aria-label", `Copy ${command ?? code}`);
  });
});

const NARROW = ".capability-matrix td:first-child a, table.costs td code, .bd-sidebar-primary a, .page-toc code, .glance-head code";

// Names are long where places are narrow: they may be broken behind a dot or an underscore, rather than anywhere.
document.querySelectorAll(NARROW).forEach((place) => {
  const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) found.push(texts.currentNode);
  found
    .filter((text) => text.data.length > 12)
    .forEach((text) =>
      text.replaceWith(...text.data.split(/(?<=[._])(?=\w)/).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]))),
    );
});
