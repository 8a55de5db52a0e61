//! Memory of whole answers that wait for their clients to read them: bounded in all and per address.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::by_address::ByAddress;
use crate::limits;
use crate::wire::message::Message;
use crate::world::buggify::{takes, weigh};
use crate::world::lock;
use crate::world::sync::Mutex;

/// What counts them in reports.
const WHAT: &str = "memory of whole answers";

/// What waits, in bytes.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    all: usize,
    by_address: ByAddress,
}

impl Waiting {
    /// The body of an answer to a client at `address`; `None` where too much waits already. Small ones do not count.
    pub fn body(self: &Arc<Self>, address: IpAddr, rest: Message) -> Option<Body> {
        let length = rest.len();
        if length <= limits::HTTP_ANSWER_SMALL_BYTES {
            return Some(Body::from(rest.into_bytes()));
        }
        let counted = self.count(address, length)?;
        Some(Body::new(Counted { rest, _counted: counted }))
    }

    fn count(self: &Arc<Self>, address: IpAddr, bytes: usize) -> Option<Count> {
        let mut sums = lock(&self.0);
        let own = sums.by_address.held(address);
        // One alone may be as large as it is.
        let fits = |held: usize, most: usize| held == 0 || held.saturating_add(bytes) <= most;
        if !fits(sums.all, limits::HTTP_ANSWERS_BYTES) || !fits(own, limits::HTTP_ADDRESS_ANSWERS_BYTES) {
            return None;
        }
        sums.all += bytes;
        sums.by_address.add(address, bytes);
        weigh(WHAT, sums.all, limits::HTTP_ANSWERS_BYTES.max(bytes));
        takes(WHAT, bytes as i64);
        Some(Count { waiting: Arc::clone(self), address, bytes })
    }
}

/// One answer in the sums.
struct Count {
    waiting: Arc<Waiting>,
    address: IpAddr,
    bytes: usize,
}

impl Drop for Count {
    fn drop(&mut self) {
        let mut sums = lock(&self.waiting.0);
        sums.all -= self.bytes;
        takes(WHAT, -(self.bytes as i64));
        sums.by_address.remove(self.address, self.bytes);
    }
}

/// A body without bytes whose length is sent although the answer is of a kind that has none (304): hyper leaves it out
/// for a body that says beforehand that it has ended.
pub struct NoBytes;

impl http_body::Body for NoBytes {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}

/// Takes off what is handed on at once of bytes that wait for a client.
pub(super) fn piece(rest: &mut Bytes) -> Bytes {
    rest.split_to(rest.len().min(limits::HTTP_CHUNK_BYTES))
}

/// A body that is handed on in small pieces, so that it counts until its client has taken nearly all.
struct Counted {
    rest: Message,
    _counted: Count,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Self::Error>>> {
        let piece = self.rest.split_to(limits::HTTP_CHUNK_BYTES);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use bytes::Bytes;

    use super::Waiting;
    use crate::limits;
    use crate::wire::message::Message;

    #[test]
    fn answers_that_nobody_takes_are_bounded_and_others_get_theirs() {
        let waiting = Arc::new(Waiting::default());
        let at = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let answer = Message::from(Bytes::from(vec![0; 8 << 20]));
        let (hostile, other) = (at(1), at(2));
        let held: Vec<_> = (0..300).filter_map(|_| waiting.body(hostile, answer.clone())).collect();
        assert_eq!(held.len(), limits::HTTP_ADDRESS_ANSWERS_BYTES >> 23);
        assert!(waiting.body(other, answer.clone()).is_some());
        assert!(waiting.body(hostile, Bytes::from_static(b"small").into()).is_some());
        drop(held);
        assert!(waiting.body(hostile, answer).is_some());
    }
}
