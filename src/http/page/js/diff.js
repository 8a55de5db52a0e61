// Differences of two texts, line by line (Myers), and how they are shown.

import { h } from "./dom.js";
import { tokens } from "./ui/highlight.js";
import { text } from "./text.js";

/// Beyond this many edits the middle is shown as removed and added as a whole.
const MOST_EDITS = 2000;

/// `[{kind: " " | "-" | "+", line, a, b}]`; `a`, `b`: line numbers on both sides.
export function lineDiff(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start += 1;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA -= 1; endB -= 1; }
  const out = [];
  for (let at = 0; at < start; at += 1) out.push({ kind: " ", line: a[at], a: at + 1, b: at + 1 });
  for (const op of middle(a.slice(start, endA), b.slice(start, endB))) out.push({ ...op, a: op.a && op.a + start, b: op.b && op.b + start });
  for (let at = endA; at < a.length; at += 1) out.push({ kind: " ", line: a[at], a: at + 1, b: endB + at - endA + 1 });
  return out;
}

function middle(a, b) {
  const max = Math.min(a.length + b.length, MOST_EDITS);
  const trace = [];
  let ends = new Map([[1, 0]]);
  for (let d = 0; d <= max; d += 1) {
    trace.push(new Map(ends));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && (ends.get(k - 1) ?? -1) < (ends.get(k + 1) ?? -1)) ? ends.get(k + 1) ?? 0 : (ends.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x += 1; y += 1; }
      ends.set(k, x);
      if (x >= a.length && y >= b.length) return walked(a, b, trace, d);
    }
  }
  return [...a.map((line, at) => ({ kind: "-", line, a: at + 1 })), ...b.map((line, at) => ({ kind: "+", line, b: at + 1 }))];
}

function walked(a, b, trace, edits) {
  const out = [];
  let x = a.length, y = b.length;
  for (let d = edits; d >= 0; d -= 1) {
    const ends = trace[d];
    const k = x - y;
    const before = k === -d || (k !== d && (ends.get(k - 1) ?? -1) < (ends.get(k + 1) ?? -1)) ? k + 1 : k - 1;
    const fromX = d ? ends.get(before) ?? 0 : 0, fromY = d ? fromX - before : 0;
    while (x > fromX && y > fromY) { x -= 1; y -= 1; out.push({ kind: " ", line: a[x], a: x + 1, b: y + 1 }); }
    if (d) {
      if (x > fromX) { x -= 1; out.push({ kind: "-", line: a[x], a: x + 1 }); }
      else { y -= 1; out.push({ kind: "+", line: b[y], b: y + 1 }); }
    }
  }
  return out.reverse();
}

/// A line with its colours.
export function coloured(line, language = "json") {
  const { spans } = line.length > 5000 ? { spans: [] } : tokens(line, language);
  const out = [];
  let done = 0;
  for (const span of spans) {
    if (span.start > done) out.push(line.slice(done, span.start));
    out.push(h("span", { class: "t-" + span.kind }, line.slice(span.start, span.end)));
    done = span.end;
  }
  if (done < line.length) out.push(line.slice(done));
  return out;
}

/// Static text with colours; long ones end after `most` lines.
export function code(source, { language = "json", most = 400, label } = {}) {
  const lines = source.split("\n");
  return h("pre", { class: "code", tabIndex: 0, role: label ? "region" : null, "aria-label": label ?? null }, lines.slice(0, most).map((line) => h("span", { class: "code-line" }, coloured(line, language), "\n")),
    lines.length > most ? h("span", { class: "faint" }, text.diff.more(lines.length - most)) : null);
}

/// A difference as rows with signs; runs of equal lines are folded but for three around each change.
export function diffView(before, after, { label = text.diff.label } = {}) {
  const ops = lineDiff(before, after);
  const near = new Uint8Array(ops.length);
  ops.forEach((op, at) => {
    if (op.kind === " ") return;
    for (let i = Math.max(0, at - 3); i <= Math.min(ops.length - 1, at + 3); i += 1) near[i] = 1;
  });
  const removed = ops.filter((op) => op.kind === "-").length, added = ops.filter((op) => op.kind === "+").length;
  if (!removed && !added) return h("p", { class: "faint diff-none" }, text.diff.none);
  const rows = [];
  for (let at = 0; at < ops.length; at += 1) {
    if (!near[at]) {
      let end = at;
      while (end < ops.length && !near[end]) end += 1;
      rows.push(h("div", { class: "diff-fold" }, text.diff.folded(end - at)));
      at = end - 1;
      continue;
    }
    const op = ops[at];
    rows.push(h("div", { class: ["diff-row", op.kind === "+" ? "added" : op.kind === "-" ? "removed" : null] },
      h("span", { class: "diff-number" }, op.a ?? ""), h("span", { class: "diff-number" }, op.b ?? ""),
      h("span", { class: "diff-sign" }, op.kind === " " ? "" : h("span", { class: "sr-only" }, op.kind === "+" ? text.diff.added : text.diff.removed), op.kind === "-" ? "−" : op.kind),
      h("span", { class: "diff-line" }, coloured(op.line))));
  }
  return h("div", { class: "diff" }, h("p", { class: "diff-head" }, h("span", { class: "ok" }, `+${added}`), " ", h("span", { class: "bad" }, `−${removed}`), " ", h("span", { class: "faint" }, label)),
    h("div", { class: "diff-rows mono", tabIndex: 0, role: "region", "aria-label": label }, rows));
}
