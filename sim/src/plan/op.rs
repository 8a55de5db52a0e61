//! What clients may do in a run. Values are unique in a plan, so that an answer tells which write it shows.

use serde::{Deserialize, Serialize};

/// How a feed is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FeedMode {
    /// One answer.
    Normal,
    /// One answer, later if there is nothing yet.
    Longpoll,
    /// A line for each change, for a while.
    Continuous,
    /// The same as events of the browser's kind.
    EventSource,
}

/// Which changes a feed tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Filter {
    /// All of them.
    None,
    /// Those that a selector chooses.
    Selector,
    /// Those that a function of a design document chooses.
    Function,
    /// Those of which a view has rows.
    View,
}

/// All of them.
pub const FILTERS: [Filter; 4] = [Filter::None, Filter::Selector, Filter::Function, Filter::View];

/// A client operation and how long the client waits before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedOp {
    /// Pause before the operation, in milliseconds.
    pub after_ms: u64,
    /// The operation.
    pub op: Op,
}

/// What a client may do. `doc` is an index below [`WorldPlan::documents`], `v` a value unique in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// `PUT` on the newest revision that this client has seen of the document (or none).
    Put {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `PUT` on the first revision that this client ever saw: mostly a conflict.
    PutStale {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `DELETE` of the newest revision seen.
    Delete {
        /// Document.
        doc: u32,
    },
    /// A replicated edit (`new_edits=false`) on the newest or first revision seen: makes siblings.
    Merge {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
        /// Build on the first revision seen and not on the newest one.
        fork: bool,
        /// Send it a second time at once (must change nothing).
        twice: bool,
    },
    /// `_bulk_docs` with one interactive edit per document.
    Bulk {
        /// Documents and values.
        edits: Vec<(u32, u64)>,
    },
    /// `PUT` of an attachment of `bytes` bytes derived from `v`.
    Attach {
        /// Document.
        doc: u32,
        /// Seeds the content.
        v: u64,
        /// Size in bytes.
        bytes: u32,
    },
    /// `GET` with `conflicts=true`.
    Read {
        /// Document.
        doc: u32,
    },
    /// `GET` with `open_revs=all&revs=true`: the whole tree.
    ReadTree {
        /// Document.
        doc: u32,
    },
    /// `GET _all_docs`.
    List,
    /// `GET _changes` since the last answer.
    Changes,
    /// `PUT` of the client's own local document.
    Local {
        /// Value of the body's `v`.
        v: u64,
    },
    /// `POST _compact`: must change no answer.
    Compact,
    /// Reads the feed on in some mode.
    Follow {
        /// How.
        mode: FeedMode,
        /// At most so many rows.
        limit: Option<u32>,
    },
    /// Reads the feed on at another node, long after its replicas were in sync with those that were read before.
    FollowAt {
        /// The node.
        node: u32,
    },
    /// Reads the feed on by a filter, with its documents or without, in some mode.
    FollowFiltered {
        /// Which changes.
        by: Filter,
        /// How.
        mode: FeedMode,
        /// With `include_docs`.
        docs: bool,
        /// At most so many rows.
        limit: Option<u32>,
    },
    /// Moves documents that are always there from group to group of a view.
    Shift {
        /// The groups that they come to.
        v: u64,
    },
    /// Asks for that view, reduced: each of them is in one group.
    Groups {
        /// How it is asked for.
        way: u32,
    },
    /// Reads the feed backwards, from its end.
    Descend {
        /// At most so many rows.
        limit: Option<u32>,
    },
    /// Takes a node out of work, or in again (`[couchdb] maintenance_mode`).
    Maintain {
        /// Which one.
        node: u32,
        /// Out of work.
        on: bool,
    },
    /// Waits at the end of the feed on a second connection while it writes: must be told.
    Tail {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `PUT` of a document that only this client writes.
    OwnPut {
        /// Document.
        doc: u32,
        /// From it follow all members.
        v: u64,
    },
    /// Its deletion.
    OwnDelete {
        /// Document.
        doc: u32,
    },
    /// `POST _purge` of its revision.
    OwnPurge {
        /// Document.
        doc: u32,
    },
    /// `_bulk_docs` over own documents.
    OwnBulk {
        /// Documents and values; value 0 deletes.
        edits: Vec<(u32, u64)>,
    },
    /// `GET`: must be what was written last.
    OwnRead {
        /// Document.
        doc: u32,
    },
    /// A view over own documents: must be the map of what was written last.
    OwnView {
        /// Which one.
        view: u32,
    },
    /// `_find` over own documents: must be the matching ones.
    OwnFind {
        /// Which selector.
        query: u32,
        /// A value in it.
        k: u64,
        /// Read in pages of two.
        paged: bool,
    },
    /// `_compact/{ddoc}` or `_view_cleanup`, and `_compact` of the database of own documents.
    OwnCompact {
        /// The views or the documents.
        views: bool,
    },
    /// Turns a validation function of this client's on or off.
    Strict {
        /// On.
        on: bool,
    },
    /// Writes what that function forbids.
    Marked {
        /// Makes the document's id.
        v: u64,
    },
    /// Makes a database of this client's own.
    DbCreate,
    /// Deletes it.
    DbDelete,
    /// Writes a document into it.
    DbWrite {
        /// Makes the document's id.
        v: u64,
    },
    /// Reads all of it.
    DbCheck,
    /// Opens or closes it for a user who is no administrator.
    Secure {
        /// Open to everybody.
        open: bool,
    },
    /// Reads it as that user.
    Enter,
    /// Opens a session by password.
    Login,
    /// Asks who one is, by the session's cookie or by a forged one.
    Whoami {
        /// Forged.
        forged: bool,
    },
    /// Copies the shared database to the second node, once.
    Replicate,
    /// Shows a token whose time is the node's clock's.
    Token {
        /// Seconds on that clock until it counts; negative: since then.
        from_s: i64,
        /// Seconds until it ends.
        until_s: i64,
        /// Signed with another key.
        forged: bool,
    },
    /// F26: asks for a view whose function misbehaves.
    Hostile {
        /// How.
        way: u32,
    },
    /// Asks, by a document on the second node, for a copy that is kept up to date.
    Keep {
        /// What is copied.
        filter: FeedFilter,
    },
    /// Takes that document back.
    EndKeep {
        /// Which one.
        filter: FeedFilter,
    },
    /// Writes a document into a database that any client makes where there is none: so there may be two of its name.
    TwinWrite {
        /// Makes the document's id.
        v: u64,
        /// Into the one that is deleted now and then.
        brief: bool,
    },
    /// Deletes the brief one.
    TwinDelete,
    /// Writes a document that this client purges later.
    Pass {
        /// Makes the document's id.
        v: u64,
    },
    /// Writes the oldest of those again that was written once.
    PassOn,
    /// `POST _purge` of the oldest of those.
    PassAway,
    /// Writes a document that is not there, with the same words each time; this client deletes it later.
    Lay {
        /// Makes the document's id.
        v: u64,
    },
    /// Deletes one of those.
    Bury {
        /// Which one.
        v: u64,
    },
    /// Writes a document that ends, for the first time or anew.
    Live {
        /// Makes the document's id.
        v: u64,
        /// In how many seconds it ends.
        for_s: u32,
    },
    /// `GET` of one of those.
    LookFor {
        /// Which of all that are known.
        nth: u64,
    },
    /// A view of the shared database of a cluster: rows of what was written there, in order.
    View {
        /// Which one.
        view: u32,
    },
    /// `_find` over it, by an index.
    Find {
        /// A value in the selector.
        k: u64,
    },
    /// Reads its feed on by a selector that a design document declares.
    FollowChosen,
    /// Edits the map's document: a replica of a range goes to another node.
    #[serde(rename = "MoveCopy")]
    MoveReplica {
        /// Of the database of documents that are purged, else of the shared one.
        passing: bool,
        /// Chooses the range.
        range: u32,
        /// The node that gets it.
        to: u32,
    },
    /// `POST /_cluster/rebalance`.
    Rebalance {
        /// The node that is to be emptied.
        drain: Option<u32>,
    },
    /// Asks one of two clusters, by a document, to keep the shared databases of both the same, one way.
    Join {
        /// Which cluster, and which way.
        way: Way,
        /// What is copied. A part comes into a database of its own.
        filter: FeedFilter,
        /// Chooses the node of that cluster that is asked.
        at: u32,
        /// Chooses the node of the other one that the replication knows.
        by: u32,
    },
    /// Takes that document back.
    Part {
        /// Which one.
        way: Way,
        /// Which one.
        filter: FeedFilter,
        /// Chooses the node that is asked.
        at: u32,
    },
    /// Has one of two clusters copy its shared database to the other one, or from it, once.
    Ferry {
        /// Which cluster, and which way.
        way: Way,
        /// Chooses the node of that cluster that is asked.
        at: u32,
        /// Chooses the node of the other one that the replication knows.
        by: u32,
    },
    /// `POST /_reshard/jobs` for all replicas of a range.
    SplitRange {
        /// Of the database of documents that are purged, else of the shared one.
        passing: bool,
        /// Chooses the range.
        range: u32,
    },
    /// Makes a node a member of the cluster, by its document of `_nodes`.
    AddNode {
        /// Which one.
        node: u32,
    },
    /// Has a node emptied and, once it is, deletes its document of `_nodes`.
    RemoveNode {
        /// Which one.
        node: u32,
    },
    /// `GET /_cluster/voters`.
    Voters,
    /// `POST _snapshot` of the shared database into a folder of this client's own.
    Snapshot {
        /// A folder that nothing was kept in before.
        fresh: bool,
    },
    /// `POST _restore` of the newest of those: must bring back what was there.
    Restore,
    /// Gives all nodes another secret of cookies, one node after the other, unless somebody is about it.
    NewSecret,
    /// Shows a node of the cluster a cookie.
    SessionAt {
        /// The node.
        node: u32,
        /// Signed by the client itself, with the secret of so many changes ago; `None`: that of its session.
        back: Option<u32>,
    },
    /// Makes a database that several clients make and delete.
    CommonCreate {
        /// Which one.
        name: u32,
    },
    /// Deletes it.
    CommonDelete {
        /// Which one.
        name: u32,
    },
    /// Writes a document into it, if it is there.
    CommonWrite {
        /// Which one.
        name: u32,
        /// Makes the document's id.
        v: u64,
    },
    /// Reads all of it.
    CommonCheck {
        /// Which one.
        name: u32,
    },
    /// Writes the design document of this client's rule, and sees that all replicas have it.
    Rule {
        /// Whether it forbids what it is about.
        on: bool,
    },
    /// Writes a document that somebody's rule is about.
    Ruled {
        /// Makes the document's id; chooses the rule.
        v: u64,
        /// One document by itself, in a list, or in a list as a revision that was made elsewhere.
        way: u32,
    },
}

/// A replication between two clusters: which of them works for it, and which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Way {
    /// The far cluster fetches what the near one has.
    FarFetches,
    /// The near cluster fetches what the far one has.
    NearFetches,
    /// The near cluster brings what it has to the far one.
    NearSends,
    /// The far cluster brings what it has to the near one.
    FarSends,
}

/// How many kinds of functions that misbehave there are (`workload::hostile`).
pub const HOSTILE_WAYS: u32 = 5;

/// All of them; the first two are enough for both ways.
pub const WAYS: [Way; 4] = [Way::FarFetches, Way::NearFetches, Way::NearSends, Way::FarSends];

impl Way {
    /// Whether the cluster that works for it reads from the other one.
    pub fn fetches(self) -> bool {
        matches!(self, Way::FarFetches | Way::NearFetches)
    }

    /// Whether the far cluster works for it.
    pub fn far_works(self) -> bool {
        matches!(self, Way::FarFetches | Way::FarSends)
    }

    /// Whether the far cluster gets what is copied.
    pub fn far_gets(self) -> bool {
        self.far_works() == self.fetches()
    }
}

/// What a replication copies of the shared database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FeedFilter {
    /// All of it.
    All,
    /// What a selector chooses.
    Selector,
    /// Documents by their ids.
    Ids,
}

impl Op {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Put { .. } => "put",
            Op::PutStale { .. } => "put stale",
            Op::Delete { .. } => "delete",
            Op::Merge { .. } => "merge",
            Op::Bulk { .. } => "bulk",
            Op::Attach { .. } => "attach",
            Op::Read { .. } => "read",
            Op::ReadTree { .. } => "read tree",
            Op::List => "list",
            Op::Changes => "changes",
            Op::Local { .. } => "local",
            Op::Compact => "compact",
            Op::Follow { mode: FeedMode::Normal, .. } | Op::FollowAt { .. } => "feed",
            Op::Follow { mode: FeedMode::Longpoll, .. } => "feed longpoll",
            Op::Follow { mode: FeedMode::Continuous, .. } => "feed continuous",
            Op::Follow { mode: FeedMode::EventSource, .. } => "feed eventsource",
            Op::FollowFiltered { docs: false, .. } => "feed filtered",
            Op::FollowFiltered { .. } => "feed with documents",
            Op::Descend { .. } => "feed descending",
            Op::Shift { .. } => "shift",
            Op::Groups { .. } => "groups",
            Op::Maintain { on: true, .. } => "maintenance begins",
            Op::Maintain { .. } => "maintenance ends",
            Op::Tail { .. } => "tail",
            Op::OwnPut { .. } => "own put",
            Op::OwnDelete { .. } => "own delete",
            Op::OwnPurge { .. } => "own purge",
            Op::OwnBulk { .. } => "own bulk",
            Op::OwnRead { .. } => "own read",
            Op::OwnView { .. } => "own view",
            Op::OwnFind { .. } => "own find",
            Op::OwnCompact { .. } => "own compact",
            Op::Strict { .. } => "strict",
            Op::Marked { .. } => "marked",
            Op::DbCreate => "db create",
            Op::DbDelete => "db delete",
            Op::DbWrite { .. } => "db write",
            Op::DbCheck => "db check",
            Op::Secure { .. } => "secure",
            Op::Enter => "enter",
            Op::Login => "login",
            Op::Whoami { .. } => "whoami",
            Op::Replicate => "replicate",
            Op::Token { .. } => "token",
            Op::Hostile { .. } => "hostile",
            Op::Keep { .. } => "keep",
            Op::EndKeep { .. } => "end keep",
            Op::TwinWrite { .. } => "twin write",
            Op::TwinDelete => "twin delete",
            Op::Pass { .. } => "pass",
            Op::PassOn => "pass on",
            Op::PassAway => "pass away",
            Op::Lay { .. } => "lay",
            Op::Bury { .. } => "bury",
            Op::Live { .. } => "live",
            Op::LookFor { .. } => "look for",
            Op::View { .. } => "view",
            Op::Find { .. } => "find",
            Op::FollowChosen => "feed chosen",
            Op::MoveReplica { .. } => "move replica",
            Op::Rebalance { .. } => "rebalance",
            Op::Join { .. } => "join",
            Op::Part { .. } => "part",
            Op::Ferry { .. } => "ferry",
            Op::SplitRange { .. } => "split range",
            Op::AddNode { .. } => "add node",
            Op::RemoveNode { .. } => "remove node",
            Op::Voters => "voters",
            Op::Snapshot { .. } => "snapshot",
            Op::Restore => "restore",
            Op::NewSecret => "new secret",
            Op::SessionAt { .. } => "session at",
            Op::CommonCreate { .. } => "common create",
            Op::CommonDelete { .. } => "common delete",
            Op::CommonWrite { .. } => "common write",
            Op::CommonCheck { .. } => "common check",
            Op::Rule { .. } => "rule",
            Op::Ruled { .. } => "ruled",
        }
    }
}

/// Names of all operations, for reports on what was never met.
pub const OPS: [&str; 78] = [
    "shift",
    "groups",
    "feed filtered",
    "feed with documents",
    "feed descending",
    "maintenance begins",
    "maintenance ends",
    "put",
    "put stale",
    "delete",
    "merge",
    "bulk",
    "attach",
    "read",
    "read tree",
    "list",
    "changes",
    "local",
    "compact",
    "feed",
    "feed longpoll",
    "feed continuous",
    "feed eventsource",
    "tail",
    "own put",
    "own delete",
    "own purge",
    "own bulk",
    "own read",
    "own view",
    "own find",
    "own compact",
    "strict",
    "marked",
    "db create",
    "db delete",
    "db write",
    "db check",
    "secure",
    "enter",
    "login",
    "whoami",
    "replicate",
    "token",
    "hostile",
    "keep",
    "end keep",
    "twin write",
    "twin delete",
    "pass",
    "pass away",
    "pass on",
    "view",
    "find",
    "feed chosen",
    "move replica",
    "rebalance",
    "join",
    "part",
    "ferry",
    "split range",
    "add node",
    "remove node",
    "voters",
    "snapshot",
    "restore",
    "new secret",
    "session at",
    "common create",
    "common delete",
    "common write",
    "common check",
    "rule",
    "ruled",
    "lay",
    "bury",
    "live",
    "look for",
];
