//! Reduced queries of views: the merged rows added up group by group.
//!
//! Built-in functions have parts of their own, see `view_groups`. A script's function is called with bounded numbers of
//! rows, and then always once more with what it made of them, as CouchDB 3.5 was measured to do; calls of several
//! groups go to the engine together.

use crate::coordinator::read::view::{ViewError, ViewRows};
use crate::document::json::{Value, write_string};
use crate::index::{Grouping, Reduce, Row, reduce};
use crate::limits;

/// A group with its reduced value.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// The group's key; null where all rows are one group.
    pub key: Value,
    /// The value, or why there is none.
    pub value: Result<Value, Overflow>,
}

/// A reduce function made more of its input than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// What to tell the client.
    pub reason: String,
}

/// A group whose function is still to be called.
#[derive(Default)]
struct ScriptGroup {
    key: Option<Value>,
    /// Rows not reduced yet, as the inside of a JSON array.
    input: Vec<u8>,
    rows: usize,
    /// What was made of earlier rows.
    results: Vec<Value>,
    overflow: Option<Overflow>,
}

impl ViewRows {
    /// The next page of groups, of at least one; `None` at the end.
    ///
    /// # Errors
    /// When a function fails as a whole, or the node cannot read; [`ViewError::StateGone`], [`ViewError::StatesFull`].
    pub async fn next_groups(&mut self) -> Result<Option<Vec<GroupRow>>, ViewError> {
        loop {
            match self.try_next_groups().await {
                Err(ViewError::StateGone) => self.begin_anew().await?,
                done => {
                    self.is_given = true;
                    return done;
                }
            }
        }
    }

    async fn try_next_groups(&mut self) -> Result<Option<Vec<GroupRow>>, ViewError> {
        let Some(grouping) = self.query.grouping else { return Ok(None) };
        let groups = match self.view.definition.reduce.clone() {
            Some(Reduce::Script(source)) => self.script_groups(grouping, &source).await?,
            Some(reduce) => self.builtin_groups(grouping, &reduce).await?,
            None => Vec::new(),
        };
        Ok((!groups.is_empty()).then_some(groups))
    }

    /// Whether results that are too large become errors: `[query_server_config] reduce_limit`, `true` unless it is set.
    pub(in crate::coordinator) fn bounds_reductions(&self) -> bool {
        self.view.database.context.config.text("query_server_config", "reduce_limit", "true") == "true"
    }

    /// The first row of the next group that counts, with what tells it apart; those to be skipped are passed over.
    async fn next_group(&mut self, grouping: Grouping) -> Result<Option<(Row, Vec<u8>, Value)>, ViewError> {
        while self.left > 0 {
            let Some(row) = self.next_row().await? else {
                if !self.next_span() {
                    return Ok(None);
                }
                continue;
            };
            let (mark, key) = grouping.group_of(&row, &self.view.collator, self.prefix);
            if self.skip == 0 {
                self.left -= 1;
                return Ok(Some((row, mark, key)));
            }
            self.skip -= 1;
            while self.next_of_group(grouping, &mark).await?.is_some() {}
        }
        Ok(None)
    }

    /// The next row if it belongs to the group.
    async fn next_of_group(&mut self, grouping: Grouping, mark: &[u8]) -> Result<Option<Row>, ViewError> {
        let Some(row) = self.next_row().await? else { return Ok(None) };
        let same = grouping == Grouping::All || grouping.group_of(&row, &self.view.collator, self.prefix).0 == mark;
        if same {
            return Ok(Some(row));
        }
        self.pending.push_front(row);
        Ok(None)
    }

    async fn script_groups(&mut self, grouping: Grouping, source: &str) -> Result<Vec<GroupRow>, ViewError> {
        let mut groups: Vec<ScriptGroup> = Vec::new();
        let mut bytes = 0;
        while groups.len() < limits::GROUPS_PER_PAGE && bytes < limits::REDUCE_BYTES_PER_CALL {
            let Some((first, mark, key)) = self.next_group(grouping).await? else { break };
            let mut group = ScriptGroup { key: Some(key), ..ScriptGroup::default() };
            group.add(&first);
            while let Some(row) = self.next_of_group(grouping, &mark).await? {
                if group.is_full() {
                    self.call(source, std::slice::from_mut(&mut group)).await?;
                }
                group.add(&row);
            }
            bytes += group.input.len();
            groups.push(group);
        }
        self.call(source, &mut groups).await?;
        self.call_again(source, &mut groups).await?;
        Ok(groups.into_iter().map(ScriptGroup::finish).collect())
    }

    /// Reduces the rows that wait in groups.
    async fn call(&self, source: &str, groups: &mut [ScriptGroup]) -> Result<(), ViewError> {
        let inputs: Vec<String> = groups.iter_mut().map(ScriptGroup::take_input).collect();
        let sizes: Vec<usize> = inputs.iter().map(String::len).collect();
        let results = self.view.database.scripts().reduce(&self.view.program, source, inputs, false).await?;
        let bounded = self.bounds_reductions();
        for ((group, result), size) in groups.iter_mut().zip(results).zip(sizes) {
            group.take(result, size, bounded);
        }
        Ok(())
    }

    /// Reduces the results of groups to one each. Many results are reduced in turns.
    async fn call_again(&self, source: &str, groups: &mut [ScriptGroup]) -> Result<(), ViewError> {
        let bounded = self.bounds_reductions();
        loop {
            let inputs: Vec<String> = groups.iter_mut().map(ScriptGroup::take_results).collect();
            let sizes: Vec<usize> = inputs.iter().map(String::len).collect();
            let results = self.view.database.scripts().reduce(&self.view.program, source, inputs, true).await?;
            for ((group, result), size) in groups.iter_mut().zip(results).zip(sizes) {
                group.take(result, size, bounded);
            }
            if groups.iter().all(|group| group.results.len() <= 1) {
                return Ok(());
            }
        }
    }
}

impl ScriptGroup {
    fn is_full(&self) -> bool {
        self.rows >= limits::REDUCE_ROWS_PER_CALL || self.input.len() >= limits::REDUCE_BYTES_PER_CALL
    }

    /// Adds `[[key, id], value]`.
    fn add(&mut self, row: &Row) {
        let out = &mut self.input;
        out.extend_from_slice(if out.is_empty() { b"[[" } else { b",[[" });
        out.extend_from_slice(&row.key);
        out.push(b',');
        write_string(row.id.as_str(), out);
        out.extend_from_slice(b"],");
        out.extend_from_slice(&row.value);
        out.push(b']');
        self.rows += 1;
    }

    fn take_input(&mut self) -> String {
        self.rows = 0;
        format!("[{}]", String::from_utf8_lossy(&std::mem::take(&mut self.input)))
    }

    /// As many results as one call takes, the first ones.
    fn take_results(&mut self) -> String {
        let count = self.results.len().min(limits::REDUCE_ROWS_PER_CALL);
        let some: Vec<Value> = self.results.drain(..count).collect();
        String::from_utf8_lossy(&Value::Array(some).to_vec()).into_owned()
    }

    /// Notes a result made of `size` bytes of input; `bounded`: it may be too large for that.
    fn take(&mut self, result: Value, size: usize, bounded: bool) {
        let made = result.to_vec().len();
        if bounded && self.overflow.is_none() && made > limits::REDUCE_RESULT_CHARS && made * 2 > size {
            self.overflow = Some(Overflow { reason: reduce::overflow_reason(size, made) });
        }
        // What overflowed is not worth its memory.
        self.results.push(if self.overflow.is_some() { Value::Null } else { result });
    }

    fn finish(mut self) -> GroupRow {
        let value = match self.overflow {
            Some(overflow) => Err(overflow),
            None => Ok(self.results.pop().unwrap_or(Value::Null)),
        };
        GroupRow { key: self.key.unwrap_or(Value::Null), value }
    }
}
