//! A digest by which selectors are known to be the same. Takes time in proportion to the selector's text.

use std::collections::BTreeSet;

use super::Selector;

impl Selector {
    /// Of the normal form without the order and the repetition of what is joined: selectors with equal digests match
    /// the same documents.
    pub fn digest(&self) -> [u8; 32] {
        match self {
            Selector::And(all) => joined("$and", all),
            Selector::Or(all) => joined("$or", all),
            Selector::Nor(all) => joined("$nor", all),
            Selector::Not(inner) => joined("$not", std::slice::from_ref(&**inner)),
            Selector::Everything | Selector::Field(..) | Selector::Text(_) => {
                *blake3::hash(&self.to_value().to_vec()).as_bytes()
            }
        }
    }
}

fn joined(operator: &str, all: &[Selector]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(operator.as_bytes());
    for digest in all.iter().map(Selector::digest).collect::<BTreeSet<_>>() {
        hasher.update(&digest);
    }
    *hasher.finalize().as_bytes()
}
