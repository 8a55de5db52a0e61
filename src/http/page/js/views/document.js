// One document: its text, how it differs from what is stored, its conflicts, revisions and attachments.

import { documentPlace } from "./cluster_place.js";
import { h, fill } from "../dom.js";
import { editor, button, panels, badge, menu, confirm, notice, problem, toast, dialog, field, input, attempt, shortRev, linkButton, bytes } from "../ui.js";
import { get, put, post, del, plain, path, ask } from "../api.js";
import { link, go, remember, beforeLeave } from "../router.js";
import { code, diffView } from "../diff.js";
import { saveBlob } from "./transfer_write.js";
import { inDatabase, databaseInfo, forgetInfo } from "./db_frame.js";
import { conflictsPanel } from "./doc_conflicts.js";
import { threeWay } from "./doc_merge.js";
import { revisionsPanel } from "./doc_tree.js";
import { attachmentsPanel } from "./doc_attachments.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.document;

/// The text of a document as it is stored, formatted.
export async function loadText(db, id, params, options) {
  return json.format(await plain(path(db, id), params, options));
}

/// A new document: its text starts with an id of the node's making.
export async function newDocument(ctx) {
  const db = ctx.params.db;
  const [info, ids] = await Promise.all([databaseInfo(db, { fresh: true }), get("_uuids")]);
  const prefix = info.props?.partitioned ? "partition:" : "";
  let start = `{\n  "_id": ${JSON.stringify(prefix + ids.uuids[0])}\n}`;
  const copied = ctx.query.get("copy");
  if (copied) {
    const source = await plain(path(db, copied));
    start = json.format(json.withMembers(source, { _id: JSON.stringify(prefix + ids.uuids[0]), _rev: undefined, _attachments: undefined }));
  }
  const state = { db, id: null, stored: "", rev: null, isPartitioned: Boolean(info.props?.partitioned) };
  const edit = editPanel(ctx, state, start);
  return inDatabase(ctx, "documents", h("h2", { class: "doc-title" }, t.newTitle),
    info.props?.partitioned ? notice("info", t.partitionedHint) : null, edit.element);
}

export async function document_(ctx) {
  const { db, id } = ctx.params;
  const rev = ctx.query.get("rev");
  let source;
  try {
    source = await plain(path(db, id), { rev, conflicts: id.startsWith("_local/") ? null : true }, { signal: ctx.signal });
  } catch (error) {
    if (error.status !== 404) throw error;
    return inDatabase(ctx, "documents", h("h2", { class: "doc-title mono" }, id), await missing(db, id, error));
  }
  const doc = JSON.parse(source);
  const conflicts = doc._conflicts ?? [];
  const stored = json.format(json.withMembers(source, { _conflicts: undefined }));
  const state = { db, id, rev: doc._rev, stored, doc, isOld: Boolean(rev) };
  const isLocal = id.startsWith("_local/");
  const edit = editPanel(ctx, state, stored.length > LARGE ? "{}" : stored);
  const many = Object.keys(doc._attachments ?? {}).length;
  const tabs = [["edit", t.edit, () => (stored.length > LARGE ? large(state, edit) : edit.element)]];
  if (!isLocal) {
    tabs.push(["attachments", h("span", null, t.attachments, " ", many ? badge(many) : null), () => attachmentsPanel(ctx, state)]);
    tabs.push(["conflicts", h("span", null, t.conflicts, " ", conflicts.length ? badge(conflicts.length, "warn") : null), () => conflictsPanel(ctx, state, conflicts)]);
    tabs.push(["revisions", t.revisions, () => revisionsPanel(ctx, state)]);
    for (const extra of documentTabs) tabs.push([extra.id, extra.label, () => extra.show(ctx, state)]);
  }
  const shown = panels(t.tabs, tabs, tabs.some(([name]) => name === ctx.query.get("tab")) ? ctx.query.get("tab") : "edit", (name) => remember({ tab: name === "edit" ? "" : name }));
  return inDatabase(ctx, "documents",
    h("div", { class: "doc-head" }, h("h2", { class: "doc-title mono break" }, id), h("span", { class: "faint mono small wide-only" }, doc._rev), h("span", { class: "faint mono small narrow-only" }, shortRev(doc._rev)),
      conflicts.length ? h("button", { type: "button", class: "badge warn", onclick: () => shown.show("conflicts") }, text.documents.conflicts(conflicts.length)) : null,
      h("span", { class: "grow" }), docMenu(state)),
    rev && doc._rev === rev ? notice("info", t.oldShown(shortRev(rev)), " ", h("a", { href: link(["db", db, "doc", id]) }, t.showCurrent)) : null,
    shown);
}

/// Text areas of more characters than this answer each key press late.
const LARGE = 4e6;

/// A document that is too large to be edited at ease: its begin, and the way to edit it all the same.
function large(state, edit) {
  const holder = h("div", { class: "stack" }, notice("info", h("p", { class: "strong" }, t.large(bytes(state.stored.length))), h("p", null, t.largeHint)),
    h("div", { class: "row" }, button(t.editLarge, { onclick: () => { edit.load(state.stored); fill(holder, edit.element); } }), button(t.download, { icon: "download", onclick: () => saveBlob(new Blob([state.stored], { type: "application/json" }), `${state.id}.json`) })),
    code(state.stored.slice(0, 100000), { most: 500, label: t.textOf(state.id) }));
  return holder;
}

/// Further tabs of a document: `{id, label, show(ctx, state) → element}`, `state` with `db`, `id`, `rev`, `doc`.
export const documentTabs = [documentPlace];

async function missing(db, id, error) {
  const isDeleted = /deleted/.test(error.reason ?? "");
  const actions = [linkButton(t.backToList, link(["db", db]))];
  if (isDeleted) {
    actions.unshift(button(t.restore, { kind: "primary", onclick: () => restore(db, id) }));
  }
  return h("div", { class: "stack" }, notice(isDeleted ? "warning" : "error", h("p", { class: "strong" }, isDeleted ? t.deleted : t.notThere), h("p", null, isDeleted ? t.deletedHint : t.notThereHint)), h("div", { class: "actions" }, actions));
}

/// Stores the last revision before the deletion again, where it is still there. Without `_rev`: it follows the tombstone.
async function restore(db, id) {
  await attempt(async () => {
    const tree = await get(path(db, id), { open_revs: "all", revs: true });
    const leaf = tree.map((entry) => entry.ok).find(Boolean);
    const { start, ids } = leaf._revisions;
    let body = null;
    for (let at = 1; at < ids.length && !body; at += 1) {
      body = await plain(path(db, id), { rev: `${start - at}-${ids[at]}` }).catch(() => null);
    }
    if (!body) { toast(t.restoreGone, { kind: "error" }); return; }
    await ask("PUT", path(db, id), { body: json.withMembers(body, { _rev: undefined, _attachments: undefined }) });
    toast(t.restored);
    go(location.hash);
  });
}

function docMenu(state) {
  const { db, id } = state;
  return menu(t.more, [
    { label: t.clone, icon: "copy", href: link(["db", db, "new"], { copy: id }) },
    { label: t.copyTo, icon: "document", run: () => copyTo(state) },
    { label: t.raw, icon: "eye", run: () => window.open(new URL("../" + path(db, id), document.baseURI), "_blank", "noopener") },
    null,
    { label: t.remove, icon: "trash", danger: true, run: () => removeDocument(state) },
  ], { kind: "" });
}

async function copyTo({ db, id }) {
  const name = input({ class: "mono", required: true, autofocus: true, value: id + "-copy" });
  const shown = dialog({
    title: t.copyTo, content: () => field(t.copyId, name),
    actions: (close) => [button(text.app.cancel, { onclick: () => close() }), button(t.copyAction, { kind: "primary", type: "submit" })],
    onsubmit: (close) => close(name.value),
  });
  const wanted = await shown.done;
  if (!wanted) return;
  if (await attempt(() => ask("COPY", path(db, id), { headers: { Destination: encodeURIComponent(wanted) } }), { ok: t.copied(wanted) })) go(link(["db", db, "doc", wanted]));
}

async function removeDocument({ db, id, rev }) {
  if (!(await confirm({ title: t.removeTitle(id), message: t.removeMessage, danger: true, action: t.remove }))) return;
  if (!(await attempt(() => del(path(db, id), { rev }), { ok: t.removed(id) }))) return;
  forgetInfo(db);
  go(link(["db", db]));
}

function editPanel(ctx, state, start) {
  const { db } = state;
  const told = h("div");
  const difference = h("div", { class: "below" });
  let showDiff = false, busy = false;
  const isNew = !state.id;
  let isLoaded = isNew || start === state.stored;
  const isDirty = () => isLoaded && edit.value !== (isNew ? start : state.stored);
  const save = button(isNew ? t.create : t.save, { kind: "primary", icon: "check", onclick: () => store() });
  const back = button(t.revert, { kind: "ghost", onclick: () => { edit.value = state.stored; touched(); } });
  const compare = button(t.compare, { onclick: () => { showDiff = !showDiff; touched(); }, "aria-pressed": "false" });
  const edit = editor({
    value: start, label: t.textOf(state.id ?? t.newTitle), language: "json", minLines: 14, maxLines: 34, oninput: touched,
    check: (value) => checkDocument(value, state),
  });
  function touched() {
    const dirty = isDirty();
    save.disabled = busy || (!dirty && !isNew);
    back.hidden = isNew || !dirty;
    compare.hidden = isNew;
    compare.setAttribute("aria-pressed", showDiff);
    fill(difference, showDiff ? shownDiff() : null);
  }
  function shownDiff() {
    let own = edit.value;
    try { own = json.format(own, json.isDense(state.stored)); } catch { /* Compared as it is typed. */ }
    return diffView(state.stored, own, { label: t.against(shortRev(state.rev)) });
  }
  async function store(body = edit.value) {
    if (busy) return;
    const wrong = checkDocument(body, state);
    if (wrong) { edit.setError(wrong); edit.goTo(wrong.line ?? 1, wrong.column ?? 1); return; }
    busy = true;
    touched();
    fill(told);
    const id = state.id ?? JSON.parse(json.members(body).find((member) => member.name === "_id")?.text ?? "null");
    try {
      const answer = id ? await put(path(db, id), body) : await post(path(db), body);
      forgetInfo(db);
      toast(t.saved(shortRev(answer.rev)));
      busy = false;
      if (isNew) { guard.isDirty = () => false; left = true; go(link(["db", db, "doc", answer.id])); return; }
      state.stored = await loadText(db, id);
      const before = state.rev;
      state.rev = answer.rev;
      // What was typed meanwhile stays; it goes on from the new revision.
      if (edit.value === body) edit.value = state.stored;
      else edit.value = edit.value.replace(`"_rev": ${JSON.stringify(before)}`, `"_rev": ${JSON.stringify(answer.rev)}`);
      if (state.isOld) { left = true; go(link(["db", db, "doc", id])); }
    } catch (error) {
      if (error.status === 409 && id) await conflicted(error, id, body);
      else fill(told, problem(error));
    } finally {
      busy = false;
      touched();
    }
  }
  /// Somebody else was quicker: the three texts side by side.
  async function conflicted(error, id, own) {
    const theirs = await loadText(db, id).catch(() => null);
    if (!theirs) { fill(told, problem(error)); return; }
    const merged = await threeWay({ base: state.id ? state.stored : null, theirs, own });
    if (!merged) { fill(told, notice("warning", t.notSaved)); return; }
    state.id = id;
    state.stored = theirs;
    state.rev = JSON.parse(theirs)._rev;
    edit.value = json.format(merged.text, json.isDense(theirs));
    touched();
    if (merged.save) { busy = false; await store(merged.text); }
  }
  let left = false;
  const guard = async () => left || !isDirty() || confirm({ title: t.leaveTitle, message: t.leaveMessage, action: t.leave, danger: true });
  guard.isDirty = () => !left && isDirty();
  beforeLeave(guard, ctx.signal);
  // Wherever the focus is, while the text is seen.
  addEventListener("keydown", (event) => {
    if (event.key !== "s" || !(event.ctrlKey || event.metaKey) || !edit.element.isConnected || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    if (!save.disabled) store();
  }, { signal: ctx.signal });
  touched();
  const format = button(t.format, { kind: "ghost", onclick: () => { try { edit.value = json.format(edit.value); touched(); } catch (error) { edit.setError(error); } } });
  const load = (value) => { isLoaded = true; edit.value = value; touched(); };
  return { load, element: h("div", null, told, edit.element, h("div", { class: "toolbar below" }, save, back, compare, format, h("span", { class: "grow" }), h("span", { class: "faint small wide-only" }, t.keys)), difference) };
}

/// What is wrong with the text of a document, beyond its syntax.
export function checkDocument(source, { id, isPartitioned }) {
  const wrong = json.check(source, "object");
  if (wrong) return wrong;
  for (const member of json.members(source)) {
    if (member.name === "") return at(source, '""', t.emptyName);
    if (member.name === "_id") {
      const own = JSON.parse(member.text);
      if (typeof own !== "string" || !own) return at(source, '"_id"', t.idText);
      if (id && own !== id) return at(source, '"_id"', t.idChanged(id));
      if (isPartitioned && !/^[^_:][^:]*:.+/s.test(own) && !own.startsWith("_design/")) return at(source, '"_id"', t.idPartition);
    } else if (member.name.startsWith("_") && !RESERVED.has(member.name)) return at(source, JSON.stringify(member.name), t.reserved(member.name));
  }
  return null;
}

const RESERVED = new Set(["_id", "_rev", "_attachments", "_deleted", "_revisions", "_access"]);

function at(source, word, message) {
  const before = source.slice(0, Math.max(0, source.indexOf(word))).split("\n");
  return { line: before.length, column: before.at(-1).length + 1, message };
}
