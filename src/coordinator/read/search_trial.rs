//! Dry runs of index functions: what one would index of documents. Nothing is stored.

use bytes::Bytes;
use settee_search::document::Field;
use settee_search::schema::Schema;

use crate::coordinator::read::Queries;
use crate::coordinator::read::view::ViewError;
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::render::StoredRevision;
use crate::document::revision::{RevHash, Revision};
use crate::index::search::{indexing, note_types, typed_indexing};
use crate::script::{Program, ScriptError};

/// The design document that a function is tried in; it is not stored.
const DESIGN: &str = "_design/_dry_run";

/// Why a document would not be indexed.
#[derive(Clone, Debug)]
pub enum Unfit {
    /// The function fails for it.
    Script(ScriptError),
    /// A field has a name that is none, or another type than in a document before: the reason.
    Misfit(String),
}

impl Queries<'_> {
    /// The fields that the index function `source`, with types or without, would give each document (JSON texts), or
    /// why it would not be indexed.
    ///
    /// # Errors
    /// When functions cannot be called.
    pub async fn try_index(
        self,
        source: &str,
        is_typed: bool,
        docs: Vec<String>,
    ) -> Result<Vec<Result<Vec<Field>, Unfit>>, ViewError> {
        // The source is of the body: functions of different sources share no runtime.
        let object = |name: &str, value: Value| -> Object { [(name.to_owned(), value)].into_iter().collect() };
        let member = if is_typed { "nouveau" } else { "indexes" };
        let body = object(member, object("i", object("index", source.into()).into()).into());
        let rev = Revision::new(1, RevHash::Md5(Default::default()));
        let stored = StoredRevision { rev, deleted: false, body: Bytes::from(body.to_vec()), attachments: Vec::new() };
        let program = Program::new(self.instance(), &DocId::new(DESIGN), &stored);
        let called = self.scripts().index_or_error(&program, source, is_typed, docs).await?;
        let mut schema = Schema::default();
        let fields = |calls: Result<Vec<Value>, ScriptError>| -> Result<Vec<Field>, Unfit> {
            let calls = calls.map_err(Unfit::Script)?;
            if !is_typed {
                return Ok(indexing(&calls).unwrap_or_default());
            }
            let fields = typed_indexing(&calls).unwrap_or_default();
            let mut types = schema.clone();
            note_types(&mut types, &fields).map_err(Unfit::Misfit)?;
            schema = types;
            Ok(fields)
        };
        Ok(called.into_iter().map(fields).collect())
    }
}
