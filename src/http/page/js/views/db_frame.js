// The frame of everything inside a database: its name, its tabs, its menu.

import { h } from "../dom.js";
import { menu, tabs, linkButton, toast } from "../ui.js";
import { get, del, path } from "../api.js";
import { go, link } from "../router.js";
import { session } from "../session.js";
import { databaseTabs } from "./index.js";
import { confirm } from "../ui.js";
import { text } from "../text.js";
import { count, bytes } from "../format.js";

const known = new Map();

/// What `GET /{db}` answers; asked again when it is older than five seconds.
export async function databaseInfo(db, { fresh = false } = {}) {
  const last = known.get(db);
  if (!fresh && last && performance.now() - last.at < 5000) return last.info;
  const info = await get(path(db));
  known.set(db, { info, at: performance.now() });
  return info;
}

export function forgetInfo(db) {
  known.delete(db);
}

/// Puts the content of a screen below the head and the tabs of its database.
export async function inDatabase(ctx, tab, ...content) {
  const db = ctx.params.db;
  const info = await databaseInfo(db);
  const isPartitioned = Boolean(info.props?.partitioned);
  const shown = databaseTabs.filter((entry) => !entry.admin || session.value?.isAdmin);
  return h("div", { class: "database" },
    h("header", { class: "page-head" },
      h("div", { class: "grow" },
        h("nav", { class: "crumbs", "aria-label": text.app.breadcrumb }, h("a", { href: "#/databases" }, text.databases.title)),
        h("h1", { tabIndex: -1 }, db),
        h("p", { class: "sub" }, text.database.summary(info.doc_count, bytes(info.sizes?.external), bytes(info.sizes?.file), info.cluster ?? {}),
          isPartitioned ? [" ", h("span", { class: "badge accent" }, text.database.partitioned)] : null)),
      h("div", { class: "actions" },
        linkButton(text.database.newDocument, link(["db", db, "new"]), { kind: "primary", icon: "plus" }),
        menu(text.database.more, [
          { label: text.transfer.importTitle, icon: "upload", href: link(["db", db, "import"]) },
          { label: text.transfer.exportTitle, icon: "download", href: link(["db", db, "export"]) },
          { label: text.database.copyAddress, icon: "copy", run: () => navigator.clipboard?.writeText(new URL("../" + path(db), document.baseURI).href).then(() => toast(text.app.copied)) },
          null,
          { label: text.database.remove, icon: "trash", danger: true, disabled: !session.value?.isAdmin, run: () => removeDatabase(db).then((gone) => gone && go("#/databases")) },
        ], { kind: "" }))),
    tabs(text.database.tabs, shown.map((entry) => [entry.id, entry.label, entry.href(db)]), tab),
    content);
}

/// Deletes a database when its name was typed; answers whether it did.
export async function removeDatabase(db) {
  const info = await get(path(db)).catch(() => null);
  const agreed = await confirm({
    title: text.database.removeTitle(db), danger: true, typed: db, action: text.database.remove,
    message: text.database.removeMessage(info ? count(info.doc_count) : null),
  });
  if (!agreed) return false;
  try {
    await del(path(db));
  } catch (error) {
    toast(h("span", null, error.message, " ", error.next), { kind: "error" });
    return false;
  }
  forgetInfo(db);
  toast(text.database.removed(db));
  return true;
}
