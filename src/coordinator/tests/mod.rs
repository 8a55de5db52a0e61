//! The coordinator over real shards and the memory store.

mod backup;
mod catalogue;
mod check;
mod cluster;
mod convergence;
mod documents;
mod expiry;
mod feeds;
mod find;
mod fuzz;
mod index_cleanup;
mod lists;
mod reshard;
mod search;
mod selected;
mod tasks;
mod validation;
mod views;

use std::sync::Arc;

use super::*;
use crate::config::Config;
use crate::coordinator::{ReadOperations, WriteOperations};
use crate::document::draft::{self, Draft};
use crate::document::id::DocId;
use crate::document::json;
use crate::document::revision::Revision;
use crate::storage::{Engine, Storage, StorageOptions};
use crate::world::Env;
use crate::world::tokio_host;

struct World {
    env: Env,
    storage: Storage,
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        World::open(tempfile::tempdir().unwrap(), Engine::Memory).await
    }

    /// On the data that a directory has.
    async fn open(dir: tempfile::TempDir, engine: Engine) -> World {
        World::open_with(dir, StorageOptions { engine, ..StorageOptions::default() }).await
    }

    async fn open_with(dir: tempfile::TempDir, options: StorageOptions) -> World {
        let env = tokio_host::env(tokio::runtime::Handle::current());
        let storage = Storage::open(env.clone(), dir.path(), options).await.unwrap();
        World { env, storage, dir }
    }

    /// Of all that was acknowledged: what a node holds after an orderly stop.
    fn copy_of_data(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        let mut open = vec![(self.dir.path().to_path_buf(), copy.path().to_path_buf())];
        while let Some((from, to)) = open.pop() {
            std::fs::create_dir_all(&to).unwrap();
            for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => open.push((entry.path(), to.join(entry.file_name()))),
                    // One that a running node writes beside its place is gone a moment later.
                    false => match std::fs::copy(entry.path(), to.join(entry.file_name())) {
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                        copied => drop(copied.unwrap()),
                    },
                }
            }
        }
        copy
    }

    async fn start(&self) -> Arc<Coordinator> {
        let options = Options { node: "n1@localhost".to_owned(), peers: None, system_databases: true };
        let config = Config::in_memory(&self.env, Vec::new());
        Coordinator::open(self.env.clone(), config, self.storage.clone(), options).await.unwrap()
    }
}

/// A coordinator with one empty database of `q` ranges.
async fn database(q: u32) -> (World, Arc<Coordinator>, Arc<Database>) {
    let world = World::new().await;
    let coordinator = world.start().await;
    coordinator.create_database("db", CreateOptions { q: Some(q), ..CreateOptions::default() }).await.unwrap();
    let database = coordinator.database("db").unwrap();
    (world, coordinator, database)
}

fn draft(text: &str) -> Draft {
    draft::parse(json::parse(text.as_bytes()).unwrap()).unwrap()
}

fn request(id: &str, text: &str) -> WriteRequest {
    WriteRequest { id: DocId::new(id), draft: draft(text), follows: Vec::new() }
}

fn id(text: &str) -> DocId {
    DocId::new(text)
}

fn rev(text: &str) -> Revision {
    Revision::parse(text).unwrap()
}

/// Writes a document and answers its revision.
async fn put(database: &Arc<Database>, name: &str, text: &str) -> Revision {
    database.writer().write_one(request(name, text), WriteOptions::default()).await.unwrap().rev
}

/// The winner's text, `-` for a tombstone, `!` for no document.
async fn body(database: &Arc<Database>, name: &str) -> String {
    let Some(fetched) = database.documents().fetch(&id(name), Want::Winner).await.unwrap() else {
        return "!".to_owned();
    };
    let stored = fetched.found[0].1.clone().unwrap();
    if stored.deleted { "-".to_owned() } else { String::from_utf8(stored.body.to_vec()).unwrap() }
}
