"use strict";
// A click on a header sorts the rows of a table; a box above a long table filters them.
const number = (text) => Number(text.replace(/,/g, "").replace("∞", "Infinity")
  .replace(/^(-?)10(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])/, "$11 × 10").replace(/\s×\s10/, "e")
  .replace(/[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (sign) => "-0123456789"["⁻⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(sign)]));
for (const box of document.querySelectorAll(".table .scroll")) {
  const table = box.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 2) continue;
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.ariaSort = sign > 0 ? "ascending" : "descending";
      const text = (row) => row.cells[column].textContent;
      const compare = (a, b) => {
        if ((a === "–") !== (b === "–")) return a === "–" ? 1 : -1;
        const order = number(a) - number(b);
        return sign * (Number.isNaN(order) ? a.localeCompare(b, "en", { numeric: true }) : order);
      };
      table.tBodies[0].append(...[...rows].sort((a, b) => compare(text(a), text(b))));
    });
  }
  if (rows.length < 9) continue;
  const label = document.createElement("label");
  const input = label.appendChild(document.createElement("input"));
  label.className = "filter";
  label.prepend("Filter rows: ");
  input.type = "search";
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  box.before(label);
}
