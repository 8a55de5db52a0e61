//! The content of a revision: its attachments and the text of its JSON object.
//!
//! Texts of [`limits::BODY_COMPRESSED_FROM`] bytes and more are stored as LZ4 blocks where that saves an eighth at
//! least; the others as they are. Of texts of [`limits::BODY_SAMPLED_FROM`] bytes and more samples are tried first.
//!
//! Measured on orders and API descriptions in JSON, one text at a time, in share of the plain size and microseconds to
//! store and to read: 300 B 0.75-0.98, 0.9, 0.2; 1 KB 0.59-0.79, 2.4, 0.4; 4 KB 0.48-0.56, 9.6, 1.5; 10 KB 0.49, 73, 5.
//! zstd at its level 1 needs 0.62-0.82, 0.45-0.59, 0.35-0.40 and 0.34, but 4 to 10 times as long to read, which every
//! GET, index build and feed with documents pays, and C code. Each record says how it is stored, so that another choice
//! can be added.
//!
//! Of [`limits::BODY_PIECED_FROM`] stored bytes and more the record has the length alone, and the bytes lie beside it
//! in pieces ([`keys::piece_key`]). A store file keeps each value in a page of a power of two, which its transaction
//! holds in memory, and copies pages when a neighbour is written: one value of 100 MB would take several times as much.

use std::borrow::Cow;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::ShardId;
use super::keys::{self, Kind};
use super::record::damaged;
use crate::document::render::{Attachment, Encoding, StoredRevision, is_object_text};
use crate::document::revision::Revision;
use crate::limits;
use crate::storage::{Direction, StorageError, View, WriteView};
use crate::wire::codec::{CodecError, Reader, put_bool, put_str, put_varint};

/// Version 1: the text follows the attachments. Version 2: its form stands between them. Version 3: the form, and the
/// stored bytes in pieces.
const PLAIN: u8 = 1;
const FORMED: u8 = 2;
const PIECED: u8 = 3;
/// The form of a text: as it is (version 3 alone); an LZ4 block, with the length of the text before it.
const AS_IT_IS: u8 = 0;
const LZ4: u8 = 1;
/// An LZ4 block cannot grow more than this many times: a longer length is damage.
const LZ4_GROWTH_MAX: usize = 255;

/// The content of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BodyRecord {
    pub attachments: Vec<Attachment>,
    pub text: Bytes,
}

impl BodyRecord {
    pub(super) fn load(view: &dyn View, shard: ShardId, number: u64) -> Result<BodyRecord, StorageError> {
        let bytes = get(view, shard, number)?;
        match is_pieced(&bytes) {
            false => BodyRecord::decode(bytes),
            true => BodyRecord::gather(view, shard, number, &bytes),
        }
    }

    /// Of a record in pieces.
    fn gather(view: &dyn View, shard: ShardId, number: u64, record: &[u8]) -> Result<BodyRecord, StorageError> {
        let Front { attachments, plain_length, apart, .. } = Front::read(record).map_err(damaged("body record"))?;
        let expected = usize::try_from(apart.unwrap_or_default()).unwrap_or(usize::MAX);
        // Of a length that is damage no memory is used, for nothing is written there.
        let mut stored = Vec::with_capacity(expected.min(limits::CLUSTER_MESSAGE_BYTES));
        view.scan(&keys::pieces(shard, number), Direction::Forward, &mut |_, piece| {
            stored.extend_from_slice(piece);
            if stored.len() > expected { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if stored.len() != expected {
            return Err(StorageError::Corrupt(format!("pieces of body {number} of shard {} are missing", shard.0)));
        }
        Ok(BodyRecord { attachments, text: text_of(stored.into(), plain_length)? })
    }

    /// Writes a record, and its pieces, which stay parts of the text until they are in a store file; answers the bytes
    /// of all.
    pub(super) fn put(
        view: &mut WriteView<'_>,
        (shard, number): (ShardId, u64),
        attachments: &[Attachment],
        text: &Bytes,
    ) -> u64 {
        let packed = compress(text);
        let length = packed.as_ref().map_or(text.len(), Vec::len);
        let (record, mut pieces) = match length < limits::BODY_PIECED_FROM {
            true => (BodyRecord::in_one(attachments, text, packed.as_deref()), Bytes::new()),
            false => {
                let front = front_of_pieces(attachments, packed.is_some().then_some(text.len()), length);
                (front, packed.map_or_else(|| text.clone(), Bytes::from))
            }
        };
        let bytes = (record.len() + pieces.len()) as u64;
        for piece in 0.. {
            if pieces.is_empty() {
                break;
            }
            let bytes = pieces.split_to(pieces.len().min(limits::BODY_PIECE_BYTES));
            view.put_shared(keys::piece_key(shard, number, piece), bytes);
        }
        view.put(keys::number_key(shard, Kind::Body, number), record);
        bytes
    }

    /// Removes a record with its pieces, which have so many bytes together; there need not be any.
    pub(super) fn delete(view: &mut WriteView<'_>, (shard, number): (ShardId, u64), bytes: u64) {
        view.delete(keys::number_key(shard, Kind::Body, number));
        if bytes >= limits::BODY_PIECED_FROM as u64 {
            let most = bytes.min(limits::CLUSTER_MESSAGE_BYTES as u64) / limits::BODY_PIECE_BYTES as u64;
            (0..=most as u32).for_each(|piece| view.delete(keys::piece_key(shard, number, piece)));
        }
    }

    pub(super) fn stored(self, rev: Revision, deleted: bool) -> StoredRevision {
        StoredRevision { rev, deleted, body: self.text, attachments: self.attachments }
    }

    /// A record without pieces, of a text and its smaller form.
    fn in_one(attachments: &[Attachment], text: &[u8], packed: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(packed.unwrap_or(text).len() + 12 + attachments.len() * 128);
        out.push(if packed.is_some() { FORMED } else { PLAIN });
        put_attachments(&mut out, attachments);
        match packed {
            None => out.extend_from_slice(text),
            Some(packed) => {
                out.push(LZ4);
                put_varint(&mut out, text.len() as u64);
                out.extend_from_slice(packed);
            }
        }
        out
    }

    pub(super) fn decode(bytes: Vec<u8>) -> Result<BodyRecord, StorageError> {
        let Front { attachments, at, plain_length, apart } = Front::read(&bytes).map_err(damaged("body record"))?;
        whole(apart)?;
        Ok(BodyRecord { attachments, text: text_of(Bytes::from(bytes).slice(at..), plain_length)? })
    }

    /// The attachments and the text of a record without pieces ([`is_pieced`]). The text is copied only where it is
    /// compressed.
    pub(super) fn read(bytes: &[u8]) -> Result<(Vec<Attachment>, Cow<'_, [u8]>), StorageError> {
        let Front { attachments, at, plain_length, apart } = Front::read(bytes).map_err(damaged("body record"))?;
        whole(apart)?;
        let text = match plain_length {
            None => Cow::Borrowed(&bytes[at..]),
            Some(length) => Cow::Owned(decompress(&bytes[at..], length)?),
        };
        check_text(&text)?;
        Ok((attachments, text))
    }

    /// The attachments alone.
    pub(super) fn attachments(view: &dyn View, shard: ShardId, number: u64) -> Result<Vec<Attachment>, StorageError> {
        Ok(BodyRecord::measure(view, shard, number)?.0)
    }

    /// The attachments and the bytes of the record with its pieces.
    pub(super) fn measure(
        view: &dyn View,
        shard: ShardId,
        number: u64,
    ) -> Result<(Vec<Attachment>, u64), StorageError> {
        let bytes = get(view, shard, number)?;
        let Front { attachments, apart, .. } = Front::read(&bytes).map_err(damaged("body record"))?;
        Ok((attachments, bytes.len() as u64 + apart.unwrap_or_default()))
    }
}

/// The text of stored bytes, which are compressed where its length is told.
fn text_of(stored: Bytes, plain_length: Option<usize>) -> Result<Bytes, StorageError> {
    let text = match plain_length {
        None => stored,
        Some(length) => decompress(&stored, length)?.into(),
    };
    check_text(&text)?;
    Ok(text)
}

/// Refuses what checksums let through and is no text of an object all the same.
fn check_text(text: &[u8]) -> Result<(), StorageError> {
    match is_object_text(text) {
        true => Ok(()),
        false => Err(StorageError::Corrupt("the text of a body is no JSON object".into())),
    }
}

fn get(view: &dyn View, shard: ShardId, number: u64) -> Result<Vec<u8>, StorageError> {
    let missing = || StorageError::Corrupt(format!("body {number} of shard {} is missing", shard.0));
    view.get(&keys::number_key(shard, Kind::Body, number))?.ok_or_else(missing)
}

/// Whether the text of a record lies in pieces.
pub(super) fn is_pieced(record: &[u8]) -> bool {
    record.first() == Some(&PIECED)
}

fn whole(apart: Option<u64>) -> Result<(), StorageError> {
    let in_pieces = || StorageError::Corrupt("a body record without its pieces".into());
    if apart.is_none() { Ok(()) } else { Err(in_pieces()) }
}

/// The record of a text in pieces, which is compressed where its length is told.
fn front_of_pieces(attachments: &[Attachment], plain_length: Option<usize>, stored: usize) -> Vec<u8> {
    let mut out = vec![PIECED];
    put_attachments(&mut out, attachments);
    out.push(if plain_length.is_some() { LZ4 } else { AS_IT_IS });
    if let Some(length) = plain_length {
        put_varint(&mut out, length as u64);
    }
    put_varint(&mut out, stored as u64);
    out
}

/// What stands before the text of a record.
struct Front {
    attachments: Vec<Attachment>,
    /// Where the stored text begins.
    at: usize,
    /// The length of the text when it is compressed.
    plain_length: Option<usize>,
    /// The bytes that lie in pieces, where they do.
    apart: Option<u64>,
}

impl Front {
    fn read(bytes: &[u8]) -> Result<Front, CodecError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if !matches!(version, PLAIN | FORMED | PIECED) {
            return Err(CodecError::Version(version));
        }
        let mut attachments = Vec::new();
        for _ in 0..reader.varint()? {
            attachments.push(read_attachment(&mut reader)?);
        }
        let plain_length = match version {
            PLAIN => None,
            _ => match (version, reader.u8()?) {
                (_, LZ4) => Some(reader.varint_usize()?),
                (PIECED, AS_IT_IS) => None,
                _ => return Err(CodecError::Invalid("form of a text")),
            },
        };
        let apart = if version == PIECED { Some(reader.varint()?) } else { None };
        Ok(Front { attachments, at: bytes.len() - reader.rest().len(), plain_length, apart })
    }
}

/// The text in its smaller form, when that pays.
fn compress(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() < limits::BODY_COMPRESSED_FROM {
        return None;
    }
    if text.len() >= limits::BODY_SAMPLED_FROM && !samples_shrink(text) {
        return None;
    }
    let packed = lz4_flex::block::compress(text);
    (packed.len() + text.len() / 8 <= text.len()).then_some(packed)
}

/// Whether one of a text's first, middle and last bytes gets smaller: the block of all of them takes as much memory as
/// the text.
fn samples_shrink(text: &[u8]) -> bool {
    let (size, last) = (limits::BODY_SAMPLE_BYTES, text.len() - limits::BODY_SAMPLE_BYTES);
    let shrinks = |at: usize| lz4_flex::block::compress(&text[at..at + size]).len() + size / 8 <= size;
    [0, last / 2, last].into_iter().any(shrinks)
}

fn decompress(packed: &[u8], length: usize) -> Result<Vec<u8>, StorageError> {
    let damage = || StorageError::Corrupt("a compressed text cannot be read".into());
    if length > packed.len().saturating_mul(LZ4_GROWTH_MAX) {
        return Err(damage());
    }
    let text = lz4_flex::block::decompress(packed, length).map_err(|_| damage())?;
    if text.len() == length { Ok(text) } else { Err(damage()) }
}

fn put_attachments(out: &mut Vec<u8>, attachments: &[Attachment]) {
    put_varint(out, attachments.len() as u64);
    attachments.iter().for_each(|attachment| put_attachment(out, attachment));
}

fn put_attachment(out: &mut Vec<u8>, attachment: &Attachment) {
    put_str(out, &attachment.name);
    put_str(out, &attachment.content_type);
    for number in [attachment.revpos, attachment.length, attachment.stored_length] {
        put_varint(out, number);
    }
    put_bool(out, attachment.encoding == Encoding::Gzip);
    out.extend_from_slice(&attachment.digest);
    out.extend_from_slice(&attachment.blob);
}

fn read_attachment(reader: &mut Reader<'_>) -> Result<Attachment, CodecError> {
    Ok(Attachment {
        name: reader.str()?.to_owned(),
        content_type: reader.str()?.to_owned(),
        revpos: reader.varint()?,
        length: reader.varint()?,
        stored_length: reader.varint()?,
        encoding: if reader.bool()? { Encoding::Gzip } else { Encoding::Identity },
        digest: reader.array()?,
        blob: reader.array()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Batch, Store};
    use proptest::prelude::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        BodyRecord::in_one(&[], text, compress(text).as_deref())
    }

    fn sample(length: usize) -> Vec<u8> {
        object((2..length).map(|n| b"{\"name\":\"value\",\"n\":17}"[n * 7 % 23]))
    }

    fn object(inner: impl Iterator<Item = u8>) -> Vec<u8> {
        std::iter::once(b'{').chain(inner).chain([b'}']).collect()
    }

    #[test]
    fn long_texts_are_stored_smaller_and_come_back() {
        for length in [2, 3, 300, limits::BODY_COMPRESSED_FROM, 5000, 100_000] {
            let text = sample(length);
            let bytes = encoded(&text);
            let smaller = bytes.len() < text.len();
            assert_eq!(smaller, length >= limits::BODY_COMPRESSED_FROM, "{length}: {}", bytes.len());
            assert_eq!(BodyRecord::decode(bytes).unwrap().text, text);
        }
    }

    #[test]
    fn a_text_that_does_not_shrink_is_stored_as_it_is() {
        // Not one control character.
        let random = (0..4000u32).flat_map(|n| blake3::hash(&n.to_le_bytes()).as_bytes()[..8].to_vec());
        let text = object(random.map(|byte| byte | 0x80));
        let bytes = encoded(&text);
        assert_eq!((bytes[0], bytes.len()), (PLAIN, text.len() + 2));
        assert_eq!(BodyRecord::decode(bytes).unwrap().text, text);
    }

    #[test]
    fn a_large_text_is_compressed_where_any_of_its_samples_shrinks() {
        let noise = (0..limits::BODY_SAMPLED_FROM as u32 / 8)
            .flat_map(|n| blake3::hash(&n.to_le_bytes()).as_bytes()[..8].to_vec())
            .map(|byte| byte | 0x80);
        let noise: Vec<u8> = noise.collect();
        let plain = object(noise.iter().copied());
        let bytes = encoded(&plain);
        assert_eq!((bytes[0], bytes.len()), (PLAIN, plain.len() + 2));
        let mixed = object(noise.iter().copied().chain(std::iter::repeat_n(b'a', limits::BODY_SAMPLED_FROM)));
        let bytes = encoded(&mixed);
        assert!(bytes[0] == FORMED && bytes.len() < mixed.len() * 5 / 8);
        assert_eq!(BodyRecord::decode(bytes).unwrap().text, mixed);
    }

    /// Does something to a view over a store in memory, and commits it.
    fn write<T>(store: &impl Store, job: impl FnOnce(&mut WriteView<'_>) -> T) -> T {
        let (base, group) = (store.view().unwrap(), Batch::new());
        let mut view = WriteView::new(base.as_ref(), &group);
        let done = job(&mut view);
        let (batch, _) = view.into_parts();
        drop(base);
        store.commit(&batch).unwrap();
        done
    }

    fn rows(store: &impl Store) -> usize {
        let mut count = 0;
        let count_them = &mut |_: &[u8], _: &[u8]| {
            count += 1;
            ControlFlow::Continue(())
        };
        store.view().unwrap().scan(&keys::whole_shard(ShardId(7)), Direction::Forward, count_them).unwrap();
        count
    }

    #[test]
    fn a_large_text_is_stored_in_pieces_and_goes_with_them() {
        let noise = (0..limits::BODY_PIECED_FROM as u32)
            .flat_map(|n| blake3::hash(&n.to_le_bytes()).as_bytes()[..2].to_vec())
            .map(|byte| byte | 0x80);
        let noise = object(noise);
        // The one as it is, the other compressed.
        for text in
            [noise.clone(), object(noise[1..noise.len() - 1].iter().flat_map(|byte| [*byte, b'a', b'a', b'a', b'a']))]
        {
            let (store, at) = (crate::storage::memory::MemoryStore::new(), (ShardId(7), 3));
            let text = Bytes::from(text);
            let bytes = write(&store, |view| BodyRecord::put(view, at, &[], &text));
            assert!(rows(&store) > 3, "{}", rows(&store));
            let view = store.view().unwrap();
            assert_eq!(BodyRecord::load(view.as_ref(), at.0, at.1).unwrap().text, text);
            assert_eq!(BodyRecord::measure(view.as_ref(), at.0, at.1).unwrap().1, bytes);
            drop(view);
            write(&store, |view| view.delete(keys::piece_key(at.0, at.1, 1)));
            assert!(BodyRecord::load(store.view().unwrap().as_ref(), at.0, at.1).is_err());
            write(&store, |view| BodyRecord::delete(view, at, bytes));
            assert_eq!(rows(&store), 0);
        }
    }

    #[test]
    fn a_text_that_is_no_object_is_damage_whatever_its_checksum_says() {
        let whole = encoded(b"{\"a\":1}");
        for (at, byte) in [(2, b'x'), (8, b','), (4, 0)] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            assert!(matches!(BodyRecord::read(&damaged), Err(StorageError::Corrupt(_))), "{at}");
            assert!(matches!(BodyRecord::decode(damaged), Err(StorageError::Corrupt(_))), "{at}");
        }
    }

    #[test]
    fn a_damaged_block_is_an_error_and_takes_no_memory() {
        let whole = encoded(&sample(3000));
        assert!(BodyRecord::decode(whole[..whole.len() - 5].to_vec()).is_err());
        let mut huge = vec![FORMED, 0, LZ4];
        put_varint(&mut huge, u64::MAX >> 1);
        huge.extend_from_slice(&whole[5..]);
        assert!(BodyRecord::decode(huge).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn arbitrary_records_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0..5u8) {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            let read = BodyRecord::decode(bytes.clone());
            prop_assert!(read.is_err() || !bytes.is_empty());
        }
    }
}
