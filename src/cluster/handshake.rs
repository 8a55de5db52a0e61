//! Handshake of two nodes: a mutual challenge over a shared secret.
//!
//! ```text
//!   initiator                                     responder
//!     hello: versions, names, address, nonce  ->
//!                                              <-  welcome: version, name, address, nonce
//!     proof: HMAC(secret, "initiator", both)  ->
//!                                              <-  proof: HMAC(secret, "responder", both)
//! ```
//!
//! Each proof covers all bytes of both greetings: nonces, names and roles. So no greeting can be replayed, reflected or
//! changed, and the secret is never sent. Frames after the handshake are sealed with keys that are derived from the
//! secret and the greetings. The handshake does not encrypt their content; TLS below it does, where it is on
//! ([`Channel`]). Proofs and keys then also cover the channel binding (RFC 9266) of the TLS connection. An attacker
//! that terminates TLS between two nodes has another connection with each of them, so a proof that it relays fails. The
//! nodes therefore need not verify each other's certificates.

use bytes::{Bytes, BytesMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::api::NodeName;
use super::frame::{FrameError, Opener, Sealer, public_key};
use super::stream::message_bytes;
use crate::limits;
use crate::wire::codec::{CodecError, Reader, put_str};
use crate::wire::tls::Binding;
use crate::world::buggify::{Mutation, is_later, mutated, sometimes};
use crate::world::{BoxStream, Env};

/// The first bytes of a greeting.
const MAGIC: &[u8] = b"settee";
/// The versions of packets and services that this build speaks: the least and the highest. A message with one more
/// field, or one more kind of call, raises the highest: older builds pass over what they do not know, or refuse that
/// call. A message of another form raises both, so that a build which would fail at each such message is refused at the
/// greeting, with words in both logs.
const VERSIONS: (u8, u8) = (4, 9);
/// The first version whose nodes take bodies above `limits::CLUSTER_OLD_BODY_BYTES`.
const LARGE_BODIES: u8 = 6;
/// The first version whose proofs cover the TLS connection.
const BOUND: u8 = 8;

/// The versions that a node speaks: those of this build; a simulated one may run the build after it.
fn versions(me: &Identity) -> (u8, u8) {
    (VERSIONS.0, VERSIONS.1 + u8::from(is_later(me.name.as_str())))
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const PROOF: u8 = 3;
const REFUSAL: u8 = 4;

/// Why no session came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HandshakeError {
    /// The connection broke.
    Io(String),
    /// What came was no frame.
    Frame(FrameError),
    /// What came was no greeting.
    Malformed(CodecError),
    /// The other side does not know the secret.
    Stranger,
    /// The other side has another name than the node that was called.
    OtherName(String),
    /// The other side speaks other versions only.
    Versions(u8, u8),
    /// The other side said no.
    Refused(String),
    /// The other side does not speak TLS.
    NoTls(String),
    /// The other side shows no certificate that counts here.
    Tls(String),
    /// The other side does not know the secret, or an attacker terminates TLS between the nodes.
    Between,
    /// The other side is a build whose proofs do not cover TLS.
    Unbound(u8),
}

impl std::fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HandshakeError::Io(why) => write!(f, "the connection broke: {why}"),
            HandshakeError::Frame(error) => write!(f, "{error}"),
            HandshakeError::Malformed(error) => write!(f, "no greeting: {error}"),
            HandshakeError::Stranger => f.write_str("it does not know the cluster's secret"),
            HandshakeError::OtherName(name) => write!(f, "the node there is called {name}"),
            HandshakeError::Versions(min, max) => write!(f, "it speaks versions {min} to {max}"),
            HandshakeError::Refused(why) => write!(f, "refused: {why}"),
            HandshakeError::NoTls(why) | HandshakeError::Tls(why) => write!(f, "no TLS: {why}"),
            HandshakeError::Between => f.write_str(BETWEEN),
            HandshakeError::Unbound(version) => write!(f, "it speaks version {version}: {UNBOUND}"),
        }
    }
}

impl From<std::io::Error> for HandshakeError {
    fn from(error: std::io::Error) -> Self {
        HandshakeError::Io(error.to_string())
    }
}

impl From<CodecError> for HandshakeError {
    fn from(error: CodecError) -> Self {
        HandshakeError::Malformed(error)
    }
}

const BETWEEN: &str = "the secrets differ, or something between the nodes terminates TLS";
const UNBOUND: &str = "TLS without certificate files takes version 8 on both sides";

/// A connection whose other side is not known yet.
pub(super) struct Channel {
    pub stream: BoxStream,
    /// The channel binding of the TLS connection, if it is one.
    pub binding: Option<Binding>,
    /// Whether the proofs alone authenticate the other side: then they must cover the channel binding.
    pub must_bind: bool,
}

impl Channel {
    /// Without TLS.
    pub(super) fn plain(stream: BoxStream) -> Channel {
        Channel { stream, binding: None, must_bind: false }
    }
}

/// What proofs of an agreed version cover beside the greetings.
fn bound(binding: Option<Binding>, must_bind: bool, version: u8) -> Result<Option<Binding>, HandshakeError> {
    match binding.filter(|_| version >= BOUND) {
        None if must_bind => Err(HandshakeError::Unbound(version)),
        binding => Ok(binding),
    }
}

/// Why a proof that is not the right one is not.
fn unproven(binding: Option<Binding>) -> HandshakeError {
    if binding.is_some() { HandshakeError::Between } else { HandshakeError::Stranger }
}

/// What a node says of itself.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub name: NodeName,
    /// `host:port` at which other nodes reach it; empty when they cannot.
    pub address: String,
}

/// A connection whose two sides know each other.
pub(super) struct Session {
    pub peer: NodeName,
    /// Where the peer says that it is reached; may be empty.
    pub address: String,
    /// Bytes of the largest body of a call that both sides take.
    pub largest: usize,
    pub wire: Wire,
    /// A key that only the two sides have, for what must not be read on the way.
    pub vault: [u8; 32],
}

/// A byte stream that carries frames.
pub(super) struct Wire {
    pub stream: BoxStream,
    pub buffer: BytesMut,
    pub sealer: Sealer,
    pub opener: Opener,
}

impl Wire {
    fn greeting(stream: BoxStream) -> Wire {
        let largest = limits::CLUSTER_GREETING_BYTES;
        let (sealer, opener) = (Sealer::new(public_key()), Opener::new(public_key(), largest));
        Wire { stream, buffer: BytesMut::new(), sealer, opener }
    }

    /// Sends one payload.
    pub(super) async fn send(&mut self, payload: &[u8]) -> Result<(), HandshakeError> {
        let mut out = Vec::new();
        self.sealer.seal(payload, &[], &mut out);
        self.stream.write_all(&out).await?;
        Ok(self.stream.flush().await?)
    }

    /// Waits for one payload.
    pub(super) async fn receive(&mut self) -> Result<Bytes, HandshakeError> {
        loop {
            if let Some(payload) = self.opener.open(&mut self.buffer).map_err(HandshakeError::Frame)? {
                return Ok(payload);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(HandshakeError::Io("closed".to_owned()));
            }
        }
    }

    /// Receives a payload of `kind`; a refusal is an error.
    async fn take(&mut self, kind: u8) -> Result<Bytes, HandshakeError> {
        let payload = self.receive().await?;
        match payload.first() {
            Some(&found) if found == kind => Ok(payload),
            Some(&REFUSAL) => {
                let why = String::from_utf8_lossy(&payload[1..]).into_owned();
                Err(HandshakeError::Refused(why.chars().filter(|c| !c.is_control()).collect()))
            }
            _ => Err(CodecError::Invalid("greeting").into()),
        }
    }

    /// Says no; that the other side cannot be told changes nothing.
    async fn refuse(&mut self, why: &str) {
        let _ = self.send(&[&[REFUSAL], why.as_bytes()].concat()).await;
    }
}

/// What an initiator says first.
#[derive(Debug)]
pub(super) struct Hello {
    /// Which secret it means to know: empty for the cluster's, else the name of a join token.
    pub key: String,
    pub name: NodeName,
    pub address: String,
    /// Whom it looks for; empty: the one that is there.
    target: String,
    versions: (u8, u8),
}

impl Hello {
    fn encode(env: &Env, me: &Identity, key: &str, target: &str) -> Vec<u8> {
        let mut out = vec![HELLO];
        out.extend_from_slice(MAGIC);
        let (least, most) = versions(me);
        out.extend_from_slice(&[least, most]);
        out.extend_from_slice(&env.random_bytes::<32>());
        [key, me.name.as_str(), &me.address, target].iter().for_each(|text| put_str(&mut out, text));
        if most > VERSIONS.1 {
            put_str(&mut out, "what it adds");
        }
        out
    }

    fn decode(payload: &[u8]) -> Result<Hello, HandshakeError> {
        let mut reader = Reader::new(payload);
        if reader.take(1 + MAGIC.len())? != [&[HELLO], MAGIC].concat() {
            return Err(CodecError::Invalid("greeting").into());
        }
        let versions = (reader.u8()?, reader.u8()?);
        reader.array::<32>()?;
        let mut text = || reader.str().map(str::to_owned);
        let (key, name, address, target) = (text()?, text()?, text()?, text()?);
        // What a later version adds stands behind.
        Ok(Hello { key, name: name.into(), address, target, versions })
    }
}

/// The hash over both greetings and the channel binding of the TLS connection.
fn transcript(hello: &[u8], welcome: &[u8], binding: Option<Binding>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for greeting in [hello, welcome] {
        hasher.update((greeting.len() as u64).to_be_bytes());
        hasher.update(greeting);
    }
    if let Some(binding) = binding {
        hasher.update(b"tls-exporter");
        hasher.update(binding);
    }
    hasher.finalize().into()
}

/// The HMAC of `label` in this handshake.
fn derive(secret: &[u8], label: &str, transcript: &[u8; 32]) -> [u8; 32] {
    mac(secret, &[b"settee/1 ", label.as_bytes(), transcript]).finalize().into_bytes().into()
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // Invariant: HMAC takes keys of any length.
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes any key");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Whether `proof` is the one of `label`; takes the same time wherever it differs.
fn proves(proof: &[u8], secret: &[u8], label: &str, transcript: &[u8; 32]) -> bool {
    mac(secret, &[b"settee/1 ", label.as_bytes(), transcript]).verify_slice(proof).is_ok()
}

const INITIATOR: &str = "proof of initiator";
const RESPONDER: &str = "proof of responder";

/// The session after both proofs; `own` and `other` name the directions.
fn session(
    mut wire: Wire,
    secret: &[u8],
    transcript: &[u8; 32],
    (initiator, version): (bool, u8),
    peer: (NodeName, String),
) -> Session {
    let largest = if version < LARGE_BODIES { limits::CLUSTER_OLD_BODY_BYTES } else { limits::CLUSTER_MESSAGE_BYTES };
    let largest = largest.min(message_bytes());
    let (there, back) = ("frames of initiator", "frames of responder");
    let (own, other) = if initiator { (there, back) } else { (back, there) };
    wire.sealer = Sealer::new(derive(secret, own, transcript));
    wire.opener = Opener::new(derive(secret, other, transcript), limits::CLUSTER_FRAME_BYTES);
    Session { peer: peer.0, address: peer.1, largest, wire, vault: derive(secret, "vault", transcript) }
}

/// Greets the node at the other end of `channel`. `target`: whom it must be; empty for the one that is there.
///
/// The caller brings a timeout.
pub(super) async fn initiate(
    env: &Env,
    channel: Channel,
    me: &Identity,
    (key, secret): (&str, &[u8]),
    target: &str,
) -> Result<Session, HandshakeError> {
    let Channel { stream, binding, must_bind } = channel;
    let mut wire = Wire::greeting(stream);
    let hello = Hello::encode(env, me, key, target);
    wire.send(&hello).await?;
    let welcome = wire.take(WELCOME).await?;
    let mut reader = Reader::new(&welcome[1..]);
    let version = reader.u8()?;
    reader.array::<32>()?;
    let (name, address) = (reader.str()?.to_owned(), reader.str()?.to_owned());
    let (least, most) = versions(me);
    if !(least..=most).contains(&version) {
        return Err(HandshakeError::Versions(version, version));
    }
    if (!target.is_empty() && name != target) || name == me.name.as_str() {
        return Err(HandshakeError::OtherName(name));
    }
    let binding = bound(binding, must_bind, version)?;
    let transcript = transcript(&hello, &welcome, binding);
    wire.send(&[&[PROOF][..], &derive(secret, INITIATOR, &transcript)].concat()).await?;
    let proof = wire.take(PROOF).await?;
    if !proves(&proof[1..], secret, RESPONDER, &transcript) {
        return Err(unproven(binding));
    }
    Ok(session(wire, secret, &transcript, (true, version), (name.into(), address)))
}

/// Answers the one that opened `channel`. `secret` finds the secret that a greeting means; none: it is refused.
///
/// The caller brings a timeout. The greeting is answered, too: it says which key was used.
pub(super) async fn respond(
    env: &Env,
    channel: Channel,
    me: &Identity,
    secret: impl Fn(&Hello) -> Result<Vec<u8>, String>,
) -> Result<(Session, Hello), HandshakeError> {
    let Channel { stream, binding, must_bind } = channel;
    let mut wire = Wire::greeting(stream);
    let greeting = wire.receive().await?;
    let hello = Hello::decode(&greeting)?;
    let (least, most) = versions(me);
    if most != hello.versions.1 {
        sometimes("cluster: nodes of two versions greeted each other");
    }
    let version =
        if mutated(Mutation::HigherVersionAgreed) { most.max(hello.versions.1) } else { most.min(hello.versions.1) };
    if version < hello.versions.0.max(least) {
        wire.refuse(&format!("this node speaks versions {least} to {most}")).await;
        return Err(HandshakeError::Versions(hello.versions.0, hello.versions.1));
    }
    let binding = match bound(binding, must_bind, version) {
        Ok(binding) => binding,
        Err(error) => {
            wire.refuse(UNBOUND).await;
            return Err(error);
        }
    };
    let wanted = hello.target.is_empty() || hello.target == me.name.as_str();
    if !wanted || hello.name == me.name || hello.name.as_str().is_empty() {
        wire.refuse(&format!("this node is called {}", me.name)).await;
        return Err(HandshakeError::OtherName(if wanted { hello.name.to_string() } else { hello.target }));
    }
    let secret = match secret(&hello) {
        Ok(secret) => secret,
        Err(why) => {
            wire.refuse(&why).await;
            return Err(HandshakeError::Stranger);
        }
    };
    let mut welcome = vec![WELCOME, version];
    welcome.extend_from_slice(&env.random_bytes::<32>());
    put_str(&mut welcome, me.name.as_str());
    put_str(&mut welcome, &me.address);
    wire.send(&welcome).await?;
    let transcript = transcript(&greeting, &welcome, binding);
    let proof = wire.take(PROOF).await?;
    if !proves(&proof[1..], &secret, INITIATOR, &transcript) {
        wire.refuse(if binding.is_some() { BETWEEN } else { "the secrets differ" }).await;
        return Err(unproven(binding));
    }
    wire.send(&[&[PROOF][..], &derive(&secret, RESPONDER, &transcript)].concat()).await?;
    let peer = (hello.name.clone(), hello.address.clone());
    Ok((session(wire, &secret, &transcript, (false, version), peer), hello))
}

/// Hides or shows `bytes` with a session's vault key. Each key must hide one text only.
pub(super) fn veil(vault: &[u8; 32], bytes: &mut [u8]) {
    let mut stream = blake3::Hasher::new_keyed(vault).finalize_xof();
    for piece in bytes.chunks_mut(64) {
        let mut pad = [0; 64];
        stream.fill(&mut pad);
        piece.iter_mut().zip(pad).for_each(|(byte, pad)| *byte ^= pad);
    }
}

/// The fuzz target of first greetings.
#[cfg(test)]
pub(super) fn fuzz_greetings() {
    let mut hello = [&[HELLO], MAGIC, &[1, 9][..], &[7; 32]].concat();
    ["", "a@b", "127.0.0.1:9100", "c@d"].iter().for_each(|text| put_str(&mut hello, text));
    crate::world::fuzz::Fuzz::new("greetings", [hello]).run(|bytes| {
        if let Ok(hello) = Hello::decode(bytes) {
            assert!(hello.key.len() + hello.address.len() + hello.target.len() <= bytes.len());
        }
    });
}

#[cfg(test)]
mod tests;
