//! [`Follower`]: reads a database's changes in order to act on each of them, for tasks that run as long as the node
//! does.
//!
//! Promises that a change is delivered until the work for it was done: the task that takes a page confirms it with
//! [`Follower::done`], else the page is delivered again after a pause. The same change may be delivered more than once,
//! so the work must be idempotent. The follower waits for a database that does not exist, and reads it from its
//! beginning.

use std::sync::Weak;

use super::{ChangeRow, Changes, ChangesQuery, Since};
use crate::coordinator::changes::FeedOperations;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::topology::error::ChangesError;
use crate::limits;
use crate::world::Env;

/// See the module head.
pub struct Follower {
    env: Env,
    coordinator: Weak<Coordinator>,
    name: String,
    /// Behind all that was done.
    since: Since,
    /// Not there while a page is being read: a read that is dropped leaves none behind, and its rows come again.
    feed: Option<Changes>,
    /// Whether a page was given out and not done yet.
    undone: bool,
}

impl Follower {
    /// Of the database `name`, from its first change; it does not keep the coordinator alive.
    pub fn new(env: &Env, coordinator: Weak<Coordinator>, name: &str) -> Follower {
        let (env, name) = (env.clone(), name.to_owned());
        Follower { env, coordinator, name, since: Since::Beginning, feed: None, undone: false }
    }

    /// Goes back to the first change.
    pub fn rewind(&mut self) {
        (self.since, self.feed, self.undone) = (Since::Beginning, None, false);
    }

    /// The next changes; waits until there are some. `None`: the node stops. May be dropped at any time.
    pub async fn next(&mut self) -> Option<Vec<ChangeRow>> {
        if std::mem::take(&mut self.undone) {
            self.feed = None;
            self.pause().await;
        }
        loop {
            let Some(mut feed) = self.take_feed().await? else {
                self.pause().await;
                continue;
            };
            match feed.next().await {
                Ok(Some(rows)) => {
                    (self.feed, self.undone) = (Some(feed), true);
                    return Some(rows);
                }
                _ if feed.is_gone() => self.rewind(),
                Ok(None) => {
                    feed.wait().await;
                    self.feed = Some(feed);
                }
                Err(error) => {
                    self.warn(&error);
                    self.pause().await;
                }
            }
        }
    }

    /// What the last page asks for was done.
    pub fn done(&mut self) {
        self.undone = false;
        if let Some(Ok(since)) = self.feed.as_ref().map(|feed| Since::parse(&feed.last_seq())) {
            self.since = since;
        }
    }

    /// The open feed, else a new one behind all that was done: `Some(None)` when there is none for now.
    async fn take_feed(&mut self) -> Option<Option<Changes>> {
        if let Some(feed) = self.feed.take() {
            return Some(Some(feed));
        }
        let Ok(database) = self.coordinator.upgrade()?.database(&self.name) else {
            self.rewind();
            return Some(None);
        };
        let query = ChangesQuery { since: self.since.clone(), ..ChangesQuery::default() };
        Some(database.feeds().changes(query).await.inspect_err(|error| self.warn(error)).ok())
    }

    fn warn(&self, error: &ChangesError) {
        tracing::warn!(database = self.name, ?error, "the changes cannot be followed for now");
    }

    async fn pause(&self) {
        self.env.sleep(limits::FOLLOWER_PAUSE).await;
    }
}
