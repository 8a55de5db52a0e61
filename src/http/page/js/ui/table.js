// Tables. A long one shows only the rows that are seen.

import { h, fill, keyed } from "../dom.js";

/// A table. `columns`: `{label, cell(row) → node or text, class, width, sort(row) → value}`; `rows`; `key(row)`.
/// `update(rows)` on the answered element shows other rows; `{all: true}` draws those anew, too, that are equal. Columns with `sort` sort when their heading is pressed.
export function table({ columns, rows, key, label, rowClass, empty, onopen }) {
  let shown = rows, order = null, repaint = false;
  const body = h("tbody");
  const heads = columns.map((column, at) => h("th", { scope: "col", class: column.class, style: column.width ? { width: column.width } : null },
    column.sort ? h("button", { type: "button", class: "sort", onclick: () => sortBy(at) }, column.label) : column.head ?? column.label));
  const element = h("div", { class: "table-wrap", tabIndex: 0, role: "region", "aria-label": label },
    h("table", null, h("thead", null, h("tr", null, heads)), body));
  const make = (row) => {
    const tr = h("tr", null);
    paint(tr, row, true);
    if (onopen) {
      tr.classList.add("opens");
      tr.addEventListener("click", (event) => { if (!event.target.closest("a,button,input,label,select") && !String(getSelection())) onopen(tr.row, event); });
    }
    return tr;
  };
  /// A row that is as it was stays, with the focus and the menu that may be open in it.
  function paint(tr, row, isWanted = repaint) {
    const was = tr.row;
    tr.row = row;
    if (!isWanted && (was === row || JSON.stringify(was) === JSON.stringify(row))) return;
    if (rowClass) tr.className = (onopen ? "opens " : "") + (rowClass(row) ?? "");
    fill(tr, columns.map((column) => h(column.isHead ? "th" : "td", { class: column.class, scope: column.isHead ? "row" : null }, column.cell(row))));
  }
  function sortBy(at) {
    order = order?.at === at ? { at, down: !order.down } : { at, down: false };
    draw();
  }
  function draw() {
    let list = shown;
    if (order) {
      const by = columns[order.at].sort;
      list = [...shown].sort((a, b) => compare(by(a), by(b)) * (order.down ? -1 : 1));
    }
    for (const [at, head] of heads.entries()) head.setAttribute("aria-sort", order?.at === at ? (order.down ? "descending" : "ascending") : "none");
    if (!list.length && empty) fill(body, h("tr", { class: "none" }, h("td", { colspan: columns.length }, empty)));
    else if (key) {
      body.querySelector(".none")?.remove();
      keyed(body, list, key, make, paint);
    } else fill(body, list.map((row) => make(row)));
  }
  element.update = (next, { all = false } = {}) => { shown = next; repaint = all; draw(); repaint = false; };
  element.body = body;
  draw();
  return element;
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === undefined || a === null) return 1;
  if (b === undefined || b === null) return -1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

/// A list of which only the rows in sight are in the page: rows of one height, `make(item, index)` gives one.
/// `update(items)` shows others and keeps the place; `stick`: stays at the end when it is there.
export function virtualList({ items = [], height = 28, make, label, class: kind, stick = false }) {
  let all = items, first = -1, last = -1;
  const pane = h("div", { class: "virtual-pane" });
  const element = h("div", { class: ["virtual", kind], tabIndex: 0, role: "list", "aria-label": label, onscroll: draw }, pane);
  function draw() {
    const from = Math.max(0, Math.floor(element.scrollTop / height) - 8);
    const to = Math.min(all.length, Math.ceil((element.scrollTop + element.clientHeight) / height) + 8);
    if (from === first && to === last) return;
    first = from;
    last = to;
    pane.style.height = `${all.length * height}px`;
    fill(pane, all.slice(from, to).map((item, at) => {
      const row = make(item, from + at);
      row.setAttribute("role", "listitem");
      row.classList.add("virtual-row");
      row.style.top = `${(from + at) * height}px`;
      row.style.height = `${height}px`;
      return row;
    }));
  }
  element.update = (next) => {
    const atEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - height;
    all = next;
    first = -1;
    draw();
    if (stick && atEnd) element.scrollTop = element.scrollHeight;
  };
  new ResizeObserver(draw).observe(element);
  requestAnimationFrame(draw);
  return element;
}
