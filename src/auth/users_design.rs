//! `_design/_auth` of the users database: the rules of user documents as a validation function, for clients that read
//! or replicate it. The node itself applies `users`, which says the same without a script.

use std::sync::Arc;

use super::options;
use crate::config::Config;
use crate::coordinator::{
    Caller, Coordinator, ReadOperations, Want, WriteError, WriteOperations, WriteOptions, WriteRequest,
};
use crate::document::draft::Draft;
use crate::document::id::DocId;
use crate::document::json::Object;
use crate::limits;
use crate::world::Env;

/// The design document's id.
pub const ID: &str = "_design/_auth";
/// Its validation function.
const VALIDATE: &str = include_str!("users_design.js");

/// Does [`ensure`] after a pause, as CouchDB does it; the pause is [`limits::USERS_DESIGN_PAUSE`].
pub fn ensure_later(env: &Env, config: &Config, coordinator: &Arc<Coordinator>) {
    let (env, config, coordinator) = (env.clone(), config.clone(), Arc::downgrade(coordinator));
    env.clone().spawn(async move {
        env.sleep(limits::USERS_DESIGN_PAUSE).await;
        let Some(coordinator) = coordinator.upgrade() else { return };
        keep(&env, &config, &coordinator).await;
    });
}

/// Gives each database its design document that `authentication_db` names from now on.
pub fn watch(env: &Env, config: &Config, coordinator: &Arc<Coordinator>) {
    let (env, config, coordinator) = (env.clone(), config.clone(), Arc::downgrade(coordinator));
    let (mut changes, mut named) = (config.watch(), options::users_db(&config));
    env.clone().spawn(async move {
        while changes.changed().await.is_ok() {
            let name = options::users_db(&config);
            if name == named {
                continue;
            }
            named = name;
            let Some(coordinator) = coordinator.upgrade() else { return };
            match config.follows_couchdb() {
                true => ensure_later(&env, &config, &coordinator),
                false => keep(&env, &config, &coordinator).await,
            }
        }
    });
}

/// Does [`ensure`], later and until it works where the database cannot be read or written now: while this node is in
/// maintenance, or has to reach others first.
pub async fn keep(env: &Env, config: &Config, coordinator: &Arc<Coordinator>) {
    let Err(error) = ensure(config, coordinator).await else { return };
    tracing::debug!(?error, "the users database cannot be looked at yet");
    let mut told = format!("{error:?}");
    let (env, config, coordinator) = (env.clone(), config.clone(), Arc::downgrade(coordinator));
    env.clone().spawn(async move {
        loop {
            env.sleep(limits::USERS_DESIGN_PAUSE).await;
            let Some(coordinator) = coordinator.upgrade() else { return };
            match ensure(&config, &coordinator).await {
                Ok(()) => return,
                Err(error) => {
                    let error = format!("{error:?}");
                    if error != told {
                        tracing::warn!(error, "the users database has no design document yet");
                        told = error;
                    }
                }
            }
        }
    });
}

/// Puts the design document into the users database, where there is one and it has never had one. The content is the
/// same everywhere, so that nodes that do so apart from each other make the same revision.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn ensure(config: &Config, coordinator: &Coordinator) -> Result<(), WriteError> {
    let Ok(database) = coordinator.database(&options::users_db(config)) else { return Ok(()) };
    let id = DocId::new(ID);
    if database.documents().fetch(&id, Want::Winner).await?.is_some() {
        return Ok(());
    }
    let mut body = Object::new();
    body.push("language", "javascript");
    body.push("validate_doc_update", VALIDATE.trim_end());
    let draft = Draft { id: None, rev: None, revisions: None, deleted: false, body, attachments: Vec::new() };
    let write = WriteRequest { id, draft, follows: Vec::new() };
    let options = WriteOptions { caller: Arc::new(Caller::node()), ..WriteOptions::default() };
    match database.writer().write_one(write, options).await {
        Ok(_) | Err(WriteError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}
