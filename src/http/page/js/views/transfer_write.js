// Export: documents page by page into a file, as they are written.

import { h, fill, within } from "../dom.js";
import { button, card, checkbox, field, input, progress, segmented, notice, problem, bytes } from "../ui.js";
import { plain, path, query, JSON_PARAMS } from "../api.js";
import { cell } from "../csv.js";
import { membersOf } from "../columns.js";
import { databaseInfo, inDatabase } from "./db_frame.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.transfer;
const PAGE = 500;
/// So many members that no column has are told.
const MOST_LEFT = 200;

/// Has the browser save something.
export function saveBlob(blob, name) {
  const address = URL.createObjectURL(blob);
  const anchor = h("a", { href: address, download: name.replaceAll("/", "-") });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

/// Pages of the texts of all documents whose ids begin so.
export async function* allDocs(db, { prefix = "", withDesign = true, attachments = false, partition, signal } = {}) {
  const target = partition ? path(db, "_partition", partition, "_all_docs") : path(db, "_all_docs");
  let from = prefix || undefined, skip = 0;
  for (;;) {
    const params = { include_docs: true, limit: attachments ? 50 : PAGE, startkey: from, endkey: prefix ? prefix + "\ufff0" : undefined, skip: skip || undefined, attachments: attachments || undefined };
    const source = await plain(target + query(params, JSON_PARAMS), null, { signal });
    const rows = json.members(json.members(source).find((member) => member.name === "rows").text);
    if (!rows.length) return;
    const found = rows.map((row) => Object.fromEntries(json.members(row.text).map((member) => [member.name, member.text])));
    yield { docs: found.filter((row) => row.doc && row.doc !== "null" && (withDesign || !row.id.startsWith('"_design/'))).map((row) => row.doc), read: rows.length };
    if (rows.length < params.limit) return;
    from = JSON.parse(found.at(-1).id);
    skip = 1;
  }
}

/// A place for a file's text: the file that was chosen, where the browser can, else memory that becomes a download.
async function sink(name, type) {
  if (window.showSaveFilePicker && !navigator.webdriver) {
    try {
      const handle = await window.showSaveFilePicker({ suggestedName: name });
      const file = await handle.createWritable();
      return { write: (piece) => file.write(piece), close: () => file.close(), abort: () => file.abort() };
    } catch (error) {
      if (error.name === "AbortError") return null;
    }
  }
  const parts = [];
  return { write: async (piece) => { parts.push(new Blob([piece])); }, close: async () => saveBlob(new Blob(parts, { type }), name), abort: async () => {} };
}

/// The row of CSV of a document, for these members.
export function csvRow(doc, names, safe) {
  return names.map((name) => cell(doc[name], safe)).join(",") + "\r\n";
}

/// Names in a field, with commas between them; null without any.
function columnsOf(typed) {
  const names = typed.split(",").map((name) => name.trim()).filter(Boolean);
  return names.length ? names : null;
}

const TYPES = { json: "application/json", ndjson: "application/x-ndjson", csv: "text/csv" };

export async function exportView(ctx) {
  const { db } = ctx.params;
  const info = await databaseInfo(db, { fresh: true });
  let format = "ndjson", running = null;
  const prefix = input({ class: "mono", value: ctx.query.get("prefix") ?? "" });
  const withDesign = checkbox(t.withDesign, { checked: true });
  const keepRev = checkbox(t.keepRev);
  const attachments = checkbox(t.attachments);
  const columns = input({ class: "mono", placeholder: t.columnsAuto });
  const safe = checkbox(t.safeCells, { checked: true });
  const told = h("div", { class: "stack", role: "status" });
  const own = h("div", { class: "fields" });
  function drawOptions() {
    fill(own, format === "csv" ? [field(t.columns, columns, { hint: t.columnsHint, wide: true }), safe] : [keepRev, attachments]);
  }
  const start = button(t.exportAction, { kind: "primary", icon: "download", onclick: () => run() });
  /// `wanted`: the columns of CSV, in place of those of the field.
  async function run(wanted = columnsOf(columns.value)) {
    const name = `${db}.${format}`;
    const out = await sink(name, TYPES[format]);
    if (!out) return;
    running = within(ctx.signal);
    const bar = progress(t.exporting, 0);
    const words = h("span", null, "");
    const stop = button(text.app.cancel, { small: true, onclick: () => running.abort() });
    fill(told, h("div", { class: "row" }, h("div", { class: "grow" }, bar), words, stop));
    let many = 0, size = 0, read = 0, names = wanted, first = true;
    const left = new Set();
    const begun = performance.now();
    const write = async (piece) => { size += piece.length; await out.write(piece); };
    try {
      if (format === "json") await write("[\n");
      for await (const page of allDocs(db, { prefix: prefix.value, withDesign: withDesign.box.checked, attachments: format !== "csv" && attachments.box.checked, signal: running.signal })) {
        if (format === "csv") {
          const docs = page.docs.map((source) => JSON.parse(source)).filter((doc) => !doc._id.startsWith("_design/"));
          names ??= ["_id", ...membersOf(docs)];
          if (first) await write(names.map((name) => cell(name)).join(",") + "\r\n");
          first = false;
          await write(docs.map((doc) => csvRow(doc, names, safe.box.checked)).join(""));
          many += docs.length;
          // Columns that somebody chose are all that is wanted.
          if (!wanted) for (const name of membersOf(docs)) if (!names.includes(name) && left.size < MOST_LEFT) left.add(name);
        } else {
          const docs = page.docs.map((source) => (keepRev.box.checked ? source : json.withMembers(source, { _rev: undefined })));
          if (docs.length) await write(format === "ndjson" ? docs.join("\n") + "\n" : (first ? "" : ",\n") + docs.join(",\n"));
          if (docs.length) first = false;
          many += docs.length;
        }
        read += page.read;
        bar.update(prefix.value ? null : Math.min(1, read / Math.max(1, info.doc_count)));
        words.textContent = t.progress(many, bytes(size));
      }
      if (format === "json") await write("\n]\n");
      await out.close();
      const took = h("p", null, t.inTime(((performance.now() - begun) / 1000).toFixed(1)));
      fill(told, notice("ok", h("p", { class: "strong" }, t.exported(many, bytes(size))), took), left.size ? notice("warning",
        h("p", { class: "strong" }, t.leftOut(left.size)), h("p", { class: "break" }, [...left].join(", ")), button(t.exportAgain, { onclick: () => run([...names, ...left]) })) : null);
    } catch (error) {
      await out.abort();
      fill(told, error.name === "AbortError" ? notice("warning", t.stopped(many)) : problem(error, { retry: () => run(wanted) }));
    }
  }
  drawOptions();
  return inDatabase(ctx, "documents", card(t.exportTitle, h("p", { class: "soft" }, t.exportWords(info.doc_count)),
    segmented(t.format, [["ndjson", "NDJSON"], ["json", "JSON"], ["csv", "CSV"]], format, (value) => { format = value; drawOptions(); }),
    h("p", { class: "hint" }, t.formatHint),
    h("div", { class: "fields" }, field(t.prefix, prefix, { hint: t.prefixHint })), withDesign, own, h("div", null, start), told));
}

