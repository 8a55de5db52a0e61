//! The body of a request while it is sent: in small pieces, each counted, so that a slow connection is told from a
//! silent one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;

use super::client::Body;
use crate::limits;

/// A body and what is called for each piece that goes out.
struct Outgoing {
    body: Body,
    /// What is left of a piece that was too large.
    rest: Bytes,
    note: Arc<dyn Fn() + Send + Sync>,
}

/// The same body, in pieces of at most [`limits::CLIENT_PIECE_BYTES`]; `note` is called when one is taken.
pub(super) fn noted(body: Body, note: Arc<dyn Fn() + Send + Sync>) -> Body {
    Outgoing { body, rest: Bytes::new(), note }.boxed_unsync()
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.rest.len().min(limits::CLIENT_PIECE_BYTES);
        let piece = self.rest.split_to(length);
        (self.note)();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let upper = hint.upper();
        hint.set_lower(hint.lower() + rest);
        if let Some(upper) = upper {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
