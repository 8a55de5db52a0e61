// All English texts of the page. One section per screen.

import { operate } from "./text/operate.js";
import { cluster } from "./text/cluster.js";
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
    copied: "Copied",
    notCopied: "The browser did not let it be copied. Mark the text and press Ctrl+C.",
    theme: "Colours",
    themes: { auto: "As the system", light: "Light", dark: "Dark" },
    typeToConfirm: (word) => `Type “${word}” to confirm`,
    signIn: "Sign in",
    signOut: "Sign out",
    account: "Your account",
    notices: "Notices",
    jump: "Go to a database or page…",
    notFound: "There is no such page",
    notFoundHint: "The address does not name a page of this console. The menu has all of them.",
    failed: "This page could not be shown",
    expired: "Your session has ended. Sign in again to go on; what you typed is still here.",
  },
  nav: { data: "Data", operate: "Operate", cluster: "Cluster", databases: "Databases", setup: "Set up" },
  tabs: { documents: "Documents", changes: "Changes", query: "Query", design: "Views and functions", search: "Search" },
  editor: {
    keys: "Tab indents. Press Escape, then Tab to leave the editor.",
    line: (n) => `Line ${n}:`,
  },
  json: {
    escape: "This is no escape of JSON. Write \\\\ for a backslash.",
    string: "This string does not end. Close it with \", and write line breaks as \\n.",
    deep: "This is nested too deeply.",
    end: "The text ends too early: a bracket or a value is missing.",
    quotes: "Strings and names stand in double quotes: \" instead of '.",
    missing: "A value is missing here.",
    value: (shown) => `“${shown}” is not a value. Text stands in double quotes.`,
    comma: "There is a comma too many before this bracket.",
    name: "A name in double quotes belongs here.",
    twice: (name) => `${name} is there twice.`,
    colon: (name) => `A colon is missing behind ${name}.`,
    between: (close) => `A comma or ${close} is missing here.`,
    behind: "There is text behind the end of the value.",
    object: "This must be an object: { … }.",
    array: "This must be a list: [ … ].",
  },
  diff: {
    label: "changes",
    none: "There is no difference.",
    folded: (n) => `${plural(n, "line")} without changes`,
    more: (n) => `… ${plural(n, "more line")}`,
    added: "added",
    removed: "removed",
  },
  errors: {
    told(status, error, reason) {
      if (status === 0) return "The node did not answer.";
      if (error === "not_json") return "The answer could not be read.";
      return reason ? sentence(reason) : error ? `The node answered “${error}”.` : `The node answered ${status}.`;
    },
    next(status, error, reason) {
      if (status === 0) return "Check that the node runs and that this machine reaches it, then try again.";
      if (status === 400 && /partition/i.test(reason)) return "Ids of documents in a partitioned database are written PARTITION:ID.";
      if (status === 400) return "Correct what the message names, then send it again.";
      if (status === 401) return "Sign in with a name and password that may do this.";
      if (status === 403) return "Your account may not do this. Sign in as an administrator, or ask one for the right.";
      if (status === 404 && /no_db_file|Database does not exist/i.test(reason)) return "The database is gone or was never there. The list of databases shows what is.";
      if (status === 404) return "It may have been deleted. Go back and refresh the list.";
      if (status === 405) return "This node does not offer that here; it may be older than this page.";
      if (status === 406) return "The node has this in another form only. Reload the page; it may be older than the node.";
      if (status === 408) return "It took too long to arrive. Check the network, then try again.";
      if (status === 410) return "It is gone for good. Go back and refresh the list.";
      if (status === 414) return "The address is too long: ask with fewer or shorter values.";
      if (status === 416) return "It is shorter than what was asked for: load it again from its beginning.";
      if (status === 431) return "The browser sends too many cookies for this host: delete those of other programs, then try again.";
      if (status === 409) return "Somebody else stored another revision meanwhile. Load it, compare, and save again.";
      if (status === 412) return "Choose another name, or open what is there.";
      if (status === 413) return "It is larger than this node takes: make it smaller, or raise the limit in the configuration.";
      if (status === 415) return "The node does not take this kind of content.";
      if (status === 417 || status === 422) return "Correct what the message names, then send it again.";
      if (status === 429) return "Wait a moment, then try again.";
      if (status === 503 && error === "maintenance_mode") return "This node is in maintenance: use another node, or end maintenance.";
      if (status === 503) return "Part of the cluster is not there, or the node is busy. Try again; the cluster view shows what is down.";
      if (status === 500 && /shards could be opened/.test(reason)) return "A range has no replica in reach or, for a snapshot, none on that node: the map of replicas shows where they are.";
      if (status === 507) return "The disk is full: free space on the node, then try again.";
      if (status >= 500) return "Try again. If it stays, look into the log of the node.";
      if (status >= 400) return "The node does not take this request as it is: change what the message names, or look into the log of the node.";
      return "";
    },
  },
  warnings: {
    aside: (title) => `Put aside for a week: ${title}`,
    tls: { title: "This connection is not encrypted.", words: "Passwords and data can be read on the way. Put the node behind TLS ([ssl] in the configuration, or a proxy) before you use it over a network." },
    plain: { title: "Other machines reach this node without TLS.", words: "[chttpd] bind_address is not this machine alone and [ssl] is off: passwords and data that go that way can be read. Set [ssl] enable, or bind to 127.0.0.1 behind a proxy with TLS." },
    clusterTls: { title: "What nodes tell each other is not encrypted.", words: "Other machines reach the cluster's port and [cluster] tls is false: documents can be read on the way. Set it to true on all nodes." },
    setup: { title: "This node is not set up yet.", words: "Say whether it stays alone or is part of a cluster; the system databases are made then.", label: "Set up" },
    unfinished: { title: "The set-up of the cluster is not finished.", words: "Until then there are no system databases, and nodes do not share administrators.", label: "Go on" },
    maintenance: { title: "This node is in maintenance.", words: "Load balancers send it no requests (/_up answers 404)." },
    cors: { title: "Every website may act for signed-in users.", words: "[cors] origins is * while credentials are allowed: name the origins that need it." },
    passwords: { title: "Passwords may be of any kind.", words: "The node is reached over a network and [chttpd_auth] password_regexp is not set: weak passwords are accepted." },
    listing: { title: "Anybody may list the databases.", words: "[chttpd] admin_only_all_dbs is false and no sign-in is asked for." },
  },
  session: {
    title: "Sign in to settee",
    name: "User name",
    password: "Password",
    wrong: "Name or password is not right.",
    wrongNext: "Try again. If this node is new, its first start printed the administrator's name and password.",
    signedIn: (name) => `Signed in as ${name}`,
    signedOut: "You are signed out",
    admin: "You are a server administrator: everything is allowed.",
  },
  account: {
    title: "Your account", sub: (name) => `Signed in as ${name}`, anonymous: "You are not signed in",
    you: "You", name: "Name", roles: "Roles", noRoles: "none", by: "Signed in by", node: "Node",
    rights: "What you may do on this server", right: "Right", allowed: "Allowed", yes: "yes", no: "no",
    listDatabases: "List the databases", createDatabases: "Create and delete databases", readConfiguration: "Read and change the configuration", manageUsers: "Manage users", manageCluster: "Manage the cluster", startReplications: "Start replications between databases you may read and write",
    inDatabase: "What you may do in a database", inDatabaseWords: "Rights of members and administrators of a database, by its security object.", database: "Name of a database", look: "Look",
    readDocs: "Read documents", writeDocs: "Write documents", writeDesign: "Write design documents", changeSecurity: "Change its permissions", deleteDatabase: "Delete it",
    noAccess: (db) => `You have no access to ${db}. An administrator of it can make you a member.`,
    password: "Change your password", askAdmin: "On this node only an administrator can change it: accounts may not read their own entry.", newPassword: "New password", again: "New password again", change: "Change password", notEqual: "The two are not equal. Type them again.", changed: "Password changed",
  },
  setup: {
    title: "Set up", words: "Decide whether this node works alone or with others. A single node can become part of a cluster later.",
    doneSingle: "This node is set up and works alone.", doneSingleWords: "The system databases are there.",
    doneCluster: "The cluster is set up.", doneClusterWords: (n) => `${plural(n, "node")} share administrators and keys.`,
    toDatabases: "Go to the databases",
    single: "One node", singleWords: "For development, small sites and the edge. Ready in a moment.", singleDoes: "Makes the system databases (_users, _replicator) and keeps one replica of everything.", singleAction: "Set up this node", singleDone: "The node is set up",
    cluster: "A cluster", clusterWords: "Three or more nodes keep replicas of everything, so that one may fail.",
    keepAddress: "Keep the address it listens on", bind: "Address to listen on", bindHint: "127.0.0.1: this machine only", bindClusterHint: "0.0.0.0: all addresses of this machine", port: "Port", portHint: "Takes effect with the next start",
    restartNeeded: "The node is set up; its new address holds after a restart",
    stepEnable: "1. Make this node the first of a cluster", stepNodes: "2. Add the other nodes", stepFinish: "3. Finish",
    enableDoes: "Opens the port for other nodes and makes the key that all members share.", enableAction: "Enable the cluster", enabled: "The cluster is enabled", nodeCount: "Nodes", nodeCountHint: "Of up to three nodes each keeps a replica",
    growTitle: "Make it a cluster", growWords: "Databases that are there stay; a rebalance gives the new nodes their replicas.", growAction: "Make this the first node",
    members: (n) => plural(n, "member"), membersLabel: "Members of the cluster", node: "Node", state: "State", connected: "connected", away: "not connected",
    joinTitle: "Join by a token", joinWords: "The safe way: the new node shows a token at its first start, and no password crosses the network.", tokenAction: "Make a token",
    tokenUse: (time) => `Run this on the new machine within ${time}. It is good for one node.`, tokenHint: "DIR is an empty data directory. NAME@HOST is the name under which the other nodes reach it.", copy: "Copy the command",
    tokenElsewhere: "A node that runs already and is not set up joins on its own page: “Join a cluster”.",
    joinCluster: "Join a cluster", joinClusterWords: "A member of it makes a token, which is all that this node needs.", joinClusterAction: "Join",
    joinClusterDoes: "This node takes over the cluster's keys and administrators. Its own administrators are removed, and you sign in as one of the cluster's. If the join fails, nothing changes.",
    memberAddress: "Cluster port of a member", memberAddressHint: "Shown with the token", token: "Token", joined: "This node is a member now: sign in as an administrator of the cluster",
    addTitle: "Add a node over HTTP", addWords: "For a node that runs already and has an administrator. The cluster's key is sent to it: use a private network.",
    host: "Host", adminName: "Its administrator", adminPassword: "Password", addAction: "Add node", added: (host) => `${host} is a member now`,
    finishDoes: "All members get the same administrators and keys, and the system databases are made on all of them.", finishAction: "Finish the set-up", finished: "The cluster is set up",
  },
  welcome: {
    title: "Welcome. Three steps and you have seen it work.", words: "Everything here is also in the HTTP interface; nothing is hidden.",
    none: "There is no database here that you may see.", noneHint: "Ask an administrator to make one for you.",
    setup: "Set up this node", setupWords: "Alone, or the first of a cluster.", setupDone: (state) => (state === "cluster_finished" ? "It is part of a cluster." : "It works alone."), setupAction: "Set up", setupShow: "Show",
    create: "Create a database", createWords: "A name is all it takes.", createAction: "Create",
    samples: "Or look at sample data", samplesWords: "A small library: 12 books, 40 loans, views, a query index and full-text search.", samplesAction: "Make sample database", samplesDone: "The sample is there",
  },
  databases: {
    title: "Databases", sub: null,
    find: "Find by the beginning of the name", system: "System databases", pages: "Pages of databases",
    name: "Name", documents: "Documents", deleted: "Deleted", data: "Data", disk: "On disk", shards: "Ranges × replicas", actions: "Actions", actionsOf: (name) => `Actions for ${name}`,
    layout: ({ q, n }) => (q ? `${q} × ${n}` : ""), unreadable: "not readable now", open: "Open", create: "Create database", createNamed: (name) => (name ? `Create “${name}”` : "Create database"),
    nothing: (prefix) => `No database begins with “${prefix}”`, nothingHint: "Names are found by their beginning, and are lower case.",
    previous: "Previous", next: "Next", range: (from, to) => `${count(from)} to ${count(to)}`,
    notAllowed: "You may not list the databases", notAllowedHint: "Open one by its name, if you are a member of it.",
  },
  create: {
    title: "Create a database", name: "Name", nameHint: "Lower case letters, digits and _ $ ( ) + - /, beginning with a letter", action: "Create", options: "Ranges, replicas, partitions", byDefault: "as configured",
    noName: "Give it a name.", start: "The name must begin with a lower case letter.", signs: "Only lower case letters, digits and _ $ ( ) + - / are allowed.", long: "The name is too long: 238 characters at most.",
    q: "Ranges (q)", qHint: "Into how many parts it is cut", n: "Replicas (n)", nHint: "On how many nodes each range is", partitioned: "Partitioned", partitionedHint: "Ids begin with the name of a partition (PARTITION:ID); queries within one ask one range only. It cannot be changed later.",
    samples: "Fill it with sample data", done: (db) => `${db} is there`,
  },
  database: {
    tabs: "Database", more: "More", newDocument: "New document", partitioned: "partitioned",
    summary: (docs, data, disk, { q, n }) => `${plural(docs, "document")}, ${data} of data, ${disk} on disk${q ? `, ${plural(q, "range")} × ${plural(n, "replica")}` : ""}`,
    copyAddress: "Copy address", remove: "Delete database", removeTitle: (db) => `Delete ${db}?`,
    removeMessage: (docs) => `All documents${docs ? ` (${docs})` : ""}, their attachments and indexes are lost on all nodes. This cannot be undone.`, removed: (db) => `${db} is deleted`,
  },
  documents: {
    jump: "Id, or its beginning", partition: "Partition", kind: "Kind of documents", kinds: { all: "All documents", design: "Design documents", local: "Local documents" },
    view: "View", asTable: "Table", asJson: "JSON", columns: "Columns", pages: "Pages", first: "First", previous: "Previous", next: "Next", perPage: "Per page", rev: "_rev",
    range: (from, to, total) => `${count(from)} to ${count(to)} of ${count(total)}`, rows: (n) => plural(n, "document"),
    tableLabel: (db) => `Documents of ${db}`, selection: "Selected documents", selectAll: "Select all on this page", select: (id) => `Select ${id}`, selected: (n) => `${plural(n, "document")} selected`, clear: "Clear",
    exportSelected: "Export", deleteSelected: "Delete", deleteTitle: (n) => `Delete ${plural(n, "document")}?`, deleteMessage: "Deleted documents leave a tombstone that replicates.", deleteLocal: "Local documents leave no tombstone: they never replicate.", deleteFailed: (n, reason) => `${plural(n, "document")} could not be deleted: ${reason}`, deletedDone: (n) => `${plural(n, "document")} deleted`,
    conflicts: (n) => plural(n, "conflict"), conflictHint: "Other revisions stand beside the one that is shown", none: "This database is empty", noneHint: "Write a first document, import a file, or take sample data to look around.", samples: "Add sample data", samplesDone: "Sample data added",
    nothing: "No document begins so", nothingHint: "Ids are found by their beginning; upper and lower case differ.", noDesign: "There are no design documents", noDesignHint: "They hold views, indexes and functions: see “Views and functions”.", noLocal: "There are no local documents",
    partitionInfo: (name, docs, size) => `Partition ${name}: ${plural(docs, "document")}, ${size}`,
    columnsTitle: "Columns", columnsHint: "Members of the documents on this page. Your choice is kept in this browser.", columnsAuto: "Choose by the data", columnsShow: "Show", otherColumn: "Another member",
  },
  document: {
    large: (size) => `This document is large: ${size}.`, largeHint: "Its beginning is shown. Browsers edit texts of this size slowly.", editLarge: "Edit it here", download: "Download", newTitle: "New document", tabs: "Document", edit: "Edit", attachments: "Attachments", conflicts: "Conflicts", revisions: "Revisions",
    textOf: (id) => `Text of ${id}`, save: "Save", create: "Create document", revert: "Undo all changes", compare: "Compare with stored", format: "Format", against: (rev) => `against the stored revision ${rev}`, saved: (rev) => `Stored as ${rev}`, keys: "Ctrl+S saves",
    emptyName: "A member needs a name.", idText: "_id must be a text that is not empty.", idChanged: (id) => `The id of a document cannot be changed; it is ${JSON.stringify(id)}. Use “Copy to another id” in the menu.`, idPartition: "In a partitioned database an id is PARTITION:ID.", reserved: (name) => `${name} is not allowed: names that begin with _ are reserved.`,
    partitionedHint: "This database is partitioned: write the name of the partition before the colon of the id.",
    more: "More for this document", clone: "Duplicate into a new document", copyTo: "Copy to another id", copyId: "New id", copyAction: "Copy", copied: (id) => `Copied to ${id}`, raw: "Open as served", remove: "Delete document", removeTitle: (id) => `Delete ${id}?`, removeMessage: "The document gets a tombstone that replicates. Conflicting revisions, if there are any, come to the fore.", removed: (id) => `${id} is deleted`,
    oldShown: (rev) => `This is the revision ${rev}, not the current one. Saving is refused unless it is a leaf of the tree.`, showCurrent: "Show the current one",
    notSaved: "Nothing was stored: your text is still here.", leaveTitle: "Leave without saving?", leaveMessage: "Your changes are not stored yet.", leave: "Leave",
    deleted: "This document is deleted.", deletedHint: "Its last revision may still be there: it can be stored again as long as the database was not compacted.", notThere: "There is no such document.", notThereHint: "Check the id: upper and lower case differ.", restore: "Restore the last revision", restoreGone: "The revision before the deletion is gone: it was compacted away.", restored: "The document is back", backToList: "Back to the documents",
  },
  merge: {
    title: "Somebody else stored this document meanwhile", words: "Where only one side changed a member, that change is taken. Decide the rest.", base: "When you began", theirs: "Stored now", own: "Yours", member: "Member", label: "Versions side by side", absent: "not there",
    take: (name, version) => `Take ${name} from: ${version}`, rows: "Members", onlyDifferent: (n) => `Different (${n})`, all: (n) => `All (${n})`, left: (n) => `${plural(n, "member")} changed on both sides: choose one for each.`, ready: "Nothing is left to decide.",
    result: "what saving changes in the stored document", save: "Save the merged document", edit: "Go on editing it", allTheirs: "Take all that is stored", allOwn: "Take all of mine",
  },
  conflicts: {
    none: "There are no conflicts", noneHint: "All nodes and replicas agree on one current revision.", title: (n) => `${n} revisions stand side by side`, words: "They were stored on different replicas without knowing each other. One of them is shown to everybody (the winner). Keep one, or choose values and store a merged document: the others are ended.",
    winner: "Winner", other: (n) => `Conflict ${n}`, keep: "Keep this one", keepTitle: (rev) => `Keep ${rev}?`, keepMessage: (n) => `${plural(n, "other revision")} will be ended by a tombstone.`, resolved: "The conflict is resolved", again: "Load the document again and repeat.",
    mergedAgainst: "merged document against the winner", storeMerged: "Store merged document", mergeHint: "Attachments are those of the winner.", notShown: (n) => `${plural(n, "more revision")} not shown; they are ended as well.`,
  },
  tree: {
    label: "Revision tree", generations: "Generations", known: "Revisions known", leaves: "Leaves", leavesOf: (live, deleted) => `${live} live, ${deleted} deleted`, current: "Current", kinds: { winner: "current", conflict: "conflict", deleted: "deleted", inner: "earlier" },
    node: (rev, kind) => `${rev}: ${kind} revision`, gap: (n) => `${n} more`, open: "Open", gone: "The text of this revision is gone: it was replaced or compacted away. Only its place in the history is known.", asText: "Text", withParent: "Against its parent", withNow: "Against the current one", parentGone: "The parent's text is gone.", toParent: (rev) => `against its parent ${rev}`, toNow: "what the current revision changed",
  },
  attachments: {
    label: "Attachments", drop: "Drop files here, or", choose: "Choose files", none: "No attachments", noneHint: "Files of any kind can be kept with a document.", uploading: (name) => `Uploading ${name}`, sent: (sent, total) => `${sent} of ${total}`, stored: (name) => `${name} is stored`,
    name: "Name", type: "Type", size: "Size", since: "Since generation", digest: "Digest", actions: "Actions", actionsOf: (name) => `Actions for ${name}`, preview: "Preview", download: "Download", remove: "Delete", removeTitle: (name) => `Delete ${name}?`, removeMessage: "The document gets a new revision without it.", removed: (name) => `${name} is deleted`,
    noPreview: "No preview for this kind of file", noPreviewHint: "Download it to see it.",
  },
  changes: {
    list: "Changes", find: "Filter by id", filter: "Only", filters: { none: "All changes", selector: "A selector", function: "A filter function", ids: "Some ids", design: "Design documents" }, selector: "Selector", functionName: "Filter function", functionHint: "DESIGN-DOCUMENT/NAME", ids: "Ids, one a line", apply: "Apply",
    pause: "Pause", resume: "Resume", clear: "Clear", cleared: "List cleared", states: { starting: "Connecting…", live: "Live", paused: "Paused", broken: "Connection lost; trying again…", stopped: "Stopped" }, seen: (n, held) => `${plural(n, "change")} shown${held ? `, ${held} waiting` : ""}`,
    deleted: "deleted", created: "created", updated: "updated", before: "earlier", leaves: (n) => `${n} leaves`, look: "Show the document", goneNow: "This revision is not there any more.",
  },
  transfer: {
    importTitle: "Import", exportTitle: "Export", importWords: "JSON (a list, or {\"docs\": [...]}), one document a line (NDJSON), or CSV with names in the first line. Files of any size are read in pieces.",
    drop: "Drop a file here, or choose one", choose: "File", format: "Format", idColumn: "Column for the id", idColumnHint: "Documents without an id are given one", revsTitle: "Revisions", revsHint: "Keeping them is for a copy of another database", revs: { new: "Store as new documents", keep: "Keep ids of revisions (new_edits=false)" }, asTypes: "Read numbers, true, false, null and JSON in cells; leave out empty cells",
    file: (name, size) => `${name}, ${size}`, firstDoc: "The first document", noDocs: "There is no document at the beginning of this file. Is the format right?", importAction: "Import", importing: "Importing", storedSoFar: (n, rate) => `${n} stored, ${rate} a second`,
    imported: (n, refused) => `${plural(n, "document")} stored${refused ? `, ${count(refused)} refused` : ""}.`, importStopped: (n) => `Stopped. ${plural(n, "document")} stored.`, toDocuments: "Show the documents", refusedTitle: "Refused", saveRefusals: "Save list", error: "Error", reason: "Reason", conflictHint: "A conflict: a document with this id is there already. Delete it first, or import it with its revision.",
    exportWords: (n) => `${plural(n, "document")}, page by page into a file. Numbers and the order of members stay as they are stored.`, formatHint: "NDJSON and JSON can be imported again; CSV has one column for each member.", prefix: "Only ids that begin with", prefixHint: "Empty: all", withDesign: "With design documents", keepRev: "Keep _rev", attachments: "With attachments (base64)", columns: "Columns", columnsHint: "Names with commas between them", columnsAuto: "_id and all members of the first page", safeCells: "Disarm cells that a spreadsheet would run as a formula",
    exportAction: "Export", exporting: "Exporting", progress: (n, size) => `${plural(n, "document")}, ${size}`, exported: (n, size) => `${plural(n, "document")}, ${size}.`, inTime: (seconds) => `In ${seconds} s.`, stopped: (n) => `Stopped after ${plural(n, "document")}.`, leftOut: (n) => `${plural(n, "member")} of later documents ${n === 1 ? "has" : "have"} no column and ${n === 1 ? "is" : "are"} not in the file:`, exportAgain: "Export again with them",
  },
  design: {
    words: "Design documents hold views, search indexes and functions.", none: "No views yet", noneHint: "A view is an index made by a JavaScript function: rows with keys, sorted, that can be added up.", newView: "New view", newFunction: "New function", addView: "Add a view", open: "Open", compact: "Compact its indexes", compacting: "Compaction has begun", remove: "Delete design document",
    removeTitle: (name) => `Delete ${name}?`, removeMessage: "Its indexes go with it. Queries that use them fail from then on.", removed: (name) => `${name} is deleted`, actionsOf: (name) => `Actions for ${name}`, nothing: "It has no functions yet", size: (size) => `${size} of indexes`, building: "building", mango: "query indexes", custom: "own reduce",
    kinds: { views: "View", indexes: "Search index", nouveau: "Search index with types", filters: "Filter", updates: "Update function", shows: "Show function", lists: "List function", validate_doc_update: "Validation" },
    hints: { validate_doc_update: "Called for each write: throw ({forbidden: \"why\"}) to refuse it.", filters: "Says which changes a feed or a replication gets.", updates: "Makes a document from a request.", shows: "Makes an answer from a document.", lists: "Makes an answer from the rows of a view." },
    ddocName: "Design document", ddocHint: "A new name makes a new one", viewName: "Name of the view", functionName: "Name", kind: "Kind of function", next: "Go on", partitionedHint: "In a partitioned database a view is asked within one partition, unless its design document says otherwise.",
    tabs: "Design document", functions: "Functions", state: "State", asText: "As JSON", textOf: (id) => `Text of ${id}`, notStored: "not stored yet", stored: (name) => `${name} is stored`, removeShort: "Delete", removeFunction: (name) => `Delete ${name}?`, removeFunctionMessage: "The design document gets a new revision without it.", removedFunction: (name) => `${name} is deleted`,
    language: "Language", disk: "On disk", data: "Data", pending: "Changes to index", updater: "Builder", compactor: "Compaction", idle: "idle", running: "running", signature: "Signature", documents: "Documents", builds: (db) => `Building an index of ${db}`, done: (done, total) => `${done} of ${total} changes`, left: (time) => `, about ${time} left`,
  },
  view: {
    tabs: "View", results: "Results", definition: "Functions", newDefinition: "New view", run: "Run", running: "Running… a new index is built first", runHint: "Text that is not JSON is taken as a string", moreParameters: "More parameters", keyHint: "JSON or text", notJson: (name) => `${name} is not JSON.`, notJsonNext: "Write text in double quotes, lists as [1, 2].",
    partition: "Partition", needsPartition: "This view is asked within a partition: name one.", reduce: "Reduce", groups: { none: "Rows, without reduce", all: "All in one", exact: "By key", level: (n) => `By ${n === 1 ? "the first element" : `the first ${n} elements`}` }, updates: { true: "bring up to date first", lazy: "as it is, update then", false: "as it is" },
    groupsFound: (n, ms) => `${plural(n, "group")} in ${ms} ms`, rowsFound: (n, total, offset, ms) => `${plural(n, "row")}${total === "–" ? "" : ` of ${total}`}${offset ? `, from ${count(offset + 1)}` : ""}, ${ms} ms`, copyUrl: "Copy URL", noRows: "No rows", noRowsHint: "Nothing was emitted for these keys.", pages: "Pages", from: (n) => `from row ${count(n)}`,
    map: "Map function", noReduce: "No reduce", customReduce: "Own function", save: "Save and build", create: "Create view", partitionedIndex: "For queries within a partition", stored: "The view is stored", rebuildHint: "Saving another text builds the index anew; until then queries wait for it.", remove: "Delete view", removeTitle: (name) => `Delete the view ${name}?`, removeMessage: "The design document gets a new revision without it, and its index goes.", removed: (name) => `${name} is deleted`,
    trialTitle: "Try it before you save", trialHint: "Runs in this browser over documents of the database, apart from everything else. Nothing is stored.", sampleCount: "Documents to try it on", samples: (n) => `First ${n} documents`, samplePrefix: "Ids that begin with", try: "Try", trying: "Trying…", broken: "The function could not be read", tried: (rows, docs, ms) => `${plural(rows, "row")} from ${plural(docs, "document")} in ${ms} ms`, failed: (n, id, message) => `${plural(n, "document")} failed, the first is ${id}: ${message}`, reduced: "Reduced", rows: "Rows", value: "value", noRowsTried: "Nothing was emitted for these documents.",
  },
  trial: {
    endless: (seconds) => `It did not end within ${seconds} seconds and was stopped.`, noWorker: "The browser did not start the worker.", reduceValues: (name) => `${name} needs numbers as values`,
  },
  mango: {
    tabs: "Query", query: "Query", indexes: "Indexes", run: "Run query", running: "Running…", explain: "Explain", explaining: "Planning…", everyPartition: "All partitions", noSelector: "A query needs a selector.", noId: "without _id",
    noIndex: "No index serves this query: every document was read.", makeIndex: "Make an index for it", found: (n, time, docs, keys) => `${plural(n, "document")} in ${time}${docs === undefined ? "" : `; ${count(docs)} documents and ${count(keys)} index keys read`}`, save: "Save the results", saveJson: "As JSON", saveCsv: "As CSV", none: "Nothing matches", noneHint: "Check names and types: 5 is not \"5\".", results: "Results", page: (n) => `Page ${n}`, templates: "Examples", history: "History", noHistory: "No queries yet",
    examples: {
      "Equal": { selector: { type: "book" }, limit: 25 },
      "Range, sorted": { selector: { year: { $gte: 1900, $lt: 2000 } }, sort: [{ year: "asc" }], limit: 25 },
      "Some fields": { selector: { type: "book" }, fields: ["_id", "title", "author"], limit: 100 },
      "One of several": { selector: { $or: [{ author: "Jane Austen" }, { year: { $gt: 1980 } }] } },
      "In a list": { selector: { tags: { $elemMatch: { $eq: "sea" } } } },
      "Regular expression": { selector: { title: { $regex: "^The " } } },
    },
  },
  plan: {
    title: "How this query is executed", scan: "Read every document", scanWords: "No index fits: all ids are walked through.", scanTitle: "This query reads the whole database", scanHint: "That is fine for a few thousand documents. For more, make an index over the fields of the selector.", makeIndex: "Make an index", index: (name) => `Use the index ${name}`, textIndex: (name) => `Use the text index ${name}`, textQuery: "Search the text index for",
    range: "Read this range of keys", all: "all of it", max: "∞", backwards: "backwards", fetch: "Read the documents", fetchWords: "Each row of the index leads to a document.", covered: "No documents are read", coveredWords: "The index holds everything that is asked for.", filter: "Keep what matches", sort: "In this order", limit: (limit, skip) => `${skip ? `Skip ${count(skip)}, then return` : "Return"} at most ${count(limit)}`, fields: "Only these fields",
    good: (name) => `The index ${name} serves this query.`, goodCovered: "The index alone answers this query.", others: "Other indexes", name: "Name", type: "Type", usable: "Usable", why: "Why not", yes: "yes", no: "no", raw: "The plan as the node tells it",
    reasons: { field_mismatch: "has fields that the selector does not name", sort_order_mismatch: "cannot give this order", partial_filter_selector_mismatch: "its partial filter does not fit", needs_text_search: "cannot search text", less_overlap: "covers less of the selector", too_many_fields: "has more fields than needed", alphabetically_comes_after: "equal, but its name comes later", favored_type: "a JSON index is preferred", is_partial: "is partial", scope_mismatch: "is for another scope", excluded_by_user: "another was asked for", unfavored_type: "another type is preferred" },
  },
  indexes: {
    label: "Indexes", words: "Indexes make queries read less. The best one is chosen for each query.", name: "Name", type: "Type", fields: "Fields", ddoc: "Design document", options: "Options", actions: "Actions", builtIn: "built in", allFields: "all fields", partial: "partial", create: "New index", createAction: "Create index",
    json: "JSON: equality, ranges, order", text: "Text: words", nouveau: "Text with types (Nouveau)", fieldsHint: "In this order, with commas between them: those compared for equality first, then the one for a range or the order. “year desc” sorts downwards.", textHint: "NAME or NAME:number, NAME:boolean. Empty: all fields.", nameHint: "Empty: made from its definition", ddocHint: "Empty: one of its own", globalIndex: "Over all partitions", partialFilter: "Partial index", partialHint: "Only documents that match this selector are in the index.", noFields: "Name at least one field.", exists: "This index is there already", created: (name) => `The index ${name} is made`,
    removeOf: (name) => `Delete index ${name}`, remove: "Delete index", removeTitle: (name) => `Delete the index ${name}?`, removeMessage: "Queries that used it take another one, or read every document.", removed: (name) => `${name} is deleted`,
  },
  search: {
    tabs: "Search", query: "Search", definition: "Index", index: "Index", new: "new", none: "No search index yet", noneHint: "A search index finds words in texts, counts facets and ranks what it finds.", create: "New search index", wholeHint: "index(type, name, value, options): text, string, double or stored. Strings are given the analyzer “keyword”, so that a query finds them as a whole.", createTyped: "New index with types (Nouveau)", typed: "Nouveau", asIs: "as it is, without bringing it up to date", placeholderTyped: "title:desert AND year>1960", placeholder: "title:desert AND year:[1960 TO 1970]", run: "Search", running: "Searching… a new index is built first",
    hint: (fields) => (fields.length ? `Fields: ${fields.join(", ")}. Words without a field are looked for in “default”; *:* finds all.` : "Words without a field are looked for in “default”; *:* finds all."), sortHint: "\"-year<number>\", [\"title<string>\"]", countsHint: "Facets: fields with commas between them", notJson: (value) => `“${value}” is not JSON.`, found: (n, ms) => `${n} found, ${ms} ms`, without: (field, value) => `Remove the filter ${field}: ${value}`, facets: "Facets", nothing: "Nothing was found", nothingHint: "Try *:*, fewer words, or a word with * at its end.", score: "Score",
    name: "Name of the index", analyzer: "Analyzer", ownAnalyzer: (name) => `as stored (${name})`, function: "Index function", stored: "The index is stored", tried: (rows, docs) => `${plural(rows, "field")} of ${plural(docs, "document")}`, field: "field", remove: "Delete index", removeTitle: (name) => `Delete the search index ${name}?`, removed: (name) => `${name} is deleted`, analyzeTitle: "What the analyzer makes of a text", analyzeHint: "Words are found as they stand here.", analyzeText: "Text", analyze: "Analyze", noTokens: "No words are left.",
  },
  // operate:
  operate, cluster,
};

function sentence(words) {
  const trimmed = String(words).trim();
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(first) ? first : first + ".";
}
