//! Simulated sockets: what a node holds of the network.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use settee::world::{BoxFuture, BoxStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{Connection, End, Flow, Load, Phase};
use super::{ConnectionId, Door, Net, SEGMENT, State, WINDOW};

/// One end of a connection. Dropping closes it.
struct SimStream {
    net: Arc<Net>,
    id: ConnectionId,
    end: usize,
}

/// A connection that is being opened. Dropping it gives up.
struct Opening(SimStream);

struct SimListener {
    net: Arc<Net>,
    at: SocketAddr,
    serial: u64,
}

/// Opens a connection from a process of `life` on the machine `from`.
pub(crate) async fn connect(net: Arc<Net>, from: IpAddr, life: u64, to: SocketAddr) -> io::Result<BoxStream> {
    let id = net.with(|state| state.open(from, life, to))?;
    let opening = Opening(SimStream { net, id, end: 0 });
    poll_fn(|cx| opening.0.net.with(|state| state.poll_open(id, cx))).await?;
    Ok(Box::new(opening.0))
}

/// Listens on a port of the machine `ip`; port 0 takes a free one. All addresses of a machine are one.
pub(crate) fn listen(net: Arc<Net>, ip: IpAddr, life: u64, at: SocketAddr) -> io::Result<Box<dyn Listener>> {
    let (at, serial) = net.with(|state| state.open_door(ip, life, at))?;
    Ok(Box::new(SimListener { net, at, serial }))
}

impl State {
    fn open(&mut self, from: IpAddr, life: u64, to: SocketAddr) -> io::Result<ConnectionId> {
        if !self.lives(from, life) {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        let port = self.free_port(from)?;
        let target = if to.ip().is_loopback() || to.ip().is_unspecified() { from } else { to.ip() };
        self.next_connection += 1;
        let id = self.next_connection;
        let mut far = End::new(SocketAddr::new(target, to.port()), 0);
        far.held = false;
        let connection = Connection {
            phase: Phase::Opening { tries: 0 },
            door: 0,
            opener: None,
            ends: [End::new(SocketAddr::new(from, port), life), far],
            flows: [Flow::default(), Flow::default()],
        };
        self.connections.insert(id, connection);
        self.send_syn(id);
        Ok(id)
    }

    fn poll_open(&mut self, id: ConnectionId, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.connections.get_mut(&id) {
            None => Poll::Pending,
            Some(c) => match c.phase {
                Phase::Open => Poll::Ready(Ok(())),
                Phase::Failed(kind) => Poll::Ready(Err(kind.into())),
                Phase::Opening { .. } => {
                    c.opener = Some(cx.waker().clone());
                    Poll::Pending
                }
            },
        }
    }

    fn open_door(&mut self, ip: IpAddr, life: u64, at: SocketAddr) -> io::Result<(SocketAddr, u64)> {
        if !self.lives(ip, life) {
            return Err(io::ErrorKind::NetworkDown.into());
        }
        if at.ip() != ip && !at.ip().is_loopback() && !at.ip().is_unspecified() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let port = if at.port() == 0 { self.free_port(ip)? } else { at.port() };
        let at = SocketAddr::new(ip, port);
        if self.doors.contains_key(&at) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        self.next_door += 1;
        let serial = self.next_door;
        self.doors.insert(at, Door { life, serial, queue: Default::default(), waker: None });
        self.note(ip, "net.listen", u64::from(port));
        Ok((at, serial))
    }

    fn poll_accept(
        &mut self,
        at: SocketAddr,
        serial: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(u64, SocketAddr)>> {
        let Some(door) = self.doors.get_mut(&at).filter(|door| door.serial == serial) else { return Poll::Pending };
        while let Some(id) = door.queue.pop_front() {
            if let Some(c) = self.connections.get(&id) {
                return Poll::Ready(Ok((id, c.ends[0].at)));
            }
        }
        door.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn close_door(&mut self, at: SocketAddr, serial: u64) {
        if self.doors.get(&at).is_none_or(|door| door.serial != serial) {
            return;
        }
        if let Some(door) = self.doors.remove(&at) {
            for id in door.queue {
                self.close(id, 1);
            }
        }
    }

    fn poll_read(
        &mut self,
        id: ConnectionId,
        end: usize,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(c) = self.connections.get_mut(&id) else { return Poll::Pending };
        let this = &mut c.ends[end];
        if !this.held {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        while buffer.remaining() > 0
            && let Some(front) = this.received.front_mut()
        {
            let part = front.len().min(buffer.remaining());
            buffer.put_slice(&front[..part]);
            front.advance(part);
            if front.is_empty() {
                this.received.pop_front();
            }
        }
        let taken = buffer.filled().len() - before;
        if taken > 0 {
            self.edit(id, |net, c| net.credit(id, c, 1 - end, taken));
            return Poll::Ready(Ok(()));
        }
        if this.finished || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(kind) = this.error {
            return Poll::Ready(Err(kind.into()));
        }
        this.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        id: ConnectionId,
        end: usize,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(c) = self.connections.get_mut(&id) else { return Poll::Pending };
        if let Some(kind) = c.ends[end].error {
            return Poll::Ready(Err(kind.into()));
        }
        if !c.ends[end].held {
            return Poll::Pending;
        }
        if c.flows[end].finish_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let part = data.len().min(SEGMENT).min(WINDOW - c.flows[end].outstanding);
        if part == 0 && !data.is_empty() {
            c.ends[end].writer = Some(cx.waker().clone());
            let node = c.ends[end].at.ip();
            self.note(node, "net.window_full", id);
            return Poll::Pending;
        }
        if part > 0 {
            c.flows[end].outstanding += part;
            let load = Load::Data(Bytes::copy_from_slice(&data[..part]));
            self.edit(id, |net, c| net.queue(id, c, end, load));
        }
        Poll::Ready(Ok(part))
    }

    fn finish(&mut self, id: ConnectionId, end: usize) {
        self.edit(id, |net, c| {
            if c.ends[end].held && !c.ends[end].gone && !c.flows[end].finish_sent {
                c.flows[end].finish_sent = true;
                net.queue(id, c, end, Load::Finish);
            }
        });
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.net.with(|state| state.close(self.id, self.end));
    }
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.net.with(|state| state.poll_read(self.id, self.end, cx, buffer))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.net.with(|state| state.poll_write(self.id, self.end, cx, data))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.with(|state| state.finish(self.id, self.end));
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.net.with(|state| state.close_door(self.at, self.serial));
    }
}

impl Listener for SimListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>> {
        Box::pin(async move {
            let net = &self.net;
            let (id, peer) = poll_fn(|cx| net.with(|state| state.poll_accept(self.at, self.serial, cx))).await?;
            Ok((Box::new(SimStream { net: net.clone(), id, end: 1 }) as BoxStream, peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.at)
    }
}
