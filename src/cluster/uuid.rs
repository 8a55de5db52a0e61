//! Agreement on `couchdb/uuid`, which the nodes of a cluster share: it is part of the ids of replications, so that each
//! node resumes from the checkpoints of the others.
//!
//! A node without a configured uuid makes one at its first start. Each node sends its uuid with its record. The oldest
//! uuid of the cluster counts, and nodes that made a younger one adopt it. A configured uuid is older than any that was
//! made, and no node replaces it.

use serde::{Deserialize, Serialize};

use super::members::{Record, Records};
use super::{Cluster, MemberError, StartError};
use crate::wire::hex;

const AT: (&str, &str) = ("couchdb", "uuid");
/// In the place of a time: older than all others, so that those are replaced.
const CLAIMED_MS: u64 = 1;

/// A uuid and how a member came by it. The smallest is the oldest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// When it was made, in milliseconds since 1970; 0: it was given.
    pub made_ms: u64,
    /// The uuid.
    pub uuid: String,
}

fn origins(records: &Records) -> impl Iterator<Item = &Origin> {
    records.values().filter_map(|record| record.origin.as_ref())
}

impl Cluster {
    fn uuid(&self) -> Option<String> {
        self.0.config.get(AT.0, AT.1).filter(|uuid| !uuid.is_empty())
    }

    /// This node's own at its start: the one that it was given, else that of its cluster as it knew it, else a new one.
    pub(super) async fn settle_uuid(&self) -> Result<Origin, StartError> {
        if let Some(uuid) = self.uuid() {
            return Ok(Origin { made_ms: 0, uuid });
        }
        let known = origins(&self.0.table.records()).min().cloned();
        let origin = known.unwrap_or_else(|| {
            let made_ms = u64::try_from(self.0.env.wall().as_millis()).unwrap_or(u64::MAX);
            Origin { made_ms, uuid: hex::encode(&self.0.env.random_bytes::<16>()) }
        });
        self.0.config.set(AT, &origin.uuid, true).await?;
        Ok(origin)
    }

    /// Takes over the oldest of all in the place of one that a member made.
    pub(super) async fn adopt_uuid(&self) {
        let (records, own) = (self.0.table.records(), self.uuid());
        let Some(oldest) = origins(&records).min().filter(|oldest| own.as_ref() != Some(&oldest.uuid)) else { return };
        let was_made = |origin: &Origin| origin.made_ms > 0 && own.as_ref() == Some(&origin.uuid);
        if !origins(&records).any(was_made) {
            return;
        }
        match self.0.config.set(AT, &oldest.uuid, true).await {
            Ok(_) => tracing::info!("this node takes over the uuid {} of its cluster", oldest.uuid),
            Err(error) => tracing::warn!("the uuid of the cluster could not be taken over: {error}"),
        }
    }

    /// Makes this node's uuid that of the nodes that it sets up, unless one of those was given another.
    ///
    /// # Errors
    /// When it could not be stored.
    pub async fn claim_uuid(&self) -> Result<(), MemberError> {
        let Some(uuid) = self.uuid() else { return Ok(()) };
        let claimed = Origin { made_ms: CLAIMED_MS, uuid };
        let claim = move |record: &mut Record| record.origin = record.origin.take().into_iter().chain([claimed]).min();
        self.0.table.adjust(&self.0.name, claim).await
    }
}
