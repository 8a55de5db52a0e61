// Tabs that show where something lies: a database, and one document.

import { h } from "../dom.js";
import { inDatabase } from "./db_frame.js";
import { lie } from "./cluster_map.js";
import { text } from "../text.js";

export function place(ctx) {
  const holder = h("div", { class: "stack" });
  lie(ctx, ctx.params.db, holder);
  return inDatabase(ctx, "place", holder);
}

/// The tab of a document: its range among those of the database.
export const documentPlace = {
  id: "place",
  label: text.cluster.map.tab,
  show(ctx, state) {
    const holder = h("div", { class: "stack" });
    lie(ctx, state.db, holder, state.id);
    return holder;
  },
};
