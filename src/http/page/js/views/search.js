// Full-text search: the query with facets, highlights and drill-down; the definition of the index.

import { h, fill } from "../dom.js";
import { button, panels, field, input, select, checkbox, editor, notice, problem, loading, empty, card, badge, toast, attempt, confirm, table, count, bytes, facts, icon } from "../ui.js";
import { get, post, path, ask } from "../api.js";
import { link, go, remember } from "../router.js";
import { inDatabase, databaseInfo } from "./db_frame.js";
import { docLink } from "./documents.js";
import { storeFunction, TEMPLATES } from "./design.js";
import { trialMap } from "../trial.js";
import { JSON_PARAMS } from "../api.js";
import { valueCell } from "../columns.js";
import { text } from "../text.js";

const t = text.search;
/// Signs for private use that mark what is highlighted.
const OPEN = "\ue000", SHUT = "\ue001";
const ANALYZERS = ["standard", "keyword", "simple", "simple_asciifolding", "whitespace", "classic", "email", "arabic", "armenian", "basque", "bulgarian", "brazilian", "catalan", "cjk", "chinese", "czech", "danish", "dutch", "english", "finnish", "french", "galician", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "japanese", "latvian", "norwegian", "persian", "polish", "portuguese", "romanian", "russian", "spanish", "swedish", "thai", "turkish"];

export async function search(ctx) {
  const { db } = ctx.params;
  const [info, answer] = await Promise.all([databaseInfo(db, { fresh: true }), get(path(db, "_design_docs"), { include_docs: true, limit: 500 }, { signal: ctx.signal })]);
  const all = answer.rows.flatMap((row) => Object.entries(row.doc?.indexes ?? {}).filter(([, about]) => typeof about?.index === "string").map(([name, about]) => ({ ddoc: row.id.slice(8), name, about, isGlobal: row.doc.options?.partitioned === false })));
  const wantsDdoc = ctx.query.get("ddoc"), wantsName = ctx.query.get("index");
  const chosen = all.find((each) => each.ddoc === wantsDdoc && each.name === wantsName) ?? (wantsName ? null : all[0]);
  if (!chosen && !wantsName) {
    return inDatabase(ctx, "search", empty(t.none, { icon: "search", hint: t.noneHint, actions: [button(t.create, { kind: "primary", icon: "plus", onclick: () => go(link(["db", db, "search"], { ddoc: "search", index: "all", tab: "definition" })) })] }));
  }
  const state = { db, ddoc: chosen?.ddoc ?? wantsDdoc, name: chosen?.name ?? wantsName, about: chosen?.about, isPartitioned: Boolean(info.props?.partitioned) && !chosen?.isGlobal, ofPartitioned: Boolean(info.props?.partitioned) };
  const chooser = select([...all.map((each) => [`${each.ddoc}/${each.name}`, `${each.ddoc} / ${each.name}`]), ...(chosen ? [] : [["new", `${state.ddoc} / ${state.name} (${t.new})`]])], {
    value: chosen ? `${chosen.ddoc}/${chosen.name}` : "new", "aria-label": t.index, onchange: () => { const at = chooser.value.lastIndexOf("/"); go(link(["db", db, "search"], { ddoc: chooser.value.slice(0, at), index: chooser.value.slice(at + 1) })); },
  });
  const tabs = [];
  if (chosen) tabs.push(["query", t.query, () => runner(ctx, state)]);
  tabs.push(["definition", t.definition, () => definition(ctx, state)]);
  return inDatabase(ctx, "search", h("div", { class: "toolbar" }, h("span", { class: "strong" }, t.index), chooser, h("span", { class: "grow" }), button(t.create, { icon: "plus", onclick: () => go(link(["db", db, "search"], { ddoc: state.ddoc, index: state.name + "-2", tab: "definition" })) })),
    panels(t.tabs, tabs, chosen ? ctx.query.get("tab") ?? "query" : "definition", (tab) => remember({ tab: tab === "query" ? "" : tab })));
}

/// Fields that the index names, by reading its function: `{stored, faceted}`.
function fieldsOf(source) {
  const found = { stored: [], faceted: [], all: [] };
  for (const [, name, options] of source.matchAll(/index\(\s*["']([^"']+)["']\s*,[^;]*?(\{[^}]*\})?\s*\)/g)) {
    if (!found.all.includes(name)) found.all.push(name);
    if (/store["']?\s*:\s*(true|["']yes)/.test(options ?? "") && !found.stored.includes(name)) found.stored.push(name);
    if (/facet["']?\s*:\s*true/.test(options ?? "") && !found.faceted.includes(name)) found.faceted.push(name);
  }
  return found;
}

function runner(ctx, state) {
  const { db, ddoc, name, about } = state;
  const fields = fieldsOf(about.index);
  const q = h("input", { type: "search", class: "mono grow", placeholder: t.placeholder, "aria-label": t.query, value: ctx.query.get("q") ?? "*:*", spellcheck: false });
  const partition = input({ class: "mono" });
  const limit = input({ type: "number", min: 1, max: 200, value: 25 });
  const sort = input({ class: "mono", placeholder: '"-year<number>"' });
  const counts = input({ class: "mono", value: fields.faceted.join(", ") });
  const ranges = input({ class: "mono", placeholder: '{"year":{"old":"[0 TO 1900]"}}' });
  const highlight = input({ class: "mono", value: fields.stored.join(", ") });
  const group = input({ class: "mono" });
  const docs = checkbox("include_docs"), stale = checkbox("stale=ok");
  const results = h("div", { "aria-live": "polite" });
  let drill = [], bookmarks = [];
  const list = (control) => control.value.split(",").map((each) => each.trim()).filter(Boolean);
  const asJson = (control) => {
    const written = control.value.trim();
    if (!written) return undefined;
    try { return JSON.parse(written); } catch { return written.startsWith("{") || written.startsWith("[") ? fail(control) : written; }
  };
  function fail(control) { control.focus(); throw Object.assign(new Error(t.notJson(control.value)), { next: text.view.notJsonNext }); }

  async function run(bookmark) {
    if (!bookmark) bookmarks = [];
    if (state.isPartitioned && !partition.value.trim()) { fill(results, notice("info", text.view.needsPartition)); partition.focus(); return; }
    fill(results, loading(t.running));
    remember({ q: q.value === "*:*" ? "" : q.value });
    try {
      const isGrouped = Boolean(group.value.trim());
      const body = {
        q: q.value.trim() || "*:*", limit: isGrouped ? undefined : Number(limit.value) || 25, sort: asJson(sort), ranges: asJson(ranges), include_docs: docs.box.checked || undefined, stale: stale.box.checked ? "ok" : undefined,
        highlight_fields: list(highlight).length ? list(highlight) : undefined, highlight_pre_tag: OPEN, highlight_post_tag: SHUT, highlight_number: 2, highlight_size: 160,
        drilldown: drill.length ? drill.map(([field, value]) => [field, value]) : undefined, bookmark: bookmark || undefined,
      };
      if (!state.isPartitioned && list(counts).length && !isGrouped) body.counts = list(counts);
      if (isGrouped) Object.assign(body, { group_field: group.value.trim(), group_limit: 5, ranges: undefined });
      if (!body.highlight_fields) for (const name of ["highlight_pre_tag", "highlight_post_tag", "highlight_number", "highlight_size"]) delete body[name];
      const begun = performance.now();
      const target = state.isPartitioned ? path(db, "_partition", partition.value.trim(), "_design/" + ddoc, "_search", name) : path(db, "_design/" + ddoc, "_search", name);
      const answer = await post(target, body, { signal: ctx.signal });
      draw(answer, Math.round(performance.now() - begun));
    } catch (error) {
      // A field without words in this index has no facet: numbers, or a name that no document has.
      const without = /dim "?([^" ]+)"? does not exist/.exec(error.reason ?? "")?.[1];
      if (without && list(counts).includes(without)) {
        counts.value = list(counts).filter((field) => field !== without).join(", ");
        return run(bookmark);
      }
      if (error.name !== "AbortError") fill(results, problem(error, { retry: () => run(bookmark) }));
    }
    return undefined;
  }
  function draw(answer, ms) {
    const groups = answer.groups;
    const rows = groups ? groups.flatMap((each) => each.rows) : answer.rows;
    const facets = [...Object.entries(answer.counts ?? {}).map(([field, values]) => facet(field, values, true)), ...Object.entries(answer.ranges ?? {}).map(([field, values]) => facet(field, values, false))];
    fill(results,
      h("div", { class: "toolbar" }, h("span", { class: "soft", role: "status" }, t.found(count(answer.total_rows ?? answer.total_grouped_hits ?? rows.length), ms)), drill.map(([field, value], at) => h("button", { type: "button", class: "chip", "aria-label": t.without(field, value), onclick: () => { drill.splice(at, 1); run(); } }, `${field}: ${value}`, icon("close")))),
      !rows.length ? empty(t.nothing, { icon: "search", hint: t.nothingHint }) : h("div", { class: ["search-results", facets.length && "with-facets"] }, facets.length ? h("aside", { class: "stack", "aria-label": t.facets }, facets) : null,
        h("div", { class: "stack" }, groups ? groups.map((each) => h("section", { class: "stack" }, h("h3", null, `${group.value}: ${each.by ?? "–"}`, " ", badge(count(each.total_rows))), each.rows.map((row) => hit(row)))) : rows.map((row) => hit(row)),
          groups ? null : h("nav", { class: "pager", "aria-label": text.documents.pages }, button(text.documents.first, { kind: "ghost", disabled: !bookmarks.length, onclick: () => run() }), button(text.documents.next, { disabled: rows.length < Number(limit.value), onclick: () => { bookmarks.push(answer.bookmark); return run(answer.bookmark); } })))));
  }
  function facet(field, values, isDrill) {
    return card(field, h("ul", { class: "facet" }, Object.entries(values).sort((a, b) => b[1] - a[1]).slice(0, 20).map(([value, many]) => h("li", null, isDrill ? h("button", { type: "button", class: "link", onclick: () => { drill.push([field, value]); run(); } }, value) : h("span", null, value), h("span", { class: "faint num" }, count(many))))));
  }
  function hit(row) {
    const shown = Object.entries(row.fields ?? {}).filter(([field]) => !row.highlights?.[field]);
    return h("article", { class: "card hit" }, h("header", { class: "row" }, h("a", { href: docLink(db, row.id), class: "mono strong break" }, row.id), h("span", { class: "grow" }), Array.isArray(row.order) ? h("span", { class: "faint small", title: t.score }, typeof row.order[0] === "number" ? row.order[0].toFixed(3) : String(row.order[0])) : null),
      Object.entries(row.highlights ?? {}).map(([field, parts]) => h("p", null, h("span", { class: "faint" }, field + ": "), parts.map((part) => [marked(part), " … "]))),
      shown.length ? h("p", null, shown.map(([field, value]) => h("span", { class: "pair" }, h("span", { class: "faint" }, field + ": "), Array.isArray(value) ? value.join(", ") : valueCell(value), " "))) : null,
      row.doc ? h("details", null, h("summary", null, text.documents.asJson), h("pre", { class: "code", tabIndex: 0 }, JSON.stringify(row.doc, null, 2))) : null);
  }
  run();
  return h("div", { class: "stack" },
    h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); run(); } },
      h("div", { class: "row" }, q, state.isPartitioned ? field(text.view.partition, partition, { inline: true }) : null, button(t.run, { kind: "primary", icon: "search", type: "submit" })),
      h("p", { class: "hint" }, t.hint(fields.all)),
      h("details", null, h("summary", null, text.view.moreParameters), h("div", { class: "fields spaced" }, field("limit", limit), field("sort", sort, { hint: t.sortHint }), state.isPartitioned ? null : field("counts", counts, { hint: t.countsHint }), state.isPartitioned ? null : field("ranges", ranges), field("highlight_fields", highlight), state.isPartitioned ? null : field("group_field", group)), h("div", { class: "row checks" }, docs, stale))), results);
}

/// Text in which marks stand around what was found.
function marked(part) {
  return part.split(OPEN).map((piece, at) => {
    if (!at) return piece;
    const [inside, rest = ""] = piece.split(SHUT);
    return [h("mark", null, inside), rest];
  });
}

function definition(ctx, state) {
  const { db, ddoc, name, about } = state;
  const ddocName = input({ class: "mono", value: ddoc, disabled: Boolean(about) }), indexName = input({ class: "mono", value: name, disabled: Boolean(about) });
  const named = typeof about?.analyzer === "string" ? about.analyzer : about?.analyzer?.name;
  const isComplex = about?.analyzer && typeof about.analyzer === "object";
  const analyzer = select([...ANALYZERS, ...(isComplex ? [["own", t.ownAnalyzer(named)]] : [])], { value: isComplex ? "own" : named ?? "standard" });
  const edit = editor({ value: about?.index ?? TEMPLATES.index, language: "javascript", label: t.function, minLines: 8, maxLines: 24, onsave: store, onrun: trial });
  const told = h("div"), tried = h("div", { class: "stack" });
  const words = input({ placeholder: t.analyzeText }), analyzed = h("p", { class: "row" });
  async function store() {
    fill(told);
    try {
      const own = ddocName.value.trim(), index = indexName.value.trim();
      await storeFunction(db, own, ["indexes", index], JSON.stringify({ ...about, analyzer: analyzer.value === "own" ? about.analyzer : analyzer.value, index: edit.value }));
      toast(t.stored);
      go(link(["db", db, "search"], { ddoc: own, index }));
    } catch (error) { fill(told, problem(error)); }
  }
  async function trial() {
    edit.setError(null);
    fill(tried, loading(text.view.trying));
    try {
      const docs = (await get(path(db, "_all_docs"), { include_docs: true, limit: 100 }, { json: JSON_PARAMS, signal: ctx.signal })).rows.map((row) => row.doc).filter((doc) => doc && !doc._id.startsWith("_design/"));
      const answer = await trialMap(edit.value, docs);
      if (answer.broken) { edit.setError({ line: answer.broken.line, column: 1, message: answer.broken.message }); fill(tried, notice("error", answer.broken.message)); return; }
      fill(tried, notice(answer.errors.length ? "warning" : "ok", h("p", null, t.tried(answer.rows.length, docs.length)), answer.errors[0] ? h("p", null, text.view.failed(answer.errors.length, answer.errors[0].id, answer.errors[0].message)) : null),
        table({ label: t.tried(answer.rows.length, docs.length), rows: answer.rows.slice(0, 100), columns: [{ label: t.field, isHead: true, cell: (row) => row.key }, { label: text.view.value, cell: (row) => valueCell(row.value) }, { label: "id", class: "mono", cell: (row) => row.id }] }));
    } catch (error) { if (error.name !== "AbortError") fill(tried, problem(error)); }
  }
  async function analyze(event) {
    event.preventDefault();
    try {
      const { tokens } = await ask("POST", "_search_analyze", { body: { analyzer: analyzer.value === "own" ? about.analyzer : analyzer.value, text: words.value } });
      fill(analyzed, tokens.length ? tokens.map((token) => badge(token, "accent")) : t.noTokens);
    } catch (error) { fill(analyzed, problem(error)); }
  }
  const state_ = h("div");
  if (about) get(path(db, "_design/" + ddoc, "_search_info", name), null, { signal: ctx.signal }).then(({ search_index: info }) => fill(state_, facts([[text.design.documents, count(info.doc_count)], [text.design.disk, bytes(info.disk_size)]]))).catch(() => {});
  const remove = about ? button(t.remove, { kind: "danger", icon: "trash", onclick: async () => {
    if (await confirm({ title: t.removeTitle(name), message: text.view.removeMessage, danger: true, action: t.remove }) && await attempt(() => storeFunction(db, ddoc, ["indexes", name], undefined), { ok: t.removed(name) })) go(link(["db", db, "search"]));
  } }) : null;
  return h("div", { class: "split" },
    h("div", { class: "card" }, h("div", { class: "fields" }, field(text.design.ddocName, ddocName), field(t.name, indexName), field(t.analyzer, analyzer)), edit.element, told, state_, h("div", { class: "row" }, button(text.document.save, { kind: "primary", icon: "check", onclick: store }), button(text.view.try, { icon: "play", onclick: trial }), remove)),
    h("div", { class: "stack" }, card(t.analyzeTitle, h("p", { class: "hint" }, t.analyzeHint), h("form", { class: "row", onsubmit: analyze }, h("div", { class: "grow" }, field(t.analyzeText, words)), button(t.analyze, { type: "submit" })), analyzed), tried));
}
