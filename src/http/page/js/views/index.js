// Routes and entries of the navigation. A screen is loaded when it is first shown.
//
// A route: `path` with `:parameters`; `load` gives a promise of a function `(ctx) → element or promise of one`, where
// `ctx` has `params`, `query` (URLSearchParams) and `signal`, which is aborted when the screen is left; `nav`: the entry
// of the navigation that is marked; `open`: may be shown without being signed in; `tab`: the tab of a database.

import { text } from "../text.js";

export const routes = [
  { path: "/", load: () => import("./databases.js").then((m) => m.databases), nav: "databases" },
  { path: "/databases", load: () => import("./databases.js").then((m) => m.databases), nav: "databases" },
  { path: "/login", load: () => import("./login.js").then((m) => m.login), open: true },
  // Below: screens of 'Operate' and 'Cluster' (js/views/operate_*.js, cluster_*.js).
];

/// Sections of the navigation, each with entries: `{id, label, href, icon, admin}`; `admin`: for administrators only.
export const navigation = [
  { label: text.nav.data, entries: [
    { id: "databases", label: text.nav.databases, href: "#/databases", icon: "database" },
  ] },
  { label: text.nav.operate, entries: [
  ] },
  { label: text.nav.cluster, entries: [
  ] },
];

/// Tabs of a database: `{id, label, href(db)}`. `admin`: for administrators of the server only.
export const databaseTabs = [
];
