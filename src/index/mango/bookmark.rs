//! Bookmarks: the position of the last row of a page, opaque to clients. The next page begins behind that position,
//! whatever was written meanwhile.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::MangoError;
use crate::document::json::{self, Object, Value};

/// The bookmark of an empty first page.
pub const NIL: &str = "nil";

/// A place in an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Bookmark {
    /// The key of the row; `None` in the list of all documents.
    pub key: Option<Value>,
    /// The document.
    pub id: String,
}

impl Bookmark {
    /// As clients see it.
    pub fn encode(&self) -> String {
        let mut object = Object::new();
        object.push("id", self.id.as_str());
        if let Some(key) = &self.key {
            object.push("key", key.clone());
        }
        URL_SAFE_NO_PAD.encode(object.to_vec())
    }

    /// Reads one.
    ///
    /// # Errors
    /// `invalid_bookmark` for what [`Bookmark::encode`] never gives.
    pub fn decode(text: &str) -> Result<Bookmark, MangoError> {
        let refused = || {
            let quoted = String::from_utf8_lossy(&Value::from(text).to_vec()).into_owned();
            MangoError::new("invalid_bookmark", format!("Invalid bookmark value: {quoted}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refused())?;
        let value = json::parse(&bytes).map_err(|_| refused())?;
        let object = value.as_object().ok_or_else(refused)?;
        let id = object.get("id").and_then(Value::as_str).ok_or_else(refused)?;
        Ok(Bookmark { key: object.get("key").cloned(), id: id.to_owned() })
    }
}
