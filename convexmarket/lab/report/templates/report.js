"use strict";
(() => {
  const make = (tag, attributes = {}, text) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // A click on a header sorts, a box above filters.

  const MISSING = "–";
  const compare = (cells) => {
    const values = cells.map((cell) => cell.dataset.value ?? cell.textContent);
    const known = values.filter((value) => value !== MISSING);
    const numeric = known.every((value) => value !== "" && !Number.isNaN(Number(value)));
    return (i, j, sign) => {
      const [a, b] = [values[i], values[j]];
      if (a === MISSING || b === MISSING) return (a === MISSING) - (b === MISSING);
      const order = numeric ? Math.sign(a - b) || 0 : a.localeCompare(b, "en", { numeric: true });
      return sign * order;
    };
  };
  const sortable = (table, rows) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = make("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: null };
        const now = head.getAttribute("aria-sort");
        const order = now in next ? next[now] : "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        const places = rows.map((_, i) => i);
        if (order) {
          head.setAttribute("aria-sort", order);
          const by = compare(rows.map((row) => row.cells[column]));
          places.sort((i, j) => by(i, j, order === "ascending" ? 1 : -1));
        }
        table.tBodies[0].append(...places.map((i) => rows[i]));
      });
    });
  };
  const filterable = (box, rows) => {
    const controls = make("div", { class: "controls" });
    const label = make("label", {}, "Filter these rows ");
    const input = label.appendChild(make("input", { type: "search", autocomplete: "off" }));
    const status = make("span", { role: "status" });
    const say = (n) => {
      status.textContent = `${n < rows.length ? `${n} of ` : ""}${rows.length} rows`;
    };
    const texts = rows.map((row) =>
      [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      rows.forEach((row, i) => { row.hidden = !words.every((word) => texts[i].includes(word)); });
      say(rows.filter((row) => !row.hidden).length);
    });
    say(rows.length);
    controls.append(label, status);
    box.before(controls);
  };
  for (const box of document.querySelectorAll(".table .scroll")) {
    const table = box.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    if (rows.length > 1) sortable(table, rows);
    if (rows.length > 8 && !box.dataset.of) filterable(box, rows);
  }
})();
