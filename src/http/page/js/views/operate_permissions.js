// The permissions of a database: its security object, and what it means in words.

import { h, fill } from "../dom.js";
import { get, put, path } from "../api.js";
import { button, field, input, attempt, notice, card, area, icon, linkButton } from "../ui.js";
import { link } from "../router.js";
import { inDatabase } from "./db_frame.js";
import { words as list } from "./operate_common.js";
import { text } from "../text.js";

const words = text.operate.permissions;

export function permissions(ctx) {
  return inDatabase(ctx, "permissions", h("p", { class: "soft" }, words.sub), h("div", { class: "stack" }, area(() => form(ctx.params.db)), area(() => validations(ctx.params.db))));
}

/// What says who may change a single document: functions of design documents.
async function validations(db) {
  const { rows } = await get(path(db, "_design_docs"), { include_docs: true, limit: 500 });
  const names = rows.filter((row) => row.doc?.validate_doc_update).map((row) => row.id.slice(8));
  const to = (name, template) => link(["db", db, "design", name], { function: "validate_doc_update", template });
  const free = names.includes("authors") ? `authors-${names.length}` : "authors";
  return card(words.validateTitle, h("p", { class: "soft" }, words.validate),
    names.length ? h("div", { class: "chips" }, names.map((name) => h("a", { class: "chip", href: to(name) }, icon("check"), name))) : h("p", { class: "faint" }, words.noValidate),
    h("div", { class: "actions" }, linkButton(words.onlyAuthor, to(free, "author"), { icon: "plus" })));
}

async function form(db) {
  const security = await get(path(db, "_security"));
  const fields = {};
  const group = (kind, label, hint) => {
    const own = security[kind] ?? {};
    fields[kind] = { names: input({ value: (own.names ?? []).join(", "), oninput: told }), roles: input({ value: (own.roles ?? []).join(", "), oninput: told }) };
    return card(label, h("p", { class: "soft" }, hint), field(`${label}: ${words.names}`, fields[kind].names, { hint: words.hint }), field(`${label}: ${words.roles}`, fields[kind].roles, { hint: words.hint }));
  };
  const meaning = h("div", { role: "status" });
  function read() {
    const out = { ...security };
    for (const [kind, own] of Object.entries(fields)) out[kind] = { ...(security[kind] ?? {}), names: list(own.names.value), roles: list(own.roles.value) };
    return out;
  }
  function told() {
    const { members, admins } = read();
    const names = new Set([...members.names, ...admins.names]).size;
    const roles = [...new Set([...members.roles, ...admins.roles])].filter((role) => role !== "_admin").length;
    if (!members.names.length && !members.roles.length) fill(meaning, notice("warning", h("p", null, words.open)));
    else if (!names && !roles) fill(meaning, notice("ok", h("p", null, words.adminsOnly)));
    else fill(meaning, notice("info", h("p", null, words.limited(names, roles))));
  }
  const content = h("form", { class: "stack", onsubmit: (event) => { event.preventDefault(); } },
    meaning, h("div", { class: "split" }, group("members", words.members, words.membersHint), group("admins", words.admins, words.adminsHint)),
    h("p", { class: "faint small" }, words.raw),
    h("div", { class: "actions" }, button(words.save, { kind: "primary", onclick: () => attempt(() => put(path(db, "_security"), read()), { ok: words.saved }) })));
  told();
  return content;
}
