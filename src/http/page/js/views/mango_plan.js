// The plan of a declarative query, drawn: from the index to the rows, with what each step does, and the indexes that were
// not chosen.

import { h } from "../dom.js";
import { badge, button, icon, notice, card, table } from "../ui.js";
import { code } from "../diff.js";
import { text } from "../text.js";

const t = text.plan;
const MAX = "\ufff0";

/// A bound of a key range as words.
function bound(value) {
  const one = (part) => {
    if (part === null) return "null";
    if (part === MAX || part === "<MAX>") return t.max;
    if (part && typeof part === "object" && !Array.isArray(part) && !Object.keys(part).length) return t.max;
    return JSON.stringify(part);
  };
  if (!Array.isArray(value)) return one(value);
  return "[" + value.map(one).join(", ") + "]";
}

function step(name, glyph, title, ...content) {
  return h("li", { class: ["plan-step", name] }, h("div", { class: "plan-icon" }, icon(glyph)), h("div", { class: "grow" }, h("h3", null, title), content));
}

export function planView(plan, { makeIndex }) {
  const index = plan.index ?? {};
  const isScan = index.type === "special";
  const isText = index.type === "text" || index.type === "nouveau";
  const fields = (index.def?.fields ?? []).map((field) => (typeof field === "string" ? field : Object.entries(field).map(([name, order]) => (order === "asc" ? name : `${name} ${order}`)).join(", ")));
  const range = plan.mrargs ?? {};
  const from = range.start_key, to = range.end_key;
  const isOpen = from === undefined || (Array.isArray(from) && !from.length) || from === null;
  const isCovered = Boolean(plan.covering ?? plan.covered);
  const selector = plan.selector ?? {};
  const sorts = (plan.opts?.sort && Object.keys(plan.opts.sort).length) ? plan.opts.sort : null;
  const steps = [
    step(isScan ? "bad-step" : "good-step", isScan ? "table" : "bolt", isScan ? t.scan : isText ? t.textIndex(index.name) : t.index(index.name),
      isScan ? h("p", null, t.scanWords, " ", button(t.makeIndex, { small: true, onclick: makeIndex })) : h("p", { class: "row" }, index.ddoc ? h("span", { class: "mono faint break" }, index.ddoc) : null, fields.map((field) => badge(field, "accent")), index.partitioned ? badge(text.database.partitioned) : null)),
    isText ? step("", "search", t.textQuery, h("p", { class: "mono break" }, plan.query ?? "*:*"))
      : step("", "right", t.range, h("p", { class: "mono break" }, isOpen && isScan ? t.all : `${bound(from)} … ${bound(to)}`, range.direction === "rev" ? h("span", { class: "faint" }, ` ${t.backwards}`) : null)),
    step("", "document", isCovered ? t.covered : t.fetch, h("p", { class: "soft" }, isCovered ? t.coveredWords : t.fetchWords)),
    step("", "query", t.filter, code(JSON.stringify(selector, null, 2), { most: 40, label: t.filter })),
    sorts ? step("", "down", t.sort, h("p", { class: "mono" }, JSON.stringify(sorts))) : null,
    step("", "minus", t.limit(plan.limit, plan.skip)),
    plan.fields && plan.fields !== "all_fields" && plan.fields.length ? step("", "columns", t.fields, h("p", { class: "row" }, plan.fields.map((field) => badge(field)))) : null,
  ];
  const others = (plan.index_candidates ?? []).map((each) => ({ name: each.index?.name, type: each.index?.type, ranking: each.analysis?.ranking, usable: each.analysis?.usable, reasons: (each.analysis?.reasons ?? []).map((reason) => reason.name ?? reason) }));
  return h("div", { class: "stack below" },
    isScan ? notice("warning", h("p", { class: "strong" }, t.scanTitle), h("p", null, t.scanHint)) : notice("ok", h("p", { class: "strong" }, isCovered ? t.goodCovered : t.good(index.name))),
    h("div", { class: "split" }, card(t.title, h("ol", { class: "plan" }, steps)),
      h("div", { class: "stack" }, others.length ? card(t.others, table({
        label: t.others, rows: others, columns: [
          { label: t.name, isHead: true, cell: (row) => row.name }, { label: t.type, cell: (row) => row.type },
          { label: t.usable, cell: (row) => (row.usable ? badge(t.yes, "ok") : badge(t.no)) },
          { label: t.why, cell: (row) => row.reasons.map((reason) => t.reasons[reason] ?? reason).join("; ") || "–" }],
      })) : null, h("details", { class: "card" }, h("summary", null, t.raw), code(JSON.stringify(plan, null, 2), { label: t.raw })))));
}
