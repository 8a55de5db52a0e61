//! Encoding of a call of a replica. In simulated clusters, whose nodes are upgraded one after the other, also the
//! encoding of the next build, which has one more field.

use bytes::Bytes;

use crate::coordinator::replica::calls::{Decide, ReplicaOp, ReplicaRequest};
#[cfg(not(feature = "sim"))]
use crate::coordinator::replica::message::decode_shared;
use crate::coordinator::replica::message::large_texts;
#[cfg(not(feature = "sim"))]
use crate::wire::message::Message;

#[cfg(feature = "sim")]
pub(in crate::coordinator) use later::{decode_call, encode_call};

/// The large texts of a call, which are sent from where they are.
fn texts_of(call: &ReplicaRequest) -> Vec<Bytes> {
    let edits = match &call.op {
        ReplicaOp::Decide(Decide(call)) => &call.edits,
        ReplicaOp::Merge(merge) => &merge.edits,
        _ => return Vec::new(),
    };
    large_texts(edits.iter().map(|edit| &edit.body))
}

/// Writes a call of a replica.
#[cfg(not(feature = "sim"))]
pub(in crate::coordinator) fn encode_call(call: &ReplicaRequest, _node: &str) -> Message {
    Message::of(call, &texts_of(call))
}

/// Reads a call of a replica.
#[cfg(not(feature = "sim"))]
pub(in crate::coordinator) fn decode_call(bytes: &Bytes, _from: &str, _node: &str) -> Result<ReplicaRequest, String> {
    decode_shared(bytes)
}

#[cfg(feature = "sim")]
mod later {
    use bytes::Bytes;
    use serde::{Deserialize, Serialize};

    use super::texts_of;
    use crate::coordinator::replica::calls::ReplicaRequest;
    use crate::coordinator::replica::message::{decode, decode_shared};
    use crate::wire::message::Message;
    use crate::world::buggify::{Mutation, is_later, mutated, sometimes};

    /// A call as the version after this one writes it.
    #[derive(Serialize)]
    struct LaterCall<'a> {
        #[serde(flatten)]
        call: &'a ReplicaRequest,
        sent_by: &'a str,
    }

    /// What that version reads beside the call.
    #[derive(Deserialize)]
    struct Added {
        /// Of nodes that do not send it nothing is known.
        #[serde(default)]
        sent_by: Option<String>,
    }

    /// Writes a call of a replica as the build of `node` does.
    pub fn encode_call(call: &ReplicaRequest, node: &str) -> Message {
        if is_later(node) {
            Message::of(&LaterCall { call, sent_by: node }, &texts_of(call))
        } else {
            Message::of(call, &texts_of(call))
        }
    }

    /// Reads a call of a replica as the build of `node` does.
    pub fn decode_call(bytes: &Bytes, from: &str, node: &str) -> Result<ReplicaRequest, String> {
        if is_later(node) {
            let Added { sent_by } = decode(bytes)?;
            match sent_by {
                Some(by) if by != from => return Err(format!("{from} calls itself {by}")),
                None if mutated(Mutation::AddedFieldRequired) => return Err("nobody says who sent the call".to_owned()),
                None => sometimes("cluster: a call of the version before was taken"),
                Some(_) => {}
            }
        }
        decode_shared(bytes)
    }

    #[cfg(test)]
    mod tests {
        use std::ops::Bound;

        use super::*;
        use crate::coordinator::replica::calls::Digests;
        use crate::document::id::DocId;

        #[test]
        fn a_call_of_the_version_after_this_one_is_read_without_what_it_adds() {
            let op = Digests((Bound::Unbounded, Bound::Excluded(DocId::new("m"))), 7).into();
            let (db, instance) = ("db".to_owned(), "one".to_owned());
            let call =
                ReplicaRequest { db, instance, version: 3, counted: true, range: 2, id: 1 << 40, horizon: None, op };
            let bytes = Message::of(&LaterCall { call: &call, sent_by: "a@b" }, &[]).into_bytes();
            assert_eq!(format!("{:?}", decode_call(&bytes, "a@b", "c@d")), format!("{:?}", Ok::<_, String>(&call)));
            assert_eq!(decode::<Added>(&bytes).unwrap().sent_by.as_deref(), Some("a@b"));
            assert_eq!(decode::<Added>(&encode_call(&call, "a@b").into_bytes()).unwrap().sent_by, None);
        }
    }
}
