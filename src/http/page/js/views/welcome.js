// What a node without databases shows: the first steps.

import { h } from "../dom.js";
import { button, linkButton, icon, attempt, notice } from "../ui.js";
import { get } from "../api.js";
import { go, link } from "../router.js";
import { session } from "../session.js";
import { createDatabase } from "./db_create.js";
import { sampleDatabase } from "./samples.js";
import { text } from "../text.js";

const t = text.welcome;

function step(name, title, words, action, isDone) {
  return h("li", { class: ["step", isDone && "done"] }, h("div", { class: "empty-icon" }, icon(isDone ? "check" : name)),
    h("div", { class: "grow" }, h("h3", null, title), h("p", { class: "soft" }, words)), action);
}

export async function welcome() {
  if (!session.value?.isAdmin) return notice("info", h("p", { class: "strong" }, t.none), h("p", null, t.noneHint));
  const { state } = await get("_cluster_setup").catch(() => ({ state: "" }));
  const isReady = /single_node_enabled|cluster_finished/.test(state);
  return h("section", { class: "card welcome" }, h("h2", null, t.title), h("p", { class: "soft" }, t.words),
    h("ol", { class: "steps" },
      step("cluster", t.setup, isReady ? t.setupDone(state) : t.setupWords, linkButton(isReady ? t.setupShow : t.setupAction, "#/setup", { kind: isReady ? "" : "primary" }), isReady),
      step("database", t.create, t.createWords, button(t.createAction, { kind: isReady ? "primary" : "", icon: "plus", onclick: () => createDatabase() })),
      step("table", t.samples, t.samplesWords, button(t.samplesAction, { onclick: async () => {
        const db = await attempt(sampleDatabase, { ok: t.samplesDone });
        if (db) go(link(["db", db]));
      } }))));
}
