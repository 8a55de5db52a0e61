//! The design documents of a database as the sources of functions.

use std::ops::Bound;
use std::sync::{Arc, PoisonError};

use futures_util::future::try_join_all;

use crate::coordinator::read::{DesignDocs, ReadOperations};
use crate::coordinator::replica::design::{Cached, DesignLookupError, Versions};
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::error::ReadError;
use crate::document::id::DocId;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::script::Program;
use crate::shard::{ListPage, ListRow, ShardError, Want};
use crate::world::buggify::{Mutation, buggify, mutated};

impl DesignDocs<'_> {
    /// The functions of the design document `id`, as it is now.
    pub async fn program(self, id: &DocId) -> Result<Program, DesignLookupError> {
        let programs = self.programs().await.map_err(DesignLookupError::Read)?;
        if let Ok(at) = programs.binary_search_by(|program| program.id().cmp(id)) {
            return Ok(programs[at].clone());
        }
        match self.documents().fetch_one(id, Want::Winner).await.map_err(DesignLookupError::Read)? {
            None => Err(DesignLookupError::NotFound { deleted: false }),
            Some(stored) if stored.deleted => Err(DesignLookupError::NotFound { deleted: true }),
            Some(stored) => Ok(Program::new(self.instance(), id, &stored)),
        }
    }

    /// All design documents in the order of their ids: as of every write of one that was acknowledged before the call.
    ///
    /// # Errors
    /// When the node cannot read.
    pub async fn programs(self) -> Result<Arc<[Program]>, ReadError> {
        Ok(self.designs().await?.programs)
    }

    /// Those of [`DesignDocs::programs`] with a validation function.
    pub(in crate::coordinator) async fn validators(self) -> Result<Arc<[Program]>, ShardError> {
        Ok(self.designs().await?.validators)
    }

    async fn designs(self) -> Result<Cached, ShardError> {
        // Read before the documents: what changes while they are read is found again by the next call.
        let layout = self.layout();
        let told: Vec<(u64, RangeReplica)> = match self.replicas().replicas_at_hand(&layout, layout.map.live()) {
            Some(replicas) => replicas
                .into_iter()
                .map(|replica| (replica.shard.design_version(), RangeReplica::Own(replica)))
                .collect(),
            None => {
                let version = |replica: RangeReplica| async move { Ok((replica.design_version().await?, replica)) };
                try_join_all(self.ranges().into_iter().map(|range| self.replicas().on_one(range, version))).await?
            }
        };
        let (versions, replicas): (Vec<u64>, Vec<RangeReplica>) = told.into_iter().unzip();
        let versions: Versions = replicas.iter().map(|replica| replica.node().cloned()).zip(versions).collect();
        if let Some(cached) = &*self.designs.0.lock().unwrap_or_else(PoisonError::into_inner)
            && (cached.versions == versions || mutated(Mutation::StaleValidators))
            && !buggify("design: validators read anew")
        {
            self.context.env.metrics().count(Counter::ValidatorsCached);
            return Ok(cached.clone());
        }
        self.context.env.metrics().count(Counter::ValidatorsRead);
        let found = try_join_all(replicas.iter().map(|replica| self.designs_of(replica))).await?;
        let mut programs: Vec<Program> = found.into_iter().flatten().collect();
        programs.sort_by(|a, b| a.id().cmp(b.id()));
        let validators = programs.iter().filter(|program| program.validator().is_some()).cloned().collect();
        let cached = Cached { versions, programs: programs.into(), validators };
        *self.designs.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached.clone());
        Ok(cached)
    }

    async fn designs_of(self, replica: &RangeReplica) -> Result<Vec<Program>, ShardError> {
        let mut programs = Vec::new();
        let mut start = Bound::Included(DocId::new("_design/"));
        loop {
            // '0' follows '/' in the order of bytes.
            let end = Bound::Excluded(DocId::new("_design0"));
            let page = ListPage { start, end, descending: false, limit: limits::PAGE_DOCS, bodies: true };
            let rows = replica.list(page).await?;
            let program =
                |row: &ListRow| row.winner.as_ref().map(|stored| Program::new(self.instance(), &row.id, stored));
            programs.extend(rows.iter().filter_map(program));
            match rows.last() {
                Some(last) => start = Bound::Excluded(last.id.clone()),
                None => return Ok(programs),
            }
        }
    }
}
