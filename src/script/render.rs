//! Functions that make an answer to a request: show, list, update, rewrite.

use std::sync::Arc;

use super::engine::Engine;
use super::{Program, ScriptError, Scripts};
use crate::document::json::Object;

/// Which kind of function makes the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// `lists.{name}`, called with the head of a view that has its `rows`.
    List,
    /// `rewrites`, called with the request alone.
    Rewrite,
    /// `shows.{name}`, called with a document or `null`.
    Show,
    /// `updates.{name}`, called with a document or `null`.
    Update,
}

impl Scripts {
    /// Calls the function `source` of a design document with `given` (JSON text) and the request object `req`. The
    /// answer has `resp`, what the function says, and after an update `doc`, what is to be written or `null`. Where a
    /// list function failed after its answer had begun, `failed` has the name of the error and its reason.
    ///
    /// # Errors
    /// [`ScriptError::Thrown`] with `render_error` for whatever it throws but listed errors.
    pub async fn render(
        &self,
        program: &Program,
        (kind, source): (Rendering, &str),
        given: String,
        req: &Arc<str>,
    ) -> Result<Object, ScriptError> {
        let (source, req) = (source.to_owned(), Arc::clone(req));
        let ask = move |engine: &mut Engine, given: String, limit| {
            let answer = match kind {
                Rendering::List => engine.call("list", [&source, &given, &req], limit),
                Rendering::Rewrite => engine.call("rewrite", [&source, &req, ""], limit),
                Rendering::Show => engine.call("show", [&source, &given, &req], limit),
                Rendering::Update => engine.call("update", [&source, &given, &req], limit),
            };
            Ok(answer?.as_object().cloned().unwrap_or_default())
        };
        let failed = || ScriptError::Engine { reason: "the script gave no answer".to_owned() };
        self.each(&self.0.workers, (program, program.caller(false)), vec![given], ask)
            .await?
            .pop()
            .ok_or_else(failed)?
    }
}
