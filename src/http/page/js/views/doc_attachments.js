// Attachments of a document: upload with progress, preview, download, removal.

import { h, fill } from "../dom.js";
import { table, button, confirm, progress, empty, icon, dialog, toast, attempt, problem, bytes, menu } from "../ui.js";
import { get, del, path, upload, raw, read, BASE } from "../api.js";
import { code } from "../diff.js";
import { text } from "../text.js";

const t = text.attachments;
/// Texts up to this size are shown whole.
const PREVIEW = 512 * 1024;

/// The address of an attachment; slashes in its name stay.
function target(db, id, name) {
  return path(db, id) + "/" + name.split("/").map(encodeURIComponent).join("/");
}

export function attachmentsPanel(ctx, state) {
  const { db, id } = state;
  const list = h("div"), running = h("div", { class: "stack uploads" });
  const chooser = h("input", { type: "file", multiple: true, class: "sr-only", tabIndex: -1, "aria-hidden": "true", onchange: () => { send([...chooser.files]); chooser.value = ""; } });
  const drop = h("div", {
    class: "drop", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); send([...event.dataTransfer.files]); },
  }, icon("upload"), h("span", null, t.drop), button(t.choose, { onclick: () => chooser.click() }), chooser);

  /// One after the other, because each makes a new revision.
  async function send(files) {
    for (const file of files) {
      const bar = progress(t.uploading(file.name), 0);
      const stop = new AbortController();
      const words = h("span", { class: "faint small" }, bytes(file.size));
      const line = h("div", { class: "card upload" }, h("div", { class: "row" }, h("span", { class: "grow break" }, file.name), words, button(text.app.cancel, { small: true, kind: "ghost", onclick: () => stop.abort() })), bar);
      running.append(line);
      try {
        const answer = await upload("PUT", target(db, id, file.name), file, {
          params: { rev: state.rev }, type: file.type || "application/octet-stream", signal: stop.signal,
          onProgress: (sent, total) => { bar.update(total ? sent / total : null); words.textContent = t.sent(bytes(sent), bytes(total)); },
        });
        state.rev = answer.rev;
        line.remove();
        toast(t.stored(file.name));
      } catch (error) {
        line.remove();
        if (error.name !== "AbortError") { running.append(problem(error)); break; }
      }
    }
    await refresh();
  }

  async function refresh() {
    const doc = await get(path(db, id), { rev: state.isOld ? state.rev : null }, { signal: ctx.signal });
    state.rev = doc._rev;
    state.doc = doc;
    draw();
  }
  function draw() {
    const items = Object.entries(state.doc._attachments ?? {}).map(([name, about]) => ({ name, ...about }));
    if (!items.length) { fill(list, empty(t.none, { icon: "file", hint: t.noneHint })); return; }
    fill(list, table({
      label: t.label, rows: items, key: (item) => item.name,
      columns: [
        { label: t.name, isHead: true, cell: (item) => h("button", { type: "button", class: "link break", onclick: () => preview(state, item) }, item.name), sort: (item) => item.name },
        { label: t.type, class: "faint", cell: (item) => item.content_type, sort: (item) => item.content_type },
        { label: t.size, class: "num", cell: (item) => bytes(item.length), sort: (item) => item.length },
        { label: t.since, class: "num wide-only", cell: (item) => item.revpos, sort: (item) => item.revpos },
        { label: t.digest, class: "mono faint wide-only", cell: (item) => h("span", { title: item.digest }, item.digest?.slice(0, 16) + "…") },
        { label: "", head: h("span", { class: "sr-only" }, t.actions), class: "right", cell: (item) => menu(t.actionsOf(item.name), [
          { label: t.preview, icon: "eye", run: () => preview(state, item) },
          { label: t.download, icon: "download", run: () => download(state, item) },
          null,
          { label: t.remove, icon: "trash", danger: true, run: () => remove(item) },
        ]) },
      ],
    }));
  }
  async function remove(item) {
    if (!(await confirm({ title: t.removeTitle(item.name), message: t.removeMessage, danger: true, action: t.remove }))) return;
    await attempt(() => del(target(db, id, item.name), { rev: state.rev }), { ok: t.removed(item.name) });
    await refresh();
  }
  draw();
  return h("div", { class: "stack" }, drop, running, list);
}

async function fetched({ db, id, rev }, item) {
  const answer = await raw("GET", target(db, id, item.name), { params: { rev }, headers: { Accept: "*/*" } });
  if (!answer.ok) await read(answer, `GET /${target(db, id, item.name)}`);
  return answer;
}

/// The browser downloads it by itself: it is never held in memory here.
function download({ db, id, rev }, item) {
  const url = new URL(target(db, id, item.name), BASE);
  url.searchParams.set("rev", rev);
  const anchor = h("a", { href: url.href, download: item.name.split("/").at(-1) });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
}

async function preview(state, item) {
  const body = h("div", { class: "preview" }, text.app.loading);
  let address = null;
  const shown = dialog({
    title: item.name, wide: true,
    content: () => [h("p", { class: "faint" }, `${item.content_type}, ${bytes(item.length)}`), body],
    actions: (close) => [button(t.download, { icon: "download", onclick: () => download(state, item) }), button(text.app.close, { kind: "primary", onclick: () => close() })],
  });
  shown.done.then(() => address && URL.revokeObjectURL(address));
  try {
    // Content that a browser would run is shown as text: an object URL has this page's origin.
    const isPicture = /^image\/(png|jpeg|gif|webp|avif|bmp)$/.test(item.content_type);
    const isText = /^text\/|json|xml|javascript|yaml|svg/.test(item.content_type) || item.length < 2048;
    if (isPicture && item.length < 30e6) {
      address = URL.createObjectURL(await (await fetched(state, item)).blob());
      fill(body, h("img", { src: address, alt: item.name }));
    } else if (isText && item.length <= PREVIEW) {
      const source = await (await fetched(state, item)).text();
      fill(body, code(source, { language: /json/.test(item.content_type) ? "json" : /javascript/.test(item.content_type) ? "javascript" : "text", most: 2000, label: item.name }));
    } else fill(body, empty(t.noPreview, { icon: "file", hint: t.noPreviewHint }));
  } catch (error) {
    fill(body, problem(error));
  }
}
