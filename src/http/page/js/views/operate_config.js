// The options of a node: what is set, the defaults, what differs, and maintenance.

import { h, fill, debounce } from "../dom.js";
import { get, put, del, post, ask } from "../api.js";
import { pageHead, table, button, badge, empty, confirm, field, input, checkbox, notice, problem, icon } from "../ui.js";
import { nodeNames, nodeChoice, nodePath, did } from "./operate_common.js";
import { formDialog } from "./operate_users.js";
import { text } from "../text.js";

const words = text.operate.config;
/// Sections whose keys are names or secrets: shown elsewhere, or not at all.
const HIDDEN_SECTIONS = new Set(["admins"]);
const SECRET = /secret|password|token|_key$|^hmac|private/i;
/// In capitals: the key is any name.
const ANY = /^[A-Z]+$|:/;

export async function config(ctx) {
  const nodes = await nodeNames();
  let node = ctx.query.get("node") ?? nodes.own, rows = [], onlyChanged = false, wanted = ctx.query.get("find") ?? "";
  const list = table({
    label: words.title, rows, key: (row) => `${row.section}/${row.key}`, rowClass: (row) => row.isSet ? "differs" : "",
    columns: [
      { label: words.columns.option, isHead: true, sort: (row) => `${row.section} ${row.key}`, cell: (row) => h("div", { class: "task-what" }, h("span", { class: "mono" }, h("span", { class: "faint" }, `[${row.section}] `), row.key), row.isSet ? h("span", null, badge(words.differs, "accent")) : null) },
      { label: words.columns.value, cell: (row) => h("span", { class: "config-value" }, row.isSecret ? h("span", { class: "faint" }, row.isSet ? words.hidden : words.unset_) : row.isSet ? h("code", null, row.value) : h("span", { class: "faint" }, row.default === null ? words.unset_ : row.default)) },
      { label: words.columns.default, cell: (row) => h("span", { class: "faint" }, row.default ?? "–") },
      { label: words.columns.meaning, cell: (row) => h("p", { class: "config-meaning" }, row.isKnown ? code(row.meaning) : words.unknown) },
      { label: text.operate.replications.actions, head: h("span", { class: "sr-only" }, text.operate.replications.actions), class: "right", cell: (row) => h("span", { class: "row nowrap" },
        row.isSet ? button(words.reset, { small: true, kind: "ghost", "aria-label": `${words.reset}: ${row.section}/${row.key}`, onclick: () => reset(row) }) : null,
        button(words.edit, { small: true, "aria-label": `${words.edit} ${row.section}/${row.key}`, onclick: () => { edit(row); } })) },
    ],
  });
  const head = h("div"), holder = h("div", { class: "stack" }), told = h("span", { class: "soft", role: "status" });

  async function look() {
    try {
      const [set, defaults] = await Promise.all([get(nodePath(node, "_config")), get(nodePath(node, "_config_defaults"))]);
      rows = merged(set, defaults);
      drawHead(set);
      draw();
    } catch (error) {
      fill(holder, problem(error, { retry: look }));
    }
  }
  function draw() {
    const asked = wanted.toLowerCase();
    const fits = (row) => (!onlyChanged || row.isSet) && (!asked || `[${row.section}] ${row.key} ${row.section}/${row.key} ${row.meaning}`.toLowerCase().includes(asked));
    const shown = rows.filter(fits);
    list.update(shown);
    told.textContent = words.changed(rows.filter((row) => row.isSet).length);
    fill(holder, shown.length ? list : empty(onlyChanged && !wanted ? words.allDefault : words.none, { icon: "search" }));
  }
  function drawHead(set) {
    const isOn = ["true", "nolb"].includes(set.couchdb?.maintenance_mode);
    fill(head, isOn ? notice("warning", h("div", { class: "row" }, h("p", { class: "grow" }, words.maintenanceOn), button(words.end, { onclick: () => maintain(false) }))) : null);
    maintenance.hidden = isOn;
  }
  async function maintain(isOn) {
    if (isOn && !(await confirm({ title: words.beginTitle, message: words.beginMessage(node), action: words.begin }))) return;
    const at = nodePath(node, "_config", "couchdb", "maintenance_mode");
    if (await did(() => isOn ? put(at, "\"true\"") : put(at, "\"false\""), { ok: isOn ? words.began : words.ended })) await look();
  }
  async function edit(row) {
    const section = input({ value: row?.section ?? "", disabled: Boolean(row) }), key = input({ value: row && !row.isAny ? row.key : "", disabled: Boolean(row && !row.isAny) });
    const value = input({ value: row?.isSecret ? "" : row?.value ?? "", type: row?.isSecret ? "password" : "text", class: "mono", autocomplete: "off" });
    const keep = checkbox(words.keep, { checked: true });
    const done = await formDialog(row ? words.editTitle(row.section, row.key) : words.add, [
      row?.meaning ? h("p", { class: "soft" }, code(row.meaning)) : null,
      row && !row.isAny ? null : h("div", { class: "fields" }, field(words.section, section), field(words.key, key)),
      field(words.value, value, { hint: row?.takes ? words.takes(row.takes) : null }), keep,
    ], () => ask("PUT", nodePath(node, "_config", section.value.trim(), key.value.trim()), { body: JSON.stringify(value.value), headers: keep.box.checked ? {} : { "X-Couch-Persist": "false" } }),
    () => words.set(key.value.trim()), words.save);
    if (done) await look();
  }
  async function reset(row) {
    if (await did(() => del(nodePath(node, "_config", row.section, row.key)), { ok: words.unset(row.key) })) await look();
  }

  const maintenance = button(words.begin, { onclick: () => maintain(true) });
  const search = input({ type: "search", "aria-label": words.search, placeholder: words.search, value: wanted, oninput: debounce((event) => { wanted = search.value; draw(); }, 120) });
  const only = checkbox(words.onlyChanged, { onchange: (event) => { onlyChanged = event.target.checked; draw(); } });
  look();
  return h("div", null,
    pageHead(words.title, { sub: words.sub, actions: [maintenance, button(words.reload, { icon: "refresh", onclick: async () => { if (await did(() => post(nodePath(node, "_config", "_reload")), { ok: words.reloaded })) await look(); } }), button(words.add, { icon: "plus", onclick: () => { edit(null); } })] }),
    head, h("div", { class: "toolbar" }, nodeChoice(nodes, node, (chosen) => { node = chosen; look(); }), h("div", { class: "search-box grow" }, icon("search"), search), only, told), holder);
}

/// What is set and what could be, one row each.
function merged(set, defaults) {
  const rows = [];
  const sections = [...new Set([...Object.keys(defaults), ...Object.keys(set)])].filter((name) => !HIDDEN_SECTIONS.has(name)).sort();
  for (const section of sections) {
    const known = defaults[section] ?? {}, own = set[section] ?? {};
    const isOpen = Object.keys(known).some((key) => ANY.test(key));
    for (const key of [...new Set([...Object.keys(known), ...Object.keys(own)])].sort()) {
      const option = known[key] ?? (isOpen ? Object.values(known)[0] : null);
      rows.push({
        section, key, value: own[key], isSet: own[key] !== undefined, isSecret: SECRET.test(key) || section === "jwt_keys", isAny: ANY.test(key) && own[key] === undefined,
        isKnown: Boolean(option), default: known[key]?.default ?? null, meaning: option?.meaning ?? "", takes: option?.takes ?? "",
      });
    }
  }
  return rows;
}

/// Text with the parts between backquotes as code.
function code(words) {
  return words.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").split("`").map((part, at) => at % 2 ? h("code", null, part) : part);
}
