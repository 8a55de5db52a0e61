//! Reads of local documents. Of two versions the one with the higher stamp counts on all replicas.

use crate::coordinator::read::Documents;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::replicas::no_answer;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::quorum::replicas_to_ask;
use crate::document::id::DocId;
use crate::shard::{LocalDocument, LocalRegister, ShardError};

impl Documents<'_> {
    /// Reads a local document from `r` replicas: the one with the highest stamp. Replicas that had another get it.
    pub(in crate::coordinator) async fn get_local_by(
        self,
        layout: &Layout,
        id: &DocId,
        r: Option<u32>,
    ) -> Result<Option<LocalDocument>, ReadError> {
        let range = layout.map.index_of(id);
        let replicas = self.replicas().all_readers(layout, range).await?;
        let ask = replicas_to_ask(r, layout.placed.replicas(range));
        let mut found: Vec<(RangeReplica, Option<LocalRegister>)> = Vec::new();
        let mut failed = ShardError::NoReplica { replicas: layout.placed.replicas(range) };
        for replica in replicas {
            if found.len() == ask {
                break;
            }
            match replica.local(id).await {
                Ok(register) => found.push((replica, register)),
                Err(error @ (ShardError::Dropped | ShardError::Moved)) => return Err(error.into()),
                Err(error) => failed = no_answer(failed, error),
            }
        }
        if found.is_empty() {
            return Err(failed.into());
        }
        self.check_quorum(found.len(), ask)?;
        let best = found.iter().filter_map(|(_, register)| register.as_ref()).max_by_key(|register| register.stamp);
        let Some(best) = best.cloned() else { return Ok(None) };
        let stamp = |register: &Option<LocalRegister>| register.as_ref().map(|register| register.stamp);
        let behind: Vec<RangeReplica> =
            found.into_iter().filter(|(_, own)| stamp(own) != Some(best.stamp)).map(|(replica, _)| replica).collect();
        for replica in behind {
            let registers = vec![(id.clone(), best.clone())];
            self.context.env.spawn(async move {
                if let Err(error) = replica.local_merge(registers).await {
                    tracing::debug!(%error, "a local document was not repaired");
                }
            });
        }
        Ok(best.document)
    }
}
