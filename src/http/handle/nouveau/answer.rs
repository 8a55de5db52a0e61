//! Answers of searches of indexes with types as JSON. Documents are read while the answer is written.

use settee_search::search::{Counts, Row, Stored};

use crate::coordinator::{DatabaseSearch, TypedPage};
use crate::document::json::{Object, Value, write_string};
use crate::document::render::{RenderOptions, render};
use crate::http::{ChunkSink, Result};

/// What goes with rows.
pub struct Form {
    /// The index, where documents go along.
    pub docs: Option<DatabaseSearch>,
    /// The order that was asked for.
    pub sort: Vec<String>,
    /// Whether `counts` and `ranges` were asked for.
    pub asks: (bool, bool),
}

impl Form {
    /// Writes the answer.
    ///
    /// # Errors
    /// When a document cannot be read or the client is gone.
    pub async fn write(&self, page: TypedPage, sink: &mut ChunkSink) -> Result<()> {
        let TypedPage { answer, bookmark, latency } = page;
        let mut head = b"{\"bookmark\":".to_vec();
        write_string(&bookmark, &mut head);
        head.extend_from_slice(b",\"counts\":");
        facets(answer.counts.as_ref().filter(|_| self.asks.0)).write(&mut head);
        head.extend_from_slice(b",\"hits\":[");
        sink.write(&head).await?;
        self.rows(&answer.rows, sink).await?;
        let mut tail = b"],\"ranges\":".to_vec();
        facets(answer.ranges.as_ref().filter(|_| self.asks.1)).write(&mut tail);
        let total = answer.total;
        let rest =
            format!(",\"total_hits\":{total},\"total_hits_relation\":\"EQUAL_TO\",\"update_latency\":{latency}}}\n");
        tail.extend_from_slice(rest.as_bytes());
        sink.write(&tail).await?;
        sink.flush().await
    }

    async fn rows(&self, rows: &[Row], sink: &mut ChunkSink) -> Result<()> {
        let mut left = rows;
        let mut separator: &[u8] = b"";
        while !left.is_empty() {
            let (some, docs) = match &self.docs {
                None => (left.len(), Vec::new()),
                Some(index) => {
                    let docs = index.documents(left).await?;
                    (docs.len().max(1), docs)
                }
            };
            let mut docs = docs.into_iter();
            for row in &left[..some] {
                let mut text = separator.to_vec();
                separator = b",\n";
                text.push(b'{');
                if self.docs.is_some() {
                    text.extend_from_slice(b"\"doc\":");
                    let stored = docs.next().flatten().and_then(|mut fetched| fetched.take_one());
                    match stored.filter(|stored| !stored.deleted) {
                        Some(stored) => text.extend(render(&row.id, &stored, &RenderOptions::default())),
                        None => text.extend_from_slice(b"null"),
                    }
                    text.push(b',');
                }
                text.extend_from_slice(&self.head(row).to_vec()[1..]);
                sink.write(&text).await?;
            }
            left = &left[some..];
        }
        Ok(())
    }

    /// A row without its document.
    fn head(&self, row: &Row) -> Object {
        let mut fields = Object::new();
        for (name, values) in &row.fields {
            match &values[..] {
                [one] => fields.push(name.as_str(), stored(one)),
                several => fields.push(name.as_str(), several.iter().map(stored).collect::<Vec<_>>()),
            }
        }
        let mut out = Object::new();
        out.push("fields", fields);
        out.push("id", row.id.as_str());
        out.push("order", DatabaseSearch::typed_order(&self.sort, row));
        out
    }
}

fn stored(value: &Stored) -> Value {
    match value {
        Stored::Text(text) => text.as_str().into(),
        Stored::Number(number) => Value::Float(*number),
    }
}

fn facets(counts: Option<&Counts>) -> Value {
    let Some(counts) = counts else { return Value::Null };
    let of_field = |(field, values): (&String, &std::collections::BTreeMap<String, u64>)| {
        let values: Object = values.iter().map(|(value, count)| (value.clone(), Value::from(*count))).collect();
        (field.clone(), Value::Object(values))
    };
    Value::Object(counts.iter().map(of_field).collect())
}
