//! The revision tree of a document: union on merge, a pure winner, stemming, purging.
