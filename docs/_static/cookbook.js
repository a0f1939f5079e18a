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
