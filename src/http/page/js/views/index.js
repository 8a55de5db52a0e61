// Routes and entries of the navigation. A screen is loaded when it is first shown.
//
// A route: `path` with `:parameters`; `load` gives a promise of a function `(ctx) → element or promise of one`, where
// `ctx` has `params`, `query` (URLSearchParams) and `signal`, which is aborted when the screen is left; `nav`: the entry
// of the navigation that is marked; `open`: may be shown without being signed in; `alone`: without the navigation.

import { link } from "../router.js";
import { operateRoutes, operateEntries, clusterEntries, operateTabs } from "./operate_routes.js";
import { text } from "../text.js";

export const routes = [
  { path: "/", load: () => import("./databases.js").then((m) => m.databases), nav: "databases" },
  { path: "/databases", load: () => import("./databases.js").then((m) => m.databases), nav: "databases" },
  { path: "/login", load: () => import("./login.js").then((m) => m.login), open: true, alone: true },
  { path: "/account", load: () => import("./account.js").then((m) => m.account), nav: "account" },
  { path: "/setup", load: () => import("./setup.js").then((m) => m.setup), nav: "setup" },
  { path: "/db/:db", load: () => import("./documents.js").then((m) => m.documents), nav: "databases" },
  { path: "/db/:db/new", load: () => import("./document.js").then((m) => m.newDocument), nav: "databases" },
  { path: "/db/:db/doc/:id", load: () => import("./document.js").then((m) => m.document_), nav: "databases" },
  { path: "/db/:db/changes", load: () => import("./changes.js").then((m) => m.changesView), nav: "databases" },
  { path: "/db/:db/import", load: () => import("./transfer_read.js").then((m) => m.importView), nav: "databases" },
  { path: "/db/:db/export", load: () => import("./transfer_write.js").then((m) => m.exportView), nav: "databases" },
  { path: "/db/:db/query", load: () => import("./mango.js").then((m) => m.mango), nav: "databases" },
  { path: "/db/:db/design", load: () => import("./design.js").then((m) => m.designList), nav: "databases" },
  { path: "/db/:db/design/:ddoc", load: () => import("./design.js").then((m) => m.designDocument), nav: "databases" },
  { path: "/db/:db/design/:ddoc/view/:view", load: () => import("./view.js").then((m) => m.viewPage), nav: "databases" },
  { path: "/db/:db/search", load: () => import("./search.js").then((m) => m.search), nav: "databases" },
  ...operateRoutes,
];

/// Sections of the navigation, each with entries: `{id, label, href, icon, admin}`; `admin`: for administrators only.
export const navigation = [
  { label: text.nav.data, entries: [
    { id: "databases", label: text.nav.databases, href: "#/databases", icon: "database" },
    { id: "setup", label: text.nav.setup, href: "#/setup", icon: "home", admin: true },
  ] },
  { label: text.nav.operate, entries: operateEntries },
  { label: text.nav.cluster, entries: clusterEntries },
];

/// Tabs of a database: `{id, label, href(db)}`. `admin`: for administrators of the server only.
export const databaseTabs = [
  { id: "documents", label: text.tabs.documents, href: (db) => link(["db", db]) },
  { id: "changes", label: text.tabs.changes, href: (db) => link(["db", db, "changes"]) },
  { id: "query", label: text.tabs.query, href: (db) => link(["db", db, "query"]) },
  { id: "design", label: text.tabs.design, href: (db) => link(["db", db, "design"]) },
  { id: "search", label: text.tabs.search, href: (db) => link(["db", db, "search"]) },
  ...operateTabs,
];
