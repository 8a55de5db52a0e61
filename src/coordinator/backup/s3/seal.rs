//! Encryption of a backup in a bucket: sealed objects, and names that do not tell what they stand for. Pure.
//!
//! ```text
//!   sealed  "settee-x" | version u32 = 1 | salt 32 | pieces           44 bytes + length + 16 per piece
//!   piece   ChaCha20-Poly1305 of 256 KiB, the last one of what is left, which may be nothing
//! ```
//!
//! Each object has a key of its own, made of the secret and its random salt, so that a nonce can be a counter. The
//! nonce says which piece is the last one, and head and plain name are authenticated with each piece: nothing can be
//! cut off, exchanged or put in another place without notice. `docs/backup-format.md` has it byte by byte.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::wire::hex;

/// Plain bytes of a piece.
pub(super) const PIECE_BYTES: usize = 256 << 10;
/// Bytes of the salt of an object.
pub(super) const SALT_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"settee-x";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 8 + 4 + SALT_BYTES;
const TAG_BYTES: usize = 16;
/// What the encryption of names is bound to.
const OF_NAMES: &[u8] = b"settee-n";
/// Names of lists are filled up to a multiple of this, so that their length tells little of a database's name.
const NAME_STEP_BYTES: usize = 64;
/// Hex digits between two slashes of the name of a list: stores that are folders take parts of at most 255 bytes.
const NAME_PART_DIGITS: usize = 192;

/// Keys made of the secret of a backup.
#[derive(Clone)]
pub struct Key {
    objects: [u8; 32],
    names: [u8; 32],
    lists: [u8; 32],
    id: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

/// What was sealed cannot be opened: it is not as it was written, is another object, or has another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl Key {
    /// Reads a secret of 32 bytes: 64 hex digits, or base64. `None` for anything else.
    pub fn parse(text: &str) -> Option<Key> {
        let text = text.trim();
        let bytes = match text.len() {
            64 => hex::decode(text)?,
            _ => STANDARD.decode(text).ok()?,
        };
        Some(Key::of(&bytes.try_into().ok()?))
    }

    fn of(secret: &[u8; 32]) -> Key {
        let id = blake3::derive_key("settee backup 1: the key's id", secret);
        Key {
            objects: blake3::derive_key("settee backup 1: contents", secret),
            names: blake3::derive_key("settee backup 1: names of objects", secret),
            lists: blake3::derive_key("settee backup 1: names of lists", secret),
            id: hex::encode(&id[..16]),
        }
    }

    /// Tells it from other keys, and nothing of what it is.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The name of an object in the bucket: 64 hex digits, always the same.
    pub(super) fn object_name(&self, name: &str) -> String {
        blake3::keyed_hash(&self.names, name.as_bytes()).to_hex().to_string()
    }

    /// The name of a list in the bucket: always the same, and only with the key back to `name`. The nonce is made of
    /// the name, so that no two names have the same one.
    pub(super) fn list_name(&self, name: &str) -> String {
        let mut text = name.as_bytes().to_vec();
        text.resize(text.len().next_multiple_of(NAME_STEP_BYTES), 0);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&blake3::keyed_hash(&self.lists, &text).as_bytes()[..NONCE_LEN]);
        seal(&cipher(&self.names_cipher()), nonce, OF_NAMES, &mut text, 0);
        let digits = hex::encode(&[&nonce[..], &text].concat());
        let parts: Vec<&str> = (0..digits.len())
            .step_by(NAME_PART_DIGITS)
            .map(|at| &digits[at..digits.len().min(at + NAME_PART_DIGITS)])
            .collect();
        parts.join("/")
    }

    /// The name that [`Key::list_name`] was given; `None` for what no such name is.
    pub(super) fn opened_list_name(&self, text: &str) -> Option<String> {
        let bytes = hex::decode(&text.replace('/', ""))?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let name = open(&cipher(&self.names_cipher()), *nonce, OF_NAMES, &mut sealed)?;
        let end = name.iter().rposition(|byte| *byte != 0)? + 1;
        String::from_utf8(name[..end].to_vec()).ok()
    }

    fn names_cipher(&self) -> [u8; 32] {
        blake3::derive_key("settee backup 1: encryption of names", &self.lists)
    }

    fn of_object(&self, salt: &[u8]) -> LessSafeKey {
        cipher(blake3::keyed_hash(&self.objects, salt).as_bytes())
    }
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    // Invariant: keys of this cipher have 32 bytes.
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("a key of 32 bytes"))
}

/// Encrypts what stands behind `from`, and appends the tag.
fn seal(key: &LessSafeKey, nonce: [u8; NONCE_LEN], bound_to: &[u8], text: &mut Vec<u8>, from: usize) {
    let nonce = Nonce::assume_unique_for_key(nonce);
    // Invariant: only texts of more than 64 GB are refused.
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(bound_to), &mut text[from..]).expect("a short text");
    text.extend_from_slice(tag.as_ref());
}

fn open<'t>(key: &LessSafeKey, nonce: [u8; NONCE_LEN], bound_to: &[u8], text: &'t mut [u8]) -> Option<&'t [u8]> {
    let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(bound_to), text);
    opened.ok().map(|text| &*text)
}

/// The nonce of a piece.
fn nonce_of(count: u64, is_last: bool) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&count.to_le_bytes());
    nonce[8] = u8::from(is_last);
    nonce
}

/// Bytes of an object of so many bytes once it is sealed.
pub(super) fn sealed_bytes(plain: u64) -> u64 {
    let pieces = plain.div_ceil(PIECE_BYTES as u64).max(1);
    HEAD_BYTES as u64 + plain + pieces * TAG_BYTES as u64
}

/// Seals an object piece by piece.
pub(super) struct Sealer {
    key: LessSafeKey,
    /// The head and the name.
    bound_to: Vec<u8>,
    count: u64,
}

impl Sealer {
    /// One for the object of that plain name. `salt`: random.
    pub(super) fn new(key: &Key, name: &str, salt: [u8; SALT_BYTES]) -> Sealer {
        let head = [&MAGIC[..], &VERSION.to_le_bytes(), &salt].concat();
        Sealer { key: key.of_object(&salt), bound_to: [&head, name.as_bytes()].concat(), count: 0 }
    }

    /// Appends a sealed piece to `out`. All but the last one have [`PIECE_BYTES`].
    pub(super) fn add(&mut self, piece: &[u8], is_last: bool, out: &mut Vec<u8>) {
        if self.count == 0 {
            out.extend_from_slice(&self.bound_to[..HEAD_BYTES]);
        }
        let from = out.len();
        out.extend_from_slice(piece);
        seal(&self.key, nonce_of(self.count, is_last), &self.bound_to, out, from);
        self.count += 1;
    }
}

/// Opens a sealed object as its bytes come.
pub(super) struct Opener {
    secret: Key,
    name: String,
    /// Its key, and what it is bound to, once its head is known.
    opened: Option<(LessSafeKey, Vec<u8>)>,
    count: u64,
    /// What was not opened yet.
    sealed: Vec<u8>,
}

impl Opener {
    /// One for the object of that plain name.
    pub(super) fn new(key: &Key, name: &str) -> Opener {
        Opener { secret: key.clone(), name: name.to_owned(), opened: None, count: 0, sealed: Vec::new() }
    }

    /// Takes bytes, and appends what they tell to `out`.
    ///
    /// # Errors
    /// [`Broken`]; what was appended before is to be forgotten.
    pub(super) fn add(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        self.sealed.extend_from_slice(bytes);
        if self.opened.is_none() && self.sealed.len() >= HEAD_BYTES {
            let head: Vec<u8> = self.sealed.drain(..HEAD_BYTES).collect();
            if head[..12] != [&MAGIC[..], &VERSION.to_le_bytes()].concat() {
                return Err(Broken);
            }
            let bound_to = [&head, self.name.as_bytes()].concat();
            self.opened = Some((self.secret.of_object(&head[12..]), bound_to));
        }
        // The last piece is known by the end behind it.
        let size = PIECE_BYTES + TAG_BYTES;
        let mut at = 0;
        while self.opened.is_some() && self.sealed.len() - at > size {
            self.piece(at..at + size, false, out)?;
            at += size;
        }
        self.sealed.drain(..at);
        Ok(())
    }

    /// Opens the last piece.
    ///
    /// # Errors
    /// [`Broken`], also where the end is missing.
    pub(super) fn end(mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.piece(0..self.sealed.len(), true, out)
    }

    fn piece(&mut self, range: std::ops::Range<usize>, is_last: bool, out: &mut Vec<u8>) -> Result<(), Broken> {
        let (key, bound_to) = self.opened.as_ref().ok_or(Broken)?;
        let nonce = nonce_of(self.count, is_last);
        out.extend_from_slice(open(key, nonce, bound_to, &mut self.sealed[range]).ok_or(Broken)?);
        self.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::of(&[7; 32])
    }

    fn sealed(plain: &[u8], name: &str) -> Vec<u8> {
        let mut sealer = Sealer::new(&key(), name, [1; SALT_BYTES]);
        let mut out = Vec::new();
        let mut pieces = plain.chunks(PIECE_BYTES).peekable();
        if plain.is_empty() {
            sealer.add(b"", true, &mut out);
        }
        while let Some(piece) = pieces.next() {
            sealer.add(piece, pieces.peek().is_none(), &mut out);
        }
        out
    }

    fn opened(sealed: &[u8], name: &str, key: &Key, step: usize) -> Result<Vec<u8>, Broken> {
        let (mut opener, mut out) = (Opener::new(key, name), Vec::new());
        sealed.chunks(step).try_for_each(|piece| opener.add(piece, &mut out))?;
        opener.end(&mut out).map(|()| out)
    }

    fn plain(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| (n * 31 / 7) as u8).collect()
    }

    #[test]
    fn what_was_sealed_comes_back_however_it_is_cut() {
        for bytes in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let (plain, sealed) = (plain(bytes), sealed(&plain(bytes), "n"));
            assert_eq!(sealed.len() as u64, sealed_bytes(bytes as u64), "{bytes}");
            for step in [50, 4096, PIECE_BYTES + TAG_BYTES, 1 << 30] {
                assert_eq!(opened(&sealed, "n", &key(), step).as_ref(), Ok(&plain), "{bytes} {step}");
            }
        }
    }

    #[test]
    fn nothing_is_opened_that_is_not_as_it_was_sealed() {
        let whole = sealed(&plain(2 * PIECE_BYTES + 9), "n");
        let piece = PIECE_BYTES + TAG_BYTES;
        let refused = |bytes: &[u8], name: &str, key: &Key| opened(bytes, name, key, 4096) == Err(Broken);
        assert!(!refused(&whole, "n", &key()));
        assert!(refused(&whole, "m", &key()), "another name");
        assert!(refused(&whole, "n", &Key::of(&[8; 32])), "another key");
        for at in [0, 8, 20, HEAD_BYTES, HEAD_BYTES + piece + 3, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(refused(&changed, "n", &key()), "byte {at}");
        }
        for end in [0, 10, HEAD_BYTES, HEAD_BYTES + piece, HEAD_BYTES + 2 * piece, whole.len() - 1] {
            assert!(refused(&whole[..end], "n", &key()), "cut at {end}");
        }
        let second = &whole[HEAD_BYTES + piece..HEAD_BYTES + 2 * piece];
        let exchanged = [&whole[..HEAD_BYTES], second, &whole[HEAD_BYTES..HEAD_BYTES + piece]].concat();
        assert!(refused(&[&exchanged, &whole[HEAD_BYTES + 2 * piece..]].concat(), "n", &key()), "pieces exchanged");
        assert!(refused(&[&whole[..], &[0; 4]].concat(), "n", &key()), "something behind the end");
    }

    #[test]
    fn names_of_lists_come_back_and_tell_nothing() {
        for name in ["databases/db/000001700000000.json".to_owned(), format!("databases/{}/1.json", "n".repeat(600))] {
            let shown = key().list_name(&name);
            assert_eq!(key().opened_list_name(&shown).as_ref(), Some(&name));
            assert_eq!(shown, key().list_name(&name), "a list is found again");
            assert!(shown.split('/').all(|part| part.len() <= NAME_PART_DIGITS), "{shown}");
            assert_eq!(Key::of(&[8; 32]).opened_list_name(&shown), None);
        }
        let lengths = ["databases/a/1.json", "databases/abcdefgh/1.json"].map(|name| key().list_name(name).len());
        assert_eq!(lengths[0], lengths[1]);
        assert_eq!(key().opened_list_name("../x"), None);
        let hash = blake3::hash(b"x").to_hex().to_string();
        assert_ne!(key().object_name(&hash), hash);
    }

    #[test]
    fn secrets_are_read_in_hex_and_base64() {
        let ids =
            [&"07".repeat(32), "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n"].map(|text| Key::parse(text).unwrap());
        assert!(ids.iter().all(|key| key.id() == self::key().id()), "{ids:?}");
        for bad in ["", "07", "secret", &"0g".repeat(32), &STANDARD.encode([1; 31])] {
            assert!(Key::parse(bad).is_none(), "{bad}");
        }
    }

    /// Sealed backups are opened by later versions. The values are those of a program in another language that was
    /// written after `docs/backup-format.md`.
    #[test]
    fn the_format_stays() {
        assert_eq!(key().id(), "59660ba300b379dc475e9cd0da6f95cb");
        let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..16].to_owned();
        assert_eq!(hash(&sealed(&plain(PIECE_BYTES + 5), "n")), "276564dc53de9bfd");
        assert_eq!(hash(key().list_name("databases/db/1.json").as_bytes()), "b28cbea55e48e85b");
        assert_eq!(hash(key().object_name("aa").as_bytes()), "4fde7e7b99d94b8c");
    }
}
