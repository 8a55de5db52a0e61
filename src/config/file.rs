//! Configuration files on the disk: reading the chain, rewriting one file atomically and durably. All calls block.

use std::path::{Path, PathBuf};

use super::{ConfigError, Sections, Sources, directory, ini};
use crate::limits;
use crate::world::{self, Disk};

/// Reads all files of the chain, in order: the named ones (or the fallback), then `local.d/*.ini` beside the last.
pub(super) fn read_chain(disk: &dyn Disk, sources: &Sources) -> Result<Vec<(PathBuf, Sections)>, ConfigError> {
    let mut chain = Vec::new();
    for path in &sources.files {
        chain.push((path.clone(), ini::settings(&read(disk, path)?)));
    }
    if let (true, Some(path)) = (chain.is_empty(), &sources.fallback) {
        let there = disk.exists(path).map_err(|e| io_error(path, &e))?;
        let sections = if there { ini::settings(&read(disk, path)?) } else { Sections::new() };
        chain.push((path.clone(), sections));
    }
    let Some((last, _)) = chain.last() else { return Ok(chain) };
    keep_names(disk, directory(last));
    let folder = directory(last).join("local.d");
    if !disk.exists(&folder).map_err(|e| io_error(&folder, &e))? {
        return Ok(chain);
    }
    for entry in disk.list(&folder).map_err(|e| io_error(&folder, &e))? {
        if !entry.is_dir && entry.name.ends_with(".ini") {
            let path = folder.join(&entry.name);
            let sections = ini::settings(&read(disk, &path)?);
            chain.push((path, sections));
        }
    }
    keep_names(disk, &folder);
    Ok(chain)
}

/// Makes the names durable under which a process before this one may have put files that are read now: what is done by
/// them, such as an identity that is told to other nodes, outlives a power loss. A directory that cannot be synced is
/// one that is not written to.
fn keep_names(disk: &dyn Disk, dir: &Path) {
    if let Err(error) = disk.sync_dir(dir) {
        tracing::debug!(%error, "the directory of the configuration was not synced");
    }
}

/// Lays `over` on top: an empty value deletes what earlier files have set.
pub(super) fn merge(merged: &mut Sections, over: &Sections) {
    for (section, entries) in over {
        for (key, value) in entries {
            let value = (!value.is_empty()).then(|| value.clone());
            apply(merged, section, key, value);
        }
    }
}

/// Sets or removes one value and answers the old one. A section without keys is none.
pub(super) fn apply(sections: &mut Sections, section: &str, key: &str, value: Option<String>) -> Option<String> {
    if let Some(value) = value {
        return sections.entry(section.to_owned()).or_default().insert(key.to_owned(), value);
    }
    let entries = sections.get_mut(section)?;
    let old = entries.remove(key);
    if entries.is_empty() {
        sections.remove(section);
    }
    old
}

/// Changes one setting in a file (made if missing): the file is read afresh, so that edits by hand are kept, and
/// replaced by a synced copy with the same access rights. `None` removes the setting. A symbolic link stays one: what
/// it names is replaced.
pub(super) fn rewrite(
    disk: &dyn Disk,
    path: &Path,
    (section, key): (&str, &str),
    value: Option<&str>,
) -> Result<(), ConfigError> {
    let path = &disk.follow(path).map_err(|e| io_error(path, &e))?;
    let there = disk.exists(path).map_err(|e| io_error(path, &e))?;
    let text = if there { read(disk, path)? } else { String::new() };
    let text = ini::edit(&text, section, key, value);
    replace(disk, path, text.as_bytes()).map_err(|e| io_error(path, &e))
}

fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let file = disk.create_like(&fresh, path)?;
    file.write_at(0, content)?;
    file.sync()?;
    disk.rename(&fresh, path)?;
    disk.sync_dir(directory(path))
}

fn read(disk: &dyn Disk, path: &Path) -> Result<String, ConfigError> {
    let bytes = world::read_whole(disk, path, limits::CONFIG_FILE_BYTES_MAX).map_err(|e| io_error(path, &e))?;
    String::from_utf8(bytes).map_err(|_| ConfigError::NotText(path.to_owned()))
}

fn io_error(path: &Path, error: &std::io::Error) -> ConfigError {
    // Hosts may name the path in their errors; it is told once.
    let (reason, named) = (error.to_string(), format!("{}: ", path.display()));
    let reason = reason.strip_prefix(&named).unwrap_or(&reason).to_owned();
    ConfigError::Io { path: path.to_owned(), reason }
}
