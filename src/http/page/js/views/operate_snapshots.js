// Snapshots of databases on a node, and what is restored from them.

import { h, uniqueId } from "../dom.js";
import { get, put, post, path } from "../api.js";
import { pageHead, table, button, empty, field, input, checkbox, select, notice, area, ago, moment, bytes, toast, card } from "../ui.js";
import { databaseInput, nodeNames, nodeChoice, nodePath, did } from "./operate_common.js";
import { formDialog } from "./operate_users.js";
import { go, link } from "../router.js";
import { text } from "../text.js";

const words = text.operate.snapshots;

export async function snapshots(ctx) {
  const nodes = await nodeNames();
  let node = nodes.own, folder = ctx.query.get("folder") ?? "";
  const holder = area(async () => {
    let folders;
    try {
      ({ folders } = await get(nodePath(node, "_snapshot")));
    } catch (error) {
      if (error.status !== 403) throw error;
      return isOff();
    }
    if (!folders.includes(folder)) folder = folders[0] ?? "";
    // Databases are read and written through the node that is asked, and the folder is that node's own.
    const isOwn = node === nodes.own;
    const elsewhere = isOwn ? null : notice("info", h("p", null, words.elsewhere(nodes.own, node)));
    if (!folder) return h("div", { class: "stack" }, elsewhere, empty(words.none, { hint: words.noneHint, icon: "snapshot", actions: button(words.take, { kind: "primary", icon: "plus", onclick: () => { take(folders); } }) }));
    const { databases } = await get(nodePath(node, "_snapshot"), { path: folder });
    const choice = field(words.folder, select(folders, { value: folder, onchange: (event) => { folder = event.target.value; holder.reload(); } }), { inline: true });
    return h("div", { class: "stack" }, elsewhere, h("div", { class: "toolbar" }, choice, h("div", { class: "grow" }), button(words.take, { kind: "primary", icon: "plus", onclick: () => { take(folders); } })),
      table({
        label: words.title, rows: databases, key: (row) => row.db, empty: words.none,
        columns: [
          { label: words.columns.db, isHead: true, sort: (row) => row.db, cell: (row) => row.db },
          { label: words.columns.newest, sort: (row) => row.taken_ms[0] ?? 0, cell: (row) => row.taken_ms.length ? h("span", { title: ago(row.taken_ms[0]) }, moment(row.taken_ms[0])) : "–" },
          { label: words.columns.count, class: "num", cell: (row) => row.taken_ms.length },
          isOwn ? { label: text.operate.replications.actions, head: h("span", { class: "sr-only" }, text.operate.replications.actions), class: "right", cell: (row) => button(words.restore, { small: true, "aria-label": `${words.restore} ${row.db}`, onclick: () => { restore(row.db); } }) } : null,
        ].filter(Boolean),
      }));
  });
  function isOff() {
    const dir = input({ placeholder: "/var/backups/settee", class: "mono" });
    return card(words.off, h("p", { class: "soft" }, words.offHint), field(words.setDir, dir), h("div", null, button(words.set, { kind: "primary", onclick: async () => {
      if (await did(() => put(nodePath(node, "_config", "settee", "snapshot_dir"), JSON.stringify(dir.value.trim())))) holder.reload();
    } })));
  }
  async function take(folders) {
    const isOwn = node === nodes.own;
    const known = h("datalist", { id: uniqueId("folders") }, folders.map((name) => h("option", { value: name })));
    const where = input({ value: folder || "daily", list: known.id });
    const of = databaseInput({ placeholder: words.everyDatabase });
    const whole = checkbox(words.whole);
    let told = "";
    const done = await formDialog(words.takeTitle, [isOwn ? h("div", null, field(words.of, of.control, { hint: words.ofHint }), of.known) : h("p", { class: "soft" }, words.allHint), h("div", null, field(words.folder, where, { hint: words.folderHint }), known), whole], async () => {
      const body = { path: where.value.trim(), ...(whole.box.checked ? { whole: true } : {}) };
      const db = isOwn ? of.control.value.trim() : "";
      const answer = await post(db ? path(db, "_snapshot") : nodePath(node, "_snapshot"), body);
      const taken = answer.databases ?? [answer];
      told = words.taken(taken.reduce((sum, one) => sum + one.documents, 0), bytes(taken.reduce((sum, one) => sum + one.bytes_written, 0)));
      folder = body.path;
    }, () => told, words.take);
    if (done) holder.reload();
  }
  async function restore(db) {
    const as = input({ value: `${db.replace(/^_/, "")}-restored` });
    let told = null;
    const done = await formDialog(words.restoreTitle(db), [field(words.as, as, { hint: words.asHint })], async () => {
      told = await post(path(as.value.trim(), "_restore"), { path: folder, db });
    }, null, words.restore);
    if (done) toast(words.restored(as.value.trim(), told.documents), { action: { label: words.open, run: () => go(link(["db", as.value.trim()])) } });
  }
  return h("div", null, pageHead(words.title, { sub: words.sub }), h("div", { class: "toolbar" }, nodeChoice(nodes, node, (chosen) => { node = chosen; holder.reload(); })), holder);
}
