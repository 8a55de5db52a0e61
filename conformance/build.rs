//! Packs cases, profiles and tables into the binary, so that an installed suite works from any folder.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the folder of the package"));
    let mut files = Vec::new();
    for name in ["cases", "profiles", "differences", "levels.toml", "rows.toml"] {
        println!("cargo:rerun-if-changed={name}");
        collect(&root.join(name), &mut files);
    }
    files.sort();
    let mut text = String::from("pub(super) const FILES: &[(&str, &str)] = &[\n");
    for path in files {
        let name = path.strip_prefix(&root).expect("below the package").to_string_lossy().replace('\\', "/");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    ({name:?}, include_str!({:?})),", path.display().to_string());
    }
    text.push_str("];\n");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets a folder for output"));
    std::fs::write(out.join("packed.rs"), text).expect("the folder for output can be written to");
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if let Ok(entries) = std::fs::read_dir(path) {
        entries.filter_map(Result::ok).for_each(|entry| collect(&entry.path(), files));
    } else if path.extension().is_some_and(|e| e == "json" || e == "toml") {
        files.push(path.to_path_buf());
    }
}
