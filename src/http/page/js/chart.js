// Small charts in SVG: lines over time, bars, and the ranges of a database with who holds them. Each has its values in
// words for those who do not see it.

import { h, svg, fill } from "./dom.js";

const WIDTH = 600, HEIGHT = 120, PAD = 6;

/// Lines over time. `series`: `[label, …]`; `format(value)` for words; `span`: how many points are kept. `push(values)` adds
/// a point, null where there is none. `max`: the least top of the scale.
export function lineChart({ label, series, format = String, span = 90, max: least = 0 }) {
  const points = series.map(() => []);
  const lines = series.map((_, at) => svg("polyline", { class: `chart-line s${at}`, points: "" }));
  const area = svg("polygon", { class: "chart-area", points: "" });
  const now = series.map((_, at) => h("span", { class: "chart-now" }, h("span", { class: `chart-key s${at}` }), h("span", null, series[at]), h("strong", null, "–")));
  const top = h("span", { class: "chart-top" });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "chart-picture", role: "img", "aria-label": label },
    [0.25, 0.5, 0.75].map((part) => svg("line", { class: "chart-grid", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part })), area, lines);
  const element = h("figure", { class: "chart" }, h("figcaption", null, h("span", { class: "chart-title" }, label), now), h("div", { class: "chart-box" }, picture, top));
  function draw() {
    const all = points.flat().filter((value) => value !== null && Number.isFinite(value));
    const max = niceTop(Math.max(least, ...all, 0));
    top.textContent = all.length ? format(max) : "";
    for (const [at, own] of points.entries()) {
      const first = span - own.length;
      const drawn = own.map((value, n) => value === null ? null : `${((first + n) / (span - 1) * WIDTH).toFixed(1)},${place(value, max).toFixed(1)}`).filter(Boolean);
      lines[at].setAttribute("points", drawn.join(" "));
      if (at === 0) {
        const from = ((span - own.length) / (span - 1) * WIDTH).toFixed(1);
        area.setAttribute("points", drawn.length > 1 ? `${from},${HEIGHT} ${drawn.join(" ")} ${WIDTH},${HEIGHT}` : "");
      }
      const last = own.at(-1);
      now[at].lastChild.textContent = last === null || last === undefined ? "–" : format(last);
    }
    picture.setAttribute("aria-label", `${label}: ${series.map((name, at) => `${name} ${now[at].lastChild.textContent}`).join(", ")}`);
  }
  element.push = (values) => {
    for (const [at, own] of points.entries()) {
      own.push(values[at] ?? null);
      if (own.length > span) own.shift();
    }
    draw();
  };
  draw();
  return element;
}

function place(value, max) {
  return HEIGHT - PAD - (max ? Math.max(0, value) / max : 0) * (HEIGHT - 2 * PAD);
}

/// The next round number above, so that the scale does not tremble.
function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 1.05) ?? 20 * power;
}

/// Bars beside each other in words and lengths. `items`: `{label, value, words, kind}`; `max`: the length of a whole bar.
export function bars({ label, items, max }) {
  const most = max ?? Math.max(1, ...items.map((item) => item.value));
  return h("ul", { class: "bars", "aria-label": label }, items.map((item) => h("li", null,
    h("span", { class: "bars-label" }, item.label),
    h("span", { class: "bars-track", "aria-hidden": "true" }, h("span", { class: ["bars-bar", item.kind], style: { width: `${Math.min(100, item.value / most * 100)}%` } })),
    h("span", { class: "bars-words num" }, item.words ?? item.value))));
}

const RING = 2 ** 32;

/// The ranges of a database and who holds them: a row for each node, a block for each replica, as wide as its range.
/// `shards`: `{"00000000-1fffffff": [node, …]}`; `look(node, range)` → `{kind, words}`; `marked`: a range that is outlined.
export function rangeMap({ label, nodes, shards, look, onpick, marked }) {
  const ranges = Object.entries(shards).map(([range, holders]) => {
    const [begin, end] = range.split("-").map((part) => parseInt(part, 16));
    return { range, holders, begin, width: end - begin + 1 };
  }).sort((a, b) => a.begin - b.begin);
  const rows = nodes.map((node) => {
    const blocks = ranges.map((one) => {
      const isHeld = one.holders.includes(node.name);
      const { kind, words } = isHeld ? look(node, one) : { kind: "absent", words: "" };
      const style = { left: `${one.begin / RING * 100}%`, width: `calc(${one.width / RING * 100}% - 2px)` };
      const shape = ["map-block", kind, one.range === marked && "marked"];
      if (!isHeld) return h("span", { class: shape, style });
      return onpick && ranges.length <= 64
        ? h("button", { type: "button", class: shape, style, title: words, "aria-label": words, onclick: () => onpick(one, node) })
        : h("span", { class: shape, style, title: words });
    });
    return h("div", { class: "map-row" }, h("div", { class: "map-node" }, node.head), h("div", { class: "map-track", role: "group", "aria-label": node.name }, blocks));
  });
  const scale = h("div", { class: "map-row map-scale", "aria-hidden": "true" }, h("div", { class: "map-node" }), h("div", { class: "map-track" },
    [0, 0.25, 0.5, 0.75].map((part) => h("span", { style: { left: `${part * 100}%` } }, (part * RING).toString(16).padStart(8, "0")))));
  return h("div", { class: "map", role: "group", "aria-label": label }, rows, scale);
}

/// Words for the colours of a map. `items`: `[kind, words]`.
export function legend(items) {
  return h("ul", { class: "legend" }, items.map(([kind, words]) => h("li", null, h("span", { class: ["map-block", kind], "aria-hidden": "true" }), words)));
}

/// The share of a whole as a bar that is green, yellow or red by its share.
export function meter(label, value, max, words, { warn = 0.75, bad = 0.9 } = {}) {
  const share = max ? value / max : 0;
  const kind = share >= bad ? "bad" : share >= warn ? "warn" : "ok";
  return fill(h("div", { class: "meter", role: "img", "aria-label": `${label}: ${words}` }),
    h("span", { class: "bars-track" }, h("span", { class: ["bars-bar", kind], style: { width: `${Math.min(100, share * 100)}%` } })), h("span", { class: "meter-words" }, words));
}
