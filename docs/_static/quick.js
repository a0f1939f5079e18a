// The best hits under the search field while a reader types, in the order of the search page. What the search needs is
// loaded when the first letter is typed. Without it, as on a page opened from a file, the field works as it does anyway.
"use strict";

{
  const MOST = 8;
  const SCRIPTS = ["_static/language_data.js", "_static/searchtools.js", "_static/search.js"];
  const root = document.documentElement.dataset.content_root;
  const dialog = document.getElementById("pst-search-dialog");
  const field = dialog?.querySelector("input[type=search]");
  const hits = document.createElement("ol");
  hits.className = "quick-hits";
  hits.setAttribute("aria-label", "Best hits");

  const script = (address) =>
    new Promise((loaded, failed) => {
      const element = Object.assign(document.createElement("script"), { src: root + address });
      element.addEventListener("load", loaded);
      element.addEventListener("error", failed);
      document.head.append(element);
    });

  const load = async () => {
    const page = await (await fetch(`${root}search.html`)).text();
    const words = new DOMParser().parseFromString(page, "text/html").getElementById("search-words");
    document.head.append(document.importNode(words, true));
    for (const address of SCRIPTS) {
      await script(address);
      field.value ||= typed; // Sphinx empties each field when its script starts
    }
  };
  let loading = null;
  let typed = "";

  const show = async () => {
    typed = field.value;
    try {
      await (loading ??= load());
    } catch {
      return;
    }
    const found = Search._performSearch(field.value).reverse().slice(0, MOST);
    hits.replaceChildren(
      ...found.map((hit) => {
        const [name, , anchor] = hit;
        const item = document.createElement("li");
        const link = Object.assign(document.createElement("a"), { href: root + name + DOCUMENTATION_OPTIONS.LINK_SUFFIX + anchor });
        Search.show(link, hit);
        item.append(link);
        return item;
      }),
    );
    fit();
  };

  // The keyboard of a phone lies over the page: the list ends where it begins.
  const view = window.visualViewport;
  const fit = () => (hits.style.maxHeight = `${Math.max(120, view.height + view.offsetTop - hits.getBoundingClientRect().top - 12)}px`);

  const close = Object.assign(document.createElement("button"), { type: "button", className: "quick-close", textContent: "×" });
  close.setAttribute("aria-label", "Close the search");
  close.addEventListener("click", () => dialog.close());

  // Arrow keys go from the field to the hits and back.
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const links = [field, ...hits.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    links[Math.min(Math.max(at + step, 0), links.length - 1)].focus();
  };

  if (field && !document.getElementById("search-results")) {
    field.form.after(hits);
    field.form.append(close);
    view.addEventListener("resize", fit);
    field.addEventListener("input", show);
    dialog.addEventListener("keydown", move);
    dialog.addEventListener("click", ({ target }) => target.closest?.("a") && dialog.close());
  }
}
