//! One logical operation on a database: it selects the ranges and replicas and makes the answer.
//!
//! [`Coordinator`] knows the databases of the node; [`Database`] is the handle through which everything in one database
//! is read and written. Each room holds one subsystem and uses those below it: `node`, `rebalance`, `backup`,
//! `anti_entropy`, `consensus`, `changes`, `write`, `read`, `replica`, `topology` (docs/architecture.md; tests/tidy.rs
//! checks it).
//!
//! Assumes: `document` has checked ids and drafts, and the layers above have checked rights. Promises: every answer of
//! a write counts replies in [`topology::quorum`] only; every list is produced in bounded pages.

pub mod anti_entropy;
pub mod backup;
pub mod changes;
pub mod consensus;
pub mod node;
pub mod read;
pub mod rebalance;
pub mod replica;
pub mod topology;
pub mod write;

pub use crate::index::{Grouping, KeyBound, KeySpan};
pub use crate::shard::{Fetched, ShardError, Want};
pub use crate::storage::{CommitError, Damage, StorageError};
pub use anti_entropy::RepairOperations;
pub use anti_entropy::expiry_outlook::ExpiryOutlook;
pub use anti_entropy::replica_table::{RangeReplicas, ReplicaRow, ReplicaState};
pub use anti_entropy::retention::{Hindrance, Retention};
pub use changes::row_filters::FilterLookupError;
pub use changes::{Candidate, ChangeRow, Changes, ChangesFilter, ChangesQuery, Follower, RowFilter, Since, Style};
pub use changes::{FeedOperations, Feeds, RangeTimes};
pub use consensus::agreement::MapError;
pub use node::check::{CheckReport, check};
pub use node::lost::lost_documents;
pub use node::start::Options;
pub use node::status::{NodeStatus, NotCompared, Reach, ReplicaName, Shortage};
pub use read::documents::{AttachmentReader, RowDoc};
pub use read::filter_scan::{FilterQuery, FilterRows, MatchedPage};
pub use read::find::{FindIndex, FindQuery, Hit, HitPage, Hits};
pub use read::scan::{AllDocs, AllDocsQuery, AllDocsRow};
pub use read::search::{DatabaseSearch, SearchFailure, SearchPage, SearchQuery};
pub use read::search_several::{SeveralPage, ask_several};
pub use read::search_trial::Unfit;
pub use read::typed_search::{TypedPage, TypedQuery};
pub use read::view::{DatabaseView, Update, ViewError, ViewKeys, ViewQuery, ViewRow, ViewRows};
pub use read::view_info::ViewsInfo;
pub use read::view_reduce::{GroupRow, Overflow};
pub use read::{DesignDocs, Documents, Lists, Queries, ReadOperations};
pub use rebalance::RebalanceOperations;
pub use rebalance::moves::MapEdit;
pub use replica::calls::{IndexSize, SearchRefusal};
pub use replica::catalogue::{Coordinator, CreateOptions, NamesQuery};
pub use replica::database::{ClusterInfo, Database, DatabaseInfo, PartitionInfo, Sizes};
pub use replica::design::DesignLookupError;
pub use replica::floor::Floor;
pub use replica::replica_status::ReplicaCounts;
pub use replica::token::{MalformedToken, WriteToken};
pub use topology::caller::Caller;
pub use topology::error::{ChangesError, DatabaseError, ReadError, SettingError, TokenError, WriteError};
pub use topology::events::{DatabaseEvent, EventKind};
pub use topology::period::Period;
pub use topology::quorum::Written;
pub use topology::seq::Seq;
pub use topology::shard_map::ShardMap;
pub use topology::span::{DocSource, KeyBounds};
pub use write::attachment::{Staged, Upload, UploadOptions};
pub use write::edits::{WriteDone, WriteOptions, WriteRequest};
pub use write::maintenance::{PurgeInfo, RevsDiff};
pub use write::settings::AutoPurge;
pub use write::{Attachments, DatabaseSettings, Maintenance, WriteOperations, Writer};

#[cfg(test)]
mod tests;
