// The field that goes anywhere: databases by the begin of their name, and the screens.

import { h, fill, debounce, uniqueId } from "./dom.js";
import { dialog, icon } from "./ui.js";
import { get, query } from "./api.js";
import { go, link } from "./router.js";
import { navigation } from "./views/index.js";
import { session } from "./session.js";
import { text } from "./text.js";

export function openJump() {
  if (document.querySelector("dialog[open]")) return;
  const listId = uniqueId("jump");
  const field = h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": listId, "aria-label": text.app.jump, placeholder: text.app.jump, autocomplete: "off", spellcheck: false, class: "jump-field", autofocus: true,
    oninput: debounce(() => find(), 80), onkeydown: pressed,
  });
  const list = h("ul", { class: "jump-list", id: listId, role: "listbox", "aria-label": text.app.jump });
  let items = [], at = 0, turn = 0;
  const shown = dialog({ title: text.app.jump, content: () => [field, list], onsubmit: () => open(items[at]) });
  function open(item) {
    if (!item) return;
    shown.close();
    go(item.href);
  }
  async function find() {
    const own = ++turn;
    const word = field.value.trim();
    const pages = navigation.flatMap((section) => section.entries).filter((entry) => (!entry.admin || session.value?.isAdmin) && entry.label.toLowerCase().includes(word.toLowerCase()));
    const asItem = (entry) => ({ href: entry.href, label: entry.label, icon: entry.icon });
    items = pages.map(asItem);
    draw();
    const names = await get("_all_dbs" + query({ limit: 8, startkey: word || "`", endkey: word ? word + "\ufff0" : undefined }, ["startkey", "endkey"]), null, { quiet: true }).catch(() => (word ? [word] : []));
    if (own !== turn) return;
    items = [...names.map((name) => ({ href: link(["db", name]), label: name, icon: "database", mono: true })), ...pages.map(asItem)];
    at = 0;
    draw();
  }
  function draw() {
    at = Math.min(at, Math.max(0, items.length - 1));
    fill(list, items.slice(0, 14).map((item, place) => h("li", { id: `${listId}-${place}`, role: "option", "aria-selected": place === at, onclick: () => open(item) }, icon(item.icon), h("span", { class: item.mono ? "mono" : null }, item.label))));
    if (items.length) field.setAttribute("aria-activedescendant", `${listId}-${at}`);
    else field.removeAttribute("aria-activedescendant");
  }
  function pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !items.length) return;
    event.preventDefault();
    at = (at + step + Math.min(items.length, 14)) % Math.min(items.length, 14);
    draw();
  }
  find();
}
