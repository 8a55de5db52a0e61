// All English texts of the page. One section per screen.

import { plural, count } from "./format.js";

export const text = {
  app: {
    name: "settee",
    skip: "Skip to content",
    menu: "Menu",
    navigation: "Main",
    breadcrumb: "Breadcrumb",
    close: "Close",
    cancel: "Cancel",
    retry: "Try again",
    refresh: "Refresh",
    loading: "Loading…",
    theme: "Colours",
    themes: { auto: "As the system", light: "Light", dark: "Dark" },
    typeToConfirm: (word) => `Type “${word}” to confirm`,
    signIn: "Sign in",
    signOut: "Sign out",
    jump: "Go to a database or page…",
    notFound: "There is no such page",
    notFoundHint: "The address does not name a page of this console. The menu has all of them.",
    failed: "This page could not be shown",
  },
  nav: {
    data: "Data", operate: "Operate", cluster: "Cluster",
    home: "Overview", databases: "Databases", setup: "Set up",
  },
  editor: {
    keys: "Tab indents. Press Escape, then Tab to leave the editor.",
    line: (n) => `Line ${n}:`,
  },
  errors: {
    told(status, error, reason) {
      if (status === 0) return "The node did not answer.";
      if (error === "not_json") return "The answer could not be read.";
      return reason ? `${sentence(reason)}` : error ? `The node answered “${error}”.` : `The node answered ${status}.`;
    },
    next(status, error, reason) {
      if (status === 0) return "Check that the node runs and that this machine reaches it, then try again.";
      if (status === 400 && /partition/i.test(reason)) return "Document ids of a partitioned database are written PARTITION:ID.";
      if (status === 400) return "The request was not understood: correct what the message names and send it again.";
      if (status === 401) return "Sign in with a name and password that may do this.";
      if (status === 403) return "Your account may not do this. Sign in as an administrator, or ask one for the right.";
      if (status === 404 && /no_db_file|Database does not exist/i.test(reason)) return "The database is gone or was never there. The list of databases shows what is.";
      if (status === 404) return "It may have been deleted. Go back and refresh the list.";
      if (status === 405) return "This node does not offer that here; it may be older than this page.";
      if (status === 409) return "Somebody else stored another revision meanwhile. Load it, compare, and save again.";
      if (status === 412) return "Choose another name, or open what is there.";
      if (status === 413) return "It is larger than this node takes: make it smaller, or raise the limit in the configuration.";
      if (status === 415) return "The kind of content was not understood.";
      if (status === 417 || status === 422) return "Correct what the message names, then send it again.";
      if (status === 429) return "Wait a moment, then try again.";
      if (status === 503 && error === "maintenance_mode") return "This node is in maintenance: use another node, or end maintenance.";
      if (status === 503) return "Part of the cluster is not there, or the node is busy. Try again; the cluster view shows what is down.";
      if (status === 507) return "The disk is full: free space on the node, then try again.";
      if (status >= 500) return "Try again. If it stays, look into the log of the node.";
      return "";
    },
  },
  session: {
    title: "Sign in to settee",
    name: "User name",
    password: "Password",
    wrong: "Name or password is not right.",
    wrongNext: "Try again. If this node is new, its first start printed the administrator's name and password.",
    anonymous: "Go on without signing in",
    signedIn: (name) => `Signed in as ${name}`,
    signedOut: "You are signed out",
    admin: "Server administrator: everything is allowed.",
  },
  databases: {
    title: "Databases",
  },
};

function sentence(words) {
  const trimmed = String(words).trim();
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(first) ? first : first + ".";
}
