//! Bookmarks of searches: for each range the sort position of the last returned row. Opaque to clients. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use settee_search::search::SortValue;

use crate::coordinator::read::search::SearchFailure;
use crate::coordinator::replica::message::{decode, encode};

/// The first and the last hash of a range.
pub(super) type Hashes = (u32, u32);

/// Where a page ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Places(Vec<(Hashes, Vec<SortValue>)>);

impl Places {
    /// Reads a bookmark.
    pub fn parse(text: &str) -> Result<Places, SearchFailure> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| SearchFailure::Bookmark)?;
        decode(&bytes).map(Places).map_err(|_| SearchFailure::Bookmark)
    }

    /// As clients see it.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(encode(&self.0))
    }

    /// Refuses those of another order than one of so many parts.
    pub fn check(&self, parts: usize) -> Result<(), SearchFailure> {
        match self.0.iter().all(|(_, order)| order.len() == parts + 1) {
            true => Ok(()),
            false => Err(SearchFailure::BookmarkOrder),
        }
    }

    /// The order of the last row of a range; of one that was split since, that of the whole.
    pub fn of(&self, (first, last): Hashes) -> Option<Vec<SortValue>> {
        let holds = |((from, to), _): &&(Hashes, _)| *from <= first && last <= *to;
        self.0.iter().find(holds).map(|(_, order)| order.clone())
    }

    /// A row of a range was given out.
    pub fn note(&mut self, range: Hashes, order: Vec<SortValue>) {
        match self.0.iter_mut().find(|(known, _)| *known == range) {
            Some((_, last)) => *last = order,
            // Before that of a range which it was part of.
            None => self.0.insert(0, (range, order)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_round_trip_and_others_are_refused() {
        let mut places = Places::default();
        assert_eq!(Places::parse(&places.encode()).ok(), Some(places.clone()));
        let order = |number| vec![SortValue::Number(0.5), SortValue::Text(None), SortValue::Document(number)];
        places.note((0, 99), order(7));
        places.note((0, 99), order(8));
        let read = Places::parse(&places.encode()).ok();
        assert_eq!(read, Some(places.clone()));
        for bad in ["", "xyz", "not a bookmark", "nil"] {
            assert!(matches!(Places::parse(bad), Err(SearchFailure::Bookmark)), "{bad}");
        }
        assert!(places.check(2).is_ok() && matches!(places.check(1), Err(SearchFailure::BookmarkOrder)));
    }

    #[test]
    fn halves_of_a_range_go_on_where_the_whole_was() {
        let order = |number| vec![SortValue::Document(number)];
        let mut places = Places::default();
        places.note((0, 99), order(7));
        assert_eq!(places.of((50, 99)), Some(order(7)));
        places.note((50, 99), order(1));
        assert_eq!(
            (places.of((50, 99)), places.of((0, 49)), places.of((100, 199))),
            (Some(order(1)), Some(order(7)), None)
        );
    }
}
