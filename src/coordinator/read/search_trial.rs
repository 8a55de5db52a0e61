//! Dry runs of index functions: what one would index of documents. Nothing is stored.

use bytes::Bytes;
use settee_search::document::Field;

use crate::coordinator::read::Queries;
use crate::coordinator::read::view::ViewError;
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::render::StoredRevision;
use crate::document::revision::{RevHash, Revision};
use crate::index::search::indexing;
use crate::script::{Program, ScriptError};

/// The design document that a function is tried in; it is not stored.
const DESIGN: &str = "_design/_dry_run";

impl Queries<'_> {
    /// The fields that the index function `source` would give each document (JSON texts), or why it failed for it.
    ///
    /// # Errors
    /// When functions cannot be called.
    pub async fn try_index(
        self,
        source: &str,
        docs: Vec<String>,
    ) -> Result<Vec<Result<Vec<Field>, ScriptError>>, ViewError> {
        // The source is of the body: functions of different sources share no runtime.
        let object = |name: &str, value: Value| -> Object { [(name.to_owned(), value)].into_iter().collect() };
        let body = object("indexes", object("i", object("index", source.into()).into()).into());
        let rev = Revision::new(1, RevHash::Md5(Default::default()));
        let stored = StoredRevision { rev, deleted: false, body: Bytes::from(body.to_vec()), attachments: Vec::new() };
        let program = Program::new(self.instance(), &DocId::new(DESIGN), &stored);
        let calls = self.scripts().index_or_error(&program, source, docs).await?;
        Ok(calls.into_iter().map(|calls| Ok(indexing(&calls?).unwrap_or_default())).collect())
    }
}
