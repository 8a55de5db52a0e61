// The form of a new replication.

import { h, fill } from "../dom.js";
import { put, post, path } from "../api.js";
import { dialog, button, field, input, checkbox, segmented, problem, toast, editor } from "../ui.js";
import { databaseInput, words as list } from "./operate_common.js";
import { text } from "../text.js";

const words = text.operate.replications.form;
const told = text.operate.replications;

/// An end of a replication: a database here or an address elsewhere. `read()` gives what a document has for it.
function end(label, { mayBeNew }) {
  let isHere = true;
  const { control: name, known } = databaseInput();
  const url = input({ type: "url", inputMode: "url" });
  const user = input({ autocomplete: "off" }), password = input({ type: "password", autocomplete: "new-password" });
  const create = checkbox(words.createTarget, { checked: true });
  const holder = h("div", { class: "stack" });
  const draw = () => fill(holder,
    isHere ? [field(`${label}: ${words.database}`, name), known] : [field(`${label}: ${words.url}`, url, { hint: words.urlHint }), h("div", { class: "fields" }, field(`${label}: ${words.user}`, user), field(`${label}: ${words.password}`, password))],
    mayBeNew ? create : null);
  draw();
  return {
    element: h("fieldset", { class: "stack" }, h("legend", null, label), segmented(label, [["here", words.here], ["elsewhere", words.elsewhere]], "here", (value) => { isHere = value === "here"; draw(); }), holder),
    get isNew() { return mayBeNew && create.box.checked; },
    get isFilled() { return Boolean((isHere ? name : url).value.trim()); },
    focus() { (isHere ? name : url).focus(); },
    read() {
      if (isHere) return { name: name.value.trim() };
      const address = { url: url.value.trim() };
      if (user.value) address.auth = { basic: { username: user.value, password: password.value } };
      return { address };
    },
  };
}

/// What stands for an end in a replication: a name becomes an address of this node, with the rights of who starts it.
function written(place) {
  return place.address ?? place.name;
}

export function replicationForm(after) {
  const source = end(words.source, { mayBeNew: false }), target = end(words.target, { mayBeNew: true });
  const continuous = checkbox(words.continuous);
  let kind = "document", what = "all";
  const id = input({ class: "mono" });
  const selector = editor({ value: "{\n  \"type\": \"order\"\n}", language: "json", label: words.selectorLabel, minLines: 4, maxLines: 10 });
  const ids = h("textarea", { rows: 4, class: "mono", "aria-label": words.idsLabel });
  const filter = input({ placeholder: words.functionHint });
  const choice = h("div", { class: "stack" }), wrong = h("div");
  const idField = field(words.id, id, { hint: words.idHint });
  const drawChoice = () => fill(choice, what === "selector" ? selector.element : what === "ids" ? field(words.idsLabel, ids) : what === "filter" ? field(words.functionLabel, filter, { hint: words.functionHint }) : null);

  function read() {
    if (!source.isFilled) { source.focus(); throw new Error(words.missing(words.sourceWord)); }
    if (!target.isFilled) { target.focus(); throw new Error(words.missing(words.targetWord)); }
    const out = { source: written(source.read()), target: written(target.read()) };
    if (target.isNew) out.create_target = true;
    if (continuous.box.checked) out.continuous = true;
    if (what === "selector") {
      try { out.selector = JSON.parse(selector.value); } catch { out.selector = null; }
      if (!out.selector || typeof out.selector !== "object" || Array.isArray(out.selector)) throw new Error(words.badSelector);
    }
    if (what === "ids") out.doc_ids = list(ids.value.replace(/\n/g, ","));
    if (what === "filter") out.filter = filter.value.trim();
    return out;
  }
  const submit = button(words.start, { kind: "primary", type: "submit" });
  const shown = dialog({
    title: words.title, wide: true,
    content: () => [
      h("div", { class: "split" }, source.element, target.element),
      continuous,
      h("fieldset", { class: "stack" }, h("legend", null, words.what),
        segmented(words.what, [["all", words.everything], ["selector", words.selector], ["ids", words.ids], ["filter", words.filterFunction]], what, (value) => { what = value; drawChoice(); }), choice),
      h("fieldset", { class: "stack" }, h("legend", null, words.kind),
        segmented(words.kind, [["document", words.asDocument], ["once", words.asOnce]], kind, (value) => { kind = value; idField.hidden = kind !== "document"; }), idField),
      wrong,
    ],
    actions: (close) => [button(text.app.cancel, { onclick: () => close() }), submit],
    onsubmit: async (close) => {
      fill(wrong);
      submit.disabled = true;
      try {
        const body = read();
        if (kind === "document") {
          if (id.value.trim()) await put(path("_replicator", id.value.trim()), body);
          else await post("_replicator", body);
          toast(told.created);
        } else {
          const answer = await post("_replicate", body);
          toast(answer.history ? told.ran(answer.history[0]?.docs_written ?? 0) : told.created);
        }
        close(true);
        after();
      } catch (error) {
        fill(wrong, problem(error));
        wrong.scrollIntoView({ block: "nearest" });
      } finally {
        submit.disabled = false;
      }
    },
  });
  source.focus();
  return shown.done;
}
