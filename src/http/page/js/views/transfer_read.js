// Import: a file in pieces, documents in batches, with what was refused listed at the end.

import { h, fill, within } from "../dom.js";
import { button, card, checkbox, field, input, progress, select, notice, problem, table, count, bytes, icon } from "../ui.js";
import { post, path } from "../api.js";
import { link } from "../router.js";
import { CsvReader, guessSeparator, typed } from "../csv.js";
import { forgetInfo, inDatabase } from "./db_frame.js";
import { saveBlob } from "./transfer_write.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.transfer;
/// A batch ends at so many documents or characters.
const BATCH = 1000;
const BATCH_SIZE = 2e6;
/// So many refusals are kept.
const REFUSALS = 5000;

/// What a file is, by its name and its first text: `csv`, `ndjson` or `json`.
export function kindOf(name, start) {
  if (/\.(csv|tsv)$/i.test(name)) return "csv";
  if (/\.(ndjson|jsonl)$/i.test(name)) return "ndjson";
  const first = start.trimStart();
  if (first.startsWith("[")) return "json";
  if (first.startsWith("{")) {
    const line = first.split("\n")[0].trim();
    return !json.check(line) && !/^\{\s*"(docs|rows|results)"/.test(line) ? "ndjson" : "json";
  }
  return "csv";
}

/// Texts of documents in a file, in lists.
export async function* docsOf(file, kind, options = {}) {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  const take = { csv: csvDocs, ndjson: lineDocs, json: arrayDocs }[kind](options);
  let read = 0;
  for (;;) {
    const { done, value = "" } = await reader.read();
    read += value.length;
    const docs = take(read === value.length ? value.replace(/^\ufeff/, "") : value, done);
    if (docs.length) yield { docs, read: Math.min(1, read / Math.max(1, file.size)) };
    if (done) return;
  }
}

function lineDocs() {
  let rest = "";
  return (chunk, isEnd) => {
    const parts = (rest + chunk).split("\n");
    rest = isEnd ? "" : parts.pop();
    return parts.map((line) => line.trim()).filter(Boolean);
  };
}

/// Elements of an array; of rows of a list (`{"id", "doc"}`) their documents.
function arrayDocs() {
  const elements = new json.Elements();
  return (chunk) => elements.push(chunk).map((source) => {
    if (!/^\{\s*"(id|key|doc|seq)"/.test(source)) return source;
    const doc = json.members(source).find((member) => member.name === "doc");
    return doc ? doc.text : source;
  }).filter((source) => source !== "null");
}

function csvDocs({ idColumn, asTypes }) {
  let reader = null, names = null;
  return (chunk, isEnd) => {
    if (!reader) {
      if (!chunk) return [];
      reader = new CsvReader(guessSeparator(chunk.split("\n")[0]));
    }
    const out = [];
    for (const row of reader.push(chunk, isEnd)) {
      if (!names) { names = row.map((name) => name.trim()); continue; }
      const list = [];
      names.forEach((name, at) => {
        const written = row[at] ?? "";
        if (!name || (written === "" && asTypes)) return;
        const isId = name === (idColumn || "_id");
        list.push({ name: isId ? "_id" : name, text: isId || !asTypes || name === "_rev" ? JSON.stringify(written) : typed(written) });
      });
      if (list.length) out.push(json.object(list));
    }
    return out;
  };
}

export async function importView(ctx) {
  const { db } = ctx.params;
  let file = null, kind = null, running = null;
  const chooser = h("input", { type: "file", accept: ".json,.ndjson,.jsonl,.csv,.tsv,application/json,text/csv", "aria-label": t.choose, onchange: () => take(chooser.files[0]) });
  const drop = h("div", {
    class: "drop", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); },
  }, icon("upload"), h("span", null, t.drop), chooser);
  const kinds = select([["json", "JSON"], ["ndjson", "NDJSON"], ["csv", "CSV"]], { onchange: () => { kind = kinds.value; drawOptions(); } });
  const revs = select([["new", t.revs.new], ["keep", t.revs.keep]]);
  const idColumn = input({ class: "mono", placeholder: "_id" });
  const asTypes = checkbox(t.asTypes, { checked: true });
  const preview = h("div"), told = h("div", { class: "stack", role: "status" });
  const start = button(t.importAction, { kind: "primary", icon: "upload", disabled: true, onclick: run });
  const options = h("div", { class: "stack", hidden: true });

  async function take(chosen) {
    if (!chosen) return;
    file = chosen;
    kind = kindOf(file.name, await file.slice(0, 20000).text());
    kinds.value = kind;
    start.disabled = false;
    options.hidden = false;
    fill(told);
    drawOptions();
  }
  const settings = () => ({ idColumn: idColumn.value.trim(), asTypes: asTypes.box.checked });
  async function drawOptions() {
    fill(options, h("div", { class: "fields" }, field(t.format, kinds), kind === "csv" ? field(t.idColumn, idColumn, { hint: t.idColumnHint }) : field(t.revsTitle, revs, { hint: t.revsHint })), kind === "csv" ? asTypes : null, preview);
    try {
      const sample = [];
      for await (const { docs } of docsOf(file.slice(0, 20000), kind, settings())) {
        sample.push(...docs);
        if (sample.length > 3) break;
      }
      const first = sample[0];
      const wrong = first ? json.check(first, "object") : null;
      fill(preview, h("p", { class: "faint" }, t.file(file.name, bytes(file.size))), first && !wrong ? [h("p", { class: "small strong" }, t.firstDoc), h("pre", { class: "code", tabIndex: 0 }, json.format(first).slice(0, 1500))] : notice("warning", wrong ? wrong.message : t.noDocs));
    } catch (error) {
      fill(preview, notice("warning", error.message));
    }
  }
  idColumn.addEventListener("change", drawOptions);
  asTypes.box.addEventListener("change", drawOptions);

  async function run() {
    running = within(ctx.signal);
    const { signal } = running;
    const bar = progress(t.importing, 0);
    const words = h("span", null, "");
    fill(told, h("div", { class: "row" }, h("div", { class: "grow" }, bar), words, button(text.app.cancel, { small: true, onclick: () => running.abort() })));
    const begun = performance.now();
    let stored = 0, refused = 0;
    const refusals = [];
    const keep = kind !== "csv" && revs.value === "keep";
    const refuse = (id, error, reason) => { refused += 1; if (refusals.length < REFUSALS) refusals.push({ id, error, reason }); };
    async function send(docs) {
      const answers = await post(path(db, "_bulk_docs"), `{${keep ? '"new_edits":false,' : ""}"docs":[${docs.join(",")}]}`, { signal });
      const failed = answers.filter((answer) => answer.error);
      for (const answer of failed) refuse(answer.id, answer.error, answer.reason);
      stored += docs.length - failed.length;
    }
    try {
      let batch = [], size = 0;
      for await (const { docs, read } of docsOf(file, kind, settings())) {
        for (const source of docs) {
          let doc = source;
          const wrong = json.check(doc, "object");
          if (wrong) { refuse(doc.slice(0, 40), "json", wrong.message); continue; }
          if (!keep && /"_rev"/.test(doc)) doc = json.withMembers(doc, { _rev: undefined });
          batch.push(doc);
          size += doc.length;
          if (batch.length < BATCH && size < BATCH_SIZE) continue;
          await send(batch);
          batch = [];
          size = 0;
          bar.update(read);
          words.textContent = t.storedSoFar(count(stored), count(Math.round(stored / ((performance.now() - begun) / 1000))));
        }
        if (signal.aborted) throw new DOMException("", "AbortError");
      }
      if (batch.length) await send(batch);
      done(begun, stored, refused, refusals, false);
    } catch (error) {
      done(begun, stored, refused, refusals, error.name === "AbortError");
      if (error.name !== "AbortError") told.prepend(problem(error));
    }
    forgetInfo(db);
  }
  function done(begun, stored, refused, refusals, wasStopped) {
    fill(told,
      notice(wasStopped ? "warning" : refused ? "warning" : "ok", h("p", { class: "strong" }, wasStopped ? t.importStopped(stored) : t.imported(stored, refused)), h("p", null, t.inTime(((performance.now() - begun) / 1000).toFixed(1)), " ", h("a", { href: link(["db", db]) }, t.toDocuments))),
      refusals.length ? [h("div", { class: "row" }, h("h3", { class: "grow" }, t.refusedTitle), button(t.saveRefusals, { small: true, icon: "download", onclick: () => saveBlob(new Blob([JSON.stringify(refusals, null, 2)], { type: "application/json" }), `${db}-refused.json`) })),
        table({ label: t.refusedTitle, rows: refusals.slice(0, 100), columns: [{ label: "_id", class: "mono", cell: (row) => row.id ?? "" }, { label: t.error, cell: (row) => row.error }, { label: t.reason, cell: (row) => row.reason }] }),
        refusals.some((row) => row.error === "conflict") ? h("p", { class: "hint" }, t.conflictHint) : null] : null);
  }
  return inDatabase(ctx, "documents", card(t.importTitle, h("p", { class: "soft" }, t.importWords), drop, options, h("div", null, start), told));
}

