//! Position of a replica in answers to edits, for write tokens (`token`).
//!
//! Nodes of older builds answer without a position, and calls that did not ask for one are answered without it. Pure.

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::coordinator::replica::token::Mark;
use crate::document::render::Attachment;
use crate::document::rev_tree::RevPath;

/// What a primary stored, as `shard::AcceptedEdit`, and where its replica stood then: of nodes that do not tell
/// nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct AcceptedAt {
    pub path: RevPath,
    pub attachments: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Mark>,
}

/// Which edits were merged, and where the replica stood then, if it is one. Nodes that do not tell that answer with a
/// list alone.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::coordinator) struct Merged {
    pub stored: Vec<bool>,
    pub at: Option<Mark>,
}

impl<'de> Deserialize<'de> for Merged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Merged, D::Error> {
        #[derive(Deserialize)]
        struct Whole {
            stored: Vec<bool>,
            at: Option<Mark>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Merged;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("which edits were merged")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Merged, A::Error> {
                let stored = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Merged { stored, at: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Merged, A::Error> {
                let Whole { stored, at } = Whole::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Merged { stored, at })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::replica::message::{decode, encode};

    #[test]
    fn a_node_that_tells_no_position_is_understood_as_one_that_does() {
        let at = Some(Mark { shard: 3, epoch: 1 << 47, position: 9 });
        let told: Merged = decode(&encode(&Merged { stored: vec![true, false], at })).unwrap();
        assert_eq!((told.stored, told.at), (vec![true, false], at));
        let told: Merged = decode(&encode(&vec![true])).unwrap();
        assert_eq!((told.stored, told.at), (vec![true], None));
    }
}
