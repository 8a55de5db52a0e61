//! Revision ids: parsing, order, and the deterministic hash that equals CouchDB's bit for bit.
