//! What makes rows of documents.

use crate::document::json::Value;
use crate::index::IndexError;
use crate::script::{Program, Scripts};
use crate::world::BoxFuture;

/// The rows of one document in the order emitted: keys and values.
pub type Mapped = Vec<(Value, Value)>;

/// Makes rows: JavaScript here, other languages as they come.
pub trait Mapper: Send + Sync + 'static {
    /// The rows of each document, given as JSON texts: of what [`super::Sees`] says.
    fn map(&self, docs: Vec<String>) -> BoxFuture<'_, Result<Vec<Mapped>, IndexError>>;
}

/// A map function of a design document.
pub struct ScriptMapper {
    scripts: Scripts,
    program: Program,
    source: String,
}

impl ScriptMapper {
    /// The function `source` of `program`.
    pub fn new(scripts: &Scripts, program: &Program, source: &str) -> ScriptMapper {
        ScriptMapper { scripts: scripts.clone(), program: program.clone(), source: source.to_owned() }
    }
}

impl Mapper for ScriptMapper {
    fn map(&self, docs: Vec<String>) -> BoxFuture<'_, Result<Vec<Mapped>, IndexError>> {
        Box::pin(async move {
            let answers = self.scripts.map(&self.program, &[&self.source], docs).await?;
            let rows = |answer: Vec<Vec<Value>>| answer.into_iter().flatten().filter_map(row).collect();
            Ok(answers.into_iter().map(rows).collect())
        })
    }
}

/// A row as the script engine gives it: `[key, value]`.
fn row(pair: Value) -> Option<(Value, Value)> {
    match pair {
        Value::Array(pair) => <[Value; 2]>::try_from(pair).ok().map(|[key, value]| (key, value)),
        _ => None,
    }
}
