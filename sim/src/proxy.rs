//! A proxy before a node that spoils what passes: it answers in the node's stead, holds everything back, keeps answers
//! to itself, cuts them short. It works on any [`Env`]: in the simulated world the source of replications stands behind
//! it (F25), outside of it a real process does.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use settee::world::{BoxStream, Env};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// Bytes that are passed on at once.
const PIECE: usize = 8 << 10;

/// What becomes of what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    Through,
    /// Requests get this status and do not reach the node.
    Answer(u16),
    /// Answers end in the middle.
    Short,
    /// Requests pass, answers do not.
    Swallow,
    /// Nothing passes.
    Hold,
}

/// What is to happen once so many more pieces of requests have come.
type Trigger = (u64, Box<dyn FnOnce() + Send>);

/// The switches of a proxy; it lives as long as the node that it was started on.
#[derive(Clone)]
pub struct Proxy {
    mode: watch::Sender<Mode>,
    resets: watch::Sender<u64>,
    trigger: Arc<Mutex<Option<Trigger>>>,
}

impl Proxy {
    /// Starts to listen at `at` for the node at `to`.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn start(env: &Env, at: SocketAddr, to: SocketAddr) -> io::Result<Proxy> {
        let mut listener = env.host().listen(at).await?;
        let trigger = Arc::default();
        let proxy = Proxy { mode: watch::channel(Mode::Through).0, resets: watch::channel(0).0, trigger };
        let (own, env) = (proxy.clone(), env.clone());
        drop(env.clone().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (env, own, mut resets) = (env.clone(), own.clone(), own.resets.subscribe());
                resets.mark_unchanged();
                drop(env.clone().spawn(async move {
                    tokio::select! {
                        biased;
                        _ = resets.changed() => {}
                        () = own.relay(&env, client, to) => {}
                    }
                }));
            }
        }));
        Ok(proxy)
    }

    /// Changes what becomes of what comes.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Ends every connection.
    pub fn reset(&self) {
        self.resets.send_modify(|count| *count += 1);
    }

    /// Does something once, when so many more pieces of requests have come; what waited before is forgotten.
    pub fn at_request(&self, count: u64, action: impl FnOnce() + Send + 'static) {
        *self.waiting() = Some((count, Box::new(action)));
    }

    /// Forgets what waits for requests.
    pub fn call_off(&self) {
        *self.waiting() = None;
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Trigger>> {
        self.trigger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of a request came.
    fn asked(&self) {
        let due = {
            let mut waiting = self.waiting();
            let left = waiting.as_mut().map(|(left, _)| {
                *left = left.saturating_sub(1);
                *left
            });
            if left == Some(0) { waiting.take() } else { None }
        };
        if let Some((_, action)) = due {
            action();
        }
    }

    /// One connection to its end. A failure of either side ends both: that is all that anybody can learn of it.
    async fn relay(&self, env: &Env, client: BoxStream, to: SocketAddr) {
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let Ok(node) = env.host().connect(to).await else { return };
        let (mut from_node, mut to_node) = tokio::io::split(node);
        let mode = self.mode.subscribe();
        let answer = tokio::select! {
            biased;
            answer = requests(&mut from_client, &mut to_node, mode.clone(), || self.asked()) => answer,
            () = answers(&mut from_node, &mut to_client, mode) => None,
        };
        if let Some(status) = answer {
            let body = "{\"error\":\"peer\",\"reason\":\"It was told to answer so.\"}\n";
            let head = format!("HTTP/1.1 {status} Peer\r\nContent-Type: application/json\r\nConnection: close\r\n");
            let text = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
            let _ = to_client.write_all(text.as_bytes()).await;
            let _ = to_client.shutdown().await;
        }
    }
}

/// Passes on what a client sends, until it ends or is to be answered here; `came` is told of each piece.
async fn requests(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut mode: watch::Receiver<Mode>,
    came: impl Fn(),
) -> Option<u16> {
    let mut piece = vec![0; PIECE];
    loop {
        let got = from.read(&mut piece).await.ok().filter(|got| *got > 0)?;
        came();
        let now = *mode.wait_for(|mode| *mode != Mode::Hold).await.ok()?;
        if let Mode::Answer(status) = now {
            return Some(status);
        }
        to.write_all(&piece[..got]).await.ok()?;
        to.flush().await.ok()?;
    }
}

/// Passes on what the node answers.
async fn answers(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut mode: watch::Receiver<Mode>,
) {
    let mut piece = vec![0; PIECE];
    while let Ok(got) = from.read(&mut piece).await {
        let Ok(now) = mode.wait_for(|mode| *mode != Mode::Hold).await.map(|mode| *mode) else { return };
        let sent = match now {
            _ if got == 0 => return,
            Mode::Swallow => continue,
            Mode::Short => got / 2,
            _ => got,
        };
        if to.write_all(&piece[..sent]).await.is_err() || to.flush().await.is_err() || sent < got {
            return;
        }
    }
}
