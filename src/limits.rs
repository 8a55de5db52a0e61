//! Every limit and default of the node, with its unit and reason; one file per subject.
//!
//! Limits that users may change have a configuration key beside them; the value here is the default.

mod admission;
mod authentication;
mod between_nodes;
mod cluster;
mod commands;
mod databases;
mod expiry;
mod feeds;
mod functions;
mod guard;
mod indexes;
mod journal;
mod large_documents;
mod node;
mod overload;
mod page;
mod rebalance;
mod replicas;
mod replication;
mod requests;
pub mod scripts;
mod search;
mod selectors;
mod storage;
mod views;

pub use admission::*;
pub use authentication::*;
pub use between_nodes::*;
pub use cluster::*;
pub use commands::*;
pub use databases::*;
pub use expiry::*;
pub use feeds::*;
pub use functions::*;
pub use guard::*;
pub use indexes::*;
pub use journal::*;
pub use large_documents::*;
pub use node::*;
pub use overload::*;
pub use page::*;
pub use rebalance::*;
pub use replicas::*;
pub use replication::*;
pub use requests::*;
pub use search::*;
pub use selectors::*;
pub use settee_document::limits::*;
pub use storage::*;
pub use views::*;
