//! Start of a node's coordinator: its databases, its background workers, its services for other nodes.

use std::sync::Arc;

use crate::config::Config;
use crate::coordinator::anti_entropy::rebuild::keep_rebuilding;
use crate::coordinator::anti_entropy::superseded::keep_merging_superseded;
use crate::coordinator::anti_entropy::sync::{learn_maps, sync_lagging, watch_nodes};
use crate::coordinator::consensus::gossip::CatalogueService;
use crate::coordinator::node::serve::ReplicaService;
use crate::coordinator::rebalance::RebalanceOperations;
use crate::coordinator::rebalance::follow;
use crate::coordinator::replica::catalogue::{Coordinator, CreateOptions};
use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::epoch::NodeEpochs;
use crate::coordinator::topology::error::DatabaseError;
use crate::coordinator::topology::peers::{Alone, Peers, Service};
use crate::shard;
use crate::storage::Storage;
use crate::world::Env;

/// What a node's coordinator is started with.
#[derive(Clone)]
pub struct Options {
    /// The node's name `name@host`, as `_shards` shows it.
    pub node: String,
    /// The cluster that it belongs to; `None`: it is alone.
    pub peers: Option<Arc<dyn Peers>>,
    /// Make `_users` and `_replicator` when they are missing.
    pub system_databases: bool,
}

impl Coordinator {
    /// Reads the catalogue, takes up interrupted removals, and makes the system databases.
    ///
    /// Limits and defaults are looked up in `config` when they are needed: `[cluster] q n`, `[couchdb]
    /// max_document_size max_attachment_size`.
    pub async fn open(
        env: Env,
        config: Config,
        storage: Storage,
        options: Options,
    ) -> Result<Arc<Coordinator>, DatabaseError> {
        let Options { node, peers, system_databases } = options;
        let peers = peers.unwrap_or_else(|| Arc::new(Alone::new(&node)));
        let epochs = NodeEpochs::open(&env, &storage).await?;
        let context = Arc::new(Context::new(env, config, storage, peers, (&node, epochs), follow::follow_map));
        let (cache, collects, expires) = (Arc::default(), Arc::default(), Arc::default());
        let coordinator = Arc::new(Coordinator { context, cache, collects, expires });
        coordinator.load().await?;
        coordinator.load_rebuilds().await?;
        shard::resume_drops(&coordinator.context.storage).await?;
        let resumed = Arc::clone(&coordinator.context);
        coordinator.context.env.spawn(async move { resumed.drop_shards().await });
        coordinator.let_go_of_split();
        if system_databases {
            for name in ["_replicator", "_users"] {
                match coordinator.create_database(name, CreateOptions::default()).await {
                    Ok(_) | Err(DatabaseError::Exists) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        coordinator.keep_global_changes();
        coordinator.keep_views();
        coordinator.keep_cleaning_up();
        coordinator.watch_room();
        coordinator.keep_compacting();
        coordinator.keep_collecting();
        coordinator.keep_expiring();
        coordinator.keep_resharding().await?;
        coordinator.keep_voting().await?;
        coordinator.keep_moving();
        coordinator.join_cluster();
        Ok(coordinator)
    }

    /// Drops the shards of ranges that were split before the node stopped.
    fn let_go_of_split(&self) {
        for (name, known) in self.all_known() {
            for range in follow::left_over(&known.placed()) {
                if let Ok(database) = self.database(&name) {
                    self.context
                        .env
                        .spawn(async move { database.own_replicas().let_go(range, std::time::Duration::ZERO).await });
                }
            }
        }
    }

    /// Answers the other nodes from now on, and keeps up with them.
    fn join_cluster(self: &Arc<Self>) {
        let (weak, context) = (Arc::downgrade(self), self.context());
        context.peers.serve(Service::Replica, Arc::new(ReplicaService(weak.clone())));
        context.peers.serve(Service::Catalogue, Arc::new(CatalogueService(weak)));
        self.spawn_worker("superseded_instances", "a superseded instance", keep_merging_superseded);
        self.spawn_worker("rebuilds", "damage of a store file", keep_rebuilding);
        self.spawn_worker("nodes", "a change of connections or settings", watch_nodes);
        self.spawn_worker("replica_sync", "a lagging database or the next comparison", sync_lagging);
        self.spawn_worker("shard_maps", "a newer map elsewhere", learn_maps);
    }
}
