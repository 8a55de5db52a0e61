// The dialog that makes a database.

import { h, fill } from "../dom.js";
import { dialog, button, field, input, checkbox, problem, toast } from "../ui.js";
import { put, path } from "../api.js";
import { go, link } from "../router.js";
import { addSamples } from "./samples.js";
import { text } from "../text.js";

const t = text.create;
const NAME = /^[a-z][a-z0-9_$()+/-]*$/;

/// Why a name is not one, or "".
export function wrongName(name) {
  if (!name) return t.noName;
  if (NAME.test(name)) return name.length > 238 ? t.long : "";
  if (/^[^a-z]/.test(name)) return t.start;
  return t.signs;
}

/// Opens the dialog; goes to the database that it made. `samples`: proposes to fill it with sample data.
export function createDatabase({ name = "", samples = false } = {}) {
  const title = input({ value: name, required: true, autofocus: true, class: "mono", maxLength: 238, oninput: look });
  const q = input({ type: "number", min: 1, max: 256, placeholder: t.byDefault });
  const n = input({ type: "number", min: 1, max: 10, placeholder: t.byDefault });
  const partitioned = checkbox(t.partitioned);
  const withSamples = checkbox(t.samples, { checked: samples });
  const told = h("div"), hint = h("p", { class: "hint" }, t.nameHint);
  function look() {
    const wrong = title.value ? wrongName(title.value) : "";
    title.setCustomValidity(wrong);
    hint.textContent = wrong || t.nameHint;
    hint.className = wrong ? "hint bad" : "hint";
  }
  look();
  const submit = button(t.action, { kind: "primary", type: "submit" });
  dialog({
    title: t.title,
    content: () => [h("div", null, field(t.name, title), hint),
      h("details", null, h("summary", null, t.options),
        h("div", { class: "fields spaced" }, field(t.q, q, { hint: t.qHint }), field(t.n, n, { hint: t.nHint })),
        partitioned, h("p", { class: "hint" }, t.partitionedHint)),
      withSamples, told],
    actions: (close) => [button(text.app.cancel, { onclick: () => close() }), submit],
    onsubmit: async (close) => {
      const wrong = wrongName(title.value);
      if (wrong) { look(); title.focus(); hint.textContent = wrong; hint.className = "hint bad"; return; }
      submit.disabled = true;
      fill(told);
      const db = title.value;
      try {
        const isPartitioned = partitioned.box.checked;
        await put(path(db), undefined, { params: { q: q.value, n: n.value, partitioned: isPartitioned ? "true" : "" } });
        if (withSamples.box.checked) await addSamples(db, isPartitioned);
        close(true);
        toast(t.done(db));
        go(link(["db", db]));
      } catch (error) {
        fill(told, problem(error));
      } finally {
        submit.disabled = false;
      }
    },
  });
}
