// Full-text search: the query with facets, highlights and drill-down; the definition of the index.

import { h, fill } from "../dom.js";
import { button, panels, field, input, select, checkbox, editor, notice, problem, loading, empty, card, badge, toast, attempt, confirm, table, count, bytes, facts, icon } from "../ui.js";
import { get, post, path, ask } from "../api.js";
import { link, go, remember } from "../router.js";
import { inDatabase, databaseInfo } from "./db_frame.js";
import { docLink } from "./documents.js";
import { storeFunction } from "./design.js";
import { KINDS, MARKS } from "./search_kinds.js";
import { server } from "../session.js";
import { trialMap } from "../trial.js";
import { JSON_PARAMS } from "../api.js";
import { valueCell } from "../columns.js";
import { text } from "../text.js";

const t = text.search;
const KEEP = { search: "", nouveau: "nouveau" };

export async function search(ctx) {
  const { db } = ctx.params;
  const [info, answer] = await Promise.all([databaseInfo(db, { fresh: true }), get(path(db, "_design_docs"), { include_docs: true, limit: 500 }, { signal: ctx.signal })]);
  const all = answer.rows.flatMap((row) => Object.entries(KINDS).flatMap(([kind, { member }]) => Object.entries(row.doc?.[member] ?? {}).filter(([, about]) => typeof about?.index === "string").map(([name, about]) => ({ ddoc: row.id.slice(8), name, about, kind, isGlobal: row.doc.options?.partitioned === false }))));
  const wantsDdoc = ctx.query.get("ddoc"), wantsName = ctx.query.get("index"), wantsKind = ctx.query.get("kind") === "nouveau" ? "nouveau" : "search";
  const chosen = all.find((each) => each.ddoc === wantsDdoc && each.name === wantsName && each.kind === wantsKind) ?? (wantsName ? null : all[0]);
  const isTypedOffered = server.value?.features?.includes("nouveau");
  const create = (ddoc, name) => [button(t.create, { icon: "plus", onclick: () => go(link(["db", db, "search"], { ddoc, index: name, tab: "definition" })) }),
    isTypedOffered ? button(t.createTyped, { icon: "plus", onclick: () => go(link(["db", db, "search"], { ddoc, index: name, tab: "definition", kind: "nouveau" })) }) : null];
  if (!chosen && !wantsName) {
    return inDatabase(ctx, "search", empty(t.none, { icon: "search", hint: t.noneHint, actions: create("search", "all") }));
  }
  const state = { db, ddoc: chosen?.ddoc ?? wantsDdoc, name: chosen?.name ?? wantsName, about: chosen?.about, kind: chosen?.kind ?? wantsKind, isPartitioned: Boolean(info.props?.partitioned) && !chosen?.isGlobal, ofPartitioned: Boolean(info.props?.partitioned) };
  const chooser = select([...all.map((each, at) => [String(at), `${each.ddoc} / ${each.name}${each.kind === "nouveau" ? ` (${t.typed})` : ""}`]), ...(chosen ? [] : [["new", `${state.ddoc} / ${state.name} (${t.new})`]])], {
    value: chosen ? String(all.indexOf(chosen)) : "new", "aria-label": t.index, onchange: () => { const each = all[Number(chooser.value)]; if (each) go(link(["db", db, "search"], { ddoc: each.ddoc, index: each.name, kind: KEEP[each.kind] })); },
  });
  const tabs = [];
  if (chosen) tabs.push(["query", t.query, () => runner(ctx, state)]);
  tabs.push(["definition", t.definition, () => definition(ctx, state)]);
  return inDatabase(ctx, "search", h("div", { class: "toolbar" }, h("span", { class: "strong" }, t.index), chooser, h("span", { class: "grow" }), create(state.ddoc, state.name + "-2")),
    panels(t.tabs, tabs, chosen ? ctx.query.get("tab") ?? "query" : "definition", (tab) => remember({ tab: tab === "query" ? "" : tab })));
}

function runner(ctx, state) {
  const { db, ddoc, name, about } = state;
  const kind = KINDS[state.kind];
  const fields = kind.fields(about.index);
  const q = h("input", { type: "search", class: "mono grow", placeholder: kind.placeholder, "aria-label": t.query, value: ctx.query.get("q") ?? "*:*", spellcheck: false });
  const partition = input({ class: "mono" });
  const limit = input({ type: "number", min: 1, max: 200, value: 25 });
  const sort = input({ class: "mono", placeholder: '"-year<number>"' });
  const counts = input({ class: "mono", value: fields.counted.join(", ") });
  const ranges = input({ class: "mono", placeholder: kind.rangesHint });
  const highlight = input({ class: "mono", value: fields.stored.join(", ") });
  const group = input({ class: "mono" });
  const docs = checkbox("include_docs"), stale = checkbox(t.asIs);
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
      const body = kind.body({
        q: q.value.trim() || "*:*", limit: Number(limit.value) || 25, sort: asJson(sort), ranges: asJson(ranges), docs: docs.box.checked, asIs: stale.box.checked, drill, bookmark: bookmark || undefined,
        counts: state.isPartitioned ? [] : list(counts), highlight: kind.hasHighlights ? list(highlight) : [], group: kind.hasGroups ? group.value.trim() : "",
      });
      const begun = performance.now();
      const target = state.isPartitioned ? path(db, "_partition", partition.value.trim(), "_design/" + ddoc, kind.call, name) : path(db, "_design/" + ddoc, kind.call, name);
      const answer = await post(target, body, { signal: ctx.signal });
      draw(kind.read(answer), Math.round(performance.now() - begun));
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
    const { groups, rows } = answer;
    const facets = [...Object.entries(answer.counts ?? {}).map(([field, values]) => facet(field, values, kind.canDrill(about, field))), ...Object.entries(answer.ranges ?? {}).map(([field, values]) => facet(field, values, false))];
    fill(results,
      h("div", { class: "toolbar" }, h("span", { class: "soft", role: "status" }, t.found(count(answer.total ?? rows.length), ms)), drill.map(([field, value], at) => h("button", { type: "button", class: "chip", "aria-label": t.without(field, value), onclick: () => { drill.splice(at, 1); run(); } }, `${field}: ${value}`, icon("close")))),
      !rows.length ? empty(t.nothing, { icon: "search", hint: t.nothingHint }) : h("div", { class: ["search-results", facets.length && "with-facets"] }, facets.length ? h("aside", { class: "stack", "aria-label": t.facets }, facets) : null,
        h("div", { class: "stack" }, groups ? groups.map((each) => h("section", { class: "stack" }, h("h3", null, `${group.value}: ${each.by ?? "–"}`, " ", badge(count(each.total_rows))), each.rows.map((row) => hit(row)))) : rows.map((row) => hit(row)),
          groups ? null : h("nav", { class: "pager", "aria-label": text.documents.pages }, button(text.documents.first, { kind: "ghost", disabled: !bookmarks.length, onclick: () => run() }), button(text.documents.next, { disabled: rows.length < Number(limit.value), onclick: () => { bookmarks.push(answer.bookmark); return run(answer.bookmark); } })))));
  }
  function facet(field, values, isDrill) {
    return card(field, h("ul", { class: "facet" }, Object.entries(values).sort((a, b) => b[1] - a[1]).slice(0, 20).map(([value, many]) => h("li", null, isDrill ? h("button", { type: "button", class: "link", onclick: () => { drill.push([field, value]); run(); } }, value) : h("span", null, value), h("span", { class: "faint num" }, count(many))))));
  }
  function hit(row) {
    const shown = Object.entries(row.fields ?? {}).filter(([field]) => !row.highlights?.[field]?.length);
    return h("article", { class: "card hit" }, h("header", { class: "row" }, h("a", { href: docLink(db, row.id), class: "mono strong break" }, row.id), h("span", { class: "grow" }), Array.isArray(row.order) ? h("span", { class: "faint small", title: t.score }, typeof row.order[0] === "number" ? row.order[0].toFixed(3) : String(row.order[0])) : null),
      Object.entries(row.highlights ?? {}).filter(([, parts]) => parts.length).map(([field, parts]) => h("p", null, h("span", { class: "faint" }, field + ": "), parts.map((part) => [marked(part), " … "]))),
      shown.length ? h("p", null, shown.map(([field, value]) => h("span", { class: "pair" }, h("span", { class: "faint" }, field + ": "), Array.isArray(value) ? value.join(", ") : valueCell(value), " "))) : null,
      row.doc ? h("details", null, h("summary", null, text.documents.asJson), h("pre", { class: "code", tabIndex: 0 }, JSON.stringify(row.doc, null, 2))) : null);
  }
  run();
  return h("div", { class: "stack" },
    h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); run(); } },
      h("div", { class: "row" }, q, state.isPartitioned ? field(text.view.partition, partition, { inline: true }) : null, button(t.run, { kind: "primary", icon: "search", type: "submit" })),
      h("p", { class: "hint" }, t.hint(fields.all)),
      h("details", null, h("summary", null, text.view.moreParameters), h("div", { class: "fields spaced" }, field("limit", limit), field("sort", sort, { hint: t.sortHint }), state.isPartitioned ? null : field("counts", counts, { hint: t.countsHint }), state.isPartitioned ? null : field("ranges", ranges), kind.hasHighlights ? field("highlight_fields", highlight) : null, state.isPartitioned || !kind.hasGroups ? null : field("group_field", group)), h("div", { class: "row checks" }, docs, stale))), results);
}

/// Text in which marks stand around what was found.
function marked(part) {
  return part.split(MARKS[0]).map((piece, at) => {
    if (!at) return piece;
    const [inside, rest = ""] = piece.split(MARKS[1]);
    return [h("mark", null, inside), rest];
  });
}

function definition(ctx, state) {
  const { db, ddoc, name, about } = state;
  const kind = KINDS[state.kind], at = kind.analyzerMember;
  const ddocName = input({ class: "mono", value: ddoc, disabled: Boolean(about) }), indexName = input({ class: "mono", value: name, disabled: Boolean(about) });
  const named = typeof about?.[at] === "string" ? about[at] : about?.[at]?.name;
  const isComplex = about?.[at] && typeof about[at] === "object";
  const analyzer = select([...kind.analyzers, ...(isComplex ? [["own", t.ownAnalyzer(named)]] : [])], { value: isComplex ? "own" : named ?? "standard" });
  const edit = editor({ value: about?.index ?? kind.template, language: "javascript", label: t.function, minLines: 8, maxLines: 24, onsave: store, onrun: trial });
  const told = h("div"), tried = h("div", { class: "stack" });
  const words = input({ placeholder: t.analyzeText }), analyzed = h("p", { class: "row" });
  async function store() {
    fill(told);
    try {
      const own = ddocName.value.trim(), index = indexName.value.trim();
      await storeFunction(db, own, [kind.member, index], JSON.stringify({ ...about, ...kind.extra(about, edit.value), [at]: analyzer.value === "own" ? about[at] : analyzer.value, index: edit.value }));
      toast(t.stored);
      go(link(["db", db, "search"], { ddoc: own, index, kind: KEEP[state.kind] }));
    } catch (error) { fill(told, problem(error)); }
  }
  async function trial() {
    edit.setError(null);
    fill(tried, loading(text.view.trying));
    try {
      const docs = (await get(path(db, "_all_docs"), { include_docs: true, limit: 100 }, { json: JSON_PARAMS, signal: ctx.signal })).rows.map((row) => row.doc).filter((doc) => doc && !doc._id.startsWith("_design/"));
      const answer = await trialMap(edit.value, docs, { typed: kind.typed });
      if (answer.broken) { edit.setError({ line: answer.broken.line, column: 1, message: answer.broken.message }); fill(tried, notice("error", answer.broken.message)); return; }
      fill(tried, notice(answer.errors.length ? "warning" : "ok", h("p", null, t.tried(answer.rows.length, docs.length)), answer.errors[0] ? h("p", null, text.view.failed(answer.errors.length, answer.errors[0].id, answer.errors[0].message)) : null),
        table({ label: t.tried(answer.rows.length, docs.length), rows: answer.rows.slice(0, 100), columns: [{ label: t.field, isHead: true, cell: (row) => row.key }, { label: text.view.value, cell: (row) => valueCell(row.value) }, { label: "id", class: "mono", cell: (row) => row.id }] }));
    } catch (error) { if (error.name !== "AbortError") fill(tried, problem(error)); }
  }
  async function analyze(event) {
    event.preventDefault();
    try {
      const { tokens } = await ask("POST", kind.analyze, { body: { analyzer: analyzer.value === "own" ? about[at] : analyzer.value, text: words.value } });
      fill(analyzed, tokens.length ? tokens.map((token) => badge(token, "accent")) : t.noTokens);
    } catch (error) { fill(analyzed, problem(error)); }
  }
  const state_ = h("div");
  if (about) get(path(db, "_design/" + ddoc, kind.info, name), null, { signal: ctx.signal }).then(({ search_index: info }) => fill(state_, facts([[text.design.documents, count(kind.sizes(info).documents)], [text.design.disk, bytes(kind.sizes(info).bytes)]]))).catch(() => {});
  const remove = about ? button(t.remove, { kind: "danger", icon: "trash", onclick: async () => {
    if (await confirm({ title: t.removeTitle(name), message: text.view.removeMessage, danger: true, action: t.remove }) && await attempt(() => storeFunction(db, ddoc, [kind.member, name], undefined), { ok: t.removed(name) })) go(link(["db", db, "search"]));
  } }) : null;
  return h("div", { class: "split" },
    h("div", { class: "card" }, h("div", { class: "fields" }, field(text.design.ddocName, ddocName), field(t.name, indexName), field(t.analyzer, analyzer)), edit.element, kind.typed ? h("p", { class: "hint" }, t.wholeHint) : null, told, state_, h("div", { class: "row" }, button(text.document.save, { kind: "primary", icon: "check", onclick: store }), button(text.view.try, { icon: "play", onclick: trial }), remove)),
    h("div", { class: "stack" }, card(t.analyzeTitle, h("p", { class: "hint" }, t.analyzeHint), h("form", { class: "row", onsubmit: analyze }, h("div", { class: "grow" }, field(t.analyzeText, words)), button(t.analyze, { type: "submit" })), analyzed), tried));
}
