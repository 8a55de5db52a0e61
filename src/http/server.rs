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
use super::answer::answer;
use super::lenient::Lenient;
use super::secure::{self, Secured};
use crate::config::Config;
use crate::limits;
use crate::observe::metrics::{Counter, Gauge};
use crate::wire::address;
use crate::wire::tls::Acceptor;
use crate::world::{BoxFuture, BoxStream, Env, Listener, next_connection};

/// A server that accepts connections until it is stopped.
pub struct Server {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    context: Arc<Context>,
    router: Router,
    stopping: watch::Sender<bool>,
    /// Where https is spoken, if it is.
    secure_address: Mutex<Option<SocketAddr>>,
    /// One permit for each connection.
    places: Arc<Semaphore>,
    places_max: u32,
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
        self.stopping.subscribe()
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

impl Server {
    /// Starts to accept connections from `listener`, and TLS connections from `secured`.
    pub fn start(context: Arc<Context>, listener: Box<dyn Listener>, secured: Option<Secured>) -> Server {
        let env = context.env.clone();
        let wanted = context.config.u64("chttpd", "max_connections", limits::HTTP_CONNECTIONS_MAX);
        let places_max = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, limits::HTTP_CONNECTIONS_CEILING);
        let shared = Arc::new(Shared {
            router: Router::new().fallback(serve).with_state(context.clone()),
            context,
            stopping: watch::Sender::new(false),
            secure_address: Mutex::default(),
            places: Arc::new(Semaphore::new(places_max as usize)),
            places_max,
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
        self.shared.stopping.send_replace(true);
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
    let mut stopping = shared.stopping.subscribe();
    while let Some((place, accepted)) = next_connection(&mut *listener, &shared.places, &mut stopping).await {
        match accepted {
            Ok((stream, peer)) => {
                let acceptor =
                    secure.as_ref().map(|current| current.read().unwrap_or_else(PoisonError::into_inner).clone());
                env.spawn(begin(shared.clone(), (stream, acceptor), peer, place));
            }
            Err(error) => {
                // Out of descriptors, most likely: connections that end make room.
                tracing::warn!("cannot accept a connection: {error}");
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
    place: OwnedSemaphorePermit,
) {
    let metrics = shared.context.env.metrics();
    metrics.count(Counter::ConnectionsAccepted);
    let _counted = metrics.enter(Gauge::Connections);
    let peer = Peer { address, secure: acceptor.is_some() };
    let Some(acceptor) = acceptor else { return connection(shared, stream, peer, place).await };
    let (env, mut stopping) = (shared.context.env.clone(), shared.stopping.subscribe());
    let limit = Duration::from_millis(limits::TLS_HANDSHAKE_MS);
    let shaken = tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop) => return,
        shaken = env.timeout(limit, acceptor.accept(stream)) => shaken,
    };
    match shaken {
        Ok(Ok(stream)) => connection(shared, stream, peer, place).await,
        Ok(Err(error)) => tracing::debug!("handshake of {address}: {error}"),
        Err(_) => tracing::debug!("handshake of {address}: too slow"),
    }
}

async fn connection(shared: Arc<Shared>, stream: BoxStream, peer: Peer, place: OwnedSemaphorePermit) {
    let env = shared.context.env.clone();
    let router = TowerToHyperService::new(shared.router.clone());
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
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
    let mut stopping = shared.stopping.subscribe();
    let ended = tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop) => None,
        ended = serving.as_mut() => Some(ended),
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            env.timeout(limits::STOP_DRAIN, serving).await.unwrap_or_else(|_| {
                shared.cut.store(true, Ordering::Relaxed);
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
    drop(place);
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
