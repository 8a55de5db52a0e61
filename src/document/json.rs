//! JSON as documents need it: ordered members, exact integers of any size, floats that stay floats, one canonical text.

use num_bigint::BigInt;

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// An integer that does not.
    Big(BigInt),
    /// A number written with a fraction or an exponent. Always finite.
    Float(f64),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Value>),
    /// Named members in order.
    Object(Object),
}

/// The members of a JSON object: ordered, names unique.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Object(Vec<(String, Value)>);

/// Text that is not acceptable JSON; clients are told `invalid UTF-8 JSON`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonError;

/// Reads a JSON text. Of members with one name the last stays, at its own place.
pub fn parse(_text: &[u8]) -> Result<Value, JsonError> {
    todo!()
}

/// Appends a text as a JSON string: non-ASCII raw, controls escaped.
pub fn write_string(_text: &str, _out: &mut Vec<u8>) {
    todo!()
}

impl Value {
    /// Appends the canonical, compact text.
    pub fn write(&self, _out: &mut Vec<u8>) {
        todo!()
    }

    /// The canonical, compact text.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&Object> {
        if let Value::Object(object) = self { Some(object) } else { None }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        if let Value::Array(array) = self { Some(array) } else { None }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(*value) } else { None }
    }

    /// An integer of 64 bits (not a float without fraction).
    pub fn as_i64(&self) -> Option<i64> {
        if let Value::Int(value) = self { Some(*value) } else { None }
    }

    /// An integer that is not negative and fits 64 bits.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Int(value) => u64::try_from(*value).ok(),
            Value::Big(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// True for `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl Object {
    /// An object without members.
    pub fn new() -> Object {
        Object::default()
    }

    /// The member of that name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// The member of that name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// True when there is a member of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Replaces the member of that name in its place, or appends it. Answers what was there.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let (name, value) = (name.into(), value.into());
        match self.get_mut(&name) {
            Some(place) => Some(std::mem::replace(place, value)),
            None => {
                self.0.push((name, value));
                None
            }
        }
    }

    /// Appends a member whose name the caller knows to be new (not checked in long objects).
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.push((name.into(), value.into()));
    }

    /// Takes the member of that name out; the order of the others stays.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(n, _)| n == name)?;
        Some(self.0.remove(at).1)
    }

    /// The members in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> + DoubleEndedIterator {
        self.0.iter().map(|(n, v)| (n.as_str(), v))
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the canonical, compact text.
    pub fn write(&self, _out: &mut Vec<u8>) {
        todo!()
    }

    /// The canonical, compact text.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Of members with one name the last stays, at its own place.
impl FromIterator<(String, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Object {
        Object(members.into_iter().collect())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        i64::try_from(value).map_or_else(|_| Value::Big(BigInt::from(value)), Value::Int)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text)
    }
}

impl From<Vec<Value>> for Value {
    fn from(array: Vec<Value>) -> Value {
        Value::Array(array)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Value {
        Value::Object(object)
    }
}
