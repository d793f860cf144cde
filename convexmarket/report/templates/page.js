// A click on a header sorts the rows of a table; a box above a long table filters them.
const number = (text) => Number(text.replace(/,/g, "").replace("∞", "Infinity")
  .replace(/^(-?)10(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹])/, "$11 × 10").replace(/\s×\s10/, "e")
  .replace(/[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (sign) => "-0123456789"["⁻⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(sign)]));
for (const box of document.querySelectorAll(".scroll")) {
  const table = box.querySelector("table"), heads = [...table.tHead.rows[0].cells];
  const rows = [...(table.tBodies[0]?.rows ?? [])];
  if (rows.length < 2) continue;
  heads.forEach((head, column) => {
    head.innerHTML = `<button type="button">${head.innerHTML}</button>`;
    head.firstChild.onclick = () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.ariaSort = sign > 0 ? "ascending" : "descending";
      const text = (row) => row.cells[column].textContent;
      const compare = (a, b) => (a === "–") - (b === "–")
        || sign * (number(a) - number(b) || a.localeCompare(b, "en", { numeric: true }));
      table.tBodies[0].append(...[...rows].sort((a, b) => compare(text(a), text(b))));
    };
  });
  if (rows.length < 9) continue;
  box.insertAdjacentHTML("beforebegin", '<label class="filter">Filter rows: <input type="search"></label>');
  box.previousSibling.lastChild.oninput = ({ target }) => {
    const words = target.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    }
  };
}
