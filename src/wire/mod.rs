//! Codecs shared by disk and network: compact, versioned, written by hand.

pub mod codec;
