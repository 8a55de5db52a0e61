//! Accepts connections and drives each with hyper's HTTP/1: keep-alive, pipelining, limits, timeouts, graceful stop.
//!
//! All tasks, timers and sockets are the [`Env`]'s, so that the same code serves real and simulated clients. A slow
//! client costs its connection and two chunks, no more: reading and writing have idle limits (`limits.rs`).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use bytes::BytesMut;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Context;
use super::answer::{Cut, NamedUser, answer};
use super::idle::{Connection, Idle};
use super::lenient::Lenient;
use super::secure::{self, Secured};
use crate::config::Config;
use crate::limits;
use crate::observe::metrics::{Counter, Gauge};
use crate::wire::address;
use crate::wire::tls::Acceptor;
use crate::world::{BoxFuture, BoxStream, Env, Instant, Listener, next_connection};

/// A server that accepts connections until it is stopped.
pub struct Server {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    context: Arc<Context>,
    router: Router,
    /// Where https is spoken, if it is.
    secure_address: Mutex<Option<SocketAddr>>,
    /// One permit for each connection.
    places: Arc<Semaphore>,
    places_max: u32,
    idle: Arc<Idle>,
    /// Whether a request was not finished in time when the node stopped.
    cut: AtomicBool,
}

impl Shared {
    pub(super) fn env(&self) -> &Env {
        &self.context.env
    }

    pub(super) fn config(&self) -> &Config {
        &self.context.config
    }

    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.context.stopping.subscribe()
    }

    pub(super) fn set_secure_address(&self, address: Option<SocketAddr>) {
        *self.secure_address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

/// The other end of a connection, and whether it came by TLS.
#[derive(Clone, Copy)]
struct Peer {
    address: SocketAddr,
    secure: bool,
}

/// Failed accepts, of which few are logged.
#[derive(Default)]
struct Failures {
    logged_at: Option<Instant>,
    since: u64,
}

impl Failures {
    fn log(&mut self, env: &Env, error: &io::Error) {
        self.since += 1;
        let now = env.now();
        if self.logged_at.is_none_or(|at| now.since(at) >= limits::HTTP_ACCEPT_LOG_PAUSE) {
            tracing::warn!("cannot accept a connection ({} times since this was told last): {error}", self.since);
            (self.logged_at, self.since) = (Some(now), 0);
        }
    }
}

impl Server {
    /// Starts to accept connections from `listener`, and TLS connections from `secured`.
    pub fn start(context: Arc<Context>, listener: Box<dyn Listener>, secured: Option<Secured>) -> Server {
        let env = context.env.clone();
        let wanted = context.config.u64("chttpd", "max_connections", limits::HTTP_CONNECTIONS_MAX);
        let places_max = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, limits::HTTP_CONNECTIONS_CEILING);
        let shared = Arc::new(Shared {
            router: Router::new().fallback(serve).with_state(context.clone()),
            context,
            secure_address: Mutex::default(),
            places: Arc::new(Semaphore::new(places_max as usize)),
            places_max,
            idle: Arc::default(),
            cut: AtomicBool::new(false),
        });
        shared.set_secure_address(secured.as_ref().map(Secured::address));
        env.spawn(accept(shared.clone(), listener, None));
        env.spawn(secure::keep(shared.clone(), secured));
        Server { shared }
    }

    /// Where https is spoken now, if it is.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        *self.shared.secure_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts no more, lets running requests finish for up to `limits::STOP_DRAIN`, and returns when every
    /// connection is closed. False: some requests were cut off.
    pub async fn stop(&self) -> bool {
        self.shared.context.stopping.send_replace(true);
        // An error would mean a closed semaphore; nobody closes it.
        let _ = self.shared.places.acquire_many(self.shared.places_max).await;
        !self.shared.cut.load(Ordering::Relaxed)
    }
}

/// Where a section's listener belongs: `chttpd/bind_address` (`any` is every address) and the section's `port`.
///
/// # Errors
/// One line for the operator.
pub fn listen_address(config: &Config, section: &str, port: &str) -> Result<SocketAddr, String> {
    let text = config.text("chttpd", "bind_address", limits::BIND_ADDRESS);
    let ip = address::bind_ip(&text).ok_or_else(|| format!("chttpd/bind_address `{text}` is no IP address"))?;
    let port = port.parse().map_err(|_| format!("{section}/port `{port}` is no port number"))?;
    Ok(SocketAddr::new(ip, port))
}

async fn serve(
    State(context): State<Arc<Context>>,
    Extension(Peer { address, secure }): Extension<Peer>,
    request: axum::extract::Request,
) -> axum::response::Response {
    answer(context, address, secure, request).await
}

/// Accepts connections until the server stops; with `secure` each begins with a handshake.
pub(super) async fn accept(shared: Arc<Shared>, mut listener: Box<dyn Listener>, secure: Option<secure::Current>) {
    let env = shared.context.env.clone();
    let mut stopping = shared.stopping();
    let (kept, mut failures) = ((shared.places_max / limits::HTTP_PLACES_KEPT).max(1) as usize, Failures::default());
    while let Some((place, accepted)) = next_connection(&mut *listener, &shared.places, &mut stopping).await {
        match accepted {
            Ok((stream, peer)) => {
                if shared.places.available_permits() < kept {
                    shared.idle.close_one();
                }
                let acceptor =
                    secure.as_ref().map(|current| current.read().unwrap_or_else(PoisonError::into_inner).clone());
                // It counts as idle before the next one is accepted, which may need its place.
                let own = Connection::new(&shared.idle);
                env.spawn(begin(shared.clone(), (stream, acceptor), peer, (place, own)));
            }
            Err(error) => {
                // Out of descriptors, most likely: connections that end make room.
                failures.log(&env, &error);
                shared.idle.close_one();
                env.sleep(Duration::from_millis(limits::HTTP_ACCEPT_PAUSE_MS)).await;
            }
        }
    }
}

/// Shakes hands, where TLS is spoken, and serves the connection to its end.
async fn begin(
    shared: Arc<Shared>,
    (stream, acceptor): (BoxStream, Option<Acceptor>),
    address: SocketAddr,
    (place, own): (OwnedSemaphorePermit, Arc<Connection>),
) {
    let metrics = shared.context.env.metrics();
    metrics.count(Counter::ConnectionsAccepted);
    let _counted = metrics.enter(Gauge::Connections);
    let peer = Peer { address, secure: acceptor.is_some() };
    let Some(acceptor) = acceptor else { return connection(shared, stream, peer, (place, own)).await };
    let (env, mut stopping) = (shared.context.env.clone(), shared.stopping());
    let limit = Duration::from_millis(limits::TLS_HANDSHAKE_MS);
    let shaken = tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop) => return,
        shaken = env.timeout(limit, acceptor.accept(stream)) => shaken,
        () = told_to_close(&own, &env) => return,
    };
    match shaken {
        Ok(Ok(stream)) => connection(shared, stream, peer, (place, own)).await,
        Ok(Err(error)) => tracing::debug!("handshake of {address}: {error}"),
        Err(_) => tracing::debug!("handshake of {address}: too slow"),
    }
}

/// Waits until the connection is to be closed because it is idle; what it may have sent just now is read first.
async fn told_to_close(own: &Connection, env: &Env) {
    own.told_to_close().await;
    if own.is_fresh() {
        env.sleep(limits::HTTP_FRESH_GRACE).await;
    }
}

async fn connection(
    shared: Arc<Shared>,
    stream: BoxStream,
    peer: Peer,
    (_place, own): (OwnedSemaphorePermit, Arc<Connection>),
) {
    let env = shared.context.env.clone();
    let router = TowerToHyperService::new(shared.router.clone());
    let (with_requests, cut) = (Arc::clone(&own), Cut::default());
    let with_answers = cut.clone();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        let working = with_requests.work();
        mark(&mut request, peer, &with_answers);
        let answered = router.call(request);
        let own = Arc::clone(&with_requests);
        async move {
            let response = answered.await?;
            if response.extensions().get::<NamedUser>().is_some() {
                own.log_in();
            }
            Ok::<_, std::convert::Infallible>(response.map(|body| working.until_sent(body)))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(EnvTimer(env.clone()))
        .header_read_timeout(Duration::from_millis(limits::HTTP_HEAD_MS))
        .max_headers(limits::HTTP_HEADERS_MAX)
        .max_buf_size(limits::HTTP_HEAD_BYTES)
        .auto_date_header(false);
    let io = TokioIo::new(Paced::new(stream, &env));
    let mut serving = std::pin::pin!(builder.serve_connection(io, service));
    let mut stopping = shared.stopping();
    let ended = tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop) => Err(limits::STOP_DRAIN),
        ended = serving.as_mut() => Ok(ended),
        () = told_to_close(&own, &env) => Err(own.patience()),
        () = cut.0.notified() => Err(Duration::ZERO),
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(drain) => {
            serving.as_mut().graceful_shutdown();
            // A request that began is answered; a head that does not end is not waited for.
            env.timeout(drain, serving).await.unwrap_or_else(|_| {
                if *shared.context.stopping.borrow() {
                    shared.cut.store(true, Ordering::Relaxed);
                }
                Ok(())
            })
        }
    };
    if let Err(error) = ended {
        // A client that is silent for too long ends nothing that was begun.
        if !error.is_timeout() {
            env.metrics().count(Counter::AbortedRequests);
        }
        tracing::debug!("connection of {}: {error}", peer.address);
    }
}

/// Has the handlers of a request know whose it is and what cuts its connection.
fn mark(request: &mut hyper::Request<hyper::body::Incoming>, peer: Peer, cut: &Cut) {
    let known = request.extensions_mut();
    known.insert(peer);
    known.insert(cut.clone());
}

/// hyper's timers over the [`Env`]. The only one that hyper sets here is for the head of a request.
#[derive(Clone)]
struct EnvTimer(Env);

struct EnvSleep(Mutex<BoxFuture<'static, ()>>);

impl Future for EnvSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.get_mut().0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx)
    }
}

impl hyper::rt::Sleep for EnvSleep {}

impl hyper::rt::Timer for EnvTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(EnvSleep(Mutex::new(self.0.host().sleep(duration))))
    }

    /// hyper reckons deadlines on a clock that is not the world's. Each is set anew with the one duration that is
    /// configured, so that duration is what counts.
    fn sleep_until(&self, _deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep(Duration::from_millis(limits::HTTP_HEAD_MS))
    }
}

/// A client's stream: what it sends is made acceptable ([`Lenient`]), and writes fail when it takes nothing for
/// `limits::HTTP_WRITE_IDLE_MS`.
struct Paced {
    stream: BoxStream,
    env: Env,
    waiting: Option<BoxFuture<'static, ()>>,
    lenient: Lenient,
    /// Changed bytes for which the reader had no room.
    ready: BytesMut,
}

impl Paced {
    fn new(stream: BoxStream, env: &Env) -> Paced {
        let (lenient, ready) = (Lenient::default(), BytesMut::new());
        Paced { stream, env: env.clone(), waiting: None, lenient, ready }
    }

    fn pace<T>(&mut self, cx: &mut TaskContext<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let limit = Duration::from_millis(limits::HTTP_WRITE_IDLE_MS);
        let waiting = self.waiting.get_or_insert_with(|| self.env.host().sleep(limit));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Paced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.as_mut().get_mut();
        if this.ready.is_empty() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            let Some(changed) = this.lenient.pass(&buf.filled()[before..]) else { return Poll::Ready(Ok(())) };
            buf.set_filled(before);
            this.ready = BytesMut::from(changed.as_slice());
        }
        let size = this.ready.len().min(buf.remaining());
        buf.put_slice(&this.ready.split_to(size));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Paced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.pace(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.pace(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.pace(cx, polled)
    }
}
