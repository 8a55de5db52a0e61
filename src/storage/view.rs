//! Views of the layered store: images of memtables over snapshots of store files, taken shard by shard.
//!
//! The image of a shard is taken when the view first reads the shard, so a view opens no file that it does not read,
//! and from then on the shard stays as it was. Data that must be read consistently must therefore lie in one shard. No
//! lock is held while a file is opened or read: if its memtable is frozen meanwhile, the image is taken again, because
//! the file might otherwise be ahead of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use super::kv::{Direction, KeyRange, LastingView, Row, StorageError, StoreFile, View, Visit, keep_first};
use super::layered::LayeredStore;
use super::layout::FileId;
use super::overlay::{Overlay, Writes};
use super::planted::Planted;
use super::quarantine::Suspects;
use super::reserved::{self, lowest, shard_of};
use super::tables::{Layers, Tables};
use crate::world::sync::{Mistake, mistaken};
use crate::world::waiting;

/// See the module head.
pub(super) struct LayeredView<'a> {
    store: &'a LayeredStore,
    /// Bugs to show to this reader.
    planted: Option<Planted>,
    /// Whether files are passed over.
    unflushed: bool,
    pictures: RefCell<Pictures>,
}

#[derive(Default)]
struct Pictures {
    shards: BTreeMap<u64, Rc<Picture>>,
    files: BTreeMap<FileId, Rc<Picture>>,
}

/// What is committed to the shards of one file.
struct Picture {
    layers: Layers,
    /// `None`: there is no such file yet.
    file: Option<Box<dyn View>>,
}

impl<'a> LayeredView<'a> {
    pub(super) fn new(store: &'a LayeredStore, planted: Option<Planted>) -> Self {
        LayeredView { store, planted, unflushed: false, pictures: RefCell::default() }
    }

    /// Of what is not in any file yet.
    pub(super) fn unflushed(store: &'a LayeredStore) -> Self {
        LayeredView { unflushed: true, ..LayeredView::new(store, None) }
    }

    fn shard(&self, shard: u64) -> Result<Rc<Picture>, StorageError> {
        if let Some(picture) = self.pictures.borrow().shards.get(&shard) {
            return Ok(Rc::clone(picture));
        }
        loop {
            let mut tables = self.store.tables();
            let home = tables.home(shard);
            let known = self.pictures.borrow().files.get(&home).cloned();
            let picture = match known {
                Some(picture) => Some(picture),
                None => {
                    let layers = tables.picture(home, self.planted);
                    drop(tables);
                    match self.over_file(home, layers, |tables| tables.home(shard) == home) {
                        // The file of a shard that has just been dropped.
                        Err(_) if self.store.tables().home(shard) != home => None,
                        done => done?,
                    }
                }
            };
            if let Some(picture) = picture {
                self.pictures.borrow_mut().shards.insert(shard, Rc::clone(&picture));
                return Ok(picture);
            }
        }
    }

    fn file(&self, id: FileId) -> Result<Rc<Picture>, StorageError> {
        if let Some(picture) = self.pictures.borrow().files.get(&id) {
            return Ok(Rc::clone(picture));
        }
        loop {
            let layers = self.store.tables().picture(id, self.planted);
            if let Some(picture) = self.over_file(id, layers, |_| true)? {
                return Ok(picture);
            }
        }
    }

    /// What was pictured of a file's memtables over the file; `None` where that may have got ahead of them, or `holds`
    /// does not any more.
    fn over_file(
        &self,
        id: FileId,
        (layers, stamp): (Layers, u64),
        holds: impl FnOnce(&Tables) -> bool,
    ) -> Result<Option<Rc<Picture>>, StorageError> {
        let suspects = &self.store.suspects;
        let opened = || if self.unflushed { Ok(None) } else { suspects.noted(id, self.store.store_files.open(id)) };
        let file = match opened()? {
            Some(engine) => Some(suspects.noted(id, pinned(engine, id, suspects))?),
            None => None,
        };
        let tables = self.store.tables();
        let is_ahead = tables.stamp(id) != stamp && !mistaken(Mistake::FileAheadOfMemtables);
        if is_ahead || !holds(&tables) {
            return Ok(None);
        }
        drop(tables);
        let picture = Rc::new(Picture { layers, file });
        self.pictures.borrow_mut().files.insert(id, Rc::clone(&picture));
        Ok(Some(picture))
    }

    /// The next shard with anything in it, from `from` on in `direction`; those of files that are there for one shard
    /// only may be empty.
    fn next_shard(&self, from: u64, direction: Direction) -> Result<Option<u64>, StorageError> {
        let forward = direction == Direction::Forward;
        let mut next = self.store.tables().next_own(from, forward);
        let common = (0..self.store.store_files.layout().common).map(FileId::Common);
        for id in common.chain([FileId::Sled]) {
            let picture = self.file(id)?;
            let range = match direction {
                Direction::Forward => KeyRange::new(lowest(from), lowest(reserved::SHARD)),
                Direction::Reverse => KeyRange { start: Vec::new(), end: reserved::range_of(from).end },
            };
            // Across shards: those that were cleared may show what they had.
            let found = picture.with_shard(reserved::SHARD, |view| view.first(&range, direction))?;
            next = match (next, found.map(|(key, _)| shard_of(&key))) {
                (Some(a), Some(b)) => Some(if forward { a.min(b) } else { a.max(b) }),
                (a, b) => a.or(b),
            };
        }
        Ok(next)
    }
}

/// A snapshot that keeps its file open.
fn pinned(engine: Arc<dyn StoreFile>, id: FileId, suspects: &Arc<Suspects>) -> Result<Box<dyn View>, StorageError> {
    let view = engine.snapshot()?;
    Ok(Box::new(Pinned { view, id, suspects: Arc::clone(suspects), engine }))
}

struct Pinned<V: ?Sized = dyn View> {
    view: Box<V>,
    id: FileId,
    /// Told of damage that a reader meets.
    suspects: Arc<Suspects>,
    /// Dropped after the snapshot: fields go in this order.
    engine: Arc<dyn StoreFile>,
}

impl<V: View + ?Sized> View for Pinned<V> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.suspects.noted(self.id, self.view.get(key))
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.suspects.noted(self.id, self.view.scan(range, direction, visit))
    }

    fn lasting(&self, range: &KeyRange) -> Result<Option<LastingView>, StorageError> {
        let Some(LastingView { view, bytes }) = self.view.lasting(range)? else { return Ok(None) };
        let (suspects, engine) = (Arc::clone(&self.suspects), Arc::clone(&self.engine));
        Ok(Some(LastingView { view: Box::new(Pinned { view, id: self.id, suspects, engine }), bytes }))
    }
}

/// A picture of some keys of one shard: what of the memtables lies in them, over a lasting snapshot of the file.
struct LastingPicture {
    shard: u64,
    layers: Layers,
    file: Option<Box<dyn View + Send + Sync>>,
}

impl LastingPicture {
    fn with_shard<T>(&self, read: impl FnOnce(&dyn View) -> T) -> T {
        let file = self.file.as_ref().map(|file| file.as_ref() as &dyn View);
        self.layers.over(file, self.shard, read)
    }
}

impl View for LastingPicture {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.with_shard(|view| view.get(key))
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.with_shard(|view| view.scan(range, direction, visit))
    }

    fn first(&self, range: &KeyRange, direction: Direction) -> Result<Option<Row>, StorageError> {
        self.with_shard(|view| view.first(range, direction))
    }
}

/// Nothing at all.
struct Nothing;

impl View for Nothing {
    fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }

    fn scan(&self, _range: &KeyRange, _direction: Direction, _visit: &mut Visit<'_>) -> Result<(), StorageError> {
        Ok(())
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        if self.layers.is_last() {
            waiting(|| drop(mem::take(&mut self.layers)));
        }
    }
}

impl Picture {
    /// What lies below the active memtable for a shard: the frozen one over the file, unless the shard was cleared.
    fn get(&self, shard: u64, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let Layers { active, frozen } = &self.layers;
        if let Some(value) = active.rows.find(key) {
            return Ok(value.map(<[u8]>::to_vec));
        }
        if active.cleared.contains(&shard) {
            return Ok(None);
        }
        if let Some(frozen) = frozen {
            if let Some(value) = frozen.rows.find(key) {
                return Ok(value.map(<[u8]>::to_vec));
            }
            if frozen.cleared.contains(&shard) {
                return Ok(None);
            }
        }
        self.file.as_ref().map_or(Ok(None), |file| file.get(key))
    }

    /// Reads what is committed to a shard.
    fn with_shard<T>(&self, shard: u64, read: impl FnOnce(&dyn View) -> T) -> T {
        self.layers.over(self.file.as_deref(), shard, read)
    }

    /// The same for the keys of `range`, to be held.
    fn lasting(&self, shard: u64, range: &KeyRange) -> Result<Option<LastingView>, StorageError> {
        let (file, bytes) = match &self.file {
            None => (None, 0),
            Some(file) => match file.lasting(range)? {
                Some(LastingView { view, bytes }) => (Some(view), bytes),
                None => return Ok(None),
            },
        };
        let layers = self.layers.cut(range);
        let bytes = bytes + layers.bytes();
        Ok(Some(LastingView { view: Box::new(LastingPicture { shard, layers, file }), bytes }))
    }
}

impl Layers {
    /// Reads what these layers and the file below them hold of a shard.
    fn over<T>(&self, file: Option<&dyn View>, shard: u64, read: impl FnOnce(&dyn View) -> T) -> T {
        let Layers { active, frozen } = self;
        let cleared = frozen.as_ref().is_some_and(|f| f.cleared.contains(&shard));
        let file = file.filter(|_| !cleared).unwrap_or(&Nothing);
        let frozen = frozen.as_ref().filter(|f| !f.rows.is_empty()).map(|f| Overlay { base: file, top: &f.rows });
        let below: &dyn View = match &frozen {
            _ if active.cleared.contains(&shard) => &Nothing,
            Some(frozen) => frozen,
            None => file,
        };
        match active.rows.is_empty() {
            true => read(below),
            false => read(&Overlay { base: below, top: &active.rows }),
        }
    }
}

/// The first and the last shard that keys of a range can belong to.
fn shards_of(range: &KeyRange) -> (u64, u64) {
    let last = match &range.end {
        None => reserved::SHARD - 1,
        Some(end) if *end == lowest(shard_of(end)) => shard_of(end).saturating_sub(1),
        Some(end) => shard_of(end).min(reserved::SHARD - 1),
    };
    (shard_of(&range.start), last)
}

impl View for LayeredView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match shard_of(key) {
            reserved::SHARD => Ok(None),
            shard => self.shard(shard)?.get(shard, key),
        }
    }

    fn first(&self, range: &KeyRange, direction: Direction) -> Result<Option<Row>, StorageError> {
        let (first, last) = shards_of(range);
        if first == last && first != reserved::SHARD {
            return self.shard(first)?.with_shard(first, |view| view.first(range, direction));
        }
        let mut found = None;
        self.scan(range, direction, &mut |key, value| keep_first(&mut found, key, value))?;
        Ok(found)
    }

    fn lasting(&self, range: &KeyRange) -> Result<Option<LastingView>, StorageError> {
        match shards_of(range) {
            (first, last) if first == last && first != reserved::SHARD => self.shard(first)?.lasting(first, range),
            _ => Ok(None),
        }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        let (first, last) = shards_of(range);
        if first == last {
            return self.shard(first)?.with_shard(first, |view| view.scan(range, direction, visit));
        }
        let forward = direction == Direction::Forward;
        let mut next = self.next_shard(if forward { first } else { last }, direction)?;
        while let Some(shard) = next.filter(|shard| (first..=last).contains(shard)) {
            let own = reserved::range_of(shard);
            let start = own.start.max(range.start.clone());
            let end = [own.end, range.end.clone()].into_iter().flatten().min();
            let mut stopped = false;
            let mut each = |key: &[u8], value: &[u8]| {
                let flow = visit(key, value);
                stopped = flow.is_break();
                flow
            };
            self.shard(shard)?.with_shard(shard, |view| view.scan(&KeyRange { start, end }, direction, &mut each))?;
            let beyond = if forward { shard.checked_add(1) } else { shard.checked_sub(1) };
            next = match beyond.filter(|_| !stopped) {
                Some(beyond) => self.next_shard(beyond, direction)?,
                None => None,
            };
        }
        Ok(())
    }
}
