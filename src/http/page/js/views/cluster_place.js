// The tab of a database that shows where it lies.

import { h } from "../dom.js";
import { inDatabase } from "./db_frame.js";
import { lie } from "./cluster_map.js";

export function place(ctx) {
  const holder = h("div", { class: "stack" });
  lie(ctx, ctx.params.db, holder);
  return inDatabase(ctx, "place", holder);
}
