// Declarative queries: an editor, their rows, how they are executed, and the indexes.

import { h, fill } from "../dom.js";
import { button, panels, table, editor, input, notice, problem, segmented, menu, loading, empty, duration } from "../ui.js";
import { post, path } from "../api.js";
import { go, remember } from "../router.js";
import { inDatabase, databaseInfo } from "./db_frame.js";
import { docLink, chooseColumns } from "./documents.js";
import { membersOf, valueCell, rememberedColumns } from "../columns.js";
import { planView } from "./mango_plan.js";
import { indexesPanel, newIndex } from "./mango_indexes.js";
import { saveBlob, csvRow } from "./transfer_write.js";
import { code } from "../diff.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.mango;
const START = '{\n  "selector": {\n    "_id": { "$gt": null }\n  },\n  "limit": 25\n}';
const HISTORY = 20;

function history_(db) {
  try { return JSON.parse(localStorage.getItem("settee.queries." + db)) ?? []; } catch { return []; }
}

function keep(db, source) {
  try {
    const own = json.compact(source);
    const list = [own, ...history_(db).filter((each) => each !== own)].slice(0, HISTORY);
    localStorage.setItem("settee.queries." + db, JSON.stringify(list));
  } catch { /* Not kept. */ }
}

export async function mango(ctx) {
  const { db } = ctx.params;
  const info = await databaseInfo(db, { fresh: true });
  const tabs = [["query", t.query, () => queryPanel(ctx, db, Boolean(info.props?.partitioned))], ["indexes", t.indexes, () => indexesPanel(ctx, db, Boolean(info.props?.partitioned))]];
  return inDatabase(ctx, "query", panels(t.tabs, tabs, ctx.query.get("tab") ?? "query", (name) => remember({ tab: name === "query" ? "" : name })));
}

function queryPanel(ctx, db, isPartitioned) {
  const results = h("div", { class: "below" });
  const start = ctx.query.get("q") ?? history_(db)[0];
  const edit = editor({ value: start ? json.format(start) : START, label: t.query, minLines: 8, maxLines: 24, onrun: () => run(), check: checkQuery });
  const partition = input({ class: "mono", placeholder: t.everyPartition, "aria-label": text.documents.partition });
  let bookmarks = [], asJson = false;
  const target = (what) => (partition.value.trim() ? path(db, "_partition", partition.value.trim(), what) : path(db, what));

  async function run(bookmark) {
    if (edit.error) { edit.focus(); return; }
    if (!bookmark) bookmarks = [];
    fill(results, loading(t.running));
    const begun = performance.now();
    try {
      const body = json.withMembers(edit.value, { execution_stats: "true", ...(bookmark ? { bookmark: JSON.stringify(bookmark) } : {}) });
      const answer = await post(target("_find"), body, { signal: ctx.signal });
      keep(db, edit.value);
      draw(answer, performance.now() - begun);
    } catch (error) {
      if (error.name !== "AbortError") fill(results, problem(error, { retry: () => run(bookmark) }));
    }
  }
  function draw(answer, ms) {
    const docs = answer.docs;
    const limit = JSON.parse(edit.value).limit ?? 25;
    const stats = answer.execution_stats ?? {};
    const key = db + "?find";
    const offered = membersOf(docs);
    const chosen = rememberedColumns(key) ?? offered.slice(0, 6);
    const columns = [
      { label: "_id", isHead: true, class: "id", cell: (doc) => (doc._id ? h("a", { href: docLink(db, doc._id), class: "mono" }, doc._id) : h("span", { class: "faint" }, t.noId)) },
      ...chosen.map((name) => ({ label: name, class: docs.every((doc) => doc[name] === undefined || typeof doc[name] === "number") ? "num" : null, cell: (doc) => valueCell(doc[name]) })),
    ];
    fill(results,
      answer.warning ? notice("warning", h("p", null, warned(answer.warning)), button(t.makeIndex, { small: true, onclick: () => newIndex(db, { isPartitioned, fields: suggestFields(edit.value) }) })) : null,
      h("div", { class: "toolbar below" }, h("span", { class: "soft grow", role: "status" }, t.found(docs.length, duration(ms / 1000), stats.total_docs_examined, stats.total_keys_examined)),
        segmented(text.documents.view, [["table", text.documents.asTable, "table"], ["json", text.documents.asJson, "design"]], asJson ? "json" : "table", (value) => { asJson = value === "json"; draw(answer, ms); }),
        button(text.documents.columns, { icon: "columns", hidden: asJson, onclick: () => { chooseColumns(key, offered, chosen, () => draw(answer, ms)); } }),
        menu(t.save, [
          { label: t.saveJson, icon: "download", run: () => saveBlob(new Blob([JSON.stringify(docs, null, 2)], { type: "application/json" }), `${db}-query.json`) },
          { label: t.saveCsv, icon: "download", run: () => { const names = ["_id", ...membersOf(docs)]; saveBlob(new Blob([names.join(",") + "\r\n" + docs.map((doc) => csvRow(doc, names, true)).join("")], { type: "text/csv" }), `${db}-query.csv`); } },
        ], { icon: "download", kind: "" })),
      !docs.length ? empty(t.none, { icon: "query", hint: t.noneHint }) : asJson ? code(JSON.stringify(docs, null, 2), { most: 3000, label: t.results }) : table({ label: t.results, rows: docs, columns, onopen: (doc) => doc._id && go(docLink(db, doc._id)) }),
      h("nav", { class: "pager", "aria-label": text.documents.pages },
        button(text.documents.first, { kind: "ghost", disabled: !bookmarks.length, onclick: () => run() }),
        button(text.documents.next, { disabled: docs.length < limit || !answer.bookmark || answer.bookmark === "nil", onclick: () => { bookmarks.push(answer.bookmark); return run(answer.bookmark); } }), bookmarks.length ? h("span", { class: "faint" }, t.page(bookmarks.length + 1)) : null));
  }
  async function explain() {
    if (edit.error) { edit.focus(); return; }
    fill(results, loading(t.explaining));
    try {
      const plan = await post(target("_explain"), edit.value, { signal: ctx.signal });
      fill(results, planView(plan, { makeIndex: () => newIndex(db, { isPartitioned, fields: suggestFields(edit.value) }) }));
    } catch (error) {
      if (error.name !== "AbortError") fill(results, problem(error));
    }
  }
  const examples = () => Object.entries(t.examples).map(([label, query]) => ({ label, run: () => { edit.value = JSON.stringify(query, null, 2); edit.focus(); } }));
  const past = () => {
    const list = history_(db);
    return list.length ? list.map((source) => ({ label: source.length > 70 ? source.slice(0, 69) + "…" : source, run: () => { edit.value = json.format(source); run(); } })) : [{ label: t.noHistory, disabled: true }];
  };
  return h("div", null,
    h("div", { class: "card" }, edit.element, h("div", { class: "row" }, button(t.run, { kind: "primary", icon: "play", onclick: () => run() }), button(t.explain, { icon: "info", onclick: explain }), isPartitioned ? partition : null, h("span", { class: "grow" }),
      menu(t.templates, examples, { iconOnly: false, icon: "document", kind: "ghost" }), menu(t.history, past, { iconOnly: false, icon: "clock", kind: "ghost" }))), results);
}

/// What is wrong with a query, as far as that can be seen here.
export function checkQuery(source) {
  const wrong = json.check(source, "object");
  if (wrong) return wrong;
  const names = json.members(source).map((member) => member.name);
  if (!names.includes("selector")) return { line: 1, column: 1, message: t.noSelector };
  return null;
}

function warned(warning) {
  return /No matching index|_all_docs|no index/i.test(warning) ? t.noIndex : warning;
}

/// Fields of a query that an index would serve: those it compares, then those it sorts by.
export function suggestFields(source) {
  const query = JSON.parse(source);
  const sorted = (query.sort ?? []).map((entry) => (typeof entry === "string" ? entry : Object.keys(entry)[0]));
  const equal = [], ranged = [];
  const walk = (selector, prefix) => {
    for (const [name, value] of Object.entries(selector ?? {})) {
      if (name === "$and") value.forEach((each) => walk(each, prefix));
      else if (name.startsWith("$")) continue;
      else if (value === null || typeof value !== "object" || "$eq" in value) equal.push(prefix + name);
      else if (Object.keys(value).some((key) => key.startsWith("$"))) ranged.push(prefix + name);
      else walk(value, prefix + name + ".");
    }
  };
  walk(query.selector, "");
  return [...new Set([...equal, ...sorted, ...ranged])].filter((name) => name !== "_id");
}

