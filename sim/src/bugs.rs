//! The board of known bugs: each is planted by a choice at run time, and an invariant must catch it.

use settee::storage::planted::Bug;
use settee::world::buggify::Mutation;

use crate::plan::{Plan, Scene};

/// A bug of the storage or of the code above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// In the storage.
    Storage(Bug),
    /// Above it.
    Node(Mutation),
}

/// A line of the board.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What is planted.
    pub plant: Plant,
    /// What it does, for readers.
    pub what: &'static str,
    /// The invariants that may name it.
    pub caught_by: &'static [&'static str],
    /// Where it shows.
    pub shown_by: ShownBy,
}

/// The plans that can show a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownBy {
    /// Those of one server, or two.
    Servers,
    /// Those of a cluster.
    Clusters,
    /// Those of a scene: others show it too seldom.
    Scene(Scene),
}

impl ShownBy {
    /// The plan of a seed.
    pub fn plan(self, seed: u64) -> Plan {
        match self {
            ShownBy::Servers => Plan::from_seed(seed),
            ShownBy::Clusters => Plan::cluster_from_seed(seed),
            ShownBy::Scene(scene) => Plan::of_scene(scene, seed),
        }
    }

    /// The kind of these plans, as files of the board name it.
    pub fn kind(self) -> &'static str {
        match self {
            ShownBy::Servers => "servers",
            ShownBy::Clusters => "clusters",
            ShownBy::Scene(scene) => scene.name(),
        }
    }

    /// A seed as the table of the board has it.
    pub fn told(self, seed: u64) -> String {
        match self {
            ShownBy::Servers | ShownBy::Clusters => seed.to_string(),
            ShownBy::Scene(scene) => format!("{seed}, of `{}`", scene.name()),
        }
    }
}

const fn storage(bug: Bug, what: &'static str, caught_by: &'static [&'static str]) -> Entry {
    Entry { plant: Plant::Storage(bug), what, caught_by, shown_by: ShownBy::Servers }
}

/// What only a scene shows soon.
const fn storage_scene(scene: Scene, bug: Bug, what: &'static str, caught_by: &'static [&'static str]) -> Entry {
    Entry { shown_by: ShownBy::Scene(scene), ..storage(bug, what, caught_by) }
}

/// What only a cluster can show.
const fn cluster(mutation: Mutation, what: &'static str, caught_by: &'static [&'static str]) -> Entry {
    Entry { shown_by: ShownBy::Clusters, ..node(mutation, what, caught_by) }
}

/// What only a scene shows soon.
const fn scene(scene: Scene, mutation: Mutation, what: &'static str, caught_by: &'static [&'static str]) -> Entry {
    Entry { shown_by: ShownBy::Scene(scene), ..node(mutation, what, caught_by) }
}

const fn node(mutation: Mutation, what: &'static str, caught_by: &'static [&'static str]) -> Entry {
    Entry { plant: Plant::Node(mutation), what, caught_by, shown_by: ShownBy::Servers }
}

/// Every bug that can be planted.
pub const BOARD: &[Entry] = &[
    // I28: the database itself may be what is lost; then nothing answers.
    // I30: a security object that was acknowledged is lost with the rest.
    storage(Bug::SkipFsync, "syncs of journal and store do nothing", &["I1", "I6", "I7", "I27", "I28", "I30"]),
    storage(Bug::LoseSibling, "a merge drops a conflicting leaf", &["I1", "I6"]),
    // I9: where the database itself is lost, the next edit of another server's is refused. I3: it is made a second
    // time. I17, I18: a document of one client's own is lost, with its rows.
    storage(
        Bug::CheckpointFirst,
        "the store's position is durable before its data",
        &["I1", "I3", "I6", "I8", "I9", "I17", "I18", "I27", "I28"],
    ),
    storage(
        Bug::AcceptTornTail,
        "a torn frame at the journal's end is replayed",
        // I22: what a torn tail takes may be a document that replication had brought.
        &["I1", "I3", "I4", "I22", "I27", "I28", "P"],
    ),
    storage(
        Bug::HalfBatch,
        "a reader sees half of a group",
        // I18: an index that was built over half of a group leaves a document out. I28: a flush of half a group leaves
        // a document without its body.
        &["I1", "I4", "I6", "I9", "I11", "I13", "I17", "I18", "I21", "I27", "I28"],
    ),
    node(Mutation::ViewRowStays, "rows of a deleted document stay in its views", &["I17", "I18"]),
    storage(Bug::StaleIndexRow, "rows of a changed document stay beside the new ones", &["I17", "I18"]),
    storage(Bug::SummaryNotUpdated, "a deletion is not taken out of counts", &["I4", "I15", "I17"]),
    // I13: the index of a declared selector, too.
    node(Mutation::IndexPositionFirst, "an index's position is durable before its rows", &["I13", "I17", "I18"]),
    node(Mutation::SearchHitStays, "a deleted document is still found by a search", &["I18"]),
    node(Mutation::MergeForgetsDeletions, "a merge of segments of a search index forgets deletions", &["I18"]),
    node(Mutation::StoredSumStays, "the stored sum of rows stays when one of them changes", &["I17"]),
    node(Mutation::SelectorIndexTrusted, "the index of a selector is taken for complete", &["I13"]),
    node(Mutation::PurgeNotIndexed, "rows of a purged document stay", &["I17", "I18", "I28"]),
    storage(Bug::RangeNarrowedOnNe, "`$ne` narrows the range of an index", &["I18"]),
    node(Mutation::FeedSkipsRange, "a feed leaves out a range", &["I13", "I16", "I22"]),
    node(Mutation::FeedSeqAhead, "a feed cut by its limit gives the sequence of the end", &["I13", "I22"]),
    node(Mutation::TimeNotedLate, "a feed since a time leaves out the first change of each bin of times", &["I13"]),
    // I22: a replication waits at the feed, too.
    node(Mutation::FeedMissesNews, "a waiting feed is not woken", &["I16", "I22"]),
    node(Mutation::StaleSecurity, "a replaced security object stays in force", &["I30"]),
    node(Mutation::StaleValidators, "validation functions are read once", &["I30"]),
    node(Mutation::ForkOnConflict, "an edit of an old revision makes a branch", &["I8"]),
    node(Mutation::BulkOutOfOrder, "bulk results stand in another order", &["I1", "I8", "I9", "I11"]),
    // I28: of documents of one client's own, and the views over them.
    node(Mutation::CompactLeaves, "compaction drops bodies of leaves", &["I1", "I28"]),
    node(Mutation::CompactNothing, "compaction keeps what it is to remove", &["I26"]),
    node(Mutation::ReplicateOneLeaf, "the replicator copies one leaf of a document", &["I21", "I22"]),
    node(Mutation::CheckpointEarly, "the replicator's checkpoint runs ahead", &["I21", "I22"]),
    node(Mutation::DiffByDocument, "`_revs_diff` by document, not by revision", &["I21", "I22"]),
    node(Mutation::CookieUnsigned, "a cookie's signature is not looked at", &["I30"]),
    node(Mutation::CookieNeverEnds, "a session by cookie has no end", &["I30"]),
    node(Mutation::TokenNeverEnds, "the end of a token is not looked at", &["I30"]),
    node(Mutation::TokenTooEarly, "the begin of a token is not looked at", &["I30"]),
    node(Mutation::JobOutlivesDocument, "a replication goes on after its document was deleted", &["I23"]),
    cluster(Mutation::OwnerTwice, "every node takes every replication for its own", &["I23"]),
    node(Mutation::SelectorForgotten, "a replication by a selector copies everything", &["I24"]),
    node(Mutation::FeedRewinds, "a resumed feed begins anew in its last range", &["I14"]),
    node(Mutation::RowsUnsorted, "rows of several ranges are not merged by their order", &["I20"]),
    node(Mutation::BookmarkSkips, "a bookmark leaves out what has the same key", &["I18"]),
    cluster(Mutation::WriteTokenIgnored, "a read takes no notice of the token of a write", &["I36"]),
    cluster(Mutation::SettingsNotAdopted, "a node does not take settings from others", &["I30"]),
    // I1: a read of a majority lacks what was acknowledged; with a disk lost it is gone.
    cluster(Mutation::AckEarly, "a write is answered when one replica fewer than asked for holds it", &["I12", "I1"]),
    // I28: where the only replicas are on nodes of the other version. I1: its own replicas miss what the others took.
    cluster(
        Mutation::AddedFieldRequired,
        "a node of a later version takes no call without the field that it adds",
        &["I4", "I28", "I1"],
    ),
    cluster(Mutation::HigherVersionAgreed, "nodes agree on the higher one of their versions", &["I4", "I28", "I1"]),
    cluster(
        Mutation::RepairDropsSibling,
        "a replica takes in one leaf of each document",
        // I10: a replica that lost the sibling in a repair is counted among those that hold it.
        &["I1", "I4", "I6", "I10"],
    ),
    cluster(
        Mutation::TombstoneForgotten,
        "a replica that takes in another one leaves out deletions",
        // I10: a node that lost its disk and was filled answers reads that overlap the deletion.
        &["I1", "I4", "I6", "I10"],
    ),
    cluster(Mutation::PurgeNotSpread, "a replica does not ask others for their purges", &["I7"]),
    cluster(Mutation::DigestSkipsLeaf, "a search for differences passes over its first part", &["I1", "I4", "I6"]),
    cluster(Mutation::MoveLosesCopy, "a replica that moves is gone from the map", &["I25", "I12", "I28"]),
    scene(
        Scene::LateAnswer,
        Mutation::LatePrimary,
        "a 409 is told though the primary before may have stored it",
        &["I3"],
    ),
    scene(Scene::StaleMap, Mutation::StaleMapAccepted, "calls by an older map are taken", &["I1"]),
    scene(Scene::StaleMap, Mutation::OldOwnerWrites, "a replica that was replaced goes on taking writes", &["I1"]),
    scene(Scene::PutBack, Mutation::EpochIgnored, "a node goes on in its epoch at each start", &["I13"]),
    scene(
        Scene::NodeGone,
        Mutation::NodeLossRewinds,
        "a reader of a replica that is gone begins anew on another one",
        &["I14"],
    ),
    scene(Scene::PutBack, Mutation::PositionReused, "a restored replica gives positions out again", &["I13"]),
    scene(
        Scene::Twins,
        Mutation::InstanceLosesSide,
        "the documents of a database that lost its name are dropped",
        &["I1"],
    ),
    scene(
        Scene::Members,
        Mutation::SeatByMinority,
        "a node names the next voters without a majority of the present voters",
        &["I25"],
    ),
    scene(
        Scene::Mended,
        Mutation::DamageStays,
        "a replica whose store file is damaged is never rebuilt",
        // I28: what cannot be flushed stops the writes of the node, which is not up then.
        &["I31", "I28"],
    ),
    scene(
        Scene::Secrets,
        Mutation::SettingNotKept,
        "a setting that a request changed is what it was after the next start",
        &["I30"],
    ),
    // I1: the one that comes back takes the place of the one that was made after it.
    scene(Scene::SameName, Mutation::MarkForgotten, "a database that is deleted leaves no mark", &["I7", "I1"]),
    scene(
        Scene::Rules,
        Mutation::MergeUnvalidated,
        "a revision that was made elsewhere is not shown to validation functions",
        &["I30"],
    ),
    // Caught by other plans, too; here where a rule comes from another node.
    scene(Scene::Rules, Mutation::StaleValidators, "validation functions are read once", &["I30"]),
    scene(
        Scene::Forgotten,
        Mutation::ForgetEarly,
        "tombstones are forgotten where not all replicas were asked",
        &["I7"],
    ),
    scene(Scene::Expiring, Mutation::ExpiryByOwnClock, "documents expire by the clock of one node", &["I37"]),
    // Caught by other plans, too; here between clusters whose nodes fail over.
    scene(Scene::TwoClusters, Mutation::CheckpointEarly, "the replicator's checkpoint runs ahead", &["I21", "I22"]),
    scene(
        Scene::TwoClusters,
        Mutation::ReplicateOneLeaf,
        "the replicator copies one leaf of a document",
        &["I21", "I22"],
    ),
    scene(Scene::TwoClusters, Mutation::OwnerTwice, "every node takes every replication for its own", &["I23"]),
    scene(
        Scene::Purges,
        Mutation::PurgedParentStays,
        "a replica that has only the ancestor of a purged leaf keeps it",
        &["I7"],
    ),
    scene(
        Scene::Purges,
        Mutation::LateEditStored,
        "an edit is stored behind the purge of its revision, though its caller has given it up",
        &["I7"],
    ),
    node(Mutation::DescendingLeavesOut, "a feed read backwards leaves out the last change of each range", &["I13"]),
    scene(
        Scene::Disks,
        Mutation::KilledTailTrusted,
        "what a process that was killed wrote last is taken for durable",
        &["I1", "I3", "I6", "I7", "I8", "I10", "I27", "I28"],
    ),
    // I8, I10: an edit that was acknowledged is gone, and the next one is refused or made a second time.
    scene(
        Scene::Disks,
        Mutation::FailedDirSyncTrusted,
        "a sync of a directory that failed counts as done",
        &["I1", "I3", "I6", "I7", "I8", "I10", "I15", "I17", "I27", "I28"],
    ),
    // I3: a document is made a second time. I9: so is a database, and edits of another server's are refused.
    scene(
        Scene::Disks,
        Mutation::UnopenedFileAbsent,
        "a store file that cannot be opened counts as one that is not there",
        &["I1", "I3", "I4", "I6", "I7", "I8", "I9", "I10", "I13", "I15", "I17", "I18", "I20", "I27", "I28", "I30"],
    ),
    scene(
        Scene::Disks,
        Mutation::NoFilesEndsWrites,
        "a flush that lacks file descriptors ends the node's writes",
        &["I28"],
    ),
    scene(
        Scene::Disks,
        Mutation::OlderFileTrusted,
        "a store file that is older than the journal says is taken for the newest one",
        &["I1", "I3", "I6", "I7", "I8", "I10", "I15", "I17", "I18", "I27", "I28", "I30"],
    ),
    // I10: a document that was read is created a second time. I3: a database that is lost is made a second time.
    storage_scene(
        Scene::Disks,
        Bug::DropSegmentEarly,
        "a journal segment goes before the store has it",
        &["I1", "I3", "I6", "I7", "I8", "I10", "I15", "I17", "I18", "I27", "I28", "I30"],
    ),
    scene(
        Scene::Disks,
        Mutation::SearchPositionFirst,
        "a search index's position is durable before its segment",
        &["I18"],
    ),
    scene(Scene::Disks, Mutation::RoomIgnored, "what adds data is taken without room for it", &["I16"]),
    node(Mutation::ReductionOfTwoMoments, "a reduction goes on where it was though its rows changed", &["I34", "I17"]),
    node(
        Mutation::HeldStatePassedOver,
        "pages of a reduction behind the first are of what there is when they are read",
        &["I34"],
    ),
    // Of answers that come from several nodes.
    cluster(
        Mutation::HeldStatePassedOver,
        "pages of a reduction behind the first are of what there is when they are read",
        &["I34"],
    ),
    node(Mutation::CapIgnored, "a document that is larger than the node takes is taken", &["I16"]),
    cluster(Mutation::PlainBetweenNodes, "nodes that are to speak TLS with each other do not", &["I38"]),
    scene(Scene::Sizes, Mutation::MemoryIgnored, "memory is taken though none of its budget is left", &["I35"]),
    // I4, I16, I28: where the budget is small those who wait for it never get it.
    cluster(
        Mutation::MemoryLeaks,
        "a share of a budget of memory that went with bytes is not given back",
        &["I35", "I4", "I16", "I28"],
    ),
    node(Mutation::FullMemoryIgnored, "writes go on while memory is full of what waits for its file", &["I35"]),
    scene(
        Scene::Maintenance,
        Mutation::AbsenceForgotten,
        "a node that works again counts what it compared before it did not",
        &["I33"],
    ),
    // I22: a replication by a selector reads such a feed.
    scene(
        Scene::Filters,
        Mutation::FeedJoinsLaggingReplica,
        "a feed reads the documents of its rows from the replica that is furthest behind",
        &["I13", "I16", "I22", "I32"],
    ),
    node(Mutation::DeletionForgotten, "a deleted database is back after a start", &["I7", "I1"]),
];

impl Entry {
    /// Its name on the board.
    pub fn name(&self) -> String {
        match self.plant {
            Plant::Storage(bug) => format!("{bug:?}"),
            Plant::Node(mutation) => format!("{mutation:?}"),
        }
    }

    /// Finds an entry by its name.
    pub fn named(name: &str) -> Option<&'static Entry> {
        BOARD.iter().find(|entry| entry.name().eq_ignore_ascii_case(name))
    }
}
