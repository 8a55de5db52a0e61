//! A design document as the source of functions.

use std::fmt;
use std::sync::Arc;

use super::fair_queue::FunctionCaller;
use super::{ScriptError, reader};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::{self, RenderOptions, StoredRevision};

/// One revision of a design document whose functions can be called. Cheap to clone.
#[derive(Clone)]
pub struct Program(Arc<Inner>, u64);

struct Inner {
    /// The owner, as a hash.
    owner: u64,
    id: DocId,
    /// Its JSON text, with `_id` and `_rev`: what functions see as `this` and modules are taken from.
    text: String,
    body: Object,
    validator: Option<String>,
    maps_only_read: bool,
    key: [u8; 32],
}

/// The language of design documents that hold selectors and indexes.
pub(super) const QUERY: &str = "query";

fn validator(body: &Object) -> Option<String> {
    match body.get("validate_doc_update")? {
        Value::String(source) => Some(source.clone()),
        selector @ Value::Object(_) if body.get("language").and_then(Value::as_str) == Some(QUERY) => {
            Some(String::from_utf8_lossy(&selector.to_vec()).into_owned())
        }
        _ => None,
    }
}

fn maps_only_read(body: &Object) -> bool {
    let views = body.get("views").and_then(Value::as_object);
    let maps = views.into_iter().flat_map(Object::iter).filter_map(|(_, view)| view.as_object()?.get("map")?.as_str());
    maps.into_iter().all(reader::only_reads)
}

/// A name as a number.
pub(super) fn short_hash(name: &str) -> u64 {
    blake3::hash(name.as_bytes()).as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({})", self.0.id)
    }
}

impl Program {
    /// The functions of a stored design document. Programs of different owners never share a runtime.
    pub fn new(owner: &str, id: &DocId, stored: &StoredRevision) -> Program {
        let text = render::render(id.as_str(), stored, &RenderOptions::default());
        let body = match json::parse(&stored.body) {
            Ok(Value::Object(body)) => body,
            // Only objects are stored.
            _ => Object::new(),
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut hasher = blake3::Hasher::new();
        hasher.update(owner.as_bytes()).update(&[0]).update(text.as_bytes());
        let (validator, key) = (validator(&body), hasher.finalize().into());
        let maps_only_read = maps_only_read(&body);
        let owner = short_hash(owner);
        Program(Arc::new(Inner { owner, id: id.clone(), text, body, validator, maps_only_read, key }), 0)
    }

    /// The program, called for a user: workers are shared out by database and user.
    #[must_use]
    pub fn for_user(&self, name: Option<&str>) -> Program {
        Program(Arc::clone(&self.0), name.map_or(0, short_hash))
    }

    /// Who calls it.
    pub(super) fn caller(&self, is_validation: bool) -> FunctionCaller {
        FunctionCaller { database: self.0.owner, user: self.1, program: self.0.key, is_validation }
    }

    /// The design document's id.
    pub fn id(&self) -> &DocId {
        &self.0.id
    }

    /// The design document's members but reserved ones.
    pub fn body(&self) -> &Object {
        &self.0.body
    }

    /// Names the functions and their owner: equal keys may share a runtime.
    pub fn key(&self) -> [u8; 32] {
        self.0.key
    }

    pub(super) fn text(&self) -> &str {
        &self.0.text
    }

    /// The language of its functions; `None`: JavaScript.
    pub(super) fn language(&self) -> Option<&str> {
        self.0.body.get("language").and_then(Value::as_str).filter(|language| *language != "javascript")
    }

    /// Whether all its map functions only read what they are given (`reader.rs`).
    pub(super) fn maps_only_read(&self) -> bool {
        self.0.maps_only_read
    }

    /// The source of `validate_doc_update`, if it has any; of the language `query`, its selector as JSON text.
    pub fn validator(&self) -> Option<&str> {
        self.0.validator.as_deref()
    }

    /// Whether its functions are selectors.
    pub(super) fn is_declarative(&self) -> bool {
        self.language() == Some(QUERY)
    }

    /// The source of `filters.{name}`.
    ///
    /// # Errors
    /// [`ScriptError::MissingKey`] names the first missing member.
    pub fn filter(&self, name: &str) -> Result<&str, ScriptError> {
        text_at(&self.0.body, &["filters", name])
    }

    /// The source of `views.{name}.map`.
    ///
    /// # Errors
    /// [`ScriptError::MissingKey`] names the first missing member.
    pub fn map(&self, name: &str) -> Result<&str, ScriptError> {
        text_at(&self.0.body, &["views", name, "map"])
    }

    /// The source of `{section}.{name}`: `shows`, `lists`, `updates`.
    ///
    /// # Errors
    /// [`ScriptError::MissingKey`] names the first missing member.
    pub fn function(&self, section: &str, name: &str) -> Result<&str, ScriptError> {
        text_at(&self.0.body, &[section, name])
    }
}

fn text_at<'a>(body: &'a Object, path: &[&str]) -> Result<&'a str, ScriptError> {
    let missing = |name: &str| ScriptError::MissingKey { name: name.to_owned() };
    let mut object = Some(body);
    let mut found = None;
    for name in path {
        let value = object.and_then(|object| object.get(name)).ok_or_else(|| missing(name))?;
        (found, object) = (value.as_str(), value.as_object());
    }
    found.ok_or_else(|| missing(path.last().unwrap_or(&"")))
}
