//! Encodings between machines and on disk: compact codecs written by hand, addresses, the HTTP client, TLS.

pub mod address;
pub mod client;
pub use settee_document::codec;
pub mod der;
pub mod dial;
pub mod hex;
pub mod iso_time;
pub mod message;
pub mod message_pack;
mod outgoing;
pub mod tls;
pub mod url;
