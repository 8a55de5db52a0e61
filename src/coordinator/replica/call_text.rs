//! Encoding of a call of a replica. In simulated clusters, whose nodes are upgraded one after the other, also the
//! encoding of the next build, which has one more field.

#[cfg(not(feature = "sim"))]
use bytes::Bytes;

#[cfg(not(feature = "sim"))]
use crate::coordinator::replica::calls::CopyCall;
#[cfg(not(feature = "sim"))]
use crate::coordinator::replica::message::{decode, encode};

#[cfg(feature = "sim")]
pub(in crate::coordinator) use later::{decode_call, encode_call};

/// Writes a call of a copy.
#[cfg(not(feature = "sim"))]
pub(in crate::coordinator) fn encode_call(call: &CopyCall, _node: &str) -> Bytes {
    encode(call)
}

/// Reads a call of a copy.
#[cfg(not(feature = "sim"))]
pub(in crate::coordinator) fn decode_call(bytes: &[u8], _from: &str, _node: &str) -> Result<CopyCall, String> {
    decode(bytes)
}

#[cfg(feature = "sim")]
mod later {
    use bytes::Bytes;
    use serde::{Deserialize, Serialize};

    use crate::coordinator::replica::calls::CopyCall;
    use crate::coordinator::replica::message::{decode, encode};
    use crate::world::buggify::{Mutation, is_later, mutated, sometimes};

    /// A call as the version after this one writes it.
    #[derive(Serialize)]
    struct LaterCall<'a> {
        #[serde(flatten)]
        call: &'a CopyCall,
        sent_by: &'a str,
    }

    /// What that version reads beside the call.
    #[derive(Deserialize)]
    struct Added {
        /// Of nodes that do not send it nothing is known.
        #[serde(default)]
        sent_by: Option<String>,
    }

    /// Writes a call of a copy as the build of `node` does.
    pub fn encode_call(call: &CopyCall, node: &str) -> Bytes {
        if is_later(node) { encode(&LaterCall { call, sent_by: node }) } else { encode(call) }
    }

    /// Reads a call of a copy as the build of `node` does.
    pub fn decode_call(bytes: &[u8], from: &str, node: &str) -> Result<CopyCall, String> {
        if is_later(node) {
            let Added { sent_by } = decode(bytes)?;
            match sent_by {
                Some(by) if by != from => return Err(format!("{from} calls itself {by}")),
                None if mutated(Mutation::AddedFieldRequired) => return Err("nobody says who sent the call".to_owned()),
                None => sometimes("cluster: a call of the version before was taken"),
                Some(_) => {}
            }
        }
        decode(bytes)
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
            let call = CopyCall { db, instance, version: 3, counted: true, range: 2, id: 1 << 40, horizon: None, op };
            let bytes = encode(&LaterCall { call: &call, sent_by: "a@b" });
            assert_eq!(format!("{:?}", decode_call(&bytes, "a@b", "c@d")), format!("{:?}", Ok::<_, String>(&call)));
            assert_eq!(decode::<Added>(&bytes).unwrap().sent_by.as_deref(), Some("a@b"));
            assert_eq!(decode::<Added>(&encode_call(&call, "a@b")).unwrap().sent_by, None);
        }
    }
}
