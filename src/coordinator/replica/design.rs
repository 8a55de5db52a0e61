//! What a database keeps of its design documents between reads, see `read::design_docs`.

use std::sync::{Arc, Mutex};

use crate::coordinator::topology::error::ReadError;
use crate::script::Program;

/// The design documents of a database and the moment that they are of.
#[derive(Default)]
pub(in crate::coordinator) struct Designs(pub(in crate::coordinator) Mutex<Option<Cached>>);

/// What each range said of its design documents, see `RangeReplica::design_version`, and which replica said it.
pub(in crate::coordinator) type Versions = Vec<(Option<Arc<str>>, u64)>;

/// The design documents of one moment.
#[derive(Clone)]
pub(in crate::coordinator) struct Cached {
    pub(in crate::coordinator) versions: Versions,
    pub(in crate::coordinator) programs: Arc<[Program]>,
    /// Those with a validation function.
    pub(in crate::coordinator) validators: Arc<[Program]>,
}

/// Why a design document's functions are not to be had.
#[derive(Debug)]
pub enum DesignLookupError {
    /// There is none of that name; `deleted`: there was.
    NotFound {
        /// Whether there was one.
        deleted: bool,
    },
    /// See [`ReadError`].
    Read(ReadError),
}
