// The frame of the page: head, navigation, notices at the top, and the screen that the address names.

import { h, fill } from "./js/dom.js";
import { ApiError, hooks } from "./js/api.js";
import { start, go, link } from "./js/router.js";
import { session, refresh, signOut } from "./js/session.js";
import { routes, navigation } from "./js/views/index.js";
import { icon, menu, loading, problem, empty, toast } from "./js/ui.js";
import { findWarnings, warningBar } from "./js/warnings.js";
import { openJump } from "./js/jump.js";
import { text } from "./js/text.js";

const outlet = h("div", { class: "outlet" });
const notices = h("section", { class: "notices", "aria-label": text.app.notices });
const side = h("nav", { class: "side", id: "side", "aria-label": text.app.navigation });
const account = h("div", { class: "account" });
const scheme = h("div");

function theme() {
  try { return localStorage.getItem("settee.theme") ?? "auto"; } catch { return "auto"; }
}

function setTheme(value) {
  try { localStorage.setItem("settee.theme", value); } catch { /* It holds until the page is loaded anew. */ }
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
  drawTheme();
}

function drawTheme() {
  const icons = { auto: "auto", light: "sun", dark: "moon" };
  fill(scheme, menu(text.app.theme, Object.entries(text.app.themes).map(([value, label]) => ({
    label, icon: icons[value], run: () => setTheme(value),
  })), { icon: icons[theme()] }));
}

function drawAccount(who) {
  if (!who?.name) {
    fill(account, who ? h("a", { class: "button small", href: "#/login" }, text.app.signIn) : null);
    return;
  }
  fill(account, menu(who.name, [
    { label: text.app.account, icon: "user", href: "#/account" },
    null,
    { label: text.app.signOut, icon: "out", run: async () => { await signOut(); toast(text.session.signedOut); go("#/login"); } },
  ], { icon: "user", iconOnly: false }));
}

function drawNavigation(current) {
  const who = session.value;
  fill(side, navigation.map((section) => {
    const entries = section.entries.filter((entry) => !entry.admin || who?.isAdmin);
    return entries.length ? h("div", { class: "nav-section" }, h("h2", null, section.label), h("ul", null, entries.map((entry) =>
      h("li", null, h("a", { href: entry.href, "aria-current": entry.id === current ? "page" : null }, icon(entry.icon), h("span", null, entry.label)))))) : null;
  }));
}

const opener = h("button", {
  type: "button", class: "ghost icon-only only-narrow", "aria-label": text.app.menu, "aria-controls": "side", "aria-expanded": "false",
  onclick: () => openSide(!document.body.classList.contains("side-open")),
}, icon("menu"));

function openSide(isOpen) {
  document.body.classList.toggle("side-open", isOpen);
  opener.setAttribute("aria-expanded", isOpen);
  if (isOpen) side.querySelector("a")?.focus();
}

const jump = h("button", { type: "button", class: "jump-button", "aria-keyshortcuts": "Control+K", onclick: () => openJump() }, icon("search"), h("span", null, text.app.jump), h("kbd", { "aria-hidden": "true" }, "Ctrl K"));
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k" && session.value?.name) { event.preventDefault(); openJump(); }
  if (event.key === "Escape") openSide(false);
});

const main = h("main", { id: "main", tabIndex: -1 }, notices, outlet);

function frame() {
  drawTheme();
  fill(document.getElementById("app"),
    h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, text.app.skip),
    h("header", { class: "top" }, opener, h("a", { class: "brand", href: "#/" }, h("img", { src: "icon.svg", alt: "", width: 26, height: 26 }), text.app.name),
      h("div", { class: "grow" }), jump, scheme, account),
    side, h("div", { class: "shade", onclick: () => openSide(false) }), main);
  document.getElementById("app").className = "frame";
}

async function before(route, ctx) {
  openSide(false);
  if (!session.value) {
    try { await refresh(); } catch (error) { failed(error, ctx); return false; }
  }
  if (!route) {
    drawNavigation();
    fill(outlet, empty(text.app.notFound, { hint: text.app.notFoundHint }));
      return false;
  }
  drawNavigation(route.nav);
  document.body.classList.toggle("alone", Boolean(route.alone));
  if (!session.value.name && !session.value.isAdmin && !route.open) {
    go(link(["login"], { then: location.hash }), { replace: true });
    return false;
  }
  if (!outlet.firstChild) fill(outlet, loading());
  return true;
}

function after() {
  const title = outlet.querySelector("h1");
  document.title = title ? `${title.textContent} – ${text.app.name}` : text.app.name;
  const wanted = outlet.querySelector("[data-focus]");
  if (wanted) wanted.focus();
  else if (document.activeElement === document.body || !document.activeElement?.isConnected) title?.focus({ preventScroll: true });
  for (const tab of outlet.querySelectorAll(".tabs [aria-current]")) tab.scrollIntoView({ block: "nearest", inline: "center" });
  scrollTo(0, 0);
}

function failed(error, ctx) {
  console.warn(error);
  if (error instanceof TypeError && /import|module script/i.test(error.message)) {
    // A part of the page did not come. Browsers remember that, so that only loading the page again helps.
    const lost = new ApiError(0, "no_answer", error.message, "");
    fill(outlet, h("h1", { class: "sr-only" }, text.app.failed), problem(lost, { retry: () => location.reload() }));
      return;
  }
  fill(outlet, h("h1", { class: "sr-only" }, text.app.failed), problem(error, { retry: () => go(location.hash, { replace: true }) }));
  after(null, ctx);
}

/// The session ended while the page was open: told once, without leaving what was typed.
hooks.unauthorized = async () => {
  const had = session.value?.name;
  await refresh().catch(() => {});
  if (had && !session.value?.name) toast(text.app.expired, { kind: "error", action: { label: text.app.signIn, run: () => go(link(["login"], { then: location.hash })) } });
};

let warned = 0;
/// What is unsafe is looked for when somebody signs in, and again at most every minute.
async function warn(who, isNew) {
  if (!isNew && performance.now() - warned < 60000) return;
  warned = performance.now();
  const found = await findWarnings(who).catch(() => []);
  if (session.value === who) fill(notices, found.filter((each) => each.href !== location.hash).map((each) => warningBar(each)));
}

frame();
session.watch(drawAccount);
session.watch((who) => { if (who) warn(who, true); });
addEventListener("hashchange", () => { if (session.value) warn(session.value, /setup/.test(location.hash) || location.hash === "#/databases"); });
start(routes, { outlet, before, after, failed });
