// Who is signed in, and what they may do.

import { h, fill } from "../dom.js";
import { area, badge, button, card, facts, field, input, notice, pageHead, problem, table, toast, loading } from "../ui.js";
import { get, put, path, plain } from "../api.js";
import { link } from "../router.js";
import { session, server, signIn } from "../session.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.account;

export function account(ctx) {
  const who = session.value;
  const rights = area(async () => {
    const canList = who.isAdmin || await get("_all_dbs", { limit: 1 }, { signal: ctx.signal, quiet: true }).then(() => true).catch(() => false);
    return table({ label: t.rights, rows: [
      [t.listDatabases, canList], [t.createDatabases, who.isAdmin], [t.readConfiguration, who.isAdmin], [t.manageUsers, who.isAdmin], [t.manageCluster, who.isAdmin], [t.startReplications, Boolean(who.name)],
    ], columns: [{ label: t.right, isHead: true, cell: ([words]) => words }, { label: t.allowed, cell: ([, may]) => (may ? badge(t.yes, "ok") : badge(t.no)) }] });
  });
  const check = h("form", { class: "row", onsubmit: async (event) => { event.preventDefault(); fill(result, loading()); fill(result, await inDatabase(name.value.trim())); } });
  const name = input({ class: "mono", required: true, placeholder: t.database, "aria-label": t.database });
  const result = h("div", { role: "status" });
  check.append(name, button(t.look, { type: "submit" }));
  return h("div", null, pageHead(t.title, { sub: who.name ? t.sub(who.name) : t.anonymous }),
    h("div", { class: "split" },
      h("div", { class: "stack" }, card(t.you, facts([[t.name, who.name ?? "–"], [t.roles, who.roles.length ? h("span", { class: "row" }, who.roles.map((role) => badge(role, role === "_admin" ? "accent" : null))) : t.noRoles], [t.by, who.handler ?? "–"], [t.node, server.value?.version ? `${server.value.vendor?.name ?? "settee"} ${server.value.vendor?.version ?? server.value.version}` : "–"]])),
        who.name ? area(async () => { const way = await passwordWay(who); return way ? password(who, way) : card(t.password, h("p", { class: "soft" }, t.askAdmin)); }) : null),
      h("div", { class: "stack" }, card(t.rights, who.isAdmin ? h("p", { class: "soft" }, text.session.admin) : null, rights), card(t.inDatabase, h("p", { class: "soft" }, t.inDatabaseWords), check, result))));

  async function inDatabase(db) {
    try {
      const security = await get(path(db, "_security"), null, { quiet: true });
      const has = (part) => (security[part]?.names ?? []).includes(who.name) || (security[part]?.roles ?? []).some((role) => who.roles.includes(role));
      const open = !(security.members?.names?.length || security.members?.roles?.length);
      const isAdmin = who.isAdmin || has("admins");
      const isMember = isAdmin || has("members") || open;
      return table({ label: db, rows: [[t.readDocs, isMember], [t.writeDocs, isMember], [t.writeDesign, isAdmin], [t.changeSecurity, isAdmin], [t.deleteDatabase, who.isAdmin]], columns: [{ label: h("a", { href: link(["db", db]) }, db), isHead: true, cell: ([words]) => words }, { label: t.allowed, cell: ([, may]) => (may ? badge(t.yes, "ok") : badge(t.no)) }] });
    } catch (error) {
      return error.status === 401 || error.status === 403 ? notice("warning", t.noAccess(db)) : problem(error);
    }
  }
}

/// Where the password of somebody is: `config`, `users`, or null where they may not change it themselves.
async function passwordWay(who) {
  const id = "org.couchdb.user:" + who.name;
  // A list says without an error that an administrator has no entry there.
  const own = who.isAdmin ? await get(path("_users", "_all_docs"), { key: id }, { json: ["key"], quiet: true }).then((list) => list.rows.some((row) => row.value && !row.value.deleted)).catch(() => false)
    : await get(path("_users", id), null, { quiet: true }).then(() => true).catch(() => false);
  return own ? "users" : who.isAdmin && who.handler !== "jwt" ? "config" : null;
}

function password(who, way) {
  const first = input({ type: "password", required: true, autocomplete: "new-password" }), second = input({ type: "password", required: true, autocomplete: "new-password" });
  const told = h("div");
  return h("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    fill(told);
    if (first.value !== second.value) { fill(told, notice("error", t.notEqual)); second.focus(); return; }
    try {
      if (way === "config") await put(`_node/_local/_config/admins/${encodeURIComponent(who.name)}`, JSON.stringify(first.value));
      else {
        const target = path("_users", "org.couchdb.user:" + who.name);
        const source = await plain(target);
        await put(target, json.withMembers(source, { password: JSON.stringify(first.value) }));
      }
      // The session ends with the password it was made with.
      await signIn(who.name, first.value);
      first.value = second.value = "";
      toast(t.changed);
    } catch (error) { fill(told, problem(error)); }
  } }, h("h2", null, t.password), h("input", { type: "text", hidden: true, autocomplete: "username", value: who.name }), h("div", { class: "fields" }, field(t.newPassword, first), field(t.again, second)), told, h("div", null, button(t.change, { type: "submit" })));
}
