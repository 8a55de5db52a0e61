// Parts of views: headings, cards, tabs, menus, meters, empty places, loading.

import { h, fill, uniqueId } from "../dom.js";
import { icon } from "./icons.js";
import { problem } from "./dialog.js";
import { text } from "../text.js";

/// The head of a view: title, words below it, actions at the right.
export function pageHead(title, { sub, actions, crumbs } = {}) {
  return h("header", { class: "page-head" },
    h("div", { class: "grow" },
      crumbs ? h("nav", { class: "crumbs", "aria-label": text.app.breadcrumb }, crumbs.map(([label, href]) => h("a", { href }, label))) : null,
      h("h1", { tabIndex: -1 }, title), sub ? h("p", { class: "sub" }, sub) : null),
    actions ? h("div", { class: "actions" }, actions) : null);
}

export function card(title, ...content) {
  return h("section", { class: "card" }, title ? h("h2", null, title) : null, content);
}

/// Links of which one is where the reader is. `items`: `[id, label, href]`.
export function tabs(label, items, current) {
  return h("nav", { class: "tabs", "aria-label": label }, items.map(([id, words, href]) =>
    h("a", { href, "aria-current": id === current ? "page" : null }, words)));
}

/// Tabs that show panels of one view. `items`: `[id, label, content()]`; a panel is made when it is first shown.
export function panels(label, items, current, onchange) {
  const made = new Map();
  const base = uniqueId("panel");
  const holder = h("div", { class: "panel", role: "tabpanel", id: base, tabIndex: -1 });
  const buttons = items.map(([id, words], at) => h("button", {
    type: "button", role: "tab", id: `${base}-${id}`, "aria-controls": base, onclick: () => show(id),
    onkeydown: (event) => {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      const next = (at + step + items.length) % items.length;
      show(items[next][0]);
      buttons[next].focus();
    },
  }, words));
  function show(id) {
    for (const [at, item] of items.entries()) {
      const isShown = item[0] === id;
      buttons[at].setAttribute("aria-selected", isShown);
      buttons[at].tabIndex = isShown ? 0 : -1;
      if (!isShown) continue;
      if (!made.has(id)) made.set(id, item[2]());
      holder.setAttribute("aria-labelledby", buttons[at].id);
      fill(holder, made.get(id));
    }
    onchange?.(id);
  }
  show(current ?? items[0][0]);
  return Object.assign(h("div", { class: "panels" }, h("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons), holder), { show });
}

/// A menu below a button. `items`: `{label, icon, run, href, danger, disabled}` or null for a line.
export function menu(label, items, { icon: name = "more", kind = "ghost", iconOnly = true, align = "right" } = {}) {
  const id = uniqueId("menu");
  const list = h("div", { class: ["menu", align], popover: "auto", id, role: "menu" });
  const opener = h("button", {
    type: "button", class: [kind, iconOnly && "icon-only"], "aria-haspopup": "menu", "aria-label": iconOnly ? label : null, title: iconOnly ? label : null,
    onclick: () => { list.isConnected || opener.after(list); list.togglePopover(); },
  }, name ? icon(name) : null, iconOnly ? null : h("span", null, label));
  const shut = () => list.hidePopover();
  list.addEventListener("toggle", (event) => {
    opener.setAttribute("aria-expanded", event.newState === "open");
    if (event.newState !== "open") return;
    fill(list, (typeof items === "function" ? items() : items).map((item) => item === null ? h("hr") : h(item.href ? "a" : "button", {
      type: item.href ? null : "button", href: item.href, role: "menuitem", class: item.danger ? "danger" : null, disabled: item.disabled ?? null,
      onclick: () => { shut(); item.run?.(); },
    }, item.icon ? icon(item.icon) : null, h("span", null, item.label))));
    const box = opener.getBoundingClientRect();
    list.style.top = `${Math.min(box.bottom + 4, innerHeight - list.offsetHeight - 8)}px`;
    const left = align === "right" ? box.right - list.offsetWidth : box.left;
    list.style.left = `${Math.max(8, Math.min(left, innerWidth - list.offsetWidth - 8))}px`;
    list.querySelector("a,button")?.focus();
  });
  list.addEventListener("keydown", (event) => {
    const all = [...list.querySelectorAll("a,button:not(:disabled)")];
    const at = all.indexOf(document.activeElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) { if (event.key === "Tab") shut(); return; }
    event.preventDefault();
    all[(next + all.length) % all.length]?.focus();
  });
  return opener;
}

/// A bar from 0 to 1; null: underway without a known end.
export function progress(label, value) {
  const bar = h("progress", { "aria-label": label, max: 1 });
  bar.update = (now) => { if (now === null || now === undefined) bar.removeAttribute("value"); else bar.value = now; };
  bar.update(value);
  return bar;
}

export function badge(words, kind) {
  return h("span", { class: ["badge", kind] }, words);
}

/// What stands where there is nothing yet: a sentence, what to do, a picture by name.
export function empty(title, { hint, actions, icon: name = "document" } = {}) {
  return h("div", { class: "empty" }, h("div", { class: "empty-icon" }, icon(name)), h("h2", null, title), hint ? h("p", null, hint) : null, actions ? h("div", { class: "actions" }, actions) : null);
}

export function loading(words = text.app.loading) {
  return h("div", { class: "loading", role: "status" }, h("span", { class: "spinner" }), h("span", null, words));
}

/// An area that loads: shows `loading`, then what `make()` gives, or the error with a way to try again.
export function area(make, { class: kind, quiet } = {}) {
  const holder = h("div", { class: kind });
  let turn = 0;
  holder.reload = async () => {
    const own = ++turn;
    if (!quiet || !holder.firstChild) fill(holder, loading());
    holder.setAttribute("aria-busy", "true");
    try {
      const content = await make();
      if (own === turn) fill(holder, content);
    } catch (error) {
      if (own === turn && error.name !== "AbortError") fill(holder, problem(error, { retry: () => holder.reload() }));
    } finally {
      if (own === turn) holder.removeAttribute("aria-busy");
    }
  };
  holder.reload();
  return holder;
}

/// Pairs of a term and what it is.
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));
}
