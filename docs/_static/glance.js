// The card's button copies the file that stands in the page: the same that the button on the source copies.
const copied = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // no permission, or no secure connection
  }
};

document.querySelectorAll("[data-copy]").forEach((button) => {
  const source = document.querySelector(`#recipe-${button.dataset.copy} pre`);
  if (!source) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.textContent = (await copied(source.textContent)) ? "Copied" : "Use Download";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
});

// Who has landed further down finds the way back to the buttons, while none of them is in sight.
document.querySelectorAll(".to-glance").forEach((link) => {
  const places = document.querySelectorAll(".glance, .recipe-name");
  const seen = new Set();
  const update = (changes) => {
    changes.forEach(({ target, isIntersecting }) => seen[isIntersecting ? "add" : "delete"](target));
    link.hidden = seen.size > 0 || places[0].getBoundingClientRect().top > 0;
  };
  const sight = new IntersectionObserver(update, { rootMargin: "-100px 0px 0px" }); // without the bar at the top
  places.forEach((place) => sight.observe(place));
});

// A link to what is folded opens it: the section itself, or whatever the target stands in.
const reveal = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  const own = target.querySelector(":scope > details.fold");
  if (own) own.open = true;
  for (let node = target.closest("details"); node; node = node.parentElement.closest("details")) node.open = true;
  target.scrollIntoView();
};
window.addEventListener("hashchange", reveal);
document.addEventListener("click", (event) => {
  // The same anchor again, after the reader has closed the section, changes no hash.
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) reveal();
});
reveal();

// On paper nothing can be opened.
window.addEventListener("beforeprint", () => document.querySelectorAll("details.fold").forEach((fold) => (fold.open = true)));

// The matrix shows the recipes that can do all that is chosen, on the release that is chosen. Without scripts it shows all.
document.querySelectorAll(".needs").forEach((needs) => {
  const rows = [...document.querySelectorAll(".capability-matrix tbody tr")];
  const filter = () => {
    const wanted = [...needs.querySelectorAll("input:checked")].map((box) => box.value);
    const works = (row) =>
      wanted.every((name) => row.querySelector(`[data-capability="${name}"]:not([hidden])`)?.dataset.verdict === "yes");
    rows.forEach((row) => (row.hidden = !works(row)));
    const found = rows.filter((row) => !row.hidden).length;
    needs.querySelector("output").textContent = `${found} of ${rows.length} recipes`;
  };
  needs.hidden = false;
  needs.addEventListener("change", filter);
  // After the listener of the releases, which shows other verdicts.
  document.querySelector(".releases")?.addEventListener("change", () => setTimeout(filter));
  filter();
});

// What a badge means, next to it: under a mouse, by keyboard, and by a tap, which would otherwise leave the page.
{
  const badges = document.querySelectorAll(".glance li > a[title], .badges li > a[title], .capability-matrix span[title]");
  const tip = Object.assign(document.createElement("div"), { className: "badge-tip", id: "badge-tip", hidden: true });
  tip.setAttribute("role", "tooltip");
  let shown = null;
  let leaving = 0;

  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  };
  const link = (href, text) => Object.assign(document.createElement("a"), { href, textContent: text, tabIndex: -1 });
  const show = (badge) => {
    clearTimeout(leaving);
    if (shown === badge) return;
    hide();
    shown = badge;
    tip.replaceChildren(badge.dataset.says);
    if (badge.dataset.learn) tip.append(" ", link(badge.dataset.learn, "How to add it"));
    if (badge.href) tip.append(" ", link(badge.href, "What is checked"));
    tip.hidden = false;
    badge.setAttribute("aria-describedby", tip.id);
    const [place, space] = [badge.getBoundingClientRect(), document.documentElement.clientWidth - tip.offsetWidth - 8];
    tip.style.left = `${scrollX + Math.max(8, Math.min(place.left, space))}px`;
    tip.style.top = `${scrollY + place.bottom + 4}px`;
  };
  const leave = () => (leaving = setTimeout(hide, 200)); // time to reach the links in it

  badges.forEach((badge) => {
    badge.dataset.says = badge.title;
    badge.removeAttribute("title");
    if (!badge.href) badge.tabIndex = 0;
    let byTouch = false;
    badge.addEventListener("pointerdown", ({ pointerType }) => (byTouch = pointerType !== "mouse"));
    badge.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && show(badge));
    badge.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && leave());
    badge.addEventListener("focus", () => show(badge));
    badge.addEventListener("blur", leave);
    badge.addEventListener("click", (event) => {
      if (byTouch) event.preventDefault();
      byTouch = false;
      show(badge);
    });
  });
  tip.addEventListener("focusin", () => clearTimeout(leaving));
  tip.addEventListener("pointerenter", () => clearTimeout(leaving));
  tip.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && leave());
  document.addEventListener("pointerdown", ({ target }) => shown && !shown.contains(target) && !tip.contains(target) && hide());
  document.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  if (badges.length) document.body.append(tip);
}
