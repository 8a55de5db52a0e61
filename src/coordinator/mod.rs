//! One logical operation on a database: which ranges, which copies, what to answer.
//!
//! [`Coordinator`] knows the databases of the node; [`Database`] is the handle through which everything in one database
//! is read and written. The operations are spread over files by family: `write`, `attachment`, `read`, `scan`,
//! `changes`, `maintenance`. Decisions without awaiting live in `shard_map`, `quorum`, `seq` and `names`.
//!
//! Assumes: ids and drafts were checked by `document`; who may do what was decided above. Promises: every answer of a
//! write counts replies in [`quorum`] only; every list is produced in bounded pages.

mod answered;
pub mod attachment;
mod autoupdate;
pub mod backup;
mod ballots;
mod blob_stream;
mod budget;
mod call_text;
pub mod catalogue;
pub mod changes;
pub mod check;
mod compaction;
mod compare;
mod consensus;
mod context;
mod copies;
pub mod database;
pub mod design;
mod doubts;
mod each;
mod epoch;
pub mod error;
pub mod events;
pub mod find;
mod floor;
mod forget;
mod forks;
pub mod global_changes;
mod gossip;
mod horizon;
mod in_sync;
mod joint;
mod judge;
mod layout;
mod locals;
pub mod maintenance;
mod maps;
mod message;
pub mod moves;
pub mod names;
mod others;
pub mod peers;
mod placement;
mod pour;
mod pull;
mod put_back;
pub mod quorum;
mod range_copy;
pub mod read;
mod read_quorum;
pub mod rebalance;
mod record;
mod refill;
mod remote;
mod repair;
pub mod reshard;
mod room;
mod row_filters;
mod rows;
mod salvage;
pub mod scan;
pub mod seq;
mod serve;
mod settings;
pub mod shard_map;
pub mod sift;
mod skip;
mod span;
mod split;
mod spread;
mod sync;
mod sync_points;
pub mod token;
mod told;
mod uploads;
mod validate;
pub mod view;
mod view_docs;
mod view_groups;
mod view_info;
mod view_reads;
mod view_reduce;
mod view_siblings;
mod view_swap;
mod voters;
pub mod write;

pub use crate::index::{Grouping, IndexTask, KeyBound, KeySpan};
pub use crate::shard::{Fetched, ShardError, Want};
pub use crate::storage::{CommitError, Damage, StorageError};
pub use attachment::{Staged, Upload, UploadOptions};
pub use catalogue::{Coordinator, CreateOptions, NamesQuery, Options};
pub use changes::{Candidate, ChangeRow, Changes, ChangesFilter, ChangesQuery, Follower, RowFilter, Since, Style};
pub use check::{CheckReport, check};
pub use consensus::MapError;
pub use database::{ClusterInfo, Database, DatabaseInfo, PartitionInfo, Sizes};
pub use design::DesignLookupError;
pub use error::{ChangesError, DatabaseError, ReadError, SettingError, TokenError, WriteError};
pub use events::{DatabaseEvent, EventKind};
pub use find::{FindQuery, Hit, HitPage, Hits};
pub use floor::Floor;
pub use maintenance::{PurgeInfo, RevsDiff};
pub use moves::MapEdit;
pub use quorum::Written;
pub use read::{AttachmentReader, RowDoc};
pub use row_filters::FilterLookupError;
pub use scan::{AllDocs, AllDocsQuery, AllDocsRow, DocSource, KeyBounds};
pub use seq::Seq;
pub use shard_map::ShardMap;
pub use sift::{SiftQuery, SiftRows, SiftedPage};
pub use token::{MalformedToken, Token};
pub use validate::Caller;
pub use view::{DatabaseView, Update, ViewError, ViewKeys, ViewQuery, ViewRow, ViewRows};
pub use view_info::ViewsInfo;
pub use view_reduce::{GroupRow, Overflow};
pub use write::{WriteDone, WriteOptions, WriteRequest};

#[cfg(test)]
mod tests;
