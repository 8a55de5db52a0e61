// Routes and entries of 'Operate' and 'Cluster'; `index.js` has the others and says what each field means.

import { link } from "../router.js";
import { text } from "../text.js";

export const operateRoutes = [
  { path: "/tasks", load: () => import("./operate_tasks.js").then((m) => m.tasks), nav: "tasks" },
  { path: "/replications", load: () => import("./operate_replications.js").then((m) => m.replications), nav: "replications" },
  { path: "/users", load: () => import("./operate_users.js").then((m) => m.users), nav: "users" },
  { path: "/config", load: () => import("./operate_config.js").then((m) => m.config), nav: "config" },
  { path: "/compaction", load: () => import("./operate_compaction.js").then((m) => m.compaction), nav: "compaction" },
  { path: "/snapshots", load: () => import("./operate_snapshots.js").then((m) => m.snapshots), nav: "snapshots" },
  { path: "/log", load: () => import("./operate_log.js").then((m) => m.log), nav: "log" },
  { path: "/cluster", load: () => import("./cluster_overview.js").then((m) => m.overview), nav: "cluster" },
  { path: "/cluster/map", load: () => import("./cluster_map.js").then((m) => m.map), nav: "map" },
  { path: "/cluster/charts", load: () => import("./cluster_charts.js").then((m) => m.charts), nav: "charts" },
  { path: "/cluster/rebalance", load: () => import("./cluster_rebalance.js").then((m) => m.rebalance), nav: "rebalance" },
  { path: "/db/:db/permissions", load: () => import("./operate_permissions.js").then((m) => m.permissions), nav: "databases" },
  { path: "/db/:db/place", load: () => import("./cluster_place.js").then((m) => m.place), nav: "databases" },
];

export const operateEntries = [
  { id: "tasks", label: text.operate.tasks.title, href: "#/tasks", icon: "tasks", admin: true },
  { id: "replications", label: text.operate.replications.title, href: "#/replications", icon: "replicate", admin: true },
  { id: "users", label: text.operate.users.title, href: "#/users", icon: "users", admin: true },
  { id: "config", label: text.operate.config.title, href: "#/config", icon: "settings", admin: true },
  { id: "compaction", label: text.operate.compaction.title, href: "#/compaction", icon: "down", admin: true },
  { id: "snapshots", label: text.operate.snapshots.title, href: "#/snapshots", icon: "snapshot", admin: true },
  { id: "log", label: text.operate.log.title, href: "#/log", icon: "log", admin: true },
];

export const clusterEntries = [
  { id: "cluster", label: text.cluster.overview.entry, href: "#/cluster", icon: "cluster", admin: true },
  { id: "map", label: text.cluster.map.title, href: "#/cluster/map", icon: "partition", admin: true },
  { id: "charts", label: text.cluster.charts.title, href: "#/cluster/charts", icon: "chart", admin: true },
  { id: "rebalance", label: text.cluster.rebalance.title, href: "#/cluster/rebalance", icon: "bolt", admin: true },
];

export const operateTabs = [
  { id: "permissions", label: text.operate.permissions.title, href: (db) => link(["db", db, "permissions"]) },
  { id: "place", label: text.cluster.map.tab, href: (db) => link(["db", db, "place"]) },
];
