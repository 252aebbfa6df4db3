"use strict";
(() => {
  document.documentElement.classList.add("runs-script");
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const media = { auto: "screen and (prefers-color-scheme: dark)", light: "not all", dark: "screen" };
  const themes = all("[data-theme]");
  themes.forEach((button) => button.addEventListener("click", () => {
    document.getElementById("dark").media = media[button.dataset.theme];
    themes.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  }));

  const table = document.querySelector(".fleet");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = all("tr", body);
  const shares = JSON.parse(document.getElementById("shares").textContent);
  const levels = [500, 600, 700, 800, 850, 900, 950, 980];

  // The figure that the heat map shows.
  const figure = document.getElementById("figure");
  if (figure) figure.addEventListener("change", () => {
    rows.forEach((row, place) => {
      const values = shares[place][figure.selectedIndex] || [];
      all(".cell", row).forEach((cell, gpu) => {
        if (cell.classList.contains("lost")) return;
        const value = values[gpu] || 0;
        cell.className = value ? `cell h${levels.filter((level) => value >= level).length}` : "cell";
        cell.textContent = value ? Math.round(value / 10) : "";
      });
    });
  });

  // Rows that contain a word.
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    const word = filter.value.toLowerCase();
    rows.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(word); });
  });

  // Sorting by a column; a second click turns the order.
  const collator = new Intl.Collator(undefined, { numeric: true });
  all("thead button", table).forEach((button) => button.addEventListener("click", () => {
    const head = button.closest("th");
    const down = head.getAttribute("aria-sort") === "ascending";
    all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[head.cellIndex].dataset.key || row.cells[head.cellIndex].textContent;
    const ordered = [...rows].sort((one, other) => collator.compare(key(one), key(other)));
    body.append(...(down ? ordered.reverse() : ordered));
  }));
})();
