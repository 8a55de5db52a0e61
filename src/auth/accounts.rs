//! Accounts: server administrators from the configuration, users from the users database.
//!
//! Records of users are cached. A cached record counts only while nothing was written to its range of the database
//! since it was read, so the cache cannot be behind: no edit is missed, by a request or by replication.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::password::StoredHash;
use super::users::{ID_PREFIX, UserRecord, with_hash};
use super::{AuthError, admins, options};
use crate::config::Config;
use crate::coordinator::topology::seq::SeqEntry;
use crate::coordinator::{
    Caller, Coordinator, Database, ReadOperations, Want, WriteOperations, WriteOptions, WriteRequest,
};
use crate::document::draft::{Draft, DraftAttachment};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::StoredRevision;
use crate::document::rev_tree::RevValue;
use crate::document::revision::Revision;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::world::Env;

/// What is known of a name that may log in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Account {
    /// The stored password hash; `None` when it is none that could be checked.
    pub(super) hash: Option<StoredHash>,
    /// The salt, which takes part in the key of cookies.
    pub(super) salt: String,
    /// The roles that a login gives.
    pub(super) roles: Vec<String>,
    /// The second factor that a login asks for.
    pub(super) totp: Option<Object>,
    /// The user document that this was read from; `None` for a server administrator.
    pub(super) document: Option<Revision>,
}

/// Finds accounts.
pub(super) struct Accounts {
    env: Env,
    config: Config,
    coordinator: Option<Arc<Coordinator>>,
    cache: Mutex<Cache>,
    /// The accounts of server administrators with what they were read from, by name.
    admins: Mutex<BTreeMap<String, (String, Arc<Account>)>>,
}

#[derive(Default)]
struct Cache {
    records: BTreeMap<String, Cached>,
    /// The names by the time they came: the oldest goes first.
    order: BTreeMap<u64, String>,
    next: u64,
}

struct Cached {
    state: State,
    /// `None`: there is no such user.
    account: Option<Arc<Account>>,
    order: u64,
}

/// What is done with a name that no user has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// Looked up each time: strangers must not push users out of the cache.
    LookedUp,
    /// Remembered: it is a server administrator's.
    Remembered,
}

/// The state of the users database in which a record was read: its instance, and the last change of the range there.
type State = (String, SeqEntry);

impl Accounts {
    pub(super) fn new(env: &Env, config: &Config, coordinator: Option<Arc<Coordinator>>) -> Accounts {
        let (cache, admins) = (Mutex::default(), Mutex::default());
        Accounts { env: env.clone(), config: config.clone(), coordinator, cache, admins }
    }

    /// The account of `name`. A server administrator who is also a user has the roles of both.
    pub(super) async fn find(&self, name: &str) -> Result<Option<Arc<Account>>, AuthError> {
        let Some(admin) = self.admin(name) else { return self.user(name, Missing::LookedUp).await };
        // A broken user document must not lock an administrator out.
        match self.user(name, Missing::Remembered).await {
            Ok(Some(user)) => {
                let roles = admin.roles.iter().chain(&user.roles).cloned().collect();
                Ok(Some(Arc::new(Account { roles, ..Account::clone(&admin) })))
            }
            _ => Ok(Some(admin)),
        }
    }

    /// The account of a server administrator, read once after each change of what is stored for it.
    fn admin(&self, name: &str) -> Option<Arc<Account>> {
        let stored = admins::stored(&self.config, name)?;
        let mut known = self.admins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, account)) = known.get(name)
            && *of == stored
        {
            return Some(Arc::clone(account));
        }
        let account = Arc::new(admins::account(&stored));
        if account.hash.is_none() {
            // It may be a password that is about to be hashed, which is to stay nowhere.
            return Some(account);
        }
        // Those that are gone from the configuration are not looked for.
        if known.len() >= limits::AUTH_CACHE_ENTRIES_MAX {
            known.clear();
        }
        known.insert(name.to_owned(), (stored, Arc::clone(&account)));
        Some(account)
    }

    fn database(&self) -> Option<Arc<Database>> {
        self.coordinator.as_ref()?.database(&options::users_db(&self.config)).ok()
    }

    async fn user(&self, name: &str, missing: Missing) -> Result<Option<Arc<Account>>, AuthError> {
        let Some(database) = self.database() else { return Ok(None) };
        let id = DocId::new(&format!("{ID_PREFIX}{name}"));
        // Read before the document: a write in between makes the record look older than it is, never newer.
        let position = database.documents().last_change(&id).await.map_err(|_| AuthError::Unavailable)?;
        let state = (database.instance().to_owned(), position);
        // Administrators of the server, who need no document, do not count, as in CouchDB.
        let count = |counter| {
            if missing == Missing::LookedUp {
                self.env.metrics().count(counter);
            }
        };
        if let Some(account) = self.cache().get(name, &state) {
            count(Counter::AuthCacheHits);
            return Ok(account);
        }
        count(Counter::AuthCacheMisses);
        let account = read(&database, &id).await?;
        if account.is_some() || missing == Missing::Remembered {
            let max = usize::try_from(options::u64(&self.config, "auth_cache_size", limits::AUTH_CACHE_ENTRIES));
            let max = max.unwrap_or(usize::MAX).min(limits::AUTH_CACHE_ENTRIES_MAX);
            self.cache().insert(name, state, account.as_ref(), max);
        }
        Ok(account)
    }

    /// Puts a new hash into the user document of `name`, if it still is what the account was read from. Answers whether
    /// it is there now.
    pub(super) async fn upgrade(&self, name: &str, account: &Account, hash: &StoredHash) -> bool {
        let (Some(database), Some(rev)) = (self.database(), &account.document) else { return false };
        let id = DocId::new(&format!("{ID_PREFIX}{name}"));
        let Ok(Some(stored)) = database.documents().fetch_one(&id, Want::Revision(rev.clone())).await else {
            return false;
        };
        let Some(body) = body_of(&stored) else { return false };
        let draft = Draft {
            id: None,
            rev: Some(rev.clone()),
            revisions: None,
            deleted: false,
            body: with_hash(body, hash),
            attachments: stored.attachments.iter().map(|a| DraftAttachment::stub(&a.name, a.revpos)).collect(),
        };
        let write = WriteRequest { id, draft, follows: Vec::new() };
        let options = WriteOptions { caller: Arc::new(Caller::node()), ..WriteOptions::default() };
        match database.writer().write_one(write, options).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(name, ?error, "an old password hash could not be replaced");
                false
            }
        }
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account that a user document stands for; `None` where there is none.
async fn read(database: &Arc<Database>, id: &DocId) -> Result<Option<Arc<Account>>, AuthError> {
    let fetched = database.documents().fetch(id, Want::Winner).await.map_err(|_| AuthError::Unavailable)?;
    let Some(mut fetched) = fetched else { return Ok(None) };
    let Some(stored) = fetched.take_one() else { return Ok(None) };
    if stored.deleted {
        return Ok(None);
    }
    if fetched.tree.leaves().iter().filter(|leaf| !leaf.value.is_deleted()).count() > 1 {
        return Err(AuthError::UserConflict);
    }
    let Some(body) = body_of(&stored) else { return Ok(None) };
    let UserRecord { hash, salt, roles, totp } = UserRecord::read(&body);
    Ok(Some(Arc::new(Account { hash, salt, roles, totp, document: Some(stored.rev) })))
}

fn body_of(stored: &StoredRevision) -> Option<Object> {
    match json::parse(&stored.body) {
        Ok(Value::Object(body)) => Some(body),
        _ => None,
    }
}

impl Cache {
    fn get(&self, name: &str, state: &State) -> Option<Option<Arc<Account>>> {
        self.records.get(name).filter(|cached| cached.state == *state).map(|cached| cached.account.clone())
    }

    fn insert(&mut self, name: &str, state: State, account: Option<&Arc<Account>>, max: usize) {
        if let Some(old) = self.records.remove(name) {
            self.order.remove(&old.order);
        }
        while self.records.len() >= max.max(1) {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.records.remove(&oldest);
        }
        let cached = Cached { state, account: account.cloned(), order: self.next };
        self.next += 1;
        self.order.insert(cached.order, name.to_owned());
        self.records.insert(name.to_owned(), cached);
        assert_eq!(self.records.len(), self.order.len(), "each cached record has its place in the order");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{in_memory, world};

    #[test]
    fn what_is_stored_for_an_administrator_is_read_once_and_counts_from_its_change_on() {
        let (runtime, env) = world();
        let config = in_memory(&env, &["admins/adm=-hashed-00,one"]);
        let accounts = Accounts::new(&env, &config, None);
        let first = accounts.admin("adm").unwrap();
        assert_eq!(first.salt, "one");
        assert!(Arc::ptr_eq(&first, &accounts.admin("adm").unwrap()) && accounts.admin("other").is_none());
        runtime.block_on(config.set(("admins", "adm"), "-hashed-00,two", false)).unwrap();
        assert_eq!(accounts.admin("adm").unwrap().salt, "two");
        runtime.block_on(config.delete(("admins", "adm"), false)).unwrap();
        assert!(accounts.admin("adm").is_none());
    }

    #[test]
    fn the_cache_is_bounded_and_knows_what_is_outdated() {
        let mut cache = Cache::default();
        let account = Account { hash: None, salt: String::new(), roles: Vec::new(), totp: None, document: None };
        let account = Arc::new(account);
        let at = |position: u64| SeqEntry { end: 0, shard: 1, epoch: 1, position };
        let state = |position: u64| ("instance".to_owned(), at(position));
        for name in ["a", "b", "c"] {
            cache.insert(name, state(1), Some(&account), 2);
        }
        assert!(cache.get("a", &state(1)).is_none() && cache.get("b", &state(1)).is_some());
        assert!(cache.get("c", &state(2)).is_none(), "something was written since");
        assert!(cache.get("c", &("other".to_owned(), at(1))).is_none(), "another database of the same name");
        let elsewhere = SeqEntry { shard: 2, ..at(1) };
        assert!(cache.get("b", &("instance".to_owned(), elsewhere)).is_none(), "another copy of the range");
        cache.insert("c", state(2), Some(&account), 2);
        assert!(cache.get("c", &state(2)).is_some() && cache.records.len() == 2);
    }
}
