//! A host whose disk is another one: for tools that watch what goes to the disk, or keep it away from it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Abort, BoxFuture, BoxStream, Budget, Disk, Env, Host, Instant, Job, Listener, Pool, Process, Usage, Worker,
};

/// The host of `env`, with `disk` in place of its own.
pub fn with_disk(env: &Env, disk: Arc<dyn Disk>) -> Env {
    Env::new(Arc::new(OtherDisk { below: Arc::clone(env.host()), disk }))
}

struct OtherDisk {
    below: Arc<dyn Host>,
    disk: Arc<dyn Disk>,
}

impl Host for OtherDisk {
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<BoxStream>> {
        self.below.connect(to)
    }
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        self.below.resolve(host, port)
    }
    fn listen(&self, at: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        self.below.listen(at)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.below.sleep(duration)
    }
    fn monotonic(&self) -> Instant {
        self.below.monotonic()
    }
    fn wall(&self) -> Duration {
        self.below.wall()
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        self.below.spawn(task)
    }
    fn run_blocking(&self, pool: Pool, job: Job) {
        self.below.run_blocking(pool, job);
    }
    fn run_here(&self, job: &mut dyn FnMut()) {
        self.below.run_here(job);
    }
    fn worker(&self, pool: Pool, name: &str, stack_bytes: usize) -> Arc<dyn Worker> {
        self.below.worker(pool, name, stack_bytes)
    }
    fn budget(&self, limit: Duration) -> Budget {
        self.below.budget(limit)
    }
    fn random(&self, buffer: &mut [u8]) {
        self.below.random(buffer);
    }
    fn is_seeded(&self) -> bool {
        self.below.is_seeded()
    }
    fn process(&self, command: &[String]) -> io::Result<Box<dyn Process>> {
        self.below.process(command)
    }
    fn own_program(&self) -> io::Result<String> {
        self.below.own_program()
    }
    fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }
    fn cores(&self) -> usize {
        self.below.cores()
    }
    fn usage(&self) -> Usage {
        self.below.usage()
    }
}
