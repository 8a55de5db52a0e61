//! Reserve: disk space held by files that are made while the disk is getting full, and removed when the node needs
//! their bytes.
//!
//! ```text
//!   DIR/reserve/run      for deletions, purges, flushes: removed when next to nothing is free
//!   DIR/reserve/start    for a start: its new journal segment, and repairs of store files that a kill left open
//! ```
//!
//! A disk that compresses does not guarantee this space. Only a start removes the start's file.

use std::io;
use std::path::{Path, PathBuf};

use crate::limits;
use crate::world::{Disk, OpenMode, path};

const RUN: &str = "run";
const START: &str = "start";

fn file(dir: &Path, name: &str) -> PathBuf {
    path(dir, &["reserve", name])
}

/// Gives the room for a start back, where it is needed. What goes wrong is met by the start.
pub(super) fn release_for_start(disk: &dyn Disk, dir: &Path) {
    let is_needed = disk.is_real() && disk.free_bytes(dir).is_ok_and(|free| free < limits::DISK_START_BYTES);
    if is_needed && remove(disk, dir, START).unwrap_or(false) {
        tracing::warn!("the disk is full: this start takes the room that was kept for it");
    }
}

/// Makes or gives back what is kept, by how much is free of what should be. Blocks.
pub(super) fn follow(disk: &dyn Disk, dir: &Path, free: u64, reserve: u64) {
    if !disk.is_real() || reserve == 0 {
        return;
    }
    let run = (reserve / 4).min(limits::DISK_RUN_BYTES);
    let done = if free < run / 2 {
        remove(disk, dir, RUN).map(|removed| {
            if removed {
                tracing::warn!(free, "the disk is full: the room that was kept for deletions is given back");
            }
        })
    } else if free < reserve.saturating_mul(4) {
        let keep_run = free > reserve.saturating_add(run);
        make(disk, dir, START, limits::DISK_START_BYTES, free).and_then(|()| match keep_run {
            true => make(disk, dir, RUN, run, free),
            false => Ok(()),
        })
    } else {
        Ok(())
    };
    if let Err(error) = done {
        tracing::debug!(%error, "no room is kept on the disk");
    }
}

fn remove(disk: &dyn Disk, dir: &Path, name: &str) -> io::Result<bool> {
    let file = file(dir, name);
    let is_there = disk.exists(&file)?;
    if is_there {
        disk.remove(&file)?;
    }
    Ok(is_there)
}

fn make(disk: &dyn Disk, dir: &Path, name: &str, bytes: u64, free: u64) -> io::Result<()> {
    let path = file(dir, name);
    if free < 2 * bytes || disk.exists(&path)? {
        return Ok(());
    }
    disk.create_dir_all(&dir.join("reserve"))?;
    let file = disk.open(&path, OpenMode::CreateNew)?;
    let written = fill(file.as_ref(), bytes);
    if written.is_err() {
        disk.remove(&path)?;
    }
    written
}

fn fill(file: &dyn crate::world::File, bytes: u64) -> io::Result<()> {
    let step = vec![0x5a; limits::STEP_BYTES];
    let mut at = 0;
    while at < bytes {
        let count = step.len().min((bytes - at) as usize);
        file.write_at(at, &step[..count])?;
        at += count as u64;
    }
    file.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_while_there_is_little_and_given_back_when_there_is_none() {
        let (runtime, dir) =
            (tokio::runtime::Builder::new_current_thread().build().unwrap(), tempfile::tempdir().unwrap());
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        let reserve = 4 << 20;
        let there = || [RUN, START].map(|name| file(dir.path(), name).exists());
        let follow = |free| follow(disk.as_ref(), dir.path(), free, reserve);
        follow(u64::MAX);
        assert_eq!(there(), [false, false], "a disk with much room is left alone");
        follow(4 * reserve - 1);
        assert_eq!(there(), [true, false], "the start's would take most of it");
        follow(0);
        assert_eq!(there(), [false, false]);
        make(disk.as_ref(), dir.path(), START, 5000, u64::MAX).unwrap();
        assert_eq!(std::fs::metadata(file(dir.path(), START)).unwrap().len(), 5000);
        follow(0);
        assert_eq!(there(), [false, true], "only a start removes it");
    }
}
