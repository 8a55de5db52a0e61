// The list of databases.

import { h } from "../dom.js";
import { pageHead, area, table } from "../ui.js";
import { get } from "../api.js";
import { text } from "../text.js";

export function databases() {
  return h("div", null, pageHead(text.databases.title), area(async () => {
    const names = await get("_all_dbs", { limit: 50 });
    return table({ label: text.databases.title, columns: [{ label: "Name", cell: (name) => name }], rows: names });
  }));
}
