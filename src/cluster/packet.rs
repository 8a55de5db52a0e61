//! Packets: the content of one frame on a link. Pure.
//!
//! The side that opened the link opens streams; the other side answers them. Numbers are varints. A packet of an
//! unknown kind ends the link, because the version that the handshake agreed on says which kinds exist.

use bytes::Bytes;

use crate::wire::codec::{CodecError, Reader, put_bool, put_str, put_varint};

/// What one payload says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// A call begins: its service and class (bytes as yet unchecked), the time that its caller waits (0: no limit), the
    /// size of its body and the first piece of it.
    Open { stream: u32, service: u8, class: u8, deadline_ms: u64, total: u64, chunk: Bytes },
    /// A further piece of a call's body.
    Body { stream: u32, chunk: Bytes },
    /// A piece of a message of the answer, and whether the message ends with it.
    Chunk { stream: u32, last: bool, chunk: Bytes },
    /// So many bytes more may be sent.
    Credit { stream: u32, bytes: u64 },
    /// The caller takes no more.
    Cancel { stream: u32 },
    /// The answer is whole.
    Finish { stream: u32 },
    /// The call is refused.
    Refuse { stream: u32, why: String },
    /// The answer broke off.
    Lost { stream: u32, why: String },
    /// A sign of life, to be answered.
    Ping,
    /// Its answer.
    Pong,
}

const OPEN: u8 = 1;
const BODY: u8 = 2;
const CHUNK: u8 = 3;
const CREDIT: u8 = 4;
const CANCEL: u8 = 5;
const FINISH: u8 = 6;
const REFUSE: u8 = 7;
const LOST: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

impl Packet {
    /// The bytes before the piece that it carries, and that piece.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Bytes {
        let mut start = |kind: u8, stream: u32| {
            out.push(kind);
            put_varint(out, stream.into());
        };
        match self {
            Packet::Open { stream, service, class, deadline_ms, total, chunk } => {
                start(OPEN, *stream);
                out.extend_from_slice(&[*service, *class]);
                put_varint(out, *deadline_ms);
                put_varint(out, *total);
                return chunk.clone();
            }
            Packet::Body { stream, chunk } => {
                start(BODY, *stream);
                return chunk.clone();
            }
            Packet::Chunk { stream, last, chunk } => {
                start(CHUNK, *stream);
                put_bool(out, *last);
                return chunk.clone();
            }
            Packet::Credit { stream, bytes } => {
                start(CREDIT, *stream);
                put_varint(out, *bytes);
            }
            Packet::Cancel { stream } => start(CANCEL, *stream),
            Packet::Finish { stream } => start(FINISH, *stream),
            Packet::Refuse { stream, why } => {
                start(REFUSE, *stream);
                put_str(out, why);
            }
            Packet::Lost { stream, why } => {
                start(LOST, *stream);
                put_str(out, why);
            }
            Packet::Ping => start(PING, 0),
            Packet::Pong => start(PONG, 0),
        }
        Bytes::new()
    }

    /// Reads a payload; a piece in it is shared, not copied.
    pub(super) fn decode(payload: &Bytes) -> Result<Packet, CodecError> {
        let mut reader = Reader::new(payload);
        let kind = reader.u8()?;
        let stream = u32::try_from(reader.varint()?).map_err(|_| CodecError::Overflow)?;
        let rest = |reader: &Reader<'_>| payload.slice(payload.len() - reader.rest().len()..);
        let packet = match kind {
            OPEN => {
                let (service, class) = (reader.u8()?, reader.u8()?);
                let (deadline_ms, total) = (reader.varint()?, reader.varint()?);
                return Ok(Packet::Open { stream, service, class, deadline_ms, total, chunk: rest(&reader) });
            }
            BODY => return Ok(Packet::Body { stream, chunk: rest(&reader) }),
            CHUNK => {
                let last = reader.bool()?;
                return Ok(Packet::Chunk { stream, last, chunk: rest(&reader) });
            }
            CREDIT => Packet::Credit { stream, bytes: reader.varint()? },
            CANCEL => Packet::Cancel { stream },
            FINISH => Packet::Finish { stream },
            REFUSE => Packet::Refuse { stream, why: reader.str()?.to_owned() },
            LOST => Packet::Lost { stream, why: reader.str()?.to_owned() },
            PING => Packet::Ping,
            PONG => Packet::Pong,
            _ => return Err(CodecError::Invalid("kind of packet")),
        };
        reader.finish()?;
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(packet: &Packet) -> Bytes {
        let mut out = Vec::new();
        let piece = packet.encode(&mut out);
        out.extend_from_slice(&piece);
        out.into()
    }

    #[test]
    fn packets_come_back_as_written() {
        let chunk = Bytes::from_static(b"piece");
        let all = [
            Packet::Open { stream: 9, service: 200, class: 2, deadline_ms: 5000, total: 1 << 33, chunk: chunk.clone() },
            Packet::Body { stream: 300, chunk: Bytes::new() },
            Packet::Chunk { stream: u32::MAX, last: true, chunk },
            Packet::Credit { stream: 1, bytes: 1 << 20 },
            Packet::Cancel { stream: 1 },
            Packet::Finish { stream: 1 },
            Packet::Refuse { stream: 1, why: "größe".to_owned() },
            Packet::Lost { stream: 1, why: String::new() },
            Packet::Ping,
            Packet::Pong,
        ];
        for packet in all {
            assert_eq!(Packet::decode(&encoded(&packet)), Ok(packet));
        }
    }

    #[test]
    fn unknown_kinds_and_left_over_bytes_are_refused() {
        assert_eq!(Packet::decode(&Bytes::from_static(&[99, 1])), Err(CodecError::Invalid("kind of packet")));
        assert_eq!(Packet::decode(&Bytes::from_static(&[PING, 0, 1])), Err(CodecError::Trailing));
        assert_eq!(Packet::decode(&Bytes::new()), Err(CodecError::Truncated));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn any_payload_is_read_without_panic(bytes: Vec<u8>) {
            let payload = Bytes::from(bytes);
            if let Ok(packet) = Packet::decode(&payload) {
                prop_assert_eq!(Packet::decode(&encoded(&packet)), Ok(packet));
            }
        }
    }
}
