//! `_changes?filter=_selector`: the selector and the fields of a POST body.

use std::sync::Arc;

use crate::coordinator::RowDoc;
use crate::document::json::{Object, Value};
use crate::document::selector::{Fields, Selector, SelectorError, document_value};
use crate::http::problem::Problem;

const DAMAGED: &str = "A stored document is damaged.";

/// A selector with the fields that it leaves of included documents.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectorArgs {
    selector: Arc<Selector>,
    fields: Fields,
}

impl SelectorArgs {
    /// Reads the body of a POST; a GET has none.
    ///
    /// # Errors
    /// 400 `bad_request` for whatever is wrong, also where `_find` answers with another name or status.
    pub fn read(body: Option<&Object>) -> Result<SelectorArgs, Problem> {
        let body = body.ok_or_else(|| Problem::bad_request("Selector must be specified in POST payload"))?;
        let refused = |error: SelectorError| Problem::bad_request(error.reason);
        let selector = match body.get("selector") {
            Some(selector @ Value::Object(_)) => Arc::new(Selector::parse(selector).map_err(refused)?),
            _ => return Err(Problem::bad_request("Selector error: expected a JSON object")),
        };
        let fields = match body.get("fields") {
            None => Fields::default(),
            Some(list @ Value::Array(_)) => Fields::parse(list).map_err(refused)?,
            Some(_) => return Err(Problem::bad_request("Selector error: fields must be JSON array")),
        };
        Ok(SelectorArgs { selector, fields })
    }

    /// What documents have to match.
    pub fn selector(&self) -> &Arc<Selector> {
        &self.selector
    }

    /// What is left of an included document, as JSON text; `None` when all of it is.
    ///
    /// # Errors
    /// 500 when the stored body is damaged.
    pub fn cut(&self, doc: &RowDoc) -> Result<Option<Vec<u8>>, Problem> {
        if self.fields.is_all() {
            return Ok(None);
        }
        let mut document = document_value(doc.id.as_str(), &doc.stored).map_err(|_| Problem::internal(DAMAGED))?;
        if let (Value::Object(object), false) = (&mut document, doc.conflicts.is_empty()) {
            let conflicts = doc.conflicts.iter().map(|rev| Value::String(rev.to_string()));
            object.push("_conflicts", conflicts.collect::<Vec<_>>());
        }
        Ok(Some(self.fields.cut(&document).to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::SelectorArgs;
    use crate::document::json::{Value, parse};

    fn refusal(body: &str) -> String {
        let Ok(Value::Object(body)) = parse(body.as_bytes()) else { panic!("an object") };
        let problem = SelectorArgs::read(Some(&body)).unwrap_err();
        assert_eq!((problem.status.as_u16(), problem.error.as_ref()), (400, "bad_request"));
        problem.reason.into_owned()
    }

    #[test]
    fn what_is_wrong_with_a_body() {
        assert_eq!(refusal("{}"), "Selector error: expected a JSON object");
        assert_eq!(refusal(r#"{"selector":[]}"#), "Selector error: expected a JSON object");
        assert_eq!(refusal(r#"{"selector":{"a":{"$bad":1}}}"#), "Invalid operator: $bad");
        assert_eq!(refusal(r#"{"selector":{"n":{"$mod":[1]}}}"#), "Bad argument for operator $mod: [1]");
        assert_eq!(refusal(r#"{"selector":{},"fields":"a"}"#), "Selector error: fields must be JSON array");
        assert_eq!(refusal(r#"{"selector":{},"fields":[1]}"#), "Invalid JSON for field spec: 1");
        assert_eq!(SelectorArgs::read(None).unwrap_err().reason, "Selector must be specified in POST payload");
    }
}
