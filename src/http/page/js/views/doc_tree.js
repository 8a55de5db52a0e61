// The revision tree of a document, drawn: generations from left to right, one line for each leaf.

import { h, svg, fill } from "../dom.js";
import { area, badge, button, shortRev, facts, problem } from "../ui.js";
import { get, path, plain } from "../api.js";
import { link } from "../router.js";
import { code, diffView } from "../diff.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.tree;
const STEP = 88, ROW = 54, R = 8, LEFT = 26, TOP = 30;
/// A run of revisions without branches that is longer than this is drawn as its ends with a gap.
const RUN = 7;

/// `{nodes, leaves}` of the answer of `open_revs=all&revs=true`. A node: `{rev, generation, parent, children, leaf}`.
export function buildTree(answer, winner) {
  const nodes = new Map();
  const leaves = [];
  for (const entry of answer) {
    const doc = entry.ok;
    if (!doc) continue;
    const { start, ids } = doc._revisions ?? { start: Number(doc._rev.split("-")[0]), ids: [doc._rev.split("-")[1]] };
    let child = null;
    ids.forEach((id, at) => {
      const rev = `${start - at}-${id}`;
      const node = nodes.get(rev) ?? { rev, generation: start - at, parent: null, children: [] };
      nodes.set(rev, node);
      if (child && !child.parent) { child.parent = node; node.children.push(child); }
      child = node;
    });
    const leaf = nodes.get(doc._rev);
    leaf.leaf = true;
    leaf.deleted = Boolean(doc._deleted);
    leaf.winner = doc._rev === winner;
    leaves.push(leaf);
  }
  leaves.sort((a, b) => Number(b.winner ?? false) - Number(a.winner ?? false) || Number(a.deleted) - Number(b.deleted) || b.generation - a.generation);
  return { nodes, leaves };
}

/// Gives each node that is drawn its column and row; long runs become gaps.
function laidOut({ leaves }) {
  const rows = new Map();
  leaves.forEach((leaf, row) => {
    for (let node = leaf; node && !rows.has(node); node = node.parent) rows.set(node, row);
  });
  const generations = [...new Set([...rows.keys()].map((node) => node.generation))].sort((a, b) => a - b);
  const busy = new Set();
  for (const node of rows.keys()) {
    if (node.leaf || !node.parent || node.children.length > 1) for (let d = -1; d <= 1; d += 1) busy.add(node.generation + d);
  }
  const columns = new Map();
  let column = 0;
  for (let at = 0; at < generations.length; at += 1) {
    let end = at;
    while (end < generations.length && !busy.has(generations[end])) end += 1;
    if (end - at > RUN) { column += 1; at = end - 1; continue; }
    columns.set(generations[at], column);
    column += 1;
  }
  const drawn = [...rows].filter(([node]) => columns.has(node.generation)).map(([node, row]) => ({ node, x: LEFT + columns.get(node.generation) * STEP, y: TOP + row * ROW }));
  return { drawn, width: LEFT * 2 + column * STEP, height: TOP + leaves.length * ROW };
}

function drawing(tree, chosen) {
  const { drawn, width, height } = laidOut(tree);
  const places = new Map(drawn.map((each) => [each.node, each]));
  const edges = [], points = [];
  for (const { node, x, y } of drawn) {
    let up = node.parent, hidden = 0;
    while (up && !places.has(up)) { up = up.parent; hidden += 1; }
    if (up) {
      const from = places.get(up);
      const middle = from.x + STEP / 2;
      edges.push(svg("path", { class: hidden ? "edge gap" : "edge", d: from.y === y ? `M${from.x} ${y}H${x}` : `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${y} ${middle + 10} ${y}H${x}` }));
      if (hidden) edges.push(svg("text", { x: (from.x + x) / 2, y: y - 8, class: "tree-gap", "text-anchor": "middle" }, t.gap(hidden)));
    }
    const kind = node.winner ? "winner" : node.deleted ? "deleted" : node.leaf ? "conflict" : "inner";
    const words = t.node(node.rev.replace(/^(\d+-.{4}).*/, "$1"), t.kinds[kind]);
    points.push(svg("g", {
      class: ["node", kind].join(" "), tabindex: 0, role: "button", "aria-label": words,
      onclick: () => chosen(node), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); chosen(node); } },
    }, svg("circle", { cx: x, cy: y, r: 15, class: "target" }), svg("circle", { cx: x, cy: y, r: R }),
      node.deleted ? svg("path", { class: "cross", d: `M${x - 3} ${y - 3}l6 6m0-6l-6 6` }) : null,
      svg("text", { x, y: y + 22, "text-anchor": "middle" }, node.rev.replace(/^(\d+-.{4}).*/, "$1"))));
  }
  return svg("svg", { class: "tree", width, height: height + 4, viewBox: `0 0 ${width} ${height + 4}`, role: "group", "aria-label": t.label }, edges, points);
}

/// Leaves are seen first: the drawing begins scrolled to its right end.
function atItsEnd(element) {
  requestAnimationFrame(() => { element.scrollLeft = element.scrollWidth; });
  return element;
}

export function revisionsPanel(ctx, state) {
  const { db, id } = state;
  const shown = h("div", { class: "below" });
  return area(async () => {
    const answer = await get(path(db, id), { open_revs: "all", revs: true }, { signal: ctx.signal });
    const current = await get(path(db, id), null, { signal: ctx.signal });
    const tree = buildTree(answer, current._rev);
    const live = tree.leaves.filter((leaf) => !leaf.deleted).length;
    show(tree.leaves[0], state, shown);
    return [
      facts([[t.generations, Math.max(...tree.leaves.map((leaf) => leaf.generation))], [t.known, tree.nodes.size], [t.leaves, t.leavesOf(live, tree.leaves.length - live)], [t.current, h("span", { class: "mono" }, shortRev(current._rev))]]),
      atItsEnd(h("div", { class: "card tree-card below", tabIndex: 0, role: "region", "aria-label": t.label }, drawing(tree, (node) => show(node, state, shown)))),
      h("p", { class: "legend" }, ["winner", "conflict", "deleted", "inner"].map((kind) => h("span", null, h("i", { class: kind }), t.kinds[kind]))),
      shown,
    ];
  });
}

/// The text of one revision, and how it differs from the one before it.
async function show(node, { db, id, stored }, holder) {
  const load = (rev) => plain(path(db, id), { rev }).then((source) => json.format(source)).catch((error) => (error.status === 404 ? null : Promise.reject(error)));
  try {
    const [own, before] = await Promise.all([load(node.rev), node.parent ? load(node.parent.rev) : null]);
    const head = h("header", { class: "row" }, h("h3", { class: "mono break" }, node.rev),
      node.winner ? badge(t.kinds.winner, "ok") : node.deleted ? badge(t.kinds.deleted, "bad") : node.leaf ? badge(t.kinds.conflict, "warn") : null,
      h("span", { class: "grow" }), own && !node.winner ? h("a", { class: "button small", href: link(["db", db, "doc", id], { rev: node.rev }) }, t.open) : null);
    if (!own) { fill(holder, h("div", { class: "card" }, head, h("p", { class: "soft" }, t.gone))); return; }
    let against = before ? "parent" : "now";
    const area = h("div");
    const draw = () => fill(area, against === "text" ? code(own, { label: node.rev }) : against === "parent" ? diffView(before, own, { label: t.toParent(shortRev(node.parent.rev)) }) : diffView(own, stored, { label: t.toNow }));
    const choice = (name, words) => button(words, { small: true, kind: "ghost", onclick: () => { against = name; draw(); } });
    if (node.winner && !before) against = "text";
    draw();
    fill(holder, h("div", { class: "card" }, head, h("div", { class: "row" }, choice("text", t.asText), before ? choice("parent", t.withParent) : node.parent ? h("span", { class: "faint small" }, t.parentGone) : null, node.winner ? null : choice("now", t.withNow)), area));
  } catch (error) {
    fill(holder, problem(error));
  }
}
