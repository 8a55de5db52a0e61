//! [`Mapper`]: the functions that make rows of documents.

use crate::document::json::Value;
use crate::index::IndexError;
use crate::script::{Program, Scripts};
use crate::world::BoxFuture;

/// The rows of one document in the order emitted: keys and values.
pub type Mapped = Vec<(Value, Value)>;

/// Makes rows: JavaScript here, other languages as they come.
pub trait Mapper: Send + Sync + 'static {
    /// The rows of each document, given as canonical JSON texts of what [`super::Sees`] says: a list for each of
    /// `maps`. Those are [`super::Definition::map`] of the view that it was made for, and of others of the same design
    /// document that are built beside it.
    fn map<'a>(&'a self, maps: Vec<&'a str>, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Vec<Mapped>>, IndexError>>;
}

/// The map functions of a design document.
pub struct ScriptMapper {
    scripts: Scripts,
    program: Program,
}

impl ScriptMapper {
    /// Those of `program`.
    pub fn new(scripts: &Scripts, program: &Program) -> ScriptMapper {
        ScriptMapper { scripts: scripts.clone(), program: program.clone() }
    }
}

impl Mapper for ScriptMapper {
    fn map<'a>(&'a self, maps: Vec<&'a str>, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Vec<Mapped>>, IndexError>> {
        Box::pin(async move { Ok(self.scripts.rows(&self.program, &maps, docs).await?) })
    }
}
