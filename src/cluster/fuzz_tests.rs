//! Fuzz targets of what comes over a connection to another node before and after the greeting. See `world::fuzz`.

use bytes::{Bytes, BytesMut};

use super::frame::{Opener, Sealer};
use super::handshake;
use super::join;
use super::members::Records;
use super::packet::Packet;
use crate::world::fuzz::Fuzz;

const KEY: [u8; 32] = [7; 32];

#[test]
fn fuzz_frames_open_only_as_they_were_sealed() {
    let payloads: [&[u8]; 3] = [b"one", b"", b"a longer payload of a frame"];
    let (mut sealer, mut sealed) = (Sealer::new(KEY), Vec::new());
    payloads.iter().for_each(|payload| sealer.seal(payload, b"", &mut sealed));
    Fuzz::new("frames", [sealed]).run(|bytes| {
        let (mut opener, mut buffer) = (Opener::new(KEY, 1 << 20), BytesMut::from(bytes));
        let mut opened = 0;
        while let Ok(Some(payload)) = opener.open(&mut buffer) {
            assert_eq!(payload, payloads[opened], "a frame that opens is the next one that was sealed");
            opened += 1;
        }
    });
}

#[test]
fn fuzz_packets_are_read_as_written() {
    let chunk = Bytes::from_static(b"chunk");
    let packets = [
        Packet::Open { stream: 1, service: 2, class: 1, deadline_ms: 60_000, total: 5, chunk: chunk.clone() },
        Packet::Body { stream: 1, chunk: chunk.clone() },
        Packet::Chunk { stream: 3, last: true, chunk },
        Packet::Credit { stream: u32::MAX, bytes: u64::MAX },
        Packet::Cancel { stream: 1 },
        Packet::Finish { stream: 1 },
        Packet::Refuse { stream: 1, why: "no".to_owned() },
        Packet::Lost { stream: 1, why: String::new() },
        Packet::Ping,
        Packet::Pong,
    ];
    let encoded = |packet: &Packet| {
        let mut out = Vec::new();
        let piece = packet.encode(&mut out);
        out.extend_from_slice(&piece);
        out
    };
    Fuzz::new("packets", packets.iter().map(encoded)).run(|bytes| {
        if let Ok(packet) = Packet::decode(&Bytes::copy_from_slice(bytes)) {
            assert_eq!(Packet::decode(&encoded(&packet).into()), Ok(packet));
        }
    });
}

#[test]
fn fuzz_greetings() {
    handshake::fuzz_greetings();
}

#[test]
fn fuzz_join_tokens_and_records_of_members() {
    let inputs = [
        "settee-join-00112233445566770000000000000000-00112233445566778899aabbccddeeff",
        r#"{"settee@a":{"rev":1,"address":"127.0.0.1:9100"}}"#,
        r#"{"a@b":{"_id":"a@b","_rev":"1-x","zone":"z"}}"#,
    ];
    Fuzz::new("members", inputs).words(&["-", "rev", "address", "{}", "null", "0", "1e9"]).run(|text| {
        if let Ok(text) = std::str::from_utf8(text) {
            join::read_token(text);
        }
        // Either answer is right.
        let _ = serde_json::from_slice::<Records>(text);
    });
}
