// The documents of a database: a page of them as a table, whose columns come from the data, or as JSON.

import { h, fill, debounce } from "../dom.js";
import { table, button, segmented, select, icon, loading, problem, empty, dialog, checkbox, confirm, toast, attempt, count, bytes, shortRev, linkButton } from "../ui.js";
import { get, post, del, path, plain, JSON_PARAMS, query } from "../api.js";
import { link, go, remember } from "../router.js";
import { inDatabase, databaseInfo, forgetInfo } from "./db_frame.js";
import { membersOf, valueCell, rememberedColumns, rememberColumns } from "../columns.js";
import { addSamples } from "./samples.js";
import { saveBlob } from "./transfer_write.js";
import { code } from "../diff.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.documents;
const LAST = "\ufff0";
const COLUMNS = 6;

export async function documents(ctx) {
  const db = ctx.params.db;
  const info = await databaseInfo(db, { fresh: true });
  const isPartitioned = Boolean(info.props?.partitioned);
  const at = {
    kind: ctx.query.get("kind") ?? "all", view: ctx.query.get("view") ?? "table", limit: Number(ctx.query.get("limit")) || 25,
    prefix: ctx.query.get("prefix") ?? "", partition: ctx.query.get("partition") ?? "", from: ctx.query.get("from") ?? "", down: false, skip: 0,
  };
  const selected = new Map();
  const list = h("div", null, loading());
  const foot = h("nav", { class: "pager", "aria-label": t.pages });
  const bulk = h("div", { class: "bulk", hidden: true, role: "region", "aria-label": t.selection });
  const told = h("div");
  let rows = [], turn = 0;

  const target = () => at.kind === "design" ? path(db, "_design_docs") : at.kind === "local" ? path(db, "_local_docs")
    : at.partition ? path(db, "_partition", at.partition, "_all_docs") : path(db, "_all_docs");

  function params() {
    const prefix = at.prefix;
    const first = at.from || prefix || undefined, last = prefix ? prefix + LAST : undefined;
    const all = { include_docs: true, limit: at.limit + 1, skip: at.skip || undefined };
    if (at.kind !== "local") all.conflicts = true;
    return at.down ? { ...all, descending: true, startkey: at.from, endkey: prefix || undefined } : { ...all, startkey: first, endkey: last };
  }

  async function load() {
    const own = ++turn;
    remember({ kind: at.kind === "all" ? "" : at.kind, view: at.view === "table" ? "" : at.view, limit: at.limit === 25 ? "" : at.limit, prefix: at.prefix, partition: at.partition, from: at.down ? "" : at.from });
    try {
      const source = await plain(target() + query(params(), JSON_PARAMS), null, { signal: ctx.signal });
      if (own !== turn) return;
      const answer = JSON.parse(source);
      // The same documents as they are written, for the view as JSON.
      const texts = rawDocs(source);
      let found = answer.rows.map((row, place) => ({ ...row, text: texts[place] }));
      const isMore = found.length > at.limit;
      found = found.slice(0, at.limit);
      if (at.down) {
        // Counted from the other end.
        if (typeof answer.offset === "number") answer.offset = answer.total_rows - answer.offset - found.length;
        found.reverse();
        Object.assign(at, { down: false, skip: 0, from: found[0]?.id ?? "" });
      }
      rows = found;
      // Behind a page that was gone back to there is at least the one that was come from.
      draw(answer, isMore || wentBack);
      wentBack = false;
    } catch (error) {
      if (own === turn && error.name !== "AbortError") fill(list, problem(error, { retry: load }));
    }
  }
  let wentBack = false;

  function draw(answer, isMore) {
    selected.clear();
    drawBulk();
    fill(told, at.partition ? partitionLine(db, at.partition) : null);
    if (!rows.length) fill(list, emptyPlace());
    else if (at.view === "json") fill(list, rows.map((row) => jsonCard(db, row)));
    else fill(list, docTable());
    const first = rows[0]?.id, last = rows.at(-1)?.id;
    const isFirst = !at.from;
    fill(foot, rows.length ? [
      button(t.first, { kind: "ghost", disabled: isFirst, onclick: () => { at.from = ""; load(); } }),
      button(t.previous, { icon: "left", disabled: isFirst, onclick: () => { at.from = first; at.down = true; at.skip = 1; wentBack = true; load(); } }),
      h("span", { class: "faint" }, at.kind === "all" && !at.prefix && typeof answer.offset === "number" && answer.offset !== null ? t.range(answer.offset + 1, answer.offset + rows.length, answer.total_rows) : t.rows(rows.length)),
      button(t.next, { disabled: !isMore, onclick: async () => { at.from = await nextStart(last); load(); } }),
      h("span", { class: "grow" }),
      h("label", { class: "row small" }, h("span", null, t.perPage), select(["10", "25", "50", "100", "200"], { value: String(at.limit), onchange: (event) => { at.limit = Number(event.target.value); load(); } })),
    ] : null);
  }

  /// The id behind one: the smallest text that is greater.
  const nextStart = async (last) => {
    const answer = await get(target(), { startkey: last, skip: 1, limit: 1 }, { json: JSON_PARAMS });
    return answer.rows[0]?.id ?? last;
  };

  function emptyPlace() {
    if (at.prefix || at.partition || at.from) return empty(t.nothing, { icon: "search", hint: t.nothingHint });
    if (at.kind !== "all") return empty(at.kind === "design" ? t.noDesign : t.noLocal, { icon: "design", hint: at.kind === "design" ? t.noDesignHint : "" });
    return empty(t.none, {
      hint: t.noneHint, actions: [
        linkButton(text.database.newDocument, link(["db", db, "new"]), { kind: "primary", icon: "plus" }),
        linkButton(text.transfer.importTitle, link(["db", db, "import"]), { icon: "upload" }),
        button(t.samples, { onclick: async () => { if (await attempt(() => addSamples(db, isPartitioned), { ok: t.samplesDone })) { forgetInfo(db); go(location.hash); } } }),
      ],
    });
  }

  function docTable() {
    const docs = rows.map((row) => row.doc);
    const offered = membersOf(docs);
    const key = db + (at.partition ? ":" + at.partition.slice(0, 40) : "");
    const chosen = rememberedColumns(key) ?? offered.slice(0, COLUMNS);
    const all = h("input", { type: "checkbox", "aria-label": t.selectAll, onchange: () => { for (const row of rows) choose(row, all.checked); shown.update(rows, { all: true }); } });
    const shown = table({
      label: t.tableLabel(db), rows, key: (row) => row.id, rowClass: (row) => (selected.has(row.id) ? "selected" : ""),
      onopen: (row) => go(docLink(db, row.id)),
      columns: [
        { head: all, class: "tick", cell: (row) => h("input", { type: "checkbox", checked: selected.has(row.id), "aria-label": t.select(row.id), onchange: (event) => { choose(row, event.target.checked); event.target.closest("tr").classList.toggle("selected", event.target.checked); } }) },
        { label: "_id", isHead: true, class: "id", cell: (row) => [h("a", { href: docLink(db, row.id), class: "mono" }, row.id), ...marks(row.doc)] },
        ...chosen.map((name) => ({ label: name, class: docs.every((doc) => doc?.[name] === undefined || typeof doc[name] === "number") ? "num" : null, cell: (row) => valueCell(row.doc?.[name]) })),
        { label: t.rev, class: "faint mono nowrap wide-only", cell: (row) => shortRev(row.value?.rev) },
      ],
    });
    columnsButton.onclick = () => chooseColumns(key, offered, chosen, () => fill(list, docTable()));
    return shown;
  }

  function choose(row, isChosen) {
    if (isChosen) selected.set(row.id, row);
    else selected.delete(row.id);
    drawBulk();
  }
  function drawBulk() {
    bulk.hidden = !selected.size;
    if (!selected.size) return;
    fill(bulk, h("span", { class: "strong", role: "status" }, t.selected(selected.size)), h("span", { class: "grow" }),
      button(t.exportSelected, { icon: "download", small: true, onclick: () => saveBlob(new Blob(["[\n" + [...selected.values()].map((row) => row.text).join(",\n") + "\n]\n"], { type: "application/json" }), `${db}-${selected.size}.json`) }),
      button(t.deleteSelected, { icon: "trash", kind: "danger", small: true, onclick: removeSelected }),
      button(t.clear, { kind: "ghost", small: true, onclick: () => { selected.clear(); drawBulk(); fill(list, docTable()); } }));
  }
  async function removeSelected() {
    const many = selected.size;
    if (!(await confirm({ title: t.deleteTitle(many), message: at.kind === "local" ? t.deleteLocal : t.deleteMessage, danger: true, action: t.deleteSelected }))) return;
    const chosen = [...selected.values()];
    await attempt(async () => {
      const answers = at.kind === "local" ? await removeLocal(db, chosen)
        : await post(path(db, "_bulk_docs"), { docs: chosen.map((row) => ({ _id: row.id, _rev: row.value.rev, _deleted: true })) });
      const failed = answers.filter((answer) => answer.error);
      if (failed.length) toast(t.deleteFailed(failed.length, failed[0].reason ?? failed[0].error), { kind: "error" });
      else toast(t.deletedDone(many));
      forgetInfo(db);
      load();
    });
  }

  const columnsButton = button(t.columns, { icon: "columns", hidden: at.view !== "table" });
  const jump = h("input", {
    type: "search", class: "mono", placeholder: t.jump, "aria-label": t.jump, value: at.prefix, spellcheck: false,
    oninput: debounce(() => { at.prefix = jump.value; at.from = ""; load(); }, 250),
    onkeydown: (event) => { if (event.key === "Enter" && jump.value && (event.ctrlKey || rows.some((row) => row.id === jump.value))) go(docLink(db, jump.value)); },
  });
  const partition = isPartitioned ? h("input", {
    type: "search", class: "mono", placeholder: t.partition, "aria-label": t.partition, value: at.partition, size: 14,
    oninput: debounce(() => { at.partition = partition.value.trim(); at.from = ""; load(); }, 300),
  }) : null;
  const kinds = select([["all", t.kinds.all], ["design", t.kinds.design], ["local", t.kinds.local]], { value: at.kind, "aria-label": t.kind, onchange: (event) => { at.kind = event.target.value; at.from = ""; load(); } });
  load();
  return inDatabase(ctx, "documents",
    h("div", { class: "toolbar" }, h("div", { class: "search-box grow" }, icon("search"), jump), partition, kinds,
      segmented(t.view, [["table", t.asTable, "table"], ["json", t.asJson, "design"]], at.view, (value) => { at.view = value; columnsButton.hidden = value !== "table"; load(); }),
      columnsButton, button(text.app.refresh, { icon: "refresh", iconOnly: true, onclick: load })),
    told, bulk, list, foot);
}

/// Deletes local documents, of which there is no tombstone, one after the other; answers as `_bulk_docs` does.
async function removeLocal(db, rows) {
  const answers = [];
  for (const { id, value } of rows) {
    try {
      await del(path(db, id), { rev: value.rev });
      answers.push({ id, ok: true });
    } catch (error) {
      answers.push({ id, error: error.name, reason: error.message });
    }
  }
  return answers;
}

export function docLink(db, id, params) {
  if (id.startsWith("_design/")) return link(["db", db, "design", id.slice(8)], params);
  return link(["db", db, "doc", id], params);
}

function marks(doc) {
  const out = [];
  if (doc?._conflicts) out.push(" ", h("span", { class: "badge warn", title: t.conflictHint }, t.conflicts(doc._conflicts.length)));
  if (doc?._attachments) out.push(" ", h("span", { class: "badge", title: Object.keys(doc._attachments).join(", ") }, icon("file"), count(Object.keys(doc._attachments).length)));
  return out;
}

function jsonCard(db, row) {
  return h("article", { class: "card json-card" }, h("header", { class: "row" }, h("a", { href: docLink(db, row.id), class: "mono strong break" }, row.id), ...marks(row.doc)),
    code(row.text ? json.format(row.text) : JSON.stringify(row.doc, null, 2), { most: 60, label: row.id }));
}

/// The texts of the documents in an answer of a list.
function rawDocs(source) {
  const rows = json.members(source).find((member) => member.name === "rows");
  return rows ? json.members(rows.text).map((row) => json.members(row.text).find((member) => member.name === "doc")?.text) : [];
}

function partitionLine(db, name) {
  const line = h("p", { class: "faint small below" });
  get(path(db, "_partition", name)).then((info) => fill(line, t.partitionInfo(name, info.doc_count, bytes(info.sizes?.external)))).catch(() => {});
  return line;
}

/// The dialog for the columns of a table.
export async function chooseColumns(key, offered, chosen, done) {
  const names = [...new Set([...chosen, ...offered])];
  const boxes = names.map((name) => checkbox(name, { checked: chosen.includes(name), value: name }));
  const own = h("input", { type: "text", class: "mono", "aria-label": t.otherColumn, placeholder: t.otherColumn });
  const shown = dialog({
    title: t.columnsTitle,
    content: () => [h("p", { class: "soft" }, t.columnsHint), h("div", { class: "check-grid" }, boxes), own],
    actions: (close) => [button(t.columnsAuto, { kind: "ghost", onclick: () => close("auto") }), button(text.app.cancel, { onclick: () => close() }), button(t.columnsShow, { kind: "primary", type: "submit" })],
    onsubmit: (close) => close(boxes.filter((box) => box.box.checked).map((box) => box.box.value).concat(own.value.trim() || [])),
  });
  const answer = await shown.done;
  if (!answer) return;
  rememberColumns(key, answer === "auto" ? null : answer);
  done();
}

