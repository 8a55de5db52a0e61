//! The ground on which plays take place: time, connections, tasks and chance. The program has tokio's; a simulator
//! brings its own, so that the same cases are played in its world.

use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// Work that may go on elsewhere.
pub type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A connection.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// See the module head.
pub trait Ground: Send + Sync + 'static {
    /// Opens a connection to a host by its name or address; may take for ever.
    fn connect(&self, host: &str, port: u16) -> Work<io::Result<Box<dyn Bytes>>>;
    /// Lets time pass.
    fn sleep(&self, time: Duration) -> Work<()>;
    /// Time since some moment before all plays.
    fn now(&self) -> Duration;
    /// Does work beside the play.
    fn spawn(&self, work: Work<()>);
    /// A random number.
    fn random(&self) -> u32;
}

impl fmt::Debug for dyn Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ground")
    }
}

/// The time is over.
#[derive(Clone, Copy, Debug)]
pub struct Late;

impl dyn Ground {
    /// Waits for `work`, but not longer than `limit`.
    ///
    /// # Errors
    /// When the time is over.
    pub async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, Late> {
        let work = pin!(work);
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.sleep(limit) => Err(Late),
        }
    }
}

/// The machine itself, by tokio.
pub struct Machine {
    began: std::time::Instant,
}

impl Machine {
    /// For the runtime that plays.
    pub fn ground() -> Arc<dyn Ground> {
        Arc::new(Machine { began: std::time::Instant::now() })
    }
}

impl Ground for Machine {
    fn connect(&self, host: &str, port: u16) -> Work<io::Result<Box<dyn Bytes>>> {
        let host = host.to_owned();
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect((host.as_str(), port)).await?;
            // Without effect on what is sent, only on when: a failure changes no outcome.
            let _ = stream.set_nodelay(true);
            Ok(Box::new(stream) as Box<dyn Bytes>)
        })
    }

    fn sleep(&self, time: Duration) -> Work<()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn spawn(&self, work: Work<()>) {
        tokio::spawn(work);
    }

    fn random(&self) -> u32 {
        rand::random()
    }
}
