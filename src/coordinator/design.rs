//! The design documents of a database as the sources of functions.

use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::try_join_all;

use crate::coordinator::database::Database;
use crate::coordinator::error::ReadError;
use crate::document::id::DocId;
use crate::limits;
use crate::script::{Program, Scripts};
use crate::shard::{ListPage, ShardCopy, ShardError, Want};

/// The validators of a database and the moment that they are of.
#[derive(Default)]
pub(super) struct Validators(Mutex<Option<Cached>>);

struct Cached {
    /// [`ShardCopy::design_version`] of each range.
    versions: Vec<u64>,
    programs: Arc<[Program]>,
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

impl Database {
    /// Runs functions.
    pub fn scripts(&self) -> &Scripts {
        &self.context.scripts
    }

    /// The functions of the design document `id`, as it is now.
    pub async fn program(&self, id: &DocId) -> Result<Program, DesignLookupError> {
        let fetched = self.fetch(id, Want::Winner).await.map_err(DesignLookupError::Read)?;
        let stored = fetched.and_then(|f| f.found.into_iter().next()).and_then(|(_, stored)| stored);
        match stored {
            None => Err(DesignLookupError::NotFound { deleted: false }),
            Some(stored) if stored.deleted => Err(DesignLookupError::NotFound { deleted: true }),
            Some(stored) => Ok(Program::new(self.instance(), id, &stored)),
        }
    }

    /// The design documents with a validation function in the order of their ids: as of every write of a design
    /// document that was acknowledged before the call.
    pub(super) async fn validators(&self) -> Result<Arc<[Program]>, ShardError> {
        let copies = self.all_copies().await?;
        // Read before the documents: what changes while they are read is found again by the next call.
        let versions: Vec<u64> = copies.iter().map(|copy| copy.design_version()).collect();
        if let Some(cached) = &*self.validators.0.lock().unwrap_or_else(PoisonError::into_inner)
            && cached.versions == versions
        {
            return Ok(Arc::clone(&cached.programs));
        }
        let found = try_join_all(copies.into_iter().map(|copy| self.validators_of(copy))).await?;
        let mut programs: Vec<Program> = found.into_iter().flatten().collect();
        programs.sort_by(|a, b| a.id().cmp(b.id()));
        let programs: Arc<[Program]> = programs.into();
        let cached = Cached { versions, programs: Arc::clone(&programs) };
        *self.validators.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached);
        Ok(programs)
    }

    async fn validators_of(&self, copy: &ShardCopy) -> Result<Vec<Program>, ShardError> {
        let mut programs = Vec::new();
        let mut start = Bound::Included(DocId::new("_design/"));
        loop {
            // '0' follows '/' in the order of bytes.
            let end = Bound::Excluded(DocId::new("_design0"));
            let page = ListPage { start, end, descending: false, limit: limits::PAGE_DOCS, bodies: true };
            let rows = copy.list(page).await?;
            for row in &rows {
                let program = row.winner.as_ref().map(|stored| Program::new(self.instance(), &row.id, stored));
                programs.extend(program.filter(|program| program.validator().is_some()));
            }
            match rows.last() {
                Some(last) if rows.len() == limits::PAGE_DOCS => start = Bound::Excluded(last.id.clone()),
                _ => return Ok(programs),
            }
        }
    }
}
