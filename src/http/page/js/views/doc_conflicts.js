// The conflicting revisions of a document side by side: keep one of them, or put one together.

import { h } from "../dom.js";
import { area, button, confirm, empty, attempt, shortRev, notice } from "../ui.js";
import { post, path, plain } from "../api.js";
import { go } from "../router.js";
import { memberTable } from "./doc_merge.js";
import { forgetInfo } from "./db_frame.js";
import { diffView } from "../diff.js";
import * as json from "../json.js";
import { text } from "../text.js";

const t = text.conflicts;
/// So many revisions stand side by side; of more the first are shown.
const MOST = 6;

export function conflictsPanel(ctx, state, conflicts) {
  if (!conflicts.length) return empty(t.none, { icon: "check", hint: t.noneHint });
  return area(async () => {
    const { db, id } = state;
    const all = [state.rev, ...conflicts];
    const revs = all.slice(0, MOST);
    const texts = await Promise.all(revs.map((rev) => plain(path(db, id), { rev }, { signal: ctx.signal })));
    const versions = revs.map((rev, at) => ({
      label: at ? t.other(at) : t.winner, sub: shortRev(rev), text: json.format(texts[at]), rev,
      head: button(t.keep, { small: true, kind: at ? "" : "primary", onclick: () => keep(at) }),
    }));
    const preview = h("div", { class: "below" });
    const rows = memberTable(versions, { fixed: ["_rev", "_attachments"], pick: () => 0, onchange: () => { queueMicrotask(look); } });
    function look() {
      preview.replaceChildren(diffView(versions[0].text, rows.text(0), { label: t.mergedAgainst }));
    }
    const losers = (kept) => all.filter((rev) => rev !== kept).map((rev) => ({ _id: id, _rev: rev, _deleted: true }));
    async function stored(docs, words) {
      await attempt(async () => {
        const told = await post(path(db, "_bulk_docs"), docs);
        const wrong = told.find((answer) => answer.error);
        if (wrong) throw Object.assign(new Error(wrong.reason ?? wrong.error), { next: t.again });
        forgetInfo(db);
      }, { ok: words });
      go(location.hash);
    }
    async function keep(at) {
      const rev = versions[at].rev;
      if (await confirm({ title: t.keepTitle(shortRev(rev)), message: t.keepMessage(all.length - 1), action: t.keep })) {
        await stored({ docs: losers(rev) }, t.resolved);
      }
    }
    /// The merged text goes on from the winner; the others are ended in the same request.
    async function storeMerged() {
      const merged = rows.text(0);
      await stored(`{"docs":[${[merged, ...losers(state.rev).map((doc) => JSON.stringify(doc))].join(",")}]}`, t.resolved);
    }
    look();
    return h("div", { class: "stack" },
      notice("warning", h("p", { class: "strong" }, t.title(all.length)), h("p", null, t.words)),
      all.length > MOST ? h("p", { class: "faint" }, t.notShown(all.length - MOST)) : null,
      rows.element,
      h("div", { class: "toolbar" }, button(t.storeMerged, { kind: "primary", icon: "branch", onclick: storeMerged }), h("span", { class: "faint small" }, t.mergeHint)),
      preview);
  });
}
