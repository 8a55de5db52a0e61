//! Forked maps: two maps of one version. The rules exclude them; this module detects and repairs them.
//!
//! A version of a map is decided once, by a majority of the members. If the set of members was changed on two sides
//! that could not reach each other, each side may have had a majority of its own. Nodes that meet with two maps of one
//! version log and count that. One of the two maps stays, the same on all nodes; a node with the other map begins again
//! with the one that stays, and writes what its replicas hold into the database, as where two databases of one name
//! meet (`superseded`). So no document is lost. Maps that differ only in what was split are left alone, because a node
//! that is about to follow a later map looks the same.

use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::message::encode;
use crate::coordinator::topology::error::DatabaseError;
use crate::coordinator::topology::record::{Known, MapRecord, Record, Settings};
use crate::observe::metrics::Counter;

/// Whether two maps were decided as the same version.
fn forked(own: &MapRecord, other: &MapRecord) -> bool {
    let places = |map: &MapRecord| (map.by_range.clone(), map.moves.clone());
    own.version == other.version && own.splits == other.splits && places(own) != places(other)
}

/// Of two maps of one version the one with the higher digest stays.
fn stays(own: &MapRecord, other: &MapRecord) -> bool {
    let digest = |map: &MapRecord| *blake3::hash(&encode(map)).as_bytes();
    digest(own) >= digest(other)
}

impl Coordinator {
    /// Settles which of two maps of one version stays; false when these are not.
    pub(in crate::coordinator) async fn settle_fork(
        &self,
        name: &str,
        known: &Known,
        record: &Record,
    ) -> Result<bool, DatabaseError> {
        let (own, theirs) = (|| known.shared(&self.context().node).places(), record.places());
        if !forked(&own(), &theirs) {
            return Ok(false);
        }
        let database = self.database(name)?;
        let Ok(_alone) = database.following.try_lock() else { return Ok(false) };
        let own = own();
        if !forked(&own, &theirs) {
            return Ok(false);
        }
        let keeps = stays(&own, &theirs);
        tracing::error!(database = name, version = own.version, keeps, "two maps of one version meet");
        self.env().metrics().add(Counter::MapsForked, 1);
        if !keeps {
            let (mut next, mut settings) = (record.clone(), Settings::from(known.settings()));
            settings.merge(next.settings);
            next.settings = settings;
            self.install(name, next, Some(record.instance.clone())).await?;
            self.tell_state();
        }
        Ok(true)
    }
}
