//! What keeps a simulated node running: starts its program, stops it, starts it again whenever it is down.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use settee::config::{Config, ConfigError, Setting, Sources};
use settee::node::Node;
use settee::storage::StorageOptions;
use settee::storage::planted::Planted;
use settee::world::{Env, buggify};
use tokio::sync::{Notify, watch};

use crate::history::Event;
use crate::model::Violation;
use crate::place::{member_name, node_ip, settings_of};
use crate::plan::{Plan, WorldPlan};
use crate::workload::{SharedHandle, lock};
use crate::world::{DiskFaults, DiskImage, SimNode, SimWorld};

/// Where a node has its configuration, if requests that change it are to last.
const CONFIG: &str = "/conf/local.ini";
/// The setting that such a node takes from there alone.
const SECRET: &str = "chttpd_auth/secret=";

/// A node and what keeps it running.
#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) node: SimNode,
    /// Its number, counted from 0.
    pub(crate) number: u32,
    options: StorageOptions,
    settings: Arc<Vec<String>>,
    /// Whether what requests set is kept in a file.
    keeps_settings: bool,
    /// How long it stays down the next time, in milliseconds.
    down_ms: Arc<AtomicU64>,
    /// Power fails so many milliseconds after its next start; 0: it does not.
    cut_ms: Arc<AtomicU64>,
    /// Counts the lives that ended by themselves: starts that failed, stops in order.
    gave_up: watch::Sender<u64>,
    /// Tells the process to stop in order.
    stops: Arc<Notify>,
    usual: DiskFaults,
    /// A store file in whose place an older one was put, and the disk that has it.
    newer: Arc<Mutex<Option<(PathBuf, DiskImage)>>>,
    /// Whether the plan damages what is stored: not to start is an answer then.
    damaged: bool,
    shared: SharedHandle,
}

fn lock_newer(newer: &Mutex<Option<(PathBuf, DiskImage)>>) -> std::sync::MutexGuard<'_, Option<(PathBuf, DiskImage)>> {
    newer.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The disk of a plan without its faults.
pub(crate) fn usual_disk(world: &WorldPlan) -> DiskFaults {
    DiskFaults { slow: world.disk_slow, ..DiskFaults::default() }
}

impl Keeper {
    /// The node of a plan with that number. `common`: the configuration that all have.
    pub(crate) fn new(
        world: &SimWorld,
        plan: &Plan,
        number: u32,
        (planted, common): (Planted, &[String]),
        shared: &SharedHandle,
    ) -> Keeper {
        let node = world.node(&format!("node{}", number + 1), node_ip(number));
        let usual = usual_disk(&plan.world);
        node.disk().set_faults(usual.clone());
        let options = StorageOptions {
            cache_bytes: plan.world.cache_bytes,
            flush_at_bytes: plan.world.flush_at_bytes,
            common_files: 2,
            own_file_bytes: plan.world.flush_at_bytes as u64 / 2,
            planted,
            ..StorageOptions::default()
        };
        let keeps_settings = plan.changes_secrets();
        let mut settings = [common, &settings_of(plan, number)].concat();
        settings.retain(|setting| !keeps_settings || !setting.starts_with(SECRET));
        Keeper {
            node,
            number,
            options,
            settings: Arc::new(settings),
            keeps_settings,
            down_ms: Arc::new(AtomicU64::new(1)),
            cut_ms: Arc::default(),
            gave_up: watch::channel(0).0,
            stops: Arc::default(),
            usual,
            newer: Arc::default(),
            damaged: plan.damages(),
            shared: Arc::clone(shared),
        }
    }

    /// The next time it goes down, it stays down so long.
    pub(crate) fn stays_down(&self, ms: u64) {
        self.down_ms.store(ms, Ordering::Relaxed);
    }

    /// Power fails so long after its next start; 0: it does not.
    pub(crate) fn loses_power_again(&self, after_ms: u64) {
        self.cut_ms.store(after_ms, Ordering::Relaxed);
    }

    /// Tells the node's process to stop in order, if it serves.
    pub(crate) fn stop(&self) {
        self.stops.notify_waiters();
    }

    /// What the node knows of its room counts no more.
    pub(crate) fn has_room(&self) {
        lock(&self.shared).scarce.remove(&self.number);
    }

    /// Notes that the disk is one of an earlier time.
    pub(crate) fn went_back(&self) {
        lock(&self.shared).went_back.push(self.number);
    }

    /// Puts a store file of an earlier disk in the place of the newer one, while the node is down.
    pub(crate) fn puts_back(&self, file: u32, before: &DiskImage) {
        if lock_newer(&self.newer).is_some() {
            // The one before is not settled: no start has come to its end since.
            return;
        }
        let disk = self.node.disk();
        let is_store_file =
            |path: &Path| path.starts_with("/data/store") && path.extension().is_some_and(|e| e == "redb");
        let mut paths: Vec<PathBuf> = disk.files().into_iter().map(|(path, _)| path).collect();
        paths.retain(|path| is_store_file(path));
        let Some(path) = paths.get(file as usize % paths.len().max(1)) else { return };
        let now = disk.image();
        if disk.restore_file(path, before) {
            *lock_newer(&self.newer) = Some((path.clone(), now));
        }
    }

    /// Takes the older store file away again, if there is one: the node has refused it.
    fn has_newer(&self) -> bool {
        let newer = lock_newer(&self.newer).take();
        newer.is_some_and(|(path, disk)| self.node.disk().restore_file(&path, &disk))
    }

    /// Ends all that is wrong with the machine.
    pub(crate) fn mend(&self) {
        self.has_room();
        self.loses_power_again(0);
        self.node.disk().set_fuse(None);
        self.node.disk().set_faults(self.usual.clone());
        self.node.resume();
    }

    /// Restarts the node's program as another version.
    pub(crate) fn change_version(&self, later: bool, down_ms: u64) {
        buggify::upgrade(&member_name(self.node.ip()), later);
        self.stays_down(down_ms);
        if self.node.is_up() {
            self.node.kill();
        }
    }

    /// Starts the node's program in the current life of its machine.
    pub(crate) fn launch(&self) {
        let env = self.node.env();
        let keeper = self.clone();
        self.live("up");
        self.has_room();
        env.clone().spawn(async move {
            let settings = keeper.settings.iter().filter_map(|text| Setting::parse(text)).collect();
            let config = match keeper.config(&env, settings).await {
                Ok(config) => config,
                Err(error) => {
                    let what = format!("the configuration cannot be read: {error}");
                    return lock(&keeper.shared).breaks(Violation { invariant: "I27", what });
                }
            };
            let disk = keeper.node.disk();
            let before = disk.faults_set();
            match Node::start_with(&env, &config, Path::new("/data"), keeper.options).await {
                Ok(node) => {
                    // What it has now is what it must make do with.
                    lock_newer(&keeper.newer).take();
                    keeper.stops.notified().await;
                    node.stop().await;
                    keeper.gave_up.send_modify(|count| *count += 1);
                }
                Err(error) if keeper.has_newer() => {
                    keeper.live(&format!("refuses an older store file: {error}"));
                    keeper.gave_up.send_modify(|count| *count += 1);
                }
                // The process ends and is started again; what the disk refused may work then. The fault may be over by
                // now.
                Err(_) if disk.faults() != keeper.usual || disk.faults_set() != before => {
                    env.sleep(Duration::from_millis(300)).await;
                    keeper.gave_up.send_modify(|count| *count += 1);
                }
                Err(error) if keeper.damaged => keeper.live(&format!("does not start: {error}")),
                Err(error) => {
                    let what = format!("the node does not start: {error}");
                    lock(&keeper.shared).breaks(Violation { invariant: "I27", what });
                }
            }
        });
    }

    async fn config(&self, env: &Env, overrides: Vec<Setting>) -> Result<Config, ConfigError> {
        if !self.keeps_settings {
            return Ok(Config::in_memory(env, overrides));
        }
        let path = Path::new(CONFIG);
        let io = |error: std::io::Error| ConfigError::Io { path: path.to_owned(), reason: error.to_string() };
        env.disk().create_dir_all(path.parent().unwrap_or(path)).map_err(io)?;
        env.disk().sync_dir(Path::new("/")).map_err(io)?;
        Config::load(env, Sources { fallback: Some(path.to_owned()), overrides, ..Sources::default() }).await
    }

    /// Writes down that the node went up or down.
    fn live(&self, what: &str) {
        let mut shared = lock(&self.shared);
        let now = shared.now_ms();
        let (lane, text) = (self.node.name().to_owned(), what.to_owned());
        let name = what.split(':').next().unwrap_or_default().to_owned();
        let event = Event { lane, from_ms: now, to_ms: now, kind: "life", name, text, outcome: String::new() };
        shared.history.events.push(event);
    }

    /// Cuts the power at its time, if that was said before this life began and is still so.
    async fn power_fails(&self, world: &SimWorld) {
        let after_ms = self.cut_ms.load(Ordering::Relaxed);
        world.sleep(Duration::from_millis(after_ms)).await;
        if after_ms == 0 || self.cut_ms.swap(0, Ordering::Relaxed) == 0 {
            std::future::pending().await
        }
        self.node.power_off();
    }

    /// Starts the node again whenever it is down.
    pub(crate) async fn watch(self, world: SimWorld) {
        let mut gave_up = self.gave_up.subscribe();
        loop {
            tokio::select! {
                biased;
                () = self.node.down() => {}
                _ = gave_up.changed() => self.node.kill(),
                () = self.power_fails(&world) => {}
            }
            self.live("down");
            world.sleep(Duration::from_millis(self.down_ms.load(Ordering::Relaxed).max(1))).await;
            self.node.start();
            self.launch();
        }
    }
}
