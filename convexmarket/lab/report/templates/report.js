"use strict";
(() => {
  const put = (node, attributes, text) => {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const make = (tag, attributes = {}, text) => put(document.createElement(tag), attributes, text);
  const draw = (parent, tag, attributes = {}, text) => parent.appendChild(
    put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, text));

  // ---- Tables: a click on a header sorts, a box above filters.

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

  // ---- Figures: the buttons of a legend show and hide series.

  for (const legend of document.querySelectorAll(".legend")) {
    const drawing = legend.parentElement.querySelector(".drawing");
    legend.hidden = false;
    for (const button of legend.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", shown);
        for (const mark of drawing.querySelectorAll(`.${button.dataset.series}`)) {
          mark.style.display = shown ? "" : "none";
        }
      });
    }
  }

  // ---- The frontier: error against payments, and at one gamma, who is bought from.

  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [400, 290, 62, 388, 34, 244];
  const MARKS = [
    (r) => `m${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
    (r) => `m${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
    (r) => `m0 ${-1.2 * r}l${1.1 * r} ${2 * r}h${-2.2 * r}z`,
    (r) => `m0 ${-1.3 * r}l${1.3 * r} ${1.3 * r}l${-1.3 * r} ${1.3 * r}l${-1.3 * r} ${-1.3 * r}z`,
  ];
  const DASHES = ["none", "7 3", "2 2.5", "8 3 2 3"];
  const show = (value, digits = 4) => {
    if (value === null) return MISSING;
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 1e-4 && size < 1e6) {
      const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
      return value.toLocaleString("en", { maximumFractionDigits: decimals });
    }
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const raised = [...String(Number(power))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
    return `${Number(mantissa)} × 10${raised.join("")}`;
  };
  const scaleOf = (values, from, to) => {
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (low > 0 && high > 30 * low) {
      const [a, b] = [Math.log(low), Math.log(high)];
      const decades = Math.log10(high / low);
      let ticks = [];
      for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e += 1) {
        for (const digit of decades > 3 ? [1] : [1, 3]) ticks.push(digit * 10 ** e);
      }
      ticks = ticks.filter((tick) => tick >= low && tick <= high);
      const every = Math.ceil(ticks.length / 6);
      ticks = ticks.filter((_, i) => i % every === 0);
      return { log: true, ticks, at: (v) => from + (to - from) * (Math.log(v) - a) / (b - a) };
    }
    low = low < 0 ? low : 0;
    if (high <= low) high = low + 1;
    const rough = (high - low) / 4;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((digit) => digit * unit >= rough);
    const ticks = [];
    for (let k = Math.ceil(low / step); k <= Math.ceil(high / step); k += 1) {
      ticks.push(Number((k * step).toPrecision(6)));
    }
    high = Math.max(high, ticks[ticks.length - 1]);
    return { log: false, ticks, at: (v) => from + (to - from) * (v - low) / (high - low) };
  };
  const axes = (svg, x, y, xLabel, yLabel) => {
    const title = (label, scale) => label + (scale.log ? " (log scale)" : "");
    for (const tick of y.ticks) {
      draw(svg, "path", { d: `M${LEFT} ${y.at(tick)}H${RIGHT}`, class: "grid" });
      draw(svg, "text", { x: LEFT - 6, y: y.at(tick) + 4, "text-anchor": "end" }, show(tick, 3));
    }
    for (const tick of x.ticks) {
      draw(svg, "path", { d: `M${x.at(tick)} ${BOTTOM}V${TOP}`, class: "grid" });
      draw(svg, "text", { x: x.at(tick), y: BOTTOM + 18, "text-anchor": "middle" }, show(tick, 3));
    }
    draw(svg, "path", { d: `M${LEFT} ${TOP}V${BOTTOM}H${RIGHT}`, class: "axis" });
    draw(svg, "text", { x: 4, y: 16, class: "label" }, title(yLabel, y));
    draw(svg, "text", { x: (LEFT + RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, title(xLabel, x));
  };
  const chart = (parent, label) => {
    const box = parent.appendChild(make("div", { class: "chart" }));
    const svg = draw(box, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": label });
    return { box, svg };
  };

  const explore = (figure) => {
    const { gammas, series, costs, error, payments, money } = JSON.parse(figure.dataset.frontier);
    const explorer = make("div", { class: "explorer" });
    const control = explorer.appendChild(make("div", { class: "controls" }));
    const label = control.appendChild(make("label", {}, "γ, the weight of payments (move, or click a point) "));
    const slider = label.appendChild(make("input", { type: "range", min: 0, max: gammas.length - 1, step: 1 }));
    const chosen = control.appendChild(make("strong"));
    const readout = explorer.appendChild(make("ul", { class: "readout", role: "status" }));
    const charts = explorer.appendChild(make("div", { class: "charts" }));
    const curve = chart(charts, `${error} against ${payments}, one point for each γ`);
    const offers = chart(charts, "Privacy sold against sensitivity");
    const tip = curve.box.appendChild(make("div", { class: "tip", hidden: "" }));

    const all = series.flatMap((one) => one.points.filter(Boolean));
    const x = scaleOf(all.map((point) => point[2]), LEFT, RIGHT);
    const y = scaleOf(all.map((point) => point[1]), BOTTOM, TOP);
    const short = (label) => label.split(" (")[0];
    const words = (one, k) => {
      const [eta, wrong, paid] = one.points[k];
      return `${one.label}: η = ${show(eta)}, ${short(error)} ${show(wrong)}, ${short(payments)} ${show(paid)}`;
    };
    axes(curve.svg, x, y, payments, error);
    const rings = series.map((one, i) => {
      const places = one.points.map((point) => point && [x.at(point[2]), y.at(point[1])]);
      const line = places.filter(Boolean).map((place) => place.join(" ")).join("L");
      draw(curve.svg, "path", { d: `M${line}`, class: "line", stroke: one.colour, "stroke-dasharray": DASHES[i % 4] });
      const ring = draw(curve.svg, "circle", { r: 9, class: "ring", stroke: one.colour });
      places.forEach((place, k) => {
        if (!place) return;
        const text = `γ = ${show(gammas[k])}, ${words(one, k)}`;
        const point = draw(curve.svg, "g", { class: "point", tabindex: 0, role: "button", "aria-label": text,
          transform: `translate(${place.join(" ")})` });
        draw(point, "circle", { r: 12, fill: "transparent" });
        draw(point, "path", { d: `M0 0${MARKS[i % 4](4)}`, fill: one.colour });
        const open = () => {
          tip.textContent = text;
          tip.hidden = false;
          tip.style.top = `${(100 * (place[1] + 14)) / HEIGHT}%`;
          tip.style[place[0] < WIDTH / 2 ? "left" : "right"] = "4%";
          tip.style[place[0] < WIDTH / 2 ? "right" : "left"] = "auto";
        };
        const close = () => { tip.hidden = true; };
        const pick = () => { slider.value = k; select(); };
        point.addEventListener("pointerenter", open);
        point.addEventListener("pointerleave", close);
        point.addEventListener("focus", open);
        point.addEventListener("blur", close);
        point.addEventListener("click", pick);
        point.addEventListener("keydown", (event) => {
          if (event.key === "Escape") close();
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          pick();
        });
      });
      return (k) => {
        ring.style.display = places[k] ? "" : "none";
        if (places[k]) put(ring, { cx: places[k][0], cy: places[k][1] });
      };
    });

    // One scale for every γ shows that less is sold. Where the most sold at one γ would be next to
    // nothing beside the most at another it is logarithmic, without those who sell nothing.
    const horizontal = scaleOf(costs.flat(), LEFT, RIGHT);
    const sold = series.flatMap((one) => one.offers.filter(Boolean))
      .map((offer) => offer.epsilon.filter((epsilon) => epsilon > 0)).filter((some) => some.length);
    const most = sold.map((some) => Math.max(...some));
    const least = sold.map((some) => Math.min(...some));
    const wide = Math.max(...most) > 30 * Math.min(...most);
    const vertical = scaleOf([...most, ...(wide ? least : [0])], BOTTOM, TOP);
    const select = () => {
      const k = Number(slider.value);
      const gamma = `γ = ${show(gammas[k])}`;
      chosen.textContent = gamma;
      slider.setAttribute("aria-valuetext", gamma);
      rings.forEach((move) => move(k));
      readout.replaceChildren();
      offers.svg.replaceChildren();
      axes(offers.svg, horizontal, vertical, `sensitivity c (${money} per unit of ε)`, "privacy sold, ε");
      series.forEach((one, i) => {
        const offer = one.offers[k];
        const bought = offer ? `; buys from ${offer.bought.toLocaleString("en")} of ${offer.of.toLocaleString("en")}` : "";
        if (one.points[k]) {
          const line = readout.appendChild(make("li", {}, words(one, k) + bought));
          line.style.setProperty("--series", one.colour);
        }
        if (!offer) return;
        const d = offer.epsilon.map((epsilon, j) => (wide && !(epsilon > 0) ? ""
          : `M${horizontal.at(costs[offer.costs][j]).toFixed(1)} ${vertical.at(epsilon).toFixed(1)}${MARKS[i % 4](2.5)}`));
        draw(offers.svg, "path", { d: d.join(""), class: "offers", stroke: one.colour });
      });
    };
    slider.value = Math.floor(gammas.length / 2);
    slider.addEventListener("input", select);
    select();
    figure.querySelector(".card").before(explorer);
    figure.classList.add("live");
  };
  document.querySelectorAll("figure[data-frontier]").forEach(explore);
})();
