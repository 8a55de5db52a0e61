//! Per-user databases: the section `[couch_peruser]`, as in CouchDB.
//!
//! While `enable` is `true` a task follows the users database from its beginning: each user gets a database named
//! `database_prefix` and the hexadecimal name, whose security object names the user on both sides. When the user is
//! deleted the database is deleted too with `delete_dbs`, else the user is removed from its security object. In a
//! cluster the first of the members that are up does it. Every step is idempotent, so that a restart, a failure or a
//! second node at work only costs a look.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::options;
use super::users::name_in;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::coordinator::{ChangeRow, Coordinator, CreateOptions, DatabaseError, Follower, WriteOperations};
use crate::document::json::{self, Object, Value};
use crate::document::security;
use crate::world::{Abort, Env};

const SECTION: &str = "couch_peruser";
/// The prefix of names while `database_prefix` is unset.
const PREFIX: &str = "userdb-";

/// Why a user's database is not as it should be, for the log; it is tried again.
fn failed(error: &dyn std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// Starts the task; it ends with the coordinator, or when the returned handle says so.
pub fn start(env: &Env, config: &Config, cluster: &Cluster, coordinator: &Arc<Coordinator>) -> Box<dyn Abort> {
    let coordinator = Arc::downgrade(coordinator);
    let task = Arc::new(Task { env: env.clone(), config: config.clone(), cluster: cluster.clone(), coordinator });
    env.spawn_worker("peruser_databases", "a change of the users database", move |_| {
        let task = Arc::clone(&task);
        async move { task.run().await }
    })
}

struct Task {
    env: Env,
    config: Config,
    cluster: Cluster,
    coordinator: Weak<Coordinator>,
}

impl Task {
    /// Whether it is this node's to do.
    fn is_ours(&self) -> bool {
        let chosen = || self.cluster.up().first().is_none_or(|first| first == self.cluster.name());
        self.config.bool(SECTION, "enable", false) && chosen()
    }

    /// What decides which databases there should be.
    fn settings(&self) -> (BTreeMap<String, String>, String) {
        (self.config.section(SECTION), options::users_db(&self.config))
    }

    async fn run(&self) {
        let (mut changes, mut members) = (self.config.watch(), self.cluster.watch());
        let (mut follower, mut settings) = (None, self.settings());
        loop {
            changes.borrow_and_update();
            members.borrow_and_update();
            let now = self.settings();
            if now != settings || !self.is_ours() {
                // Another prefix or users database, or another node's work: all is looked at again.
                (follower, settings) = (None, now);
            }
            let gone = tokio::select! {
                biased;
                changed = changes.changed() => changed.is_err(),
                changed = members.changed() => changed.is_err(),
                () = self.follow(&mut follower) => true,
            };
            if gone {
                return;
            }
        }
    }

    /// Does what the users database asks for while that is this node's to do; ends with the coordinator.
    async fn follow(&self, follower: &mut Option<Follower>) {
        if !self.is_ours() {
            return std::future::pending().await;
        }
        let users = options::users_db(&self.config);
        let follower = follower.get_or_insert_with(|| Follower::new(&self.env, self.coordinator.clone(), &users));
        while let Some(rows) = follower.next().await {
            let Some(coordinator) = self.coordinator.upgrade() else { return };
            match self.settle_all(&coordinator, &rows).await {
                Ok(()) => follower.done(),
                Err(why) => tracing::warn!("databases of users, to be tried again: {why}"),
            }
        }
    }

    async fn settle_all(&self, coordinator: &Coordinator, rows: &[ChangeRow]) -> Result<(), String> {
        for row in rows {
            if let Some(name) = name_in(row.id.as_str()) {
                self.settle(coordinator, name, row.deleted).await?;
            }
        }
        Ok(())
    }

    /// Makes the database of a user what it should be.
    async fn settle(&self, coordinator: &Coordinator, user: &str, deleted: bool) -> Result<(), String> {
        let prefix = self.config.text(SECTION, "database_prefix", PREFIX);
        let name = format!("{prefix}{}", crate::wire::hex::encode(user.as_bytes()));
        if deleted && self.config.bool(SECTION, "delete_dbs", false) {
            return match coordinator.delete_database(&name).await {
                Ok(_) | Err(DatabaseError::NotFound) => Ok(()),
                Err(error) => Err(failed(&error)),
            };
        }
        if !deleted && !coordinator.has_database(&name) {
            match coordinator.create_database(&name, self.wanted(user)).await {
                Ok(_) | Err(DatabaseError::Exists) => {}
                // No prefix makes such a name legal: trying again would stop all others.
                Err(error @ (DatabaseError::IllegalName { .. } | DatabaseError::NameTooLong { .. })) => {
                    tracing::error!(user, ?error, "this user gets no database");
                    return Ok(());
                }
                Err(error) => return Err(failed(&error)),
            }
        }
        let Ok(database) = coordinator.database(&name) else { return Ok(()) };
        let before = match json::parse(&database.security()) {
            Ok(Value::Object(object)) => object,
            _ => Object::new(),
        };
        let after = with_user(before.clone(), user, !deleted);
        if after == before { Ok(()) } else { database.settings().set_security(&after).await.map_err(|e| failed(&e)) }
    }

    /// The database is closed to others from its first moment.
    fn wanted(&self, user: &str) -> CreateOptions {
        let text = security::text_of_new(&self.config.text("couchdb", "default_security", "admin_only"));
        let object = match json::parse(text.as_bytes()) {
            Ok(Value::Object(object)) => object,
            _ => Object::new(),
        };
        let q = self.config.get(SECTION, "q").and_then(|q| q.parse().ok());
        let security = Some(with_user(object, user, true).to_vec().into());
        CreateOptions { q, security, ..CreateOptions::default() }
    }
}

/// A security object with the user among the names of both sides, or with none of it.
fn with_user(mut object: Object, user: &str, listed: bool) -> Object {
    for side in ["admins", "members"] {
        let mut principals = object.get(side).and_then(Value::as_object).cloned().unwrap_or_default();
        let names = principals.get("names").and_then(Value::as_array).unwrap_or_default();
        let is_listed = names.iter().any(|name| name.as_str() == Some(user));
        if is_listed == listed {
            continue;
        }
        let others = names.iter().filter(|name| name.as_str() != Some(user)).cloned();
        let names: Vec<Value> = listed.then(|| Value::from(user)).into_iter().chain(others).collect();
        principals.insert("names", names);
        object.insert(side, principals);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_once_on_both_sides_and_taken_out_again() {
        let object = |text: &str| match json::parse(text.as_bytes()) {
            Ok(Value::Object(object)) => object,
            other => panic!("{other:?}"),
        };
        let text = |object: &Object| String::from_utf8(object.to_vec()).unwrap();
        let new = object(security::ADMINS_ONLY);
        let with = with_user(new, "ann", true);
        let expected =
            r#"{"members":{"roles":["_admin"],"names":["ann"]},"admins":{"roles":["_admin"],"names":["ann"]}}"#;
        assert_eq!(text(&with), expected);
        assert_eq!(with_user(with.clone(), "ann", true), with);
        let both = with_user(with.clone(), "bob", true);
        assert!(text(&both).contains(r#""names":["bob","ann"]"#));
        assert_eq!(with_user(both, "bob", false), with);
        let gone = with_user(object(r#"{"members":{"names":["ann"]},"extra":1}"#), "ann", false);
        assert_eq!(text(&gone), r#"{"members":{"names":[]},"extra":1}"#);
    }
}
