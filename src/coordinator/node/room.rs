//! Background worker that measures free disk space: at intervals, and whenever the configuration changes.

use std::sync::{Arc, Weak};

use crate::coordinator::replica::catalogue::Coordinator;
use crate::limits;
use crate::observe::workers::Worker;

impl Coordinator {
    /// Starts the task that compares free bytes with `[settee] disk_reserve_mb`; it ends with the coordinator.
    pub(in crate::coordinator) fn watch_room(self: &Arc<Self>) {
        self.spawn_worker("disk_room", "a pause or a setting", watch_room);
    }
}

async fn watch_room(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    let (env, mut changed) = (context.env.clone(), context.config.watch());
    drop(context);
    while let Some(coordinator) = weak.upgrade() {
        let config = coordinator.config();
        let reserve_mb = config.u64("settee", "disk_reserve_mb", limits::DISK_RESERVE_MB);
        let (storage, indexes) = (coordinator.storage().clone(), coordinator.context().indexes.clone());
        drop(coordinator);
        let reserve = reserve_mb.saturating_mul(1 << 20);
        let run = worker.begin();
        let is_near = storage.measure_room(reserve).await < reserve.saturating_mul(4);
        if !storage.has_room() {
            indexes.give_up_for_room();
        }
        drop((run, storage, indexes));
        let pause = env.sleep(if is_near { limits::DISK_ROOM_PAUSE_NEAR } else { limits::DISK_ROOM_PAUSE });
        tokio::select! {
            biased;
            more = changed.changed() => if more.is_err() { return },
            () = pause => {}
        }
    }
}
