// One view: run it with every parameter, change its functions and try them over samples before they are stored.

import { h, fill, within } from "../dom.js";
import { button, copy, panels, table, segmented, select, field, input, checkbox, editor, notice, problem, toast, attempt, confirm, count, shorten, loading, empty } from "../ui.js";
import { ask, get, path, query, JSON_PARAMS, BASE } from "../api.js";
import { link, go, remember, beforeLeave } from "../router.js";
import { inDatabase, databaseInfo } from "./db_frame.js";
import { docLink } from "./documents.js";
import { storeFunction, designText, TEMPLATES, buildTasks, buildBar } from "./design.js";
import { valueCell } from "../columns.js";
import { trialMap, trialReduce } from "../trial.js";
import { code } from "../diff.js";
import { session } from "../session.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.view;
/// Flags that are on unless they are sent.
const ON = new Set(["inclusive_end", "sorted"]);
const BUILT_IN = ["_count", "_sum", "_stats", "_approx_count_distinct"];

export async function viewPage(ctx) {
  const { db, ddoc, view } = ctx.params;
  const info = await databaseInfo(db, { fresh: true });
  const doc = JSON.parse(await designText(db, ddoc, ctx.signal));
  const about = doc?.views?.[view];
  const isPartitioned = Boolean(info.props?.partitioned) && doc?.options?.partitioned !== false;
  const state = { db, ddoc, view, doc, about, isPartitioned, ofPartitioned: Boolean(info.props?.partitioned) };
  const tabs = [];
  if (about) tabs.push(["results", t.results, () => runner(ctx, state)]);
  tabs.push(["definition", about ? t.definition : t.newDefinition, () => definition(ctx, state)]);
  const tab = about ? ctx.query.get("tab") ?? "results" : "definition";
  return inDatabase(ctx, "design", h("div", { class: "doc-head" }, h("h2", { class: "doc-title mono break" }, h("a", { href: link(["db", db, "design", ddoc]) }, ddoc), h("span", { class: "faint" }, " / "), view)),
    panels(t.tabs, tabs, tab, (name) => remember({ tab: name === "results" ? "" : name })));
}

/// A control for a JSON value that may be left empty; text that is not JSON is taken as a string where it has no quotes.
function jsonInput(label, hint) {
  const control = input({ class: "mono", placeholder: hint });
  return { element: field(label, control), control, get value() {
    const written = control.value.trim();
    if (!written) return undefined;
    if (!json.check(written)) return JSON.parse(written);
    if (/^["{[]/.test(written)) { control.focus(); throw Object.assign(new Error(t.notJson(label)), { next: t.notJsonNext }); }
    return written;
  } };
}

function runner(ctx, state) {
  const { db, ddoc, view, about } = state;
  const hasReduce = Boolean(about.reduce);
  const key = jsonInput("key", t.keyHint), keys = jsonInput("keys", '["a", "b"]'), startkey = jsonInput("startkey", t.keyHint), endkey = jsonInput("endkey", '["2026", {}]');
  const startId = input({ class: "mono" }), endId = input({ class: "mono" });
  const limit = input({ type: "number", min: 1, value: 50 }), skip = input({ type: "number", min: 0, value: 0 });
  const partition = input({ class: "mono" });
  const update = select([["", t.updates.true], ["lazy", t.updates.lazy], ["false", t.updates.false]]);
  const grouping = select([["none", t.groups.none], ["all", t.groups.all], ["exact", t.groups.exact], ...[1, 2, 3, 4, 5].map((level) => [String(level), t.groups.level(level)])], { value: hasReduce ? "exact" : "none", onchange: run });
  const flags = { descending: checkbox("descending"), include_docs: checkbox("include_docs"), inclusive_end: checkbox("inclusive_end", { checked: true }), attachments: checkbox("attachments"), conflicts: checkbox("conflicts"), sorted: checkbox("sorted", { checked: true }), update_seq: checkbox("update_seq"), stable: checkbox("stable") };
  const results = h("div", { "aria-live": "polite" }), build = h("div", { class: "stack" });
  let asJson = false, skipped = 0, last = null;

  function params() {
    const out = { key: key.value, keys: keys.value, startkey: startkey.value, endkey: endkey.value, start_key_doc_id: startId.value, end_key_doc_id: endId.value, limit: Number(limit.value) + 1 || undefined, skip: Number(skip.value) + skipped || undefined, update: update.value };
    for (const [name, box] of Object.entries(flags)) if (box.box.checked !== ON.has(name)) out[name] = box.box.checked;
    if (hasReduce) {
      if (grouping.value === "none") out.reduce = false;
      else if (grouping.value === "exact") out.group = true;
      else if (grouping.value !== "all") out.group_level = Number(grouping.value);
    }
    return out;
  }
  const target = () => state.isPartitioned ? path(db, "_partition", partition.value.trim(), "_design/" + ddoc, "_view", view) : path(db, "_design/" + ddoc, "_view", view);
  async function run() {
    if (state.isPartitioned && !partition.value.trim()) { fill(results, notice("info", t.needsPartition)); partition.focus(); return; }
    const own = within(ctx.signal);
    const begun = performance.now();
    fill(results, loading(t.running));
    watchBuild(own.signal);
    try {
      const asked = params();
      const { keys: many, ...rest } = asked;
      const answer = many ? await ask("POST", target(), { params: rest, json: JSON_PARAMS, body: { keys: many }, signal: own.signal }) : await get(target(), rest, { json: JSON_PARAMS, signal: own.signal });
      last = { answer, ms: performance.now() - begun, asked };
      draw();
    } catch (error) {
      if (error.name !== "AbortError") fill(results, problem(error, { retry: run }));
    } finally {
      own.abort();
      fill(build);
    }
  }
  async function watchBuild(signal) {
    while (!signal.aborted) {
      await new Promise((done) => setTimeout(done, 700));
      if (signal.aborted || !session.value?.isAdmin) return;
      const tasks = await buildTasks(db, ddoc, signal);
      if (!signal.aborted) fill(build, buildBar(db, tasks));
    }
  }
  function draw() {
    const { answer, ms, asked } = last;
    const size = asked.limit - 1;
    const isMore = answer.rows.length > size;
    const rows = answer.rows.slice(0, size || undefined);
    const isReduced = hasReduce && grouping.value !== "none";
    const withDocs = asked.include_docs;
    const url = new URL(target() + query({ ...asked, keys: undefined, limit: size }, JSON_PARAMS), BASE);
    const head = h("div", { class: "toolbar" }, h("span", { class: "soft grow", role: "status" }, isReduced ? t.groupsFound(rows.length, Math.round(ms)) : t.rowsFound(rows.length, count(answer.total_rows), answer.offset, Math.round(ms))),
      segmented(text.documents.view, [["table", text.documents.asTable, "table"], ["json", text.documents.asJson, "design"]], asJson ? "json" : "table", (value) => { asJson = value === "json"; draw(); }),
      button(t.copyUrl, { icon: "copy", onclick: () => copy(url.href) }));
    const columns = [
      { label: "key", isHead: true, cell: (row) => h("span", { class: "mono break" }, shorten(JSON.stringify(row.key), 160)) },
      { label: "value", cell: (row) => (row.error ? h("span", { class: "bad" }, row.error) : isReduced && row.value && typeof row.value === "object" ? h("span", { class: "mono" }, shorten(JSON.stringify(row.value), 200)) : valueCell(row.value)) },
    ];
    if (!isReduced) columns.push({ label: "id", cell: (row) => (row.id ? h("a", { href: docLink(db, row.id), class: "mono" }, row.id) : "") });
    if (withDocs && !isReduced) columns.push({ label: "doc", class: "wide-only", cell: (row) => valueCell(row.doc) });
    fill(results, head,
      !rows.length ? empty(t.noRows, { icon: "table", hint: t.noRowsHint }) : asJson ? code(JSON.stringify({ ...answer, rows }, null, 2), { most: 3000, label: t.results }) : table({ label: t.results, rows, columns }),
      h("nav", { class: "pager", "aria-label": t.pages }, button(text.documents.previous, { icon: "left", disabled: !skipped, onclick: () => { skipped = Math.max(0, skipped - size); return run(); } }), h("span", { class: "faint" }, skipped ? t.from(skipped + 1) : ""), button(text.documents.next, { disabled: !isMore, onclick: () => { skipped += size; return run(); } })));
  }
  const form = h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); skipped = 0; run(); } },
    h("div", { class: "fields" }, state.isPartitioned ? field(t.partition, partition) : null, key.element, startkey.element, endkey.element, hasReduce ? field(t.reduce, grouping) : null, field("limit", limit)),
    h("details", null, h("summary", null, t.moreParameters),
      h("div", { class: "fields spaced" }, keys.element, field("startkey_docid", startId), field("endkey_docid", endId), field("skip", skip), field("update", update)),
      h("div", { class: "row checks" }, Object.values(flags))),
    h("div", { class: "row" }, button(t.run, { kind: "primary", icon: "play", type: "submit" }), h("span", { class: "hint" }, t.runHint)));
  run();
  return h("div", { class: "stack" }, form, build, results);
}

function definition(ctx, state) {
  const { db, ddoc, view, about } = state;
  const start = about?.map ?? TEMPLATES.map;
  const map = editor({ value: start, language: "javascript", label: t.map, minLines: 8, maxLines: 22, onsave: () => store(), onrun: () => trial(), oninput: touched });
  const stored = about?.reduce ?? "";
  const kind = select([["", t.noReduce], ...BUILT_IN.map((name) => [name, name]), ["custom", t.customReduce]], { value: !stored ? "" : BUILT_IN.includes(stored) ? stored : "custom", onchange: () => { custom.element.hidden = kind.value !== "custom"; touched(); } });
  const custom = editor({ value: BUILT_IN.includes(stored) || !stored ? "function (keys, values, rereduce) {\n  return sum(values);\n}" : stored, language: "javascript", label: t.customReduce, minLines: 5, maxLines: 16, onsave: () => store(), onrun: () => trial(), oninput: touched });
  custom.element.hidden = kind.value !== "custom";
  const partitioned = state.ofPartitioned && !state.doc ? checkbox(t.partitionedIndex, { checked: true }) : null;
  const reduceOf = () => (kind.value === "custom" ? custom.value : kind.value);
  const told = h("div"), tried = h("div", { class: "stack" });
  const save = button(about ? t.save : t.create, { kind: "primary", icon: "check", onclick: () => store() });
  const isDirty = () => map.value !== start || reduceOf() !== stored;
  let left = false;
  const guard = async () => left || !isDirty() || !about && map.value === TEMPLATES.map || confirm({ title: text.document.leaveTitle, message: text.document.leaveMessage, action: text.document.leave, danger: true });
  guard.isDirty = () => !left && isDirty();
  beforeLeave(guard, ctx.signal);
  function touched() { save.disabled = Boolean(about) && !isDirty(); }
  touched();

  async function store() {
    fill(told);
    const value = JSON.stringify({ ...about, map: map.value, reduce: reduceOf() || undefined });
    try {
      await storeFunction(db, ddoc, ["views", view], value, partitioned && !partitioned.box.checked ? { options: '{"partitioned":false}' } : {});
      left = true;
      toast(t.stored);
      go(link(["db", db, "design", ddoc, "view", view]));
    } catch (error) { fill(told, problem(error)); }
  }

  const many = select([["20", t.samples(20)], ["100", t.samples(100)], ["500", t.samples(500)]], { value: "100", "aria-label": t.sampleCount });
  const prefix = input({ class: "mono", placeholder: t.samplePrefix, "aria-label": t.samplePrefix });
  const level = select([["Infinity", t.groups.exact], ["0", t.groups.all], ["1", t.groups.level(1)], ["2", t.groups.level(2)]], { "aria-label": t.reduce });
  async function trial() {
    fill(tried, loading(t.trying));
    map.setError(null);
    try {
      const rows = (await get(path(db, "_all_docs"), { include_docs: true, limit: Number(many.value), startkey: prefix.value || undefined, endkey: prefix.value ? prefix.value + "\ufff0" : undefined }, { json: JSON_PARAMS, signal: ctx.signal })).rows;
      const docs = rows.map((row) => row.doc).filter((doc) => doc && !doc._id.startsWith("_design/"));
      const begun = performance.now();
      const answer = await trialMap(map.value, docs);
      const ms = Math.round(performance.now() - begun);
      if (answer.broken) {
        map.setError({ line: answer.broken.line, column: 1, message: answer.broken.message });
        fill(tried, notice("error", h("p", { class: "strong" }, t.broken), h("p", { class: "mono" }, answer.broken.message)));
        return;
      }
      const reduce = reduceOf();
      const reduced = reduce ? await trialReduce(reduce, answer.rows, Number(level.value)) : null;
      const errors = [...answer.errors, ...(reduced?.errors ?? []), ...(reduced?.broken ? [{ id: t.reduce, message: reduced.broken.message }] : [])];
      if (answer.errors[0]?.line) map.setError({ line: answer.errors[0].line, column: 1, message: `${answer.errors[0].message} (${answer.errors[0].id})` });
      fill(tried,
        notice(errors.length ? "warning" : "ok", h("p", { class: "strong" }, t.tried(answer.rows.length, docs.length, ms)), errors.length ? h("p", null, t.failed(errors.length, errors[0].id, errors[0].message)) : null),
        answer.logged.length ? h("pre", { class: "code" }, answer.logged.join("\n")) : null,
        reduced ? table({ label: t.reduced, rows: reduced.rows.slice(0, 100), columns: [{ label: "key", isHead: true, cell: (row) => h("span", { class: "mono" }, JSON.stringify(row.key)) }, { label: t.reduced, cell: (row) => h("span", { class: "mono" }, JSON.stringify(row.value)) }] }) : null,
        table({ label: t.rows, rows: answer.rows.slice(0, 200), empty: t.noRowsTried, columns: [{ label: "key", isHead: true, cell: (row) => h("span", { class: "mono" }, JSON.stringify(row.key)) }, { label: "value", cell: (row) => valueCell(row.value) }, { label: "id", class: "mono", cell: (row) => row.id }] }));
    } catch (error) {
      if (error.name !== "AbortError") fill(tried, problem(error));
    }
  }
  const remove = about ? button(t.remove, { kind: "danger", icon: "trash", onclick: async () => {
    if (!(await confirm({ title: t.removeTitle(view), message: t.removeMessage, danger: true, action: t.remove }))) return;
    left = true;
    if (await attempt(() => storeFunction(db, ddoc, ["views", view], undefined), { ok: t.removed(view) })) go(link(["db", db, "design"]));
  } }) : null;
  return h("div", { class: "split wide-left" },
    h("div", { class: "card" }, h("h3", null, t.map), map.element, h("div", { class: "field" }, field(t.reduce, kind)), custom.element, partitioned, told,
      about ? h("p", { class: "hint" }, t.rebuildHint) : null, h("div", { class: "row" }, save, remove)),
    h("div", { class: "card" }, h("h3", null, t.trialTitle), h("p", { class: "hint" }, t.trialHint), h("div", { class: "row" }, many, prefix, level, button(t.try, { icon: "play", onclick: trial })), tried));
}

