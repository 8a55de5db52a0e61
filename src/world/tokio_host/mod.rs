//! The production host: tokio for sockets, timers and tasks, `std::fs` for the disk, own threads for blocking jobs.
//!
//! Assumes a tokio runtime with IO and time enabled that outlives the host. Promises what [`Host`] asks: dropped
//! sleeps are cancelled, connections have `TCP_NODELAY`, `Pool` classes never share a thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::TryRng;
use rand::rngs::SysRng;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{
    Abort, BoxFuture, BoxStream, Budget, Disk, Env, Host, Instant, Job, Listener, Pool, Process, Usage, Worker,
};

mod disk;
pub(super) mod inline;
mod pools;
mod process;
#[cfg(target_os = "linux")]
mod processors;
#[cfg(test)]
mod tests;
mod usage;

/// Elsewhere threads run where the system likes.
#[cfg(not(target_os = "linux"))]
mod processors {
    use std::sync::Arc;

    use crate::world::Pool;

    pub(super) struct Processors;

    impl Processors {
        pub(super) fn new() -> Arc<Processors> {
            Arc::new(Processors)
        }

        pub(super) fn enlist(&self, _pool: Pool) {}

        pub(super) fn begins(&self, _pool: Pool) {}

        pub(super) fn unbound<T>(&self, work: impl FnOnce() -> T) -> T {
            work()
        }
    }
}

use disk::OsDisk;
use pools::ThreadPools;

/// The file that was started, also when another stands in its place by now.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// [`Host`] over the operating system.
pub struct TokioHost {
    handle: Handle,
    origin: std::time::Instant,
    pools: ThreadPools,
    disk: Arc<OsDisk>,
    program: String,
}

impl TokioHost {
    /// A host whose tasks, sockets and timers belong to the runtime of `handle`. Starts its blocking threads at once.
    pub fn new(handle: Handle) -> Arc<Self> {
        TokioHost::of_program(handle, OWN_PROGRAM)
    }

    fn of_program(handle: Handle, program: &str) -> Arc<Self> {
        Arc::new(TokioHost {
            program: program.to_owned(),
            handle,
            origin: std::time::Instant::now(),
            pools: ThreadPools::start(),
            disk: Arc::new(OsDisk),
        })
    }
}

/// Has the system back memory with small pages only; to be called first. The allocator asks for huge ones, of which a
/// few small blocks then hold two megabytes each: two to three times the memory that the node counts was measured, and
/// nothing gained in speed. Where it cannot be had, a node only takes more.
pub fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "memory comes in huge pages");
    }
}

/// An [`Env`] over a new [`TokioHost`].
pub fn env(handle: Handle) -> Env {
    Env::new(TokioHost::new(handle))
}

/// An [`Env`] over a new [`TokioHost`] of another program than the one that runs: for tests, which are none that a
/// node could start more of.
pub fn env_of_program(handle: Handle, program: &str) -> Env {
    Env::new(TokioHost::of_program(handle, program))
}

impl Host for TokioHost {
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<BoxStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxStream)
        })
    }

    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let (literal, host) = (super::literal_address(host, port), host.to_owned());
        Box::pin(async move {
            match literal {
                Some(address) => Ok(vec![address]),
                None => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
            }
        })
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(at).await?;
            Ok(Box::new(TcpDoor(listener)) as Box<dyn Listener>)
        })
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let _inside = self.handle.enter();
        Box::pin(tokio::time::sleep(duration))
    }

    fn others_first(&self) -> BoxFuture<'static, ()> {
        Box::pin(tokio::task::yield_now())
    }

    fn monotonic(&self) -> Instant {
        Instant(self.origin.elapsed())
    }

    fn wall(&self) -> Duration {
        // A clock before 1970 counts as 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        Box::new(TaskAbort(self.handle.spawn(task).abort_handle()))
    }

    fn run_blocking(&self, pool: Pool, job: Job) {
        self.pools.submit(pool, job);
    }

    fn run_here(&self, job: &mut dyn FnMut()) {
        // The one thread of a small runtime could not hand its tasks to another; and other systems do not tell what of
        // a file is in memory.
        let can_wait = self.handle.runtime_flavor() == RuntimeFlavor::MultiThread && cfg!(target_os = "linux");
        if can_wait {
            self.pools.begins(Pool::Foreground);
            inline::run(job);
        }
    }

    fn worker(&self, pool: Pool, name: &str, stack_bytes: usize) -> Arc<dyn Worker> {
        Arc::new(self.pools.worker(pool, name, stack_bytes))
    }

    fn budget(&self, limit: Duration) -> Budget {
        let begun = std::time::Instant::now();
        Box::new(move || begun.elapsed() >= limit)
    }

    fn random(&self, buffer: &mut [u8]) {
        // Without entropy no secret and no unique id can be made: stopping is the only safe answer.
        if let Err(error) = SysRng.try_fill_bytes(buffer) {
            panic!("the operating system gives no random bytes: {error}");
        }
    }

    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn usage(&self) -> Usage {
        usage::of_this_process()
    }

    fn process(&self, command: &[String]) -> io::Result<Box<dyn Process>> {
        Ok(Box::new(self.pools.unbound(|| process::OsProcess::start(command))?))
    }

    fn own_program(&self) -> io::Result<String> {
        Ok(self.program.clone())
    }

    fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }
}

struct TaskAbort(tokio::task::AbortHandle);

impl Abort for TaskAbort {
    fn abort(&self) {
        self.0.abort();
    }
}

struct TcpDoor(TcpListener);

impl Listener for TcpDoor {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = self.0.accept().await?;
            // Fails only for a connection that is already gone; its reader will learn so.
            let _ = stream.set_nodelay(true);
            Ok((Box::new(stream) as BoxStream, peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
