//! The outer ring: the plans of the simulator against a real process, or a server that somebody else runs. Time, disk
//! and network are the machine's, so that a run does not repeat; the clients and their checks are the same.
//!
//! Faults are what can be done from outside: `kill -9`, a process that is stopped and goes on, and a proxy that holds
//! back, resets and swallows, at a time or while an operation is under way. All others are left out and counted. A
//! foreign server is asked for documents and their feed only; its revisions are named as it likes.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use settee::world::Env;
use tokio::sync::Mutex as Turn;

use crate::client::Client;
use crate::model::Violation;
use crate::place::{self, PASSWORD, USER};
use crate::plan::{Aim, Fault, FeedMode, Op, Plan, TimedFault, TimedOp};
use crate::proxy::{Mode, Proxy};
use crate::workload::{DB, Shared, SharedHandle, Worker, lock, set_up_own, under_way};

/// How long a fault waits for the operation that it is aimed at.
const AIM: Duration = Duration::from_secs(2);
/// How long the process may take to answer after a start.
const START: Duration = Duration::from_secs(180);

/// What is asked.
#[derive(Clone, Debug)]
pub enum Target {
    /// This program of settee, started and killed here.
    Binary(PathBuf),
    /// Another server's program, started and killed here: its command, in which `{port}` and `{data}` stand for the
    /// port and for a directory that lasts for the run.
    Command {
        /// Program and arguments, parted by spaces.
        line: String,
        /// Administrator.
        user: String,
        /// Password.
        password: String,
    },
    /// A server that runs already, with the name and the password of an administrator.
    Server {
        /// Where it listens.
        at: SocketAddr,
        /// Administrator.
        user: String,
        /// Password.
        password: String,
    },
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The first broken promise.
    pub failure: Option<Violation>,
    /// Edits acknowledged, refused, unknown.
    pub edits: (usize, usize, usize),
    /// Faults that were carried out, and that have no counterpart here.
    pub faults: (u64, u64),
}

/// Carries a plan out. `ports`: for the process, and for the proxy before it.
///
/// # Errors
/// When the process or the proxy cannot be started, or nothing answers.
pub fn run(plan: &Plan, target: &Target, ports: (u16, u16)) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let env = settee::world::tokio_host::env(runtime.handle().clone());
    runtime.block_on(carry_out(env, plan, target, ports))
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

async fn carry_out(env: Env, plan: &Plan, target: &Target, (port, proxied): (u16, u16)) -> io::Result<Outcome> {
    let (at, user, password) = match target {
        Target::Binary(_) => (local(port), USER.to_owned(), PASSWORD.to_owned()),
        Target::Command { user, password, .. } => (local(port), user.clone(), password.clone()),
        Target::Server { at, user, password } => (*at, user.clone(), password.clone()),
    };
    let own = matches!(target, Target::Binary(_));
    let machine = Machine::of(target, port)?.map(|machine| Arc::new(Turn::new(machine)));
    let proxy = Proxy::start(&env, local(proxied), at).await?;
    let shared: SharedHandle =
        Arc::new(Mutex::new(Shared { outside: Some((env.now(), env.clone())), ..Shared::default() }));
    lock(&shared).model.foreign = !own;
    let client = || Client::new(env.clone(), local(proxied), &user, &password);
    set_up(&env, client(), plan, own).await?;
    let mut tasks = Vec::new();
    for (n, ops) in plan.clients.iter().enumerate() {
        let mut worker = Worker::new(&format!("c{}", n + 1), client(), Arc::clone(&shared));
        let (env, ops) = (env.clone(), usable(ops, own));
        tasks.push(tokio::spawn(async move {
            worker.run(&ops, |ms| env.sleep(Duration::from_millis(ms))).await;
            worker
        }));
    }
    let faults = inject(&env, plan, &proxy, machine.as_ref(), &shared).await?;
    let mut workers = Vec::new();
    for task in tasks {
        workers.push(task.await?);
    }
    proxy.set(Mode::Through);
    if let Some(machine) = &machine {
        machine.lock().await.restart()?;
    }
    wait_until_up(&env, client()).await?;
    workers.iter_mut().for_each(Worker::reconnect);
    let mut reader = Worker::new("oracle", client(), Arc::clone(&shared));
    let outcome = if lock(&shared).violation.is_some() {
        Ok(())
    } else {
        reader.check_final_state(&mut workers).await.map(|_| ())
    };
    let panicked = match &machine {
        Some(machine) if own => machine.lock().await.panic(),
        _ => None,
    };
    let mut shared = lock(&shared);
    let failure = shared.violation.take().or(outcome.err()).or(panicked);
    Ok(Outcome { failure, edits: shared.model.outcomes(), faults })
}

/// The operations that make sense here: one server, and of a foreign one documents and their feed only.
fn usable(ops: &[TimedOp], own: bool) -> Vec<TimedOp> {
    let fits = |timed: &&TimedOp| match timed.op {
        Op::Replicate | Op::Keep { .. } | Op::EndKeep { .. } => false,
        Op::Join { .. } | Op::Part { .. } | Op::Ferry { .. } => false,
        // The program has no folder for them.
        Op::Snapshot { .. } | Op::Restore => false,
        // Nobody makes the filters there.
        Op::FollowFiltered { .. } | Op::Maintain { .. } | Op::Shift { .. } | Op::Groups { .. } => false,
        Op::Put { .. } | Op::PutStale { .. } | Op::Delete { .. } | Op::Merge { .. } | Op::Bulk { .. } => true,
        Op::Attach { .. } | Op::Read { .. } | Op::ReadTree { .. } | Op::List => true,
        Op::Follow { mode: FeedMode::Normal, .. } => true,
        _ => own,
    };
    ops.iter().filter(fits).cloned().collect()
}

/// Not every server knows `_up`; all greet.
async fn wait_until_up(env: &Env, mut client: Client) -> io::Result<()> {
    let started = env.now();
    while env.now().since(started) < START {
        if client.get("/").await.is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    Err(io::Error::other("nothing answers"))
}

/// Makes the databases anew.
async fn set_up(env: &Env, mut client: Client, plan: &Plan, own: bool) -> io::Result<()> {
    wait_until_up(env, client.another()).await?;
    let none = serde_json::Value::Null;
    let _ = client.json("DELETE", &format!("/{DB}"), &none).await;
    let made = client.json("PUT", &format!("/{DB}?q={}", plan.world.q), &none).await;
    if !made.as_ref().is_ok_and(|answer| answer.status < 300) {
        return Err(io::Error::other(format!("the database is not made: {made:?}")));
    }
    if own { set_up_own(&mut client, &plan.world).await.map_err(io::Error::other) } else { Ok(()) }
}

/// Carries the faults out that can be; how many were and were not.
async fn inject(
    env: &Env,
    plan: &Plan,
    proxy: &Proxy,
    machine: Option<&Arc<Turn<Machine>>>,
    shared: &SharedHandle,
) -> io::Result<(u64, u64)> {
    let (started, mut counts) = (env.now(), (0, 0));
    for TimedFault { at_ms, fault, aim, .. } in &plan.faults {
        let at = Duration::from_millis(*at_ms);
        env.sleep(at.saturating_sub(env.now().since(started))).await;
        if let Some(aim) = aim
            && !is_under_way(env, aim, shared).await
        {
            counts.1 += 1;
            continue;
        }
        let time = Duration::from_millis(fault.lasts_ms());
        lock(shared).history.begins(fault.name());
        let mut done = true;
        match (fault, machine) {
            (Fault::Reset, _) => proxy.reset(),
            (Fault::Partition { .. } | Fault::Swizzle { .. }, _) => {
                let swallows = matches!(fault, Fault::Partition { answers_only: true, .. });
                proxy.set(if swallows { Mode::Swallow } else { Mode::Hold });
                env.sleep(time).await;
                proxy.set(Mode::Through);
                // What was swallowed leaves connections out of step.
                proxy.reset();
            }
            (Fault::Pause { .. }, Some(machine)) => {
                machine.lock().await.signal("STOP")?;
                env.sleep(time).await;
                machine.lock().await.signal("CONT")?;
            }
            (
                Fault::Crash { .. }
                | Fault::PowerLoss { .. }
                | Fault::Fuse { .. }
                | Fault::TornJournal { .. }
                | Fault::CutFlush { .. },
                Some(machine),
            ) => {
                machine.lock().await.kill()?;
                env.sleep(time).await;
                machine.lock().await.restart()?;
            }
            _ => done = false,
        }
        lock(shared).history.ends(fault.name());
        counts.0 += u64::from(done);
        counts.1 += u64::from(!done);
    }
    Ok(counts)
}

/// Waits for the operation that a fault is aimed at; whether it came.
async fn is_under_way(env: &Env, Aim { op, after_us }: &Aim, shared: &SharedHandle) -> bool {
    let came = env.timeout(AIM, under_way(shared, op)).await.unwrap_or(false);
    env.sleep(Duration::from_micros(*after_us)).await;
    came
}

/// A process with its data.
struct Machine {
    program: PathBuf,
    arguments: Vec<String>,
    data: PathBuf,
    process: Child,
}

impl Machine {
    /// Starts the program of a target; `None`: somebody else did.
    fn of(target: &Target, port: u16) -> io::Result<Option<Machine>> {
        let data = std::env::temp_dir().join(format!("settee-outer-{}-{port}", std::process::id()));
        let place = data.display().to_string();
        let (program, arguments) = match target {
            Target::Server { .. } => return Ok(None),
            Target::Binary(program) => {
                let mut arguments: Vec<String> = vec!["serve".into(), "--data".into(), place];
                arguments.extend(["--port".into(), port.to_string()]);
                for setting in place::settings_outside() {
                    arguments.extend(["--set".into(), setting]);
                }
                (program.clone(), arguments)
            }
            Target::Command { line, .. } => {
                let word = |word: &str| word.replace("{port}", &port.to_string()).replace("{data}", &place);
                let mut words = line.split_whitespace().map(word);
                let program = words.next().ok_or_else(|| io::Error::other("the command is empty"))?;
                (PathBuf::from(program), words.collect())
            }
        };
        std::fs::create_dir_all(&data)?;
        let process = Machine::spawn(&program, &arguments, &data)?;
        Ok(Some(Machine { program, arguments, data, process }))
    }

    /// What its processes say on standard error goes to a file beside its data.
    fn spawn(program: &Path, arguments: &[String], data: &Path) -> io::Result<Child> {
        let log = File::options().create(true).append(true).open(data.with_extension("log"))?;
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(log).spawn()
    }

    /// The first panic that a process of it told of.
    fn panic(&self) -> Option<Violation> {
        let log = std::fs::read(self.data.with_extension("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let line = log.lines().find(|line| line.contains("panicked at"))?;
        Some(Violation { invariant: "P", what: format!("panic: {line}") })
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-s", name, &pid]).status().map(drop)
    }

    /// Ends it as `kill -9` does.
    fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.process = Machine::spawn(&self.program, &self.arguments, &self.data)?;
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It is over either way.
        let _ = self.kill();
        let _ = std::fs::remove_dir_all(&self.data);
        let _ = std::fs::remove_file(self.data.with_extension("log"));
    }
}
