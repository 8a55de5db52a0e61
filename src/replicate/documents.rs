//! Replications that documents configure: those of the databases `_replicator` and `X/_replicator`.
//!
//! A task follows each such database. A document starts its replication, a changed one restarts it, a deleted one ends
//! it. The end of a one-shot replication is recorded in its document (`_replication_state` and what belongs to it). A
//! failed replication is tried again with growing pauses, and its document stays unchanged; a document that cannot be
//! understood is marked as failed. The mark holds across restarts: such a document does not start again until its state
//! is removed from it. In a cluster every node follows the databases and each document belongs to one of the nodes that
//! are up; when nodes come or go, documents change hands. All this is as CouchDB 3.5 was measured
//! (`conformance/cases/server`).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::error::ReplicateError;
use super::job::{Job, Origin};
use super::jobs::Replicator;
use super::notes::{Notes, listed, plain};
use super::owner;
use super::request::{Replication, check_options};
use super::sealed::{SEALED, keys_of, opened};
use crate::auth::{self, UserCtx};
use crate::cluster::Cluster;
use crate::coordinator::{ChangeRow, Coordinator, Database, EventKind, Follower, NamesQuery};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::revision::Revision;
use crate::document::selector::erlang_text;
use crate::limits;
use crate::observe::workers::Worker;
use crate::wire::url::split_credentials;
use crate::world::buggify::{Mutation, mutated};
use crate::world::sync::Mutex;
use crate::world::{Abort, Instant, lock};

/// Whether documents of the database `name` ask for replications.
pub fn is_replicator_database(name: &str) -> bool {
    name == "_replicator" || name.ends_with("/_replicator")
}

/// What a document must be to be written, with `owner` put in where it is missing. `old` is what it replaces.
///
/// # Errors
/// Why it is refused: it cannot be understood, or belongs to somebody else, or claims rights that the writer lacks.
pub fn checked(mut body: Object, old: Option<&Object>, user: &UserCtx) -> Result<Object, String> {
    if !user.is_server_admin() {
        // `null` owns nothing, but for those without a name.
        let is_another = |body: &Object| body.get("owner").is_some_and(|owner| owner.as_str() != user.name.as_deref());
        let was_named = |body: &Object| body.get("owner").is_some_and(|owner| owner.as_str().is_some());
        if is_another(&body) || old.is_some_and(|old| was_named(old) && is_another(old)) {
            return Err("Can't update replication documents from other users.".to_owned());
        }
    }
    check_user_ctx(&body, user)?;
    if !is_settled(&body) {
        check_options(&body).map_err(|error| refusal(&error))?;
        // Of a database of this server the name alone stands for it, and no number.
        let endpoints = || ["source", "target"].iter().filter_map(|side| body.get(side));
        if endpoints().any(|endpoint| matches!(endpoint, Value::Int(_))) {
            return Err("{error,function_clause}".to_owned());
        }
        let is_unfit = |endpoint: &Value| endpoint.as_object()?.get("url")?.as_str().map(is_relative);
        if endpoints().any(|endpoint| is_unfit(endpoint) == Some(true)) {
            return Err(ReplicateError::InvalidEndpoint.text());
        }
        Replication::parse(&body).map_err(|error| refusal(&error))?;
    }
    if body.get("owner").is_none_or(Value::is_null) {
        body.insert("owner", user.name.as_deref().map_or(Value::Null, Value::from));
    }
    Ok(body)
}

/// Why a document is refused, as CouchDB prints it: what a request would be told as a term.
fn refusal(error: &ReplicateError) -> String {
    match error {
        ReplicateError::BadRequest(reason) => format!("{{throw,{{bad_request,{}}}}}", erlang_text(reason)),
        error => error.text(),
    }
}

fn is_relative(url: &str) -> bool {
    !url.contains("://")
}

/// `user_ctx` may name no other user and no role that the writer lacks, unless that is a server administrator.
fn check_user_ctx(body: &Object, user: &UserCtx) -> Result<(), String> {
    let Some(claimed) = body.get("user_ctx").filter(|claimed| !claimed.is_null()) else { return Ok(()) };
    let Some(claimed) = claimed.as_object() else { return Err("The `user_ctx` must be an object.".to_owned()) };
    if user.is_server_admin() {
        return Ok(());
    }
    let name = claimed.get("name").and_then(Value::as_str);
    let mut roles = claimed.get("roles").and_then(Value::as_array).unwrap_or_default().iter();
    if name.is_some_and(|name| Some(name) != user.name.as_deref())
        || roles.any(|role| role.as_str().is_none_or(|role| !user.has_role(role)))
    {
        return Err("The `user_ctx` may only name the user and roles of who writes it.".to_owned());
    }
    Ok(())
}

/// The body as those see it who neither own it nor administer the database: without credentials.
pub fn without_credentials(mut body: Object) -> Object {
    for side in ["source", "target"] {
        match body.get_mut(side) {
            Some(Value::String(url)) => *url = bare_url(url),
            Some(Value::Object(endpoint)) => {
                endpoint.remove("headers");
                endpoint.remove("auth");
                endpoint.remove(SEALED);
                if let Some(Value::String(url)) = endpoint.get_mut("url") {
                    *url = bare_url(url);
                }
            }
            _ => {}
        }
    }
    body
}

fn bare_url(url: &str) -> String {
    let (before, _, behind) = split_credentials(url);
    format!("{before}{behind}")
}

/// Whether what is noted in the body says that there is nothing to do any more.
fn is_settled(body: &Object) -> bool {
    matches!(body.get("_replication_state").and_then(Value::as_str), Some("completed" | "failed"))
}

/// A document with a running replication.
struct Entry {
    asked: Object,
    job: Arc<Job>,
}

/// What is known of the documents of this node's replicator databases.
#[derive(Default)]
pub(super) struct Documents {
    running: Mutex<BTreeMap<Origin, Entry>>,
}

/// What a document's replication is doing, for `_scheduler/docs`.
pub enum DocumentState {
    /// It was not looked at yet.
    Initializing,
    /// It runs, or waits after a failure.
    Active(Arc<Job>),
    /// It is done or will never be; the document says so.
    Settled,
}

impl Replicator {
    /// What the replication of a document with this body is doing.
    pub fn document_state(&self, origin: &Origin, body: &Object) -> DocumentState {
        match lock(&self.documents.running).get(origin) {
            Some(entry) => DocumentState::Active(Arc::clone(&entry.job)),
            None if is_settled(body) => DocumentState::Settled,
            None => DocumentState::Initializing,
        }
    }

    /// Follows all replicator databases, also those to come, until the returned handle says otherwise. Local endpoints
    /// are shown below `base_url`.
    pub fn follow_documents(self: &Arc<Self>, cluster: &Cluster, base_url: String) -> Box<dyn Abort> {
        let cluster = cluster.clone();
        let watcher = Watcher { replicator: Arc::downgrade(self), cluster, base_url: base_url.into() };
        self.env.spawn_worker("replicator_databases", "a change of a database", move |me| watcher.clone().run(me))
    }
}

/// Sees replicator databases come and go.
#[derive(Clone)]
struct Watcher {
    replicator: Weak<Replicator>,
    cluster: Cluster,
    base_url: Arc<str>,
}

/// A replicator database that is followed.
struct Followed {
    /// Tells it from one that had its name before; `None`: not known yet.
    instance: Option<String>,
    _task: Task,
}

/// Ends a task with its owner.
struct Task(Box<dyn Abort>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watcher {
    async fn run(self, worker: Arc<Worker>) {
        let Some(replicator) = self.replicator.upgrade() else { return };
        let (coordinator, env) = (Arc::clone(&replicator.coordinator), replicator.env.clone());
        drop(replicator);
        let mut news = coordinator.watch_events();
        let (_, mut seen) = coordinator.events(u64::MAX);
        let names = coordinator.database_names(&NamesQuery::default());
        let mut followed: BTreeMap<String, Followed> = BTreeMap::new();
        for name in names.into_iter().filter(|name| is_replicator_database(name)) {
            self.look(&mut followed, &coordinator, name, false);
        }
        while news.changed().await.is_ok() {
            let run = worker.begin();
            let (events, last) = coordinator.events(seen);
            seen = last;
            for event in events.into_iter().filter(|event| is_replicator_database(&event.name)) {
                self.look(&mut followed, &coordinator, event.name, event.kind == EventKind::Deleted);
            }
            drop(run);
            // Writes to any database wake this task: a burst of them is looked at once.
            env.sleep(limits::REPLICATOR_WATCH_PAUSE).await;
        }
    }

    /// Follows a database as it is now. What was followed under its name is not that one any more where it was deleted,
    /// be it that another was made since: of several events only the last is told.
    fn look(&self, followed: &mut BTreeMap<String, Followed>, coordinator: &Coordinator, name: String, deleted: bool) {
        let instance = coordinator.database(&name).ok().map(|database| database.instance().to_owned());
        let other = |known: &Followed| known.instance.is_some() && instance.is_some() && known.instance != instance;
        if deleted || followed.get(&name).is_some_and(other) {
            followed.remove(&name);
            if let Some(replicator) = self.replicator.upgrade() {
                replicator.end_all_of(&name);
            }
        }
        match followed.get_mut(&name) {
            Some(known) => known.instance = instance.or(known.instance.take()),
            None if deleted => {}
            None => {
                let task = self.follow(name.clone());
                followed.insert(name, Followed { instance, _task: task });
            }
        }
    }

    fn follow(&self, name: String) -> Task {
        let (replicator, cluster) = (self.replicator.clone(), self.cluster.clone());
        let of = Documenter { replicator, cluster, base_url: Arc::clone(&self.base_url), name };
        let Some(replicator) = self.replicator.upgrade() else { return Task(Box::new(Ended)) };
        Task(replicator.env.spawn(of.run()))
    }
}

/// A task that never ran.
struct Ended;

impl Abort for Ended {
    fn abort(&self) {}
}

/// What a feed told of a document.
struct Seen {
    rev: Option<Revision>,
    deleted: bool,
}

/// Follows one replicator database.
struct Documenter {
    replicator: Weak<Replicator>,
    cluster: Cluster,
    base_url: Arc<str>,
    name: String,
}

impl Documenter {
    async fn run(self) {
        let Some(replicator) = self.replicator.upgrade() else { return };
        let env = replicator.env.clone();
        let mut follower = Follower::new(&env, Arc::downgrade(&replicator.coordinator), &self.name);
        drop(replicator);
        let mut nodes = self.cluster.watch();
        nodes.borrow_and_update();
        // Documents that could not be handled. They hold up no others: what makes room for them may stand behind them.
        let mut left: BTreeMap<DocId, Seen> = BTreeMap::new();
        let mut again: Option<Instant> = None;
        loop {
            let pause = async {
                match again {
                    Some(at) => env.sleep(at.since(env.now())).await,
                    None => std::future::pending().await,
                }
            };
            let rows = tokio::select! {
                biased;
                changed = nodes.changed() => match changed {
                    // Documents may belong to other nodes now: all are looked at again.
                    Ok(()) => {
                        follower.rewind();
                        continue;
                    }
                    Err(_) => return,
                },
                // Ahead of what is new, which may never end.
                () = pause => None,
                rows = follower.next() => match rows {
                    Some(rows) => Some(rows),
                    None => return,
                },
            };
            let Some(replicator) = self.replicator.upgrade() else { return };
            let tried_again = rows.is_none();
            let mut wanted = if tried_again { std::mem::take(&mut left) } else { BTreeMap::new() };
            let rows = rows.unwrap_or_default();
            let seen = |row: ChangeRow| (row.id, Seen { rev: row.revs.into_iter().next(), deleted: row.deleted });
            wanted.extend(rows.into_iter().filter(|row| !row.id.is_design()).map(seen));
            left.retain(|id, _| !wanted.contains_key(id));
            let (failed, error) = self.look_at_all(&replicator, wanted).await;
            if let Some(error) = error {
                let (database, count) = (&self.name, failed.len());
                tracing::warn!(database, count, error, "replication documents, to be tried again");
            }
            left.extend(failed);
            // A time that came while others were looked at is kept: they could come for ever.
            again = match again.filter(|_| !tried_again) {
                _ if left.is_empty() => None,
                Some(at) => Some(at),
                None => Some(Instant(env.now().0 + limits::REPLICATOR_RETRY_PAUSE)),
            };
            follower.done();
        }
    }

    /// Makes what runs for documents what they ask for: each as the feed told of it. Answers those with which that did
    /// not work, and why not.
    async fn look_at_all(
        &self,
        replicator: &Arc<Replicator>,
        wanted: BTreeMap<DocId, Seen>,
    ) -> (BTreeMap<DocId, Seen>, Option<String>) {
        let database = match replicator.coordinator.database(&self.name) {
            Ok(database) => database,
            Err(error) => return (wanted, Some(format!("{error:?}"))),
        };
        let (mut failed, mut last) = (BTreeMap::new(), None);
        for (id, seen) in wanted {
            if let Err(error) = self.look(replicator, &database, &id, &seen).await {
                last = Some(error);
                failed.insert(id, seen);
            }
        }
        (failed, last)
    }

    /// Makes what runs for a document what it asks for.
    async fn look(
        &self,
        replicator: &Arc<Replicator>,
        database: &Arc<Database>,
        id: &DocId,
        seen: &Seen,
    ) -> Result<(), String> {
        let origin = Origin { database: self.name.clone(), doc_id: id.as_str().to_owned() };
        let mine = owner::is_mine(&self.cluster, &format!("{}\0{}", origin.database, origin.doc_id));
        let found = if seen.deleted || !mine { None } else { listed(database, id, seen.rev.as_ref()).await? };
        let found = found.map(|(_, body)| body);
        let Some(body) = found.filter(|body| !is_settled(body)) else {
            replicator.end_of(&origin);
            return Ok(());
        };
        let asked = plain(&body);
        if lock(&replicator.documents.running).get(&origin).is_some_and(|entry| entry.asked == asked) {
            return Ok(());
        }
        replicator.end_of(&origin);
        let user = caller(replicator, &body);
        let started = opened(body, &keys_of(&replicator.config))
            .map_err(ReplicateError::BadRequest)
            .and_then(|body| Replication::parse(&body))
            .and_then(|replication| replicator.start(replication, &user, &self.base_url, Some(origin.clone())));
        let notes = Notes { database: Arc::clone(database), id: id.clone(), asked: asked.clone() };
        match started {
            Ok(job) => {
                lock(&replicator.documents.running).insert(origin.clone(), Entry { asked, job: Arc::clone(&job) });
                replicator.env.spawn(attend(Arc::downgrade(replicator), notes, origin, job));
                Ok(())
            }
            Err(ReplicateError::TooMany) => Err("too many replications run on this node".to_owned()),
            Err(error) => notes.write(replicator.env.wall(), "failed", [("state_reason", error.text().into())]).await,
        }
    }
}

/// Notes what becomes of a document's replication until it ends.
async fn attend(replicator: Weak<Replicator>, notes: Notes, origin: Origin, job: Arc<Job>) {
    // Cancelled by somebody else it is over, too.
    let _ = notes.follow(&replicator, &job).await;
    let Some(replicator) = replicator.upgrade() else { return };
    let mut running = lock(&replicator.documents.running);
    if running.get(&origin).is_some_and(|entry| Arc::ptr_eq(&entry.job, &job)) {
        running.remove(&origin);
    }
}

impl Replicator {
    fn end_of(&self, origin: &Origin) {
        let entry = lock(&self.documents.running).remove(origin);
        if let Some(entry) = entry.filter(|_| !mutated(Mutation::JobOutlivesDocument)) {
            self.end(&entry.job);
        }
    }

    fn end_all_of(&self, database: &str) {
        let of: Vec<Origin> = {
            let running = lock(&self.documents.running);
            running.keys().filter(|origin| origin.database == database).cloned().collect()
        };
        of.iter().for_each(|origin| self.end_of(origin));
    }
}

/// With whose rights a document's local endpoints are used: those of `user_ctx`, else of its owner.
fn caller(replicator: &Replicator, body: &Object) -> UserCtx {
    let claimed = body.get("user_ctx").and_then(Value::as_object);
    let name = claimed.and_then(|ctx| ctx.get("name")).or_else(|| body.get("owner")).and_then(Value::as_str);
    let Some(name) = name else { return UserCtx::anonymous() };
    if auth::admin_names(&replicator.config).contains_key(name) {
        return UserCtx::server_admin(name);
    }
    let roles = claimed.and_then(|ctx| ctx.get("roles")).and_then(Value::as_array).unwrap_or_default();
    let roles = roles.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    UserCtx { name: Some(name.to_owned()), roles, ..UserCtx::anonymous() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn body(text: &str) -> Object {
        match json::parse(text.as_bytes()) {
            Ok(Value::Object(body)) => body,
            other => panic!("{other:?}"),
        }
    }

    fn text(body: &Object) -> String {
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn names_of_replicator_databases() {
        assert!(is_replicator_database("_replicator") && is_replicator_database("a/b/_replicator"));
        assert!(!is_replicator_database("a_replicator") && !is_replicator_database("_replicator/a"));
    }

    #[test]
    fn an_owner_is_put_in_and_others_may_not_change_it() {
        let (ann, admin) = (UserCtx { name: Some("ann".into()), ..UserCtx::anonymous() }, UserCtx::server_admin("adm"));
        let asked = || body(r#"{"source":"http://h/a","target":"b"}"#);
        let mine = checked(asked(), None, &ann).unwrap();
        assert_eq!(text(&mine), r#"{"source":"http://h/a","target":"b","owner":"ann"}"#);
        let nobodys = || body(r#"{"source":"http://h/a","target":"b","owner":null}"#);
        assert_eq!(checked(nobodys(), None, &admin).unwrap().get("owner"), Some(&Value::from("adm")));
        assert!(checked(nobodys(), None, &ann).is_err());
        let bob = UserCtx { name: Some("bob".into()), ..UserCtx::anonymous() };
        assert!(checked(mine.clone(), None, &bob).is_err());
        assert!(checked(asked(), Some(&mine), &bob).is_err());
        assert_eq!(checked(mine.clone(), Some(&mine), &admin), Ok(mine));
        assert_eq!(checked(body(r#"{"source":"a"}"#), None, &ann), Err("Missing replicator database".to_owned()));
    }

    /// A member of the database must not gain the rights of an administrator by claiming them in a document.
    #[test]
    fn rights_cannot_be_claimed() {
        let ann = UserCtx { name: Some("ann".into()), roles: vec!["r".into()], ..UserCtx::anonymous() };
        let claim =
            |ctx: &str| checked(body(&format!(r#"{{"source":"a","target":"b","user_ctx":{ctx}}}"#)), None, &ann);
        assert!(claim(r#"{"name":"ann","roles":["r"]}"#).is_ok());
        for bad in [r#"{"name":"adm"}"#, r#"{"roles":["_admin"]}"#, r#"{"name":"ann","roles":[1]}"#, "7"] {
            assert!(claim(bad).is_err(), "{bad}");
        }
        assert!(checked(body(r#"{"source":"a","target":"b","owner":"adm"}"#), None, &ann).is_err());
    }

    #[test]
    fn what_cannot_be_understood_is_refused_no_matter_who_writes_it() {
        let with = |more: &str| {
            let text = format!(r#"{{"target":"http://h/b",{more}}}"#);
            checked(body(&text), None, &UserCtx::server_admin("adm")).unwrap_err()
        };
        assert_eq!(with(r#""source":{"url":"x"}"#), "endpoint has an invalid url");
        assert_eq!(with(r#""source":5"#), "{error,function_clause}");
        let wrong = with(r#""source":"http://h/a","doc_ids":"x""#);
        assert_eq!(wrong, r#"{throw,{bad_request,<<"parameter `doc_ids` must be an array">>}}"#);
        for more in
            [r#""user_ctx":"x""#, r#""create_target_params":"x""#, r#""proxy":"http://p","source_proxy":"http://q""#]
        {
            with(&format!(r#""source":"http://h/a",{more}"#));
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let shown = without_credentials(body(
            r#"{"source":"http://u:p@h:1/a@b","target":{"url":"https://u@h/c","headers":{"x":"y"},"auth":{}},"owner":"o"}"#,
        ));
        assert_eq!(text(&shown), r#"{"source":"http://h:1/a@b","target":{"url":"https://h/c"},"owner":"o"}"#);
    }
}
