//! The types of the fields of an index: the first use of a field's name fixes its type.

use std::collections::BTreeMap;

use crate::document::{Field, ID, Indexed, Value};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Text as it is: found as a whole, sorted by, counted.
    String,
    /// Text in words.
    Text,
    /// Numbers.
    Double,
    /// What is shown and not found.
    Stored,
}

impl FieldType {
    /// That of a field as it is indexed.
    pub fn of(field: &Field) -> FieldType {
        match (&field.value, field.options.index) {
            (_, Indexed::Stored) => FieldType::Stored,
            (Value::Number(_), _) => FieldType::Double,
            (_, Indexed::Analyzed | Indexed::AnalyzedNoNorms) => FieldType::Text,
            _ => FieldType::String,
        }
    }

    /// As reasons name it.
    pub fn name(self) -> &'static str {
        match self {
            FieldType::String => "STRING",
            FieldType::Text => "TEXT",
            FieldType::Double => "DOUBLE",
            FieldType::Stored => "STORED",
        }
    }
}

/// The types of the fields of one index on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema(BTreeMap<String, FieldType>);

impl Schema {
    /// The type of a field; `None`: no document had it.
    pub fn get(&self, name: &str) -> Option<FieldType> {
        if name == ID { Some(FieldType::String) } else { self.0.get(name).copied() }
    }

    /// All types in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, FieldType)> {
        self.0.iter().map(|(name, kind)| (name.as_str(), *kind))
    }

    /// How many fields it knows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no document had a field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fixes the types of the fields of a document.
    ///
    /// # Errors
    /// The reason why one of them has another type.
    pub fn note(&mut self, fields: &[Field]) -> Result<(), String> {
        for field in fields {
            let kind = FieldType::of(field);
            let known = *self.0.entry(field.name.clone()).or_insert(kind);
            if known != kind {
                return Err(format!("field {} is of type {} not {}", field.name, kind.name(), known.name()));
            }
        }
        Ok(())
    }
}

impl FromIterator<(String, FieldType)> for Schema {
    fn from_iter<I: IntoIterator<Item = (String, FieldType)>>(all: I) -> Schema {
        Schema(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Options;

    #[test]
    fn the_first_use_of_a_name_fixes_its_type() {
        let field = |value: Value, index| Field {
            name: "a".to_owned(),
            value,
            options: Options { index, ..Options::default() },
        };
        let number = field(Value::Number(1.0), Indexed::Analyzed);
        let text = |index| field(Value::Text("x".to_owned()), index);
        let mut schema = Schema::default();
        assert_eq!((schema.get("a"), schema.get(ID)), (None, Some(FieldType::String)));
        schema.note(&[text(Indexed::NotAnalyzedNoNorms)]).unwrap();
        assert_eq!(schema.note(std::slice::from_ref(&number)).unwrap_err(), "field a is of type DOUBLE not STRING");
        assert_eq!(schema.get("a"), Some(FieldType::String));
        let kinds = [text(Indexed::Analyzed), number, field(Value::Number(1.0), Indexed::Stored)];
        let kinds: Vec<FieldType> = kinds.iter().map(FieldType::of).collect();
        assert_eq!(kinds, [FieldType::Text, FieldType::Double, FieldType::Stored]);
    }
}
