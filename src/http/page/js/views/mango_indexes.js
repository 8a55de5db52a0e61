// Indexes of declarative queries: the list, making and removing them.

import { h, fill } from "../dom.js";
import { area, badge, button, checkbox, confirm, dialog, editor, field, input, problem, segmented, table, toast, attempt } from "../ui.js";
import { get, post, del, path } from "../api.js";
import { server } from "../session.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.indexes;

export function indexesPanel(ctx, db, isPartitioned) {
  const list = area(async () => {
    const { indexes } = await get(path(db, "_index"), null, { signal: ctx.signal });
    return table({
      label: t.label, rows: indexes, key: (row) => `${row.ddoc}/${row.name}/${row.type}`, columns: [
        { label: t.name, isHead: true, cell: (row) => h("span", { class: "mono" }, row.name), sort: (row) => row.name },
        { label: t.type, cell: (row) => (row.type === "special" ? badge(t.builtIn) : badge(row.type, "accent")) },
        { label: t.fields, cell: (row) => fieldsOf(row) },
        { label: t.ddoc, class: "mono faint wide-only", cell: (row) => row.ddoc?.replace("_design/", "") ?? "" },
        { label: t.options, class: "wide-only", cell: (row) => [row.partitioned ? badge(text.database.partitioned) : null, row.def?.partial_filter_selector && Object.keys(row.def.partial_filter_selector).length ? h("span", { title: JSON.stringify(row.def.partial_filter_selector) }, badge(t.partial)) : null] },
        { label: "", head: h("span", { class: "sr-only" }, t.actions), class: "right", cell: (row) => (row.type === "special" ? "" : button(t.removeOf(row.name), { icon: "trash", kind: "ghost", iconOnly: true, small: true, onclick: () => remove(row) })) },
      ],
    });
  });
  async function remove(row) {
    if (!(await confirm({ title: t.removeTitle(row.name), message: t.removeMessage, danger: true, action: t.remove }))) return;
    if (await attempt(() => del(path(db, "_index") + "/" + [row.ddoc, row.type, row.name].map((part, at) => (at ? encodeURIComponent(part) : part.split("/").map(encodeURIComponent).join("/"))).join("/")), { ok: t.removed(row.name) })) list.reload();
  }
  return h("div", null, h("div", { class: "toolbar" }, h("p", { class: "soft grow" }, t.words), button(t.create, { kind: "primary", icon: "plus", onclick: async () => { if (await newIndex(db, { isPartitioned })) list.reload(); } })), list);
}

function fieldsOf(row) {
  const fields = row.def?.fields ?? [];
  if (!fields.length) return h("span", { class: "faint" }, t.allFields);
  return h("span", { class: "row" }, fields.map((each) => {
    if (typeof each === "string") return badge(each);
    const [name, order] = Object.entries(each)[0];
    return badge(order === "asc" ? name : `${name} ${order}`);
  }));
}

/// The dialog that makes an index; answers whether it did.
export async function newIndex(db, { isPartitioned = false, fields = [] } = {}) {
  let type = "json";
  const list = input({ class: "mono", value: fields.join(", "), autofocus: true });
  const name = input({ class: "mono" }), ddoc = input({ class: "mono" });
  const partial = editor({ value: "{}", label: t.partialFilter, minLines: 3, maxLines: 8, check: (value) => json.check(value, "object") });
  const global = checkbox(t.globalIndex);
  const told = h("div");
  const hint = h("p", { class: "hint" }, t.fieldsHint);
  const submit = button(t.createAction, { kind: "primary", type: "submit" });
  const shown = dialog({
    title: t.create,
    content: () => [segmented(t.type, [["json", t.json], ["text", t.text], ...(server.value?.features?.includes("nouveau") ? [["nouveau", t.nouveau]] : [])], type, (value) => { type = value; hint.textContent = value === "json" ? t.fieldsHint : t.textHint; }),
      field(t.fields, list), hint, h("div", { class: "fields" }, field(t.name, name, { hint: t.nameHint }), field(t.ddoc, ddoc, { hint: t.ddocHint })),
      isPartitioned ? global : null, h("details", null, h("summary", null, t.partialFilter), h("p", { class: "hint" }, t.partialHint), partial.element), told],
    actions: (close) => [button(text.app.cancel, { onclick: () => close(false) }), submit],
    onsubmit: async (close) => {
      const names = list.value.split(",").map((each) => each.trim()).filter(Boolean);
      if (type === "json" && !names.length) { fill(told, h("p", { class: "bad" }, t.noFields)); list.focus(); return; }
      const index = type === "json" ? { fields: names.map((each) => (/ desc$/.test(each) ? { [each.replace(/ desc$/, "")]: "desc" } : each)) }
        : names.length ? { fields: names.map((each) => { const [field, kind = "string"] = each.split(/\s*:\s*/); return { name: field, type: kind }; }) } : {};
      const filter = JSON.parse(partial.error ? "{}" : partial.value);
      if (Object.keys(filter).length) index.partial_filter_selector = filter;
      submit.disabled = true;
      try {
        const answer = await post(path(db, "_index"), { index, type, name: name.value.trim() || undefined, ddoc: ddoc.value.trim() || undefined, partitioned: isPartitioned ? !global.box.checked : undefined });
        toast(answer.result === "exists" ? t.exists : t.created(answer.name));
        close(true);
      } catch (error) { fill(told, problem(error)); } finally { submit.disabled = false; }
    },
  });
  return Boolean(await shown.done);
}
