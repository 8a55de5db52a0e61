//! The order of JSON values: that of views and declarative queries, and the raw one that a view may choose.
//!
//! By default null < false < true < numbers < strings < arrays < objects; strings by the Unicode root collation with
//! case and accents as tie-breakers, arrays element by element, objects pair by pair in their stored order (CouchDB
//! documentation, 'Views collation', and as CouchDB 3.5 was measured). Raw: numbers, false, null, true, objects,
//! arrays, strings by their bytes. Numbers are compared by their exact value in both.
//!
//! [`Collator::sort_key`] writes bytes whose order is the order of the values; equal bytes are equal values.

mod number;
mod root;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use icu_collator::CollatorBorrowed;

use super::json::{Object, Value};

/// Follows the last element of an array, the last pair of an object and every string: below any tag.
const END: u8 = 0x00;
/// Goes before each pair of an object: its name may have an empty key.
const PAIR: u8 = 0x01;
/// Stands for a zero byte within a raw string, so that a lone zero byte ends it.
const RAW_ZERO: [u8; 2] = [0x00, 0xff];
/// Ends a raw string: less than a continued one, whatever its next byte is.
const RAW_END: [u8; 2] = [0x00, 0x00];
/// A byte string that is greater than the sort key of any value in either order: the `<MAX>` of ranges.
pub const HIGHEST: &[u8] = &[0xff];
/// A byte string that is less than the sort key of any value.
pub const LOWEST: &[u8] = &[0x01];

/// Which order strings and types have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collation {
    /// Types from null to objects, strings as people sort them.
    #[default]
    Unicode,
    /// Types from numbers to strings, strings by their bytes (`"collation": "raw"`).
    Raw,
}

/// The first byte of a sort key, by type.
struct Tags {
    null: u8,
    no: u8,
    yes: u8,
    /// Negative numbers; zero is one more, positive numbers two more.
    numbers: u8,
    string: u8,
    array: u8,
    object: u8,
}

const UNICODE: Tags = Tags { null: 0x10, no: 0x11, yes: 0x12, numbers: 0x20, string: 0x30, array: 0x40, object: 0x50 };
const RAW: Tags = Tags { numbers: 0x10, no: 0x20, null: 0x21, yes: 0x22, object: 0x30, array: 0x40, string: 0x50 };

impl Collation {
    fn tags(self) -> &'static Tags {
        match self {
            Collation::Unicode => &UNICODE,
            Collation::Raw => &RAW,
        }
    }
}

/// Compares JSON values. Cheap to clone; a node makes one and hands it on.
#[derive(Clone)]
pub struct Collator {
    root: &'static CollatorBorrowed<'static>,
    collation: Collation,
}

impl std::fmt::Debug for Collator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collator({:?})", self.collation)
    }
}

impl Default for Collator {
    fn default() -> Collator {
        Collator::new()
    }
}

impl Collator {
    /// The default order.
    pub fn new() -> Collator {
        Collator { root: root::root(), collation: Collation::Unicode }
    }

    /// The same collator with another order.
    pub fn with(&self, collation: Collation) -> Collator {
        Collator { root: self.root, collation }
    }

    /// Which order it has.
    pub fn collation(&self) -> Collation {
        self.collation
    }

    /// Appends the sort key of a value. No key is the beginning of another one.
    pub fn sort_key(&self, value: &Value, out: &mut Vec<u8>) {
        let tags = self.collation.tags();
        match value {
            Value::Null => out.push(tags.null),
            Value::Bool(false) => out.push(tags.no),
            Value::Bool(true) => out.push(tags.yes),
            Value::Int(_) | Value::Big(_) | Value::Float(_) => number::sort_key(value, tags.numbers, out),
            Value::String(text) => {
                out.push(tags.string);
                self.string_key(text, out);
            }
            Value::Array(elements) => {
                out.push(tags.array);
                elements.iter().for_each(|element| self.sort_key(element, out));
                out.push(END);
            }
            Value::Object(object) => {
                out.push(tags.object);
                for (name, value) in object.iter() {
                    out.push(PAIR);
                    self.string_key(name, out);
                    self.sort_key(value, out);
                }
                out.push(END);
            }
        }
    }

    /// Appends the beginning of the sort key of every array that begins with these elements: itself the key of none,
    /// it is less than all of them, and with [`HIGHEST`] behind it greater than all of them.
    pub fn array_prefix<'a>(&self, elements: impl IntoIterator<Item = &'a Value>, out: &mut Vec<u8>) {
        out.push(self.collation.tags().array);
        elements.into_iter().for_each(|element| self.sort_key(element, out));
    }

    /// The order of two values; that of their sort keys.
    pub fn compare(&self, a: &Value, b: &Value) -> Ordering {
        self.compare_by(self.collation, a, b)
    }

    /// The order of two values by a named collation.
    pub fn compare_by(&self, collation: Collation, a: &Value, b: &Value) -> Ordering {
        match (a, b) {
            (Value::String(a), Value::String(b)) => self.strings_by(collation, a, b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Array(a), Value::Array(b)) => {
                let pairs = a.iter().zip(b).map(|(a, b)| self.compare_by(collation, a, b));
                first_difference(pairs).then_with(|| a.len().cmp(&b.len()))
            }
            (Value::Object(a), Value::Object(b)) => self.objects_by(collation, a, b),
            _ => {
                let tags = collation.tags();
                let by_type = rank(a, tags).cmp(&rank(b, tags));
                by_type.then_with(|| if is_number(a) { number::compare(a, b) } else { Ordering::Equal })
            }
        }
    }

    /// The order of two texts.
    pub fn compare_strings(&self, a: &str, b: &str) -> Ordering {
        self.strings_by(self.collation, a, b)
    }

    /// Whether two values are equal by a named collation; cheaper than their order.
    pub fn equal_by(&self, collation: Collation, a: &Value, b: &Value) -> bool {
        match (a, b) {
            // Printable ASCII texts collate equal only when they are.
            (Value::String(a), Value::String(b)) if is_plain(a) && is_plain(b) => a == b,
            _ => self.compare_by(collation, a, b).is_eq(),
        }
    }

    fn strings_by(&self, collation: Collation, a: &str, b: &str) -> Ordering {
        match collation {
            _ if a == b => Ordering::Equal,
            Collation::Unicode => self.root.compare(a, b),
            Collation::Raw => a.cmp(b),
        }
    }

    fn objects_by(&self, collation: Collation, a: &Object, b: &Object) -> Ordering {
        let pairs = a.iter().zip(b.iter()).map(|((a_name, a), (b_name, b))| {
            self.strings_by(collation, a_name, b_name).then_with(|| self.compare_by(collation, a, b))
        });
        first_difference(pairs).then_with(|| a.len().cmp(&b.len()))
    }

    fn string_key(&self, text: &str, out: &mut Vec<u8>) {
        match self.collation {
            Collation::Unicode => {
                // Invariant: writing to a Vec never fails, and no sort key contains a zero byte.
                self.root.write_sort_key_to(text, out).expect("bytes are appended");
                out.push(END);
            }
            Collation::Raw => {
                for byte in text.bytes() {
                    match byte {
                        0 => out.extend_from_slice(&RAW_ZERO),
                        byte => out.push(byte),
                    }
                }
                out.extend_from_slice(&RAW_END);
            }
        }
    }
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Big(_) | Value::Float(_))
}

/// The place of a value's type; numbers share one.
fn rank(value: &Value, tags: &Tags) -> u8 {
    match value {
        Value::Null => tags.null,
        Value::Bool(false) => tags.no,
        Value::Bool(true) => tags.yes,
        Value::Int(_) | Value::Big(_) | Value::Float(_) => tags.numbers,
        Value::String(_) => tags.string,
        Value::Array(_) => tags.array,
        Value::Object(_) => tags.object,
    }
}
