// Tables of class "sortable": each header becomes a button that sorts the rows by its column, and back.
document.querySelectorAll("table.sortable").forEach((table) => {
  const headers = [...table.tHead.rows[0].cells];
  const text = (row, column) => row.cells[column].textContent.trim().replaceAll(",", "");
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent.trim();
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (ascending ? 1 : -1) * text(a, column).localeCompare(text(b, column), "en", { numeric: true }));
      table.tBodies[0].append(...rows);
    });
  });
});

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
