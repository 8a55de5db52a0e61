//! Rows in groups, in two rounds: the first finds the first groups of all shards, the second their rows.

use std::collections::BTreeMap;

use super::budget::Budget;
use super::order::{Order, Texts, compare, last_number, or_by_score};
use super::run::{Placed, Run, Top, first};
use super::{Group, GroupRows, SearchError, Sort, SortValue};
use crate::segment::Part;

/// Bytes of memory of a group, about.
const GROUP_MEMORY: usize = 256;

/// A group in one part.
struct InPart {
    best: Top,
    top: Top,
    total: u64,
}

/// A group of all parts.
#[derive(Default)]
struct Whole {
    best: Vec<Placed>,
    hits: Vec<Placed>,
    total: u64,
}

/// The part that is counted.
struct Current<'a> {
    place: usize,
    texts: Texts<'a>,
    best: Order<'a>,
    order: Order<'a>,
    /// Groups by the key of their text. Where only some are asked for, no other is added.
    groups: BTreeMap<u64, InPart>,
}

/// Groups of matches.
pub(crate) struct Groups<'a> {
    group: &'a Group,
    group_sort: &'a [Sort],
    sort: &'a [Sort],
    limit: usize,
    current: Option<Current<'a>>,
    all: BTreeMap<Option<String>, Whole>,
    keys: Vec<u64>,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(group: &'a Group, sort: &'a [Sort], limit: usize) -> Groups<'a> {
        let limit = if group.only.is_some() { limit } else { 0 };
        let group_sort = or_by_score(&group.sort);
        Groups { group, group_sort, sort, limit, current: None, all: BTreeMap::new(), keys: Vec::new() }
    }

    fn in_part(&self) -> InPart {
        InPart { best: Top::new(1), top: Top::new(self.limit), total: 0 }
    }

    /// Begins a part.
    pub(crate) fn start(&mut self, place: usize, part: &'a Part) -> Result<(), SearchError> {
        let texts = Texts::new(part, &self.group.field)?;
        let mut groups = BTreeMap::new();
        for text in self.group.only.iter().flatten() {
            if let Some(key) = texts.find(text.as_deref()) {
                groups.insert(key, self.in_part());
            }
        }
        let best = Order::new(self.group_sort, part)?;
        let order = Order::new(self.sort, part)?;
        self.current = Some(Current { place, texts, best, order, groups });
        Ok(())
    }

    pub(crate) fn add(
        &mut self,
        doc: u32,
        score: f32,
        number: u64,
        budget: &mut Budget<'_>,
    ) -> Result<(), SearchError> {
        let new = self.in_part();
        let Some(current) = &mut self.current else { return Ok(()) };
        let key = current.texts.key(doc);
        if self.group.only.is_none() && !current.groups.contains_key(&key) {
            budget.hold_planned(GROUP_MEMORY)?;
            current.groups.insert(key, new);
        }
        let Some(group) = current.groups.get_mut(&key) else { return Ok(()) };
        group.total += 1;
        current.best.keys(doc, score, number, &mut self.keys);
        group.best.add(&self.keys, number, doc, score);
        if self.limit > 0 {
            current.order.keys(doc, score, number, &mut self.keys);
            group.top.add(&self.keys, number, doc, score);
        }
        Ok(())
    }

    /// Ends a part.
    pub(crate) fn end(&mut self) -> Result<(), SearchError> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let Current { place, texts, best, order, groups } = current;
        for (key, group) in groups.into_iter().filter(|(_, group)| group.total > 0) {
            let whole = self.all.entry(texts.text(key)).or_default();
            whole.total += group.total;
            let placed = |order: &Order<'_>, top: Top| -> Vec<Placed> {
                let hits = top.into_hits().into_iter();
                hits.map(|hit| {
                    let order = order.values(hit.doc, f32::from_bits(hit.score), hit.number);
                    Placed { order, part: place, doc: hit.doc }
                })
                .collect()
            };
            whole.best.extend(placed(&best, group.best));
            whole.hits.extend(placed(&order, group.top));
        }
        Ok(())
    }

    /// The groups in the order of their names, or only the first in their own.
    pub(crate) fn finish(self, run: &Run<'_>, budget: &mut Budget<'_>) -> Result<Vec<GroupRows>, SearchError> {
        let mut groups = Vec::new();
        for (by, whole) in self.all {
            let best = first(self.group_sort, whole.best, 1).pop();
            let order = best.map_or_else(Vec::new, |best| best.order);
            let rows = run.rows(first(self.sort, whole.hits, self.limit), budget)?;
            groups.push(GroupRows { by, order, total: whole.total, rows });
        }
        if self.group.only.is_none() {
            groups.sort_by(|a, b| {
                compare(self.group_sort, &a.order, &b.order)
                    .then_with(|| last_number(&a.order).cmp(&last_number(&b.order)))
            });
            groups.truncate(self.group.limit);
        }
        by_order(self.group_sort, &mut groups);
        Ok(groups)
    }
}

/// Puts groups in their order, those that stand alike by their names, that of documents without the field first.
pub(crate) fn by_order(sort: &[Sort], groups: &mut [GroupRows]) {
    groups.sort_by(|a, b| compare(sort, &a.order, &b.order).then_with(|| a.by.cmp(&b.by)));
}

/// The groups of several shards as one list.
pub(crate) fn unite(group: &Group, sort: &[Sort], limit: usize, all: Vec<Vec<GroupRows>>) -> Vec<GroupRows> {
    let group_sort = or_by_score(&group.sort);
    let mut united: BTreeMap<Option<String>, GroupRows> = BTreeMap::new();
    for one in all.into_iter().flatten() {
        match united.get_mut(&one.by) {
            None => {
                united.insert(one.by.clone(), one);
            }
            Some(known) => {
                known.total += one.total;
                known.rows.extend(one.rows);
                let better = |order: &Vec<SortValue>| compare(group_sort, order, &known.order).is_lt();
                if better(&one.order) {
                    known.order = one.order;
                }
            }
        }
    }
    let mut groups: Vec<GroupRows> = united.into_values().collect();
    for group in &mut groups {
        group.rows.sort_by(|a, b| compare(sort, &a.order, &b.order));
        group.rows.truncate(limit);
    }
    by_order(group_sort, &mut groups);
    groups.truncate(group.limit);
    groups
}
