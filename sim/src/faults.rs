//! Lets the plan's faults happen at their times, and takes them back.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use crate::client::Client;
use crate::history::Event;
use crate::keeper::{Keeper, usual_disk};
use crate::model::Violation;
use crate::place::{PASSWORD, PROXY, USER, address_of, far_link, node_ip};
use crate::plan::{Aim, ENDS_WRITES, Fault, LIMPING, Plan, TimedFault, WorldPlan};
use crate::proxy::{Mode, Proxy};
use crate::workload::{SharedHandle, lock, order, under_way};
use crate::world::{DiskFaults, SimNode, SimWorld};

/// What faults happen to.
pub(crate) struct Scene {
    pub(crate) world: SimWorld,
    pub(crate) keepers: Vec<Keeper>,
    pub(crate) clients: Vec<IpAddr>,
    pub(crate) oracle: SimNode,
    /// Before the source of replications.
    pub(crate) proxy: Proxy,
    pub(crate) shared: SharedHandle,
    /// When the last fault that restarts a node at its end will have done so, in milliseconds of the world.
    pub(crate) restarts_until_ms: AtomicU64,
}

/// A node without room knows it after so long: it looks every second.
const NOTICES: Duration = Duration::from_secs(5);
/// How often it is looked whether it should.
const LOOKS: Duration = Duration::from_millis(100);
/// Faults under which it looks later.
const SLOW: [&str; 3] = ["F14 slow disk", LIMPING, "F17 pause"];
/// Counts nodes that were asked whether they take writes after they could not open files.
const ASKED_AFTER_NO_FILES: &str = "nodes asked for their writes after F13 no files";
/// How slow a disk stands still.
const STANDSTILL: u32 = 20_000;

impl Scene {
    /// Carries all faults out that have a time; returns at that of the last one.
    pub(crate) async fn inject(&self, plan: &Plan) {
        let started = self.world.now();
        for timed in plan.faults.iter().filter(|timed| timed.aim.is_none()) {
            self.wait_for(started, timed.at_ms).await;
            self.happen(plan, timed);
        }
    }

    /// Carries out those that wait for an operation, each as soon as it is under way.
    pub(crate) async fn strike(&self, plan: &Plan) -> Infallible {
        let started = self.world.now();
        let aimed = plan.faults.iter().filter_map(|timed| Some((timed, timed.aim.as_ref()?)));
        let strikes = aimed.map(async |(timed, Aim { op, after_us })| {
            self.wait_for(started, timed.at_ms).await;
            if under_way(&self.shared, op).await {
                self.world.sleep(Duration::from_micros(*after_us)).await;
                self.happen(plan, timed);
            }
        });
        join_all(strikes).await;
        std::future::pending().await
    }

    /// Makes the ways between two clusters what they are until the faults end.
    pub(crate) fn set_apart(&self, plan: &WorldPlan) {
        let link = far_link(plan);
        for near in (0..plan.nodes).map(node_ip).chain([PROXY]) {
            for far in (plan.nodes..plan.machines()).map(node_ip) {
                self.world.set_link(near, far, link);
                self.world.set_link(far, near, link);
            }
        }
    }

    /// Ends all faults.
    pub(crate) fn calm(&self) {
        self.world.heal_all();
        self.proxy.set(Mode::Through);
        self.proxy.call_off();
        self.keepers.iter().for_each(Keeper::mend);
    }

    /// Waits for the restarts that faults have yet to bring: nobody is checked before.
    pub(crate) async fn restarted(&self) {
        self.wait_for(Duration::ZERO, self.restarts_until_ms.load(Ordering::Relaxed)).await;
    }

    async fn wait_for(&self, started: Duration, at_ms: u64) {
        let at = started + Duration::from_millis(at_ms);
        self.world.sleep(at.saturating_sub(self.world.now())).await;
    }

    fn happen(&self, plan: &Plan, TimedFault { node, fault, .. }: &TimedFault) {
        if let Some(keeper) = self.keepers.get(*node as usize) {
            if matches!(fault, Fault::BackInTime { .. } | Fault::OldFile { .. } | Fault::Upgrade { .. }) {
                let end_ms = self.world.now().as_millis() as u64 + fault.lasts_ms();
                self.restarts_until_ms.fetch_max(end_ms, Ordering::Relaxed);
            }
            self.tell(keeper, fault);
            self.apply(keeper, plan, fault);
        }
    }

    /// Writes the fault down for reports.
    fn tell(&self, keeper: &Keeper, fault: &Fault) {
        let (name, lane) = (fault.name(), keeper.node.name().to_owned());
        let mut shared = lock(&self.shared);
        let from_ms = shared.now_ms();
        let (to_ms, text) = (from_ms + fault.lasts_ms(), format!("{fault:?}"));
        let (name_text, outcome) = (name.to_owned(), String::new());
        shared.history.events.push(Event { lane, from_ms, to_ms, kind: "fault", name: name_text, text, outcome });
        shared.history.begins(name);
        drop(shared);
        let shared = Arc::clone(&self.shared);
        self.later(fault.lasts_ms().max(1), move |_| lock(&shared).history.ends(name));
    }

    fn later(&self, ms: u64, then: impl FnOnce(&SimWorld) + Send + 'static) {
        let (world, time) = (self.world.clone(), Duration::from_millis(ms));
        madsim::task::spawn(async move {
            world.sleep(time).await;
            then(&world);
        });
    }

    fn apply(&self, keeper: &Keeper, plan: &Plan, fault: &Fault) {
        let node = &keeper.node;
        match fault {
            Fault::Crash { down_ms } => {
                keeper.stays_down(*down_ms);
                if node.is_up() {
                    node.kill();
                }
            }
            Fault::Restart { down_ms } => {
                keeper.stays_down(*down_ms);
                keeper.stop();
            }
            Fault::PowerLoss { down_ms } => {
                keeper.stays_down(*down_ms);
                node.power_off();
            }
            Fault::Fuse { ops, down_ms } => {
                keeper.stays_down(*down_ms);
                node.disk().set_fuse(Some(*ops));
            }
            Fault::KilledInJob { ops, down_ms, journal, cut_ms } => {
                keeper.stays_down(*down_ms);
                keeper.loses_power_again(*cut_ms);
                match journal {
                    true => node.disk().set_kill_in_sync("/data/journal", *ops),
                    false => node.disk().set_kill_fuse(*ops),
                }
            }
            Fault::CutCompaction { ops, down_ms } => {
                keeper.stays_down(*down_ms);
                self.compact(node);
                node.disk().set_fuse(Some(*ops));
            }
            Fault::TornJournal { syncs, down_ms } => {
                keeper.stays_down(*down_ms);
                node.disk().set_sync_fuse("/data/journal", *syncs);
            }
            Fault::CutFlush { syncs, down_ms } => {
                keeper.stays_down(*down_ms);
                node.disk().set_sync_fuse("/data/store", *syncs);
            }
            Fault::CutReplication { after_asked, down_ms } => {
                keeper.stays_down(*down_ms);
                self.replicate();
                let node = node.clone();
                self.proxy.at_request(*after_asked, move || node.power_off());
            }
            Fault::DiskLost { down_ms } => {
                keeper.stays_down(*down_ms);
                node.power_off();
                // An empty tree can always be made.
                let _ = node.disk().wipe();
            }
            Fault::BackInTime { back_ms, stopped } => self.restore(keeper, *back_ms, *stopped),
            Fault::OldFile { file, back_ms } => self.make_older(keeper, *file, *back_ms),
            _ => self.apply_around(keeper, plan, fault),
        }
    }

    /// Faults of what surrounds a node: clocks, peers, links, versions of the others.
    fn apply_around(&self, keeper: &Keeper, plan: &Plan, fault: &Fault) {
        let node = &keeper.node;
        match fault {
            Fault::Pause { for_ms } => {
                node.pause();
                let node = node.clone();
                self.later(*for_ms, move |_| node.resume());
            }
            Fault::Upgrade { nodes, later, every_ms, down_ms } => {
                self.upgrade(node.ip(), (*nodes, *every_ms), (*later, *down_ms));
            }
            Fault::ClockJump { .. } | Fault::ClockDrift { .. } | Fault::ClockStands { .. } => {
                self.turn_clock(node, fault)
            }
            Fault::PeerAnswers { status, .. } => self.hinder(Mode::Answer(*status), fault.lasts_ms()),
            Fault::PeerCutsShort { .. } => self.hinder(Mode::Short, fault.lasts_ms()),
            Fault::PeerHangs { .. } => self.hinder(Mode::Hold, fault.lasts_ms()),
            Fault::Partition { .. } | Fault::Reset | Fault::Swizzle { .. } | Fault::Clog { .. } => {
                self.disturb(node.ip(), fault);
            }
            Fault::Split { group, one_way, for_ms } => self.split(&plan.world, *group, *one_way, *for_ms),
            _ => self.spoil(keeper, plan, fault),
        }
    }

    /// Faults of a node's clock.
    fn turn_clock(&self, node: &SimNode, fault: &Fault) {
        match fault {
            Fault::ClockJump { by_ms } => node.jump_clock(*by_ms),
            Fault::ClockDrift { ppm, for_ms } => {
                node.set_clock_drift(*ppm);
                let node = node.clone();
                self.later(*for_ms, move |_| node.set_clock_drift(0));
            }
            Fault::ClockStands { for_ms } => {
                node.freeze_clock(true);
                let node = node.clone();
                self.later(*for_ms, move |_| node.freeze_clock(false));
            }
            _ => {}
        }
    }

    /// F16: a copy of the disk comes back `back_ms` later.
    fn restore(&self, keeper: &Keeper, back_ms: u64, stopped: bool) {
        let (world, keeper) = (self.world.clone(), keeper.clone());
        let end = world.now() + Duration::from_millis(back_ms);
        madsim::task::spawn(async move {
            if stopped {
                keeper.stays_down(1);
                keeper.stop();
                // One that stands still does not end; the copy is of what it had then.
                let half = Duration::from_millis(back_ms / 2);
                tokio::select! {
                    biased;
                    () = keeper.node.down() => {}
                    () = world.sleep(half) => {}
                }
            }
            let image = keeper.node.disk().image();
            world.sleep(end.saturating_sub(world.now())).await;
            keeper.node.power_off();
            let _ = keeper.node.disk().restore(&image);
            keeper.went_back();
        });
    }

    /// F16: one store file is what it was `back_ms` before.
    fn make_older(&self, keeper: &Keeper, file: u32, back_ms: u64) {
        let (world, keeper) = (self.world.clone(), keeper.clone());
        madsim::task::spawn(async move {
            let before = keeper.node.disk().image();
            world.sleep(Duration::from_millis(back_ms)).await;
            keeper.stays_down(1);
            keeper.node.power_off();
            keeper.puts_back(file, &before);
        });
    }

    /// Faults of the network between a node and everybody else.
    fn disturb(&self, node: IpAddr, fault: &Fault) {
        let mut others = self.clients.clone();
        others.extend(self.keepers.iter().map(|k| k.node.ip()).filter(|ip| *ip != node));
        match fault {
            Fault::Partition { for_ms, answers_only } => {
                self.world.partition_one_way(&[node], &others);
                if !answers_only {
                    self.world.partition_one_way(&others, &[node]);
                }
                self.later(*for_ms, move |world| {
                    for other in &others {
                        world.heal(node, *other);
                        world.heal(*other, node);
                    }
                });
            }
            Fault::Swizzle { for_ms } => {
                let mut dice = self.world.dice("swizzle");
                for other in others {
                    for (from, to) in [(node, other), (other, node)] {
                        let half = for_ms / 2;
                        let (starts, ends) = (dice.below(half + 1), half + dice.below(half + 1));
                        let time = Duration::from_millis(ends - starts);
                        self.later(starts.max(1), move |world| world.clog(from, to, time));
                    }
                }
            }
            Fault::Clog { group, for_ms } => {
                let time = Duration::from_millis(*for_ms);
                let within = self.keepers.iter().enumerate().filter(|(n, _)| group >> n & 1 == 1);
                for other in within.map(|(_, keeper)| keeper.node.ip()).filter(|other| *other != node) {
                    self.world.clog(node, other, time);
                    self.world.clog(other, node, time);
                }
            }
            _ => {
                for other in &others {
                    self.world.reset_between(node, *other);
                }
            }
        }
    }

    /// Cuts a group of nodes off the other nodes. Of two clusters the proxy stands on the side of the first node, which
    /// it is before.
    fn split(&self, plan: &WorldPlan, group: u32, one_way: bool, for_ms: u64) {
        let nodes = self.keepers.iter().enumerate().map(|(n, keeper)| (group >> n & 1 == 1, keeper.node.ip()));
        let proxy = plan.far.map(|_| (group & 1 == 1, PROXY));
        let (inside, outside): (Vec<_>, Vec<_>) = nodes.chain(proxy).partition(|(inside, _)| *inside);
        let ips = |side: Vec<(bool, IpAddr)>| side.into_iter().map(|(_, ip)| ip).collect::<Vec<_>>();
        let (inside, outside) = (ips(inside), ips(outside));
        self.world.partition_one_way(&inside, &outside);
        if !one_way {
            self.world.partition_one_way(&outside, &inside);
        }
        self.later(for_ms, move |world| {
            for (a, b) in inside.iter().flat_map(|a| outside.iter().map(move |b| (*a, *b))) {
                world.heal(a, b);
                world.heal(b, a);
            }
        });
    }

    /// F24: restarts nodes one after the other, the one of this address first, with another version.
    fn upgrade(&self, first: IpAddr, (nodes, every_ms): (u32, u64), (later, down_ms): (bool, u64)) {
        let from_first = self.keepers.iter().cycle().skip_while(|keeper| keeper.node.ip() != first);
        for (nth, keeper) in (0..u64::from(nodes)).zip(from_first) {
            let keeper = keeper.clone();
            self.later((nth * every_ms).max(1), move |_| keeper.change_version(later, down_ms));
        }
    }

    /// Faults of a node's disk.
    fn spoil(&self, keeper: &Keeper, plan: &Plan, fault: &Fault) {
        let node = &keeper.node;
        let usual = usual_disk(&plan.world);
        let disk = Arc::clone(node.disk());
        let rate = |per_1000: u32| f64::from(per_1000) / 1000.0;
        let mut faults = disk.faults();
        match fault {
            Fault::BitRot { file } => return rot(node, *file, (FILES, 1)),
            Fault::BitRotOwn { file } => return rot(node, *file, (OWN_FILES, OWN_FILE_BITS)),
            Fault::SlowDisk { factor, .. } => faults.slow = *factor,
            Fault::DiskErrors { per_1000, .. } => {
                (faults.sync_error, faults.write_error) = (rate(*per_1000), rate(*per_1000));
            }
            Fault::DirSyncErrors { per_1000, .. } => faults.dir_sync_error = rate(*per_1000),
            Fault::NoRoom { .. } => faults.free = Some(0),
            Fault::LostWrites { per_1000, misdirected, .. } => {
                let (lost, elsewhere) = if *misdirected { (0, *per_1000) } else { (*per_1000, 0) };
                (faults.lost_write, faults.misdirected_write) = (rate(lost), rate(elsewhere));
            }
            Fault::DiskFull { spare, .. } => {
                let used: u64 = disk.files().iter().map(|(_, bytes)| bytes).sum();
                faults.capacity = Some(used + spare);
            }
            Fault::NoFiles { per_1000, .. } => faults.name_error = rate(*per_1000),
            Fault::Limping { store, .. } => {
                let place = if *store { "/data/store" } else { "/data/journal" };
                faults.slow_paths.push((place.into(), STANDSTILL));
            }
            _ => return,
        }
        disk.set_faults(faults);
        match fault {
            Fault::NoRoom { .. } => self.becomes_scarce(keeper),
            Fault::NoFiles { for_ms, .. } => self.takes_writes_after(keeper, *for_ms),
            _ => {}
        }
        let (keeper, fault) = (keeper.clone(), fault.clone());
        self.later(fault.lasts_ms(), move |_| {
            let mut faults = disk.faults();
            end(&fault, &mut faults, usual);
            if faults.free != Some(0) {
                keeper.has_room();
            }
            disk.set_faults(faults);
        });
    }

    /// Notes that a node must have noticed that it has no room: from the time on that it has had none for so long in
    /// one life, with nothing that keeps it from looking.
    fn becomes_scarce(&self, keeper: &Keeper) {
        let (keeper, shared, world) = (keeper.clone(), Arc::clone(&self.shared), self.world.clone());
        madsim::task::spawn(async move {
            let (mut lives, mut since) = (keeper.node.lives(), world.now());
            while keeper.node.disk().faults().free == Some(0) {
                let is_slow = lock(&shared).history.active().iter().any(|name| SLOW.contains(name));
                if keeper.node.lives() != lives || is_slow || !keeper.node.is_up() {
                    (lives, since) = (keeper.node.lives(), world.now());
                } else if world.now() - since >= NOTICES {
                    lock(&shared).has_no_room(keeper.number);
                }
                world.sleep(LOOKS).await;
            }
        });
    }

    /// F13: asks a node that could not open files, once it can again, whether its writes have stopped: they may not,
    /// where no other fault so far can have ended them.
    fn takes_writes_after(&self, keeper: &Keeper, for_ms: u64) {
        let (env, shared, name) = (self.oracle.env(), Arc::clone(&self.shared), keeper.node.name().to_owned());
        let mut client = Client::new(env.clone(), address_of_node(&keeper.node), USER, PASSWORD);
        drop(self.oracle.spawn(async move {
            env.sleep(Duration::from_millis(for_ms)).await;
            let Ok(answer) = client.get("/_up").await else { return };
            let mut shared = lock(&shared);
            if ENDS_WRITES.into_iter().any(|fault| shared.history.has_begun(fault)) {
                return;
            }
            shared.history.counts(ASKED_AFTER_NO_FILES);
            if answer.json()["status"] == "writes_stopped" {
                let what = format!("{name} takes no writes though it can open files again");
                shared.breaks(Violation { invariant: "I28", what });
            }
        }));
    }

    /// F25: spoils what passes between the source of replications and who reads it.
    fn hinder(&self, mode: Mode, for_ms: u64) {
        self.proxy.set(mode);
        let proxy = self.proxy.clone();
        self.later(for_ms, move |_| {
            proxy.set(Mode::Through);
            proxy.reset();
        });
    }

    /// Asks for compactions from the oracle's machine.
    fn compact(&self, node: &SimNode) {
        let mut client = Client::new(self.oracle.env(), address_of_node(node), USER, PASSWORD);
        drop(self.oracle.spawn(async move {
            for database in ["sim", "own"] {
                let _ = client.json("POST", &format!("/{database}/_compact"), &Value::Null).await;
            }
        }));
    }
}

impl Scene {
    /// Asks the second node for a replication, from the oracle's machine.
    fn replicate(&self) {
        let mut client = Client::new(self.oracle.env(), address_of(1), USER, PASSWORD);
        drop(self.oracle.spawn(async move {
            let _ = client.json("POST", "/_replicate", &order()).await;
        }));
    }
}

fn address_of_node(node: &SimNode) -> std::net::SocketAddr {
    std::net::SocketAddr::new(node.ip(), address_of(0).port())
}

/// Takes back what a fault did to a disk; what others did lasts as long as they do.
fn end(fault: &Fault, faults: &mut DiskFaults, usual: DiskFaults) {
    match fault {
        Fault::SlowDisk { .. } => faults.slow = usual.slow,
        Fault::DiskErrors { .. } => {
            (faults.sync_error, faults.write_error) = (usual.sync_error, usual.write_error);
        }
        Fault::DirSyncErrors { .. } => faults.dir_sync_error = usual.dir_sync_error,
        Fault::NoRoom { .. } => faults.free = usual.free,
        Fault::LostWrites { .. } => {
            (faults.lost_write, faults.misdirected_write) = (usual.lost_write, usual.misdirected_write);
        }
        Fault::DiskFull { .. } => faults.capacity = usual.capacity,
        Fault::NoFiles { .. } => faults.name_error = usual.name_error,
        Fault::Limping { .. } => faults.slow_paths = usual.slow_paths,
        _ => {}
    }
}

/// The beginning of the names of store files that hold a single shard, and of those with what a node knows itself,
/// which it cannot get from others.
const OWN_FILES: (&str, &str) = ("/data/store/s", "/data/store/s000000000000000");
/// The same for all files that can be damaged.
const FILES: (&str, &str) = ("/data", "/data/none");
/// Bits that flip in one of those: most of a file holds nothing.
const OWN_FILE_BITS: u32 = 200;

/// Flips bits of a file of the engine's or of an attachment. Not of the journal: its last frame cannot be told from
/// one that was torn before it was acknowledged.
fn rot(node: &SimNode, file: u32, ((begin, but), bits): ((&str, &str), u32)) {
    let kept = |path: &std::path::Path| {
        let name = path.to_string_lossy();
        (path.starts_with("/data/store") || path.starts_with("/data/blobs"))
            && name.starts_with(begin)
            && !name.starts_with(but)
    };
    let files: Vec<_> = node.disk().files().into_iter().filter(|(path, bytes)| kept(path) && *bytes > 0).collect();
    if let Some((path, _)) = files.get(file as usize % files.len().max(1)) {
        for _ in 0..bits {
            // The file is there: it was listed just now, and nothing ran in between.
            let _ = node.disk().rot(path);
        }
    }
}
