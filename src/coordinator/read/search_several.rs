//! One search of several full-text indexes of a database: rows in one order, each told with its index.

use futures_util::future::try_join_all;
use settee_search::search::{Answer, unite};

use super::search::{DatabaseSearch, SearchFailure, SearchPage, SearchQuery};
use super::search_page::{Hashes, Places};

/// What stands between the bookmarks of the indexes.
const SEPARATOR: char = '.';

/// The answer of several indexes.
#[derive(Clone, Debug)]
pub struct SeveralPage {
    /// Rows, counts, and where the next page begins.
    pub page: SearchPage,
    /// The place of each row's index in the list that was asked.
    pub from: Vec<usize>,
}

/// What `indexes` of one database answer together. Groups are of one index.
///
/// # Errors
/// [`SearchFailure`]; where one index refuses a search, all do; a bookmark is of the same indexes in the same order.
pub async fn ask_several(indexes: &[DatabaseSearch], query: SearchQuery) -> Result<SeveralPage, SearchFailure> {
    let SearchQuery { request, bookmark, update } = query;
    let mut places = match bookmark {
        None => vec![Places::default(); indexes.len()],
        Some(text) => text.split(SEPARATOR).map(Places::parse).collect::<Result<Vec<Places>, SearchFailure>>()?,
    };
    if places.len() != indexes.len() {
        return Err(SearchFailure::Bookmark);
    }
    let all = indexes.iter().zip(&places).map(|(index, places)| index.first_rows(&request, places, update));
    let (answers, mut hashes): (Vec<Answer>, Vec<std::vec::IntoIter<Hashes>>) =
        try_join_all(all).await?.into_iter().map(|(answer, hashes)| (answer, hashes.into_iter())).unzip();
    let (answer, from) = unite(&request, answers);
    // Rows of one index stand in the order in which it told them.
    for (row, at) in answer.rows.iter().zip(&from) {
        if let Some(hashes) = hashes[*at].next() {
            places[*at].note(hashes, row.order.clone());
        }
    }
    let bookmarks: Vec<String> = places.iter().map(Places::encode).collect();
    let bookmark = bookmarks.join(&SEPARATOR.to_string());
    Ok(SeveralPage { page: SearchPage { answer, bookmark }, from })
}
