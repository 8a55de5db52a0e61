//! Context of handlers: the world, the configuration, the databases.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::admission::Admission;
use super::assets::Forms;
use super::bodies::Bodies;
use super::problem::Result;
use super::request::Request;
use super::slow::SlowRequests;
use super::stats::Stats;
use super::streams::Streams;
use super::uuid::Uuids;
use super::waiting::Waiting;
use crate::auth::access::{self, Class};
use crate::auth::security::SecurityObject;
use crate::auth::{Authenticator, UserCtx};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::coordinator::{Coordinator, Database};
use crate::document::collate::Collator;
use crate::replicate::Replicator;
use crate::world::Env;

/// The node as handlers see it. One per node, shared by all requests.
pub struct Context {
    /// The world.
    pub env: Env,
    /// The settings, as they are now.
    pub config: Config,
    /// Checks credentials.
    pub authenticator: Authenticator,
    /// The databases.
    pub coordinator: Arc<Coordinator>,
    /// Compares JSON values: the order of views and queries.
    pub collator: Collator,
    /// The replications that run here.
    pub replicator: Arc<Replicator>,
    /// Makes identifiers for `_uuids` and for documents without an id.
    pub uuids: Uuids,
    /// The queues of requests.
    pub admission: Arc<Admission>,
    /// The memory that request bodies share.
    pub bodies: Arc<Bodies>,
    /// The memory of answers that wait to be taken.
    pub answers: Arc<Waiting>,
    /// The memory of answers that are made while they are taken.
    pub streams: Arc<Streams>,
    /// Counts what was done.
    pub stats: Stats,
    /// The requests that took longest lately.
    pub slow: SlowRequests,
    /// The files of the administration page, as they are sent.
    pub assets: Forms,
    /// Told when an administrator wants the program to start anew.
    pub restart: Notify,
    /// True once the node stops: no connection is accepted any more, and feeds end.
    pub stopping: watch::Sender<bool>,
    /// The node's name, `name@host`.
    pub node_name: String,
    /// The other nodes.
    pub cluster: Cluster,
}

impl Context {
    /// The identity of the node, which a cluster's nodes share, 32 hexadecimal digits: `uuid` of `GET /`.
    pub fn uuid(&self) -> String {
        self.config.text("couchdb", "uuid", "")
    }

    /// Opens a database for a caller who must be of `class` there. What is read through the handle is as new as the
    /// request asks for ([`Request::floor`]).
    ///
    /// # Errors
    /// 404 for a missing database for every caller, then the refusal of the access table.
    pub fn open(&self, name: &str, request: &Request, class: Class) -> Result<Arc<Database>> {
        let database = self.coordinator.database(name)?;
        self.allow(&database, &request.user, class)?;
        Ok(match &request.floor {
            Some(floor) => database.above(floor),
            None => database,
        })
    }

    /// Checks a further right in a database that is open: for instance [`Class::DatabaseAdmin`] for design documents.
    pub fn allow(&self, database: &Database, user: &UserCtx, class: Class) -> Result<()> {
        Ok(access::check(class, user, Some(&SecurityObject::of(database)))?)
    }
}
