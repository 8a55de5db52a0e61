// Users of the users database, and server administrators of the configuration.

import { h, fill, debounce } from "../dom.js";
import { get, put, del, path } from "../api.js";
import { pageHead, table, button, menu, empty, dialog, confirm, field, input, panels, area, problem, badge, icon, toast } from "../ui.js";
import { nodeNames, nodePath, words as list, tokens, did } from "./operate_common.js";
import { session } from "../session.js";
import { text } from "../text.js";

const words = text.operate.users;
const PREFIX = "org.couchdb.user:";
const PAGE = 50;

export function users() {
  return h("div", null, pageHead(words.title, { sub: words.sub }),
    panels(words.title, [["users", words.tabs.users, userList], ["admins", words.tabs.admins, adminList]]));
}

function userList() {
  let rows = [], limit = PAGE;
  const more = button(words.more, { onclick: () => { limit += PAGE; return look(); } });
  const search = input({ type: "search", "aria-label": words.search, placeholder: words.search, oninput: debounce(() => { limit = PAGE; look(); }) });
  const shown = table({
    label: words.tabs.users, key: (row) => row.id, rows,
    columns: [
      { label: words.columns.name, isHead: true, sort: (row) => row.doc.name, cell: (row) => row.doc.name },
      { label: words.columns.roles, cell: (row) => tokens(row.doc.roles ?? []) },
      { label: words.columns.scheme, cell: (row) => h("span", { class: "soft" }, row.doc.password_scheme ?? "–", row.doc.iterations ? ` ${row.doc.iterations}` : "") },
      { label: text.operate.replications.actions, head: h("span", { class: "sr-only" }, text.operate.replications.actions), class: "right", cell: (row) => h("span", { class: "row nowrap" },
        button(words.edit, { small: true, "aria-label": `${words.edit} ${row.doc.name}`, onclick: () => { edit(row.doc); } }),
        button(words.remove, { small: true, kind: "danger", "aria-label": `${words.remove} ${row.doc.name}`, onclick: () => { remove(row.doc); } })) },
    ],
  });
  const holder = h("div", { class: "stack" });
  async function look() {
    try {
      const start = PREFIX + search.value;
      const found = await get("_users/_all_docs", { include_docs: true, limit: limit + 1, startkey: start, endkey: start + "\ufff0" }, { json: ["startkey", "endkey"] });
      rows = found.rows.filter((row) => row.doc && row.id.startsWith(PREFIX));
      const isMore = rows.length > limit;
      rows = rows.slice(0, limit);
      shown.update(rows);
      fill(holder, rows.length ? [shown, isMore ? more : null]
        : search.value ? empty(words.nothing, { icon: "user" }) : empty(words.none, { hint: words.noneHint, icon: "user", actions: button(words.create, { kind: "primary", icon: "plus", onclick: () => { edit(null); } }) }));
    } catch (error) {
      fill(holder, problem(error, { retry: look }));
    }
  }
  async function edit(doc) {
    const name = input({ value: doc?.name ?? "", disabled: Boolean(doc), autocomplete: "off" });
    const password = input({ type: "password", autocomplete: "new-password" });
    const roles = input({ value: (doc?.roles ?? []).join(", ") });
    const done = await formDialog(doc ? words.editTitle(doc.name) : words.createTitle, [
      field(words.name, name), field(doc ? words.newPassword : words.password, password, { hint: doc ? words.keepHint : null }), field(words.roles, roles, { hint: words.rolesHint }),
    ], async () => {
      if (!name.value.trim()) throw new Error(words.noName);
      if (!doc && !password.value) throw new Error(words.noPassword);
      const next = { ...(doc ?? { _id: PREFIX + name.value.trim(), type: "user" }), name: name.value.trim(), roles: list(roles.value) };
      if (password.value) next.password = password.value;
      await put(path("_users", next._id), next);
    }, doc ? words.saved(doc.name) : () => words.created(name.value.trim()));
    if (done) await look();
  }
  async function remove(doc) {
    if (!(await confirm({ title: words.removeTitle(doc.name), message: words.removeMessage, action: words.remove, danger: true }))) return;
    if (await did(() => del(path("_users", doc._id), { rev: doc._rev }), { ok: words.removed(doc.name) })) await look();
  }
  look();
  return h("div", null, h("div", { class: "toolbar" }, h("div", { class: "search-box grow" }, icon("search"), search), button(words.create, { kind: "primary", icon: "plus", onclick: () => { edit(null); } })), holder);
}

/// A dialog with fields; `store` throws what is wrong. Answers whether it was stored. `action`: the words of its button.
export function formDialog(title, content, store, ok, action = words.save) {
  const wrong = h("div");
  const submit = button(action, { kind: "primary", type: "submit" });
  const shown = dialog({
    title, content: () => [content, wrong],
    actions: (close) => [button(text.app.cancel, { onclick: () => close() }), submit],
    onsubmit: async (close) => {
      fill(wrong);
      submit.disabled = true;
      try {
        await store();
        if (ok) toast(typeof ok === "function" ? ok() : ok);
        close(true);
      } catch (error) {
        fill(wrong, problem(error));
      } finally {
        submit.disabled = false;
      }
    },
  });
  shown.element.querySelector("input:not(:disabled), textarea, select")?.focus();
  return shown.done;
}

function adminList() {
  let own = {};
  const holder = area(async () => {
    const nodes = await nodeNames();
    own = { nodes, names: Object.keys(await get(nodePath("_local", "_config", "admins"))).sort() };
    return table({
      label: words.tabs.admins, rows: own.names, key: (name) => name,
      columns: [
        { label: words.columns.name, isHead: true, cell: (name) => h("span", { class: "row" }, name, name === session.value?.name ? badge(words.admins.you, "accent") : null) },
        { label: text.operate.replications.actions, head: h("span", { class: "sr-only" }, text.operate.replications.actions), class: "right", cell: (name) => menu(`${text.operate.replications.actions}: ${name}`, [
          { label: words.admins.change, icon: "key", run: () => edit(name) },
          { label: words.admins.remove, icon: "trash", danger: true, disabled: own.names.length < 2 || null, run: () => remove(name) },
        ]) },
      ],
    });
  });
  /// Does something on every node that is there, this one first: what fails there is told at once.
  async function everywhere(run) {
    const there = own.nodes.names.filter((name) => name === own.nodes.own || own.nodes.up.has(name));
    for (const name of there) await run(name);
    return there.length;
  }
  async function edit(old) {
    const name = input({ value: old ?? "", disabled: Boolean(old), autocomplete: "off" });
    const password = input({ type: "password", autocomplete: "new-password" });
    let reached = 0;
    const done = await formDialog(old ? `${words.admins.change}: ${old}` : words.admins.create, [field(words.name, name), field(old ? words.newPassword : words.password, password)], async () => {
      if (!name.value.trim()) throw new Error(words.noName);
      if (!password.value) throw new Error(words.noPassword);
      reached = await everywhere((node) => put(nodePath(node, "_config", "admins", name.value.trim()), JSON.stringify(password.value)));
    }, () => words.admins.saved(name.value.trim(), reached));
    if (done) holder.reload();
  }
  async function remove(name) {
    if (own.names.length < 2) return;
    if (!(await confirm({ title: words.admins.removeTitle(name), message: words.admins.removeMessage, action: words.admins.remove, danger: true, typed: name }))) return;
    if (await did(() => everywhere((node) => del(nodePath(node, "_config", "admins", name))), { ok: words.admins.removed(name) })) holder.reload();
  }
  return h("div", null, h("div", { class: "toolbar" }, h("p", { class: "soft grow" }, words.admins.sub), button(words.admins.create, { kind: "primary", icon: "plus", onclick: () => { edit(null); } })), holder);
}
