//! Settings of a database that can change: its security object, its limits, how long it keeps tombstones and which
//! member says when documents end; the same on all nodes.
//!
//! Every node keeps the whole record. A changed setting gets a stamp above the one it had; of two stamps the higher
//! counts, wherever they meet. A change begins when a majority of the nodes that hold replicas could be asked, and is
//! answered when a majority has it. If fewer are known to have it by then, its outcome is unknown: it is not taken
//! back.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::coordinator::replica::node_calls::{CatalogueCall, DatabaseMap};
use crate::coordinator::topology::error::SettingError;
use crate::coordinator::topology::peers::{CallError, Urgency};
use crate::coordinator::topology::period::Period;
use crate::coordinator::topology::quorum::{Tally, majority};
use crate::coordinator::topology::record::{self, Record, Settings, StampedSetting};
use crate::coordinator::write::DatabaseSettings;
use crate::document::json::Object;
use crate::document::security;
use crate::limits;
use crate::shard::{ShardError, Stamp};
use crate::storage::{View, WriteView};
use crate::world::buggify::{Mutation, mutated};

/// What `_auto_purge` of a database holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutoPurge {
    /// How long tombstones are kept, see [`Period`]; `None`: as the node's configuration says.
    pub period: Option<String>,
    /// The member of documents that says when they end; `None`: they do not.
    pub expires_at: Option<String>,
}

impl Settings {
    /// Notes that the node `by` changed a setting.
    fn stamp(&mut self, setting: StampedSetting, by: u64) {
        let stamp = self.stamp_of(setting);
        *stamp = Stamp { counter: stamp.counter + 1, by };
    }

    fn stamp_of(&mut self, setting: StampedSetting) -> &mut Stamp {
        match setting {
            StampedSetting::Security => &mut self.stamps.security,
            StampedSetting::RevsLimit => &mut self.stamps.revs_limit,
            StampedSetting::PurgedInfosLimit => &mut self.stamps.purged_infos_limit,
            StampedSetting::AutoPurge => &mut self.stamps.auto_purge,
            StampedSetting::ExpiresAt => &mut self.stamps.expires_at,
        }
    }
}

impl DatabaseSettings<'_> {
    /// Sets the security object after checking its shape, see [`security::read`].
    pub async fn set_security(self, object: &Object) -> Result<(), SettingError> {
        let illegal = |security::IllegalSecurity { reason }| SettingError::IllegalSecurity { reason };
        security::read(object).map_err(illegal)?;
        let text = String::from_utf8_lossy(&object.to_vec()).into_owned();
        self.change_settings(StampedSetting::Security, move |settings| settings.security = Some(text)).await
    }

    /// Sets [`Database::revs_limit`]; 0 is refused.
    pub async fn set_revs_limit(self, limit: u64) -> Result<(), SettingError> {
        check_limit(limit)?;
        self.change_settings(StampedSetting::RevsLimit, move |settings| settings.revs_limit = limit).await
    }

    /// Sets [`Database::purged_infos_limit`]; 0 is refused.
    pub async fn set_purged_infos_limit(self, limit: u64) -> Result<(), SettingError> {
        check_limit(limit)?;
        self.change_settings(StampedSetting::PurgedInfosLimit, move |settings| settings.purged_infos_limit = limit)
            .await
    }

    /// Sets all that `_auto_purge` holds, in one step.
    pub async fn set_retention(self, wanted: AutoPurge) -> Result<(), SettingError> {
        let AutoPurge { period, expires_at } = wanted;
        if period.as_deref().is_some_and(|text| Period::parse(text).is_none()) {
            return Err(SettingError::IllegalPeriod);
        }
        if expires_at.as_deref().is_some_and(|name| !is_ordinary_member(name)) {
            return Err(SettingError::IllegalMember);
        }
        let by = self.context.tag;
        let change = move |settings: &mut Settings| {
            // One that was never set gets no stamp: nodes of a version that does not know it would never have the same.
            if expires_at.is_some() || *settings.stamp_of(StampedSetting::ExpiresAt) != Stamp::default() {
                settings.stamp(StampedSetting::ExpiresAt, by);
            }
            (settings.auto_purge, settings.expires_at) = (period, expires_at);
        };
        self.change_settings(StampedSetting::AutoPurge, change).await
    }

    /// Changes the record durably, here and on the other nodes.
    pub(in crate::coordinator) async fn change_settings(
        self,
        setting: StampedSetting,
        change: impl FnOnce(&mut Settings) + Send + 'static,
    ) -> Result<(), SettingError> {
        let holders = self.holders();
        let (up, wanted) = (self.context.up_of(&holders), majority(holders.len() as u32));
        if (up as u32) < wanted {
            return Err(SettingError::NoMajority { answered: up, replicas: holders.len() });
        }
        let by = self.context.tag;
        self.change_record(move |settings| {
            change(settings);
            settings.stamp(setting, by);
        })
        .await?;
        self.tell_settings(&holders).await
    }

    /// The nodes that hold replicas of any range, but those that were removed from the cluster.
    pub(in crate::coordinator) fn holders(self) -> BTreeSet<Arc<str>> {
        let layout = self.layout();
        let writers = layout.map.live().iter().flat_map(|range| layout.writers(*range, &self.context.node));
        writers.filter(|node| !self.context.is_gone(node)).collect()
    }

    /// Sends the settings to all other nodes; fails when fewer than a majority of the holders are known to have them
    /// then. They are in force here, and spread further, all the same.
    async fn tell_settings(self, holders: &BTreeSet<Arc<str>>) -> Result<(), SettingError> {
        let own = &self.context.node;
        let mut tally = Tally::new(holders.len() as u32, majority(holders.len() as u32));
        if holders.contains(own) {
            tally.done();
        }
        let others = self.context.others();
        if others.is_empty() {
            return Ok(());
        }
        let map = DatabaseMap { name: self.name.clone(), record: self.known.shared(own) };
        let call = CatalogueCall::Set(Box::new(map));
        let mut answers = self.context.tell_all(&others, &call, Urgency::Foreground);
        while tally.waits()
            && let Some((node, answer)) = answers.recv().await
        {
            match answer.map(|bytes| crate::coordinator::replica::message::decode::<bool>(&bytes)) {
                _ if !holders.contains(&node) => {}
                Ok(Ok(true)) => tally.done(),
                Ok(_) | Err(CallError::NotExecuted(_)) => tally.refused(),
                Err(CallError::Indeterminate(_)) => tally.silent(),
            }
        }
        match tally.is_met() {
            true => Ok(()),
            false => Err(SettingError::Undecided { answered: tally.held() as usize, replicas: holders.len() }),
        }
    }

    /// Tells a node what this one knows of the database: it asked by an older map.
    pub(in crate::coordinator) fn tell_map(self, node: &str) {
        let map = DatabaseMap { name: self.name.clone(), record: self.known.shared(&self.context.node) };
        let call = CatalogueCall::Set(Box::new(map));
        // It asks again by what it knows then; nobody waits for its answer.
        drop(self.context.tell_all(&[node.into()], &call, Urgency::Foreground));
    }

    /// Changes the settings on this node durably; what handles show follows in the order of the commits.
    pub(in crate::coordinator) async fn change_record(
        self,
        change: impl FnOnce(&mut Settings) + Send + 'static,
    ) -> Result<(), SettingError> {
        let (key, known) = (record::key(&self.name), Arc::clone(&self.known));
        let job = move |view: &mut WriteView<'_>| {
            let Some(bytes) = view.get(&key)? else { return Ok(Err(SettingError::DatabaseGone)) };
            let mut record = Record::decode(&bytes)?;
            if record.instance != known.instance {
                return Ok(Err(SettingError::DatabaseGone));
            }
            change(&mut record.settings);
            view.put(key, record.encode());
            if !mutated(Mutation::StaleSecurity) {
                view.after_commit(move || known.set_settings(record.settings));
            }
            Ok(Ok(()))
        };
        self.context.storage.committer().submit(job).await.map_err(ShardError::from)?
    }
}

/// Whether documents can have a member of that name on every server: those with `_` are refused by CouchDB.
fn is_ordinary_member(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('_') && name.len() <= limits::EXPIRY_MEMBER_BYTES
}

fn check_limit(limit: u64) -> Result<(), SettingError> {
    if limit == 0 { Err(SettingError::IllegalLimit) } else { Ok(()) }
}
