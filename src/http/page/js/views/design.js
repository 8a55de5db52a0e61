// Design documents: what each has, how far its indexes are, and the text of each function.

import { h, fill } from "../dom.js";
import { area, button, badge, card, confirm, dialog, editor, field, input, select, menu, empty, problem, icon, toast, attempt, bytes, count, duration, facts, progress, panels, shortRev } from "../ui.js";
import { get, put, post, del, plain, path, query, JSON_PARAMS } from "../api.js";
import { link, go } from "../router.js";
import { inDatabase, databaseInfo, forgetInfo } from "./db_frame.js";
import { every } from "../dom.js";
import { session } from "../session.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.design;

export const TEMPLATES = {
  map: "function (doc) {\n  emit(doc._id, null);\n}",
  validate_doc_update: "function (newDoc, oldDoc, userCtx, secObj) {\n  if (newDoc._deleted) return;\n  if (!newDoc.type) {\n    throw ({ forbidden: 'A document needs a type.' });\n  }\n}",
  filters: "function (doc, req) {\n  return doc.type === req.query.type;\n}",
  updates: "function (doc, req) {\n  if (!doc) doc = { _id: req.id || req.uuid };\n  doc.seen = new Date().toISOString();\n  return [doc, 'stored'];\n}",
};

/// A validation that lets only who wrote a document change it.
export const ONLY_AUTHOR = `function (newDoc, oldDoc, userCtx) {
  // Server administrators may change everything.
  if (userCtx.roles.indexOf("_admin") >= 0) return;
  if (!userCtx.name) throw ({ unauthorized: "Sign in first." });
  if (oldDoc && !oldDoc._deleted && oldDoc.author !== userCtx.name) {
    throw ({ forbidden: "Only the author may change this document." });
  }
  if (!newDoc._deleted && newDoc.author !== userCtx.name) {
    throw ({ forbidden: "The member author must be your name." });
  }
}`;

export async function designList(ctx) {
  const { db } = ctx.params;
  const holder = area(async () => {
    const answer = await get(path(db, "_design_docs"), { include_docs: true, limit: 500 }, { signal: ctx.signal });
    const rows = answer.rows.filter((row) => row.doc);
    if (!rows.length) return empty(t.none, { icon: "design", hint: t.noneHint, actions: [button(t.newView, { kind: "primary", icon: "plus", onclick: () => newView(db, []) })] });
    return h("div", { class: "stack" }, rows.map((row) => designCard(ctx, db, row.doc, () => holder.reload())));
  });
  const names = async () => (await get(path(db, "_design_docs"), { limit: 500 })).rows.map((row) => row.id.slice(8));
  return inDatabase(ctx, "design", h("div", { class: "toolbar" }, h("p", { class: "soft grow" }, t.words),
    button(t.newView, { icon: "plus", onclick: async () => newView(db, await names()) }),
    button(t.newFunction, { icon: "plus", onclick: async () => newFunction(db, await names()) })), holder);
}

function designCard(ctx, db, doc, reload) {
  const name = doc._id.slice(8);
  const isMango = doc.language === "query";
  const status = h("span", { class: "faint small" });
  get(path(db, doc._id, "_info"), null, { signal: ctx.signal }).then((info) => {
    const index = info.view_index ?? {};
    fill(status, t.size(bytes(index.sizes?.file)), index.updater_running ? [" ", badge(t.building, "accent")] : null);
  }).catch(() => {});
  const links = Object.keys(doc.views ?? {}).map((view) => isMango
    ? h("a", { class: "chip", href: link(["db", db, "query"], { tab: "indexes" }) }, icon("query"), view)
    : h("a", { class: "chip", href: link(["db", db, "design", name, "view", view]) }, icon("table"), view, doc.views[view].reduce ? h("span", { class: "faint" }, " " + shortReduce(doc.views[view].reduce)) : null));
  for (const index of Object.keys(doc.indexes ?? {})) links.push(h("a", { class: "chip", href: link(["db", db, "search"], { ddoc: name, index }) }, icon("search"), index));
  for (const index of Object.keys(doc.nouveau ?? {})) links.push(h("a", { class: "chip", href: link(["db", db, "search"], { ddoc: name, index, kind: "nouveau" }) }, icon("search"), index));
  for (const kind of ["filters", "updates", "lists", "shows"]) {
    for (const each of Object.keys(doc[kind] ?? {})) links.push(h("a", { class: "chip", href: link(["db", db, "design", name], { function: `${kind}.${each}` }) }, icon("design"), `${t.kinds[kind]}: ${each}`));
  }
  if (doc.validate_doc_update) links.push(h("a", { class: "chip", href: link(["db", db, "design", name], { function: "validate_doc_update" }) }, icon("check"), t.kinds.validate_doc_update));
  return h("article", { class: "card" }, h("header", { class: "row" }, h("h2", { class: "mono" }, h("a", { href: link(["db", db, "design", name]) }, name)),
    isMango ? badge(t.mango, "accent") : null, doc.options?.partitioned ? badge(text.database.partitioned, "accent") : null, status, h("span", { class: "grow" }),
    menu(t.actionsOf(name), [
      { label: t.open, icon: "edit", href: link(["db", db, "design", name]) },
      ...(isMango ? [] : [{ label: t.addView, icon: "plus", run: () => newView(db, [name], name) }]),
      { label: t.compact, icon: "refresh", run: () => attempt(() => post(path(db, "_compact", name)), { ok: t.compacting }) },
      null,
      { label: t.remove, icon: "trash", danger: true, run: async () => {
        if (!(await confirm({ title: t.removeTitle(name), message: t.removeMessage, danger: true, action: t.remove }))) return;
        if (await attempt(() => del(path(db, doc._id), { rev: doc._rev }), { ok: t.removed(name) })) reload();
      } },
    ])),
  links.length ? h("div", { class: "chips" }, links) : h("p", { class: "faint" }, t.nothing));
}

export const shortReduce = (reduce) => (reduce.startsWith("_") ? reduce : t.custom);

/// The text of a design document, `null` where there is none: asked for by a list, which is no error then.
export async function designText(db, ddoc, signal) {
  const source = await plain(path(db, "_all_docs") + query({ key: "_design/" + ddoc, include_docs: true }, JSON_PARAMS), null, { signal });
  const rows = json.members(json.members(source).find((member) => member.name === "rows").text);
  return rows.length ? json.members(rows[0].text).find((member) => member.name === "doc")?.text ?? "null" : "null";
}

/// Sets one function at a path of a design document (made if it is not there), leaving all else as it is written.
export async function storeFunction(db, ddoc, at, value, extra = {}) {
  const target = path(db, "_design/" + ddoc);
  const stored = await designText(db, ddoc);
  const source = stored === "null" ? `{"_id":${JSON.stringify("_design/" + ddoc)},"language":"javascript"}` : stored;
  const answer = await put(target, json.format(placed(json.withMembers(source, extra), at, value)));
  forgetInfo(db);
  return answer;
}

/// The text with a value (text of JSON, undefined: removed) at a path of members.
function placed(source, [name, ...below], value) {
  if (!below.length) return json.withMembers(source, { [name]: value });
  const inner = json.members(source).find((member) => member.name === name)?.text ?? "{}";
  return json.withMembers(source, { [name]: placed(inner, below, value) });
}

/// Asks for design document and name, then opens the editor of the new view.
export async function newView(db, names, own) {
  const info = await databaseInfo(db, { fresh: true });
  const ddoc = input({ class: "mono", required: true, value: own ?? names[0] ?? "", list: "ddoc-names", autofocus: !own });
  const view = input({ class: "mono", required: true, value: "", autofocus: Boolean(own) });
  const shown = dialog({
    title: t.newView,
    content: () => [field(t.ddocName, ddoc, { hint: t.ddocHint }), h("datalist", { id: "ddoc-names" }, names.map((name) => h("option", { value: name }))), field(t.viewName, view), info.props?.partitioned ? h("p", { class: "hint" }, t.partitionedHint) : null],
    actions: (close) => [button(text.app.cancel, { onclick: () => close() }), button(t.next, { kind: "primary", type: "submit" })],
    onsubmit: (close) => { if (ddoc.value.trim() && view.value.trim()) close([ddoc.value.trim().replace(/^_design\//, ""), view.value.trim()]); },
  });
  const answer = await shown.done;
  if (answer) go(link(["db", db, "design", answer[0], "view", answer[1]], { tab: "definition" }));
}

async function newFunction(db, names) {
  const ddoc = input({ class: "mono", required: true, value: names[0] ?? "", autofocus: true });
  const kind = select(["validate_doc_update", "filters", "updates", "indexes"].map((each) => [each, t.kinds[each]]), { onchange: () => { name.disabled = kind.value === "validate_doc_update"; } });
  const name = input({ class: "mono", disabled: true });
  const shown = dialog({
    title: t.newFunction, content: () => [field(t.ddocName, ddoc, { hint: t.ddocHint }), field(t.kind, kind), field(t.functionName, name)],
    actions: (close) => [button(text.app.cancel, { onclick: () => close() }), button(t.next, { kind: "primary", type: "submit" })],
    onsubmit: (close) => { if (ddoc.value.trim() && (name.disabled || name.value.trim())) close(true); },
  });
  if (!(await shown.done)) return;
  const own = ddoc.value.trim().replace(/^_design\//, "");
  if (kind.value === "indexes") go(link(["db", db, "search"], { ddoc: own, index: name.value.trim(), tab: "definition" }));
  else go(link(["db", db, "design", own], { function: name.disabled ? kind.value : `${kind.value}.${name.value.trim()}` }));
}

/// One design document: its functions, its text, its state.
export async function designDocument(ctx) {
  const { db, ddoc } = ctx.params;
  const id = "_design/" + ddoc;
  const found = await designText(db, ddoc, ctx.signal);
  const source = found === "null" ? null : found;
  const doc = source ? JSON.parse(source) : { _id: id };
  const wanted = ctx.query.get("function");
  const stored = source ? json.format(source) : "";
  const asText = () => {
    const edit = editor({ value: stored, label: t.textOf(id), minLines: 14, maxLines: 34, check: (value) => json.check(value, "object"), onsave: store });
    async function store() {
      if (edit.error) return;
      if (await attempt(() => put(path(db, id), edit.value), { ok: (answer) => text.document.saved(shortRev(answer.rev)) })) go(location.hash);
    }
    return h("div", null, edit.element, h("div", { class: "toolbar below" }, button(text.document.save, { kind: "primary", icon: "check", onclick: store })));
  };
  const tabs = [["functions", t.functions, () => functionsPanel(ctx, db, ddoc, doc, wanted, ctx.query.get("template") === "author" ? ONLY_AUTHOR : null)]];
  if (source) tabs.push(["state", t.state, () => statePanel(ctx, db, ddoc, doc)], ["text", t.asText, asText]);
  return inDatabase(ctx, "design", h("div", { class: "doc-head" }, h("h2", { class: "doc-title mono break" }, id), h("span", { class: "faint mono small" }, doc._rev ?? t.notStored), h("span", { class: "grow" }),
    source ? menu(t.actionsOf(ddoc), [
      { label: t.addView, icon: "plus", run: () => newView(db, [ddoc], ddoc) },
      { label: text.document.clone, icon: "copy", run: () => cloneDesign(db, source, ddoc) },
      null,
      { label: t.remove, icon: "trash", danger: true, run: async () => {
        if (!(await confirm({ title: t.removeTitle(ddoc), message: t.removeMessage, danger: true, action: t.remove }))) return;
        if (await attempt(() => del(path(db, id), { rev: doc._rev }), { ok: t.removed(ddoc) })) go(link(["db", db, "design"]));
      } },
    ], { kind: "" }) : null), panels(t.tabs, tabs));
}

async function cloneDesign(db, source, ddoc) {
  const name = input({ class: "mono", required: true, autofocus: true, value: ddoc + "-copy" });
  const shown = dialog({
    title: text.document.clone, content: () => field(t.ddocName, name), actions: (close) => [button(text.app.cancel, { onclick: () => close() }), button(text.document.copyAction, { kind: "primary", type: "submit" })],
    onsubmit: (close) => close(name.value.trim()),
  });
  const own = await shown.done;
  if (!own) return;
  const copy = json.withMembers(source, { _id: JSON.stringify("_design/" + own), _rev: undefined, _attachments: undefined });
  if (await attempt(() => put(path(db, "_design/" + own), copy), { ok: text.document.copied(own) })) go(link(["db", db, "design", own]));
}

function functionsPanel(ctx, db, ddoc, doc, wanted, template) {
  const found = [];
  for (const [view, about] of Object.entries(doc.views ?? {})) if (doc.language !== "query") found.push({ label: `${t.kinds.views}: ${view}`, href: link(["db", db, "design", ddoc, "view", view]), sub: about.reduce ? `map, reduce ${shortReduce(about.reduce)}` : "map" });
  for (const index of Object.keys(doc.indexes ?? {})) found.push({ label: `${t.kinds.indexes}: ${index}`, href: link(["db", db, "search"], { ddoc, index, tab: "definition" }), sub: doc.indexes[index].analyzer?.name ?? doc.indexes[index].analyzer ?? "standard" });
  for (const index of Object.keys(doc.nouveau ?? {})) found.push({ label: `${t.kinds.nouveau}: ${index}`, href: link(["db", db, "search"], { ddoc, index, kind: "nouveau", tab: "definition" }), sub: doc.nouveau[index].default_analyzer ?? "standard" });
  const own = [];
  if (doc.validate_doc_update) own.push("validate_doc_update");
  for (const kind of ["filters", "updates", "shows", "lists"]) for (const name of Object.keys(doc[kind] ?? {})) own.push(`${kind}.${name}`);
  if (wanted && !own.includes(wanted)) own.unshift(wanted);
  const list = [...found.map((each) => h("a", { class: "card linked", href: each.href }, h("span", { class: "strong" }, each.label), h("span", { class: "faint small mono" }, each.sub)))];
  const editors = own.map((name) => functionEditor(db, ddoc, doc, name, name === wanted, name === wanted ? template : null));
  if (!list.length && !editors.length) return empty(t.nothing, { icon: "design", actions: [button(t.addView, { kind: "primary", onclick: () => newView(db, [ddoc], ddoc) })] });
  return h("div", { class: "stack" }, list.length ? h("div", { class: "cards" }, list) : null, editors);
}

function functionEditor(db, ddoc, doc, name, isWanted, template) {
  const [kind, ...rest] = name.split(".");
  const at = rest.length ? [kind, rest.join(".")] : [kind];
  const stored = at.reduce((value, each) => value?.[each], doc);
  const told = h("div");
  const edit = editor({ value: stored ?? template ?? TEMPLATES[kind] ?? "function () {\n}", language: "javascript", label: name, minLines: 6, maxLines: 24, onsave: store });
  async function store() {
    fill(told);
    try {
      await storeFunction(db, ddoc, at, JSON.stringify(edit.value));
      toast(t.stored(name));
      go(link(["db", db, "design", ddoc]));
    } catch (error) { fill(told, problem(error)); }
  }
  const remove = async () => {
    if (await confirm({ title: t.removeFunction(name), message: t.removeFunctionMessage, danger: true, action: t.removeShort }) && await attempt(() => storeFunction(db, ddoc, at, undefined), { ok: t.removedFunction(name) })) go(link(["db", db, "design", ddoc]));
  };
  const element = card(`${t.kinds[kind] ?? kind}${rest.length ? ": " + rest.join(".") : ""}`, h("p", { class: "hint" }, t.hints[kind] ?? ""), edit.element, told, h("div", { class: "row" }, button(text.document.save, { kind: "primary", icon: "check", onclick: store }), stored === undefined ? null : button(t.removeShort, { kind: "danger", onclick: remove })));
  if (isWanted) requestAnimationFrame(() => element.scrollIntoView({ block: "nearest" }));
  return element;
}

/// Sizes and the progress of a build, brought up to date while it is seen.
export function statePanel(ctx, db, ddoc, doc = {}) {
  const holder = h("div", { class: "stack" });
  every(2000, ctx.signal, async () => {
    try {
      const info = (await get(path(db, "_design/" + ddoc, "_info"), null, { signal: ctx.signal })).view_index;
      const tasks = session.value?.isAdmin ? await buildTasks(db, ddoc, ctx.signal) : [];
      const pending = info.updates_pending?.total;
      fill(holder, h("div", { class: "card" }, facts([
        [t.language, info.language], [t.disk, bytes(info.sizes?.file)], [t.data, bytes(info.sizes?.external)], [t.pending, pending === undefined ? "–" : count(pending)],
        [t.updater, info.updater_running ? badge(t.building, "accent") : badge(t.idle)], [t.compactor, info.compact_running ? badge(t.running, "accent") : badge(t.idle)], [t.signature, h("span", { class: "mono small break" }, info.signature)],
      ])), buildBar(db, tasks), Object.keys(doc.indexes ?? {}).map((index) => searchState(db, ddoc, index)));
    } catch (error) {
      if (error.name !== "AbortError") fill(holder, problem(error));
    }
  });
  return holder;
}

function searchState(db, ddoc, index) {
  const line = h("div", { class: "card" });
  get(path(db, "_design/" + ddoc, "_search_info", index)).then(({ search_index: about }) => fill(line, h("h3", { class: "mono" }, index), facts([[t.documents, count(about.doc_count)], [t.disk, bytes(about.disk_size)], [t.pending, count(about.pending_seq - about.committed_seq)]]))).catch((error) => fill(line, problem(error)));
  return line;
}

/// Builds of a design document's indexes that are under way.
export async function buildTasks(db, ddoc, signal) {
  const tasks = await get("_active_tasks", null, { signal }).catch(() => []);
  const nameOf = (task) => (task.database ?? "").replace(/^shards\/[^/]+\//, "").replace(/\.\d+$/, "");
  return tasks.filter((task) => /indexer/.test(task.type) && (!ddoc || task.design_document === "_design/" + ddoc) && nameOf(task) === db);
}

/// One bar for the builds of all ranges, with an estimate of the time that is left; nothing where none is under way.
export function buildBar(db, tasks) {
  if (!tasks.length) return null;
  const sum = (name) => tasks.reduce((all, task) => all + (task[name] ?? 0), 0);
  const done = sum("changes_done"), total = sum("total_changes");
  const since = Math.min(...tasks.map((task) => task.started_on ?? Infinity));
  const seconds = Date.now() / 1000 - since;
  const left = done > 0 && seconds > 1 && total > done ? (seconds / done) * (total - done) : null;
  return h("div", { class: "card slim", role: "status" }, h("div", { class: "row" }, h("span", { class: "grow" }, t.builds(db)), h("span", { class: "faint" }, t.done(count(done), count(total)), left === null ? "" : t.left(duration(left)))), progress(t.building, total ? done / total : null));
}
