//! Compresses the files of the administration page for `src/http/assets.rs`: 0.15 MB of the program and not 0.45. Most
//! clients take them as they are.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-changed=src/http/page");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is set by cargo"))?);
    compress(Path::new("src/http/page"), &out.join("page"))
}

/// Writes each file of a folder, and of the folders in it, compressed to the same place below `out`.
fn compress(folder: &Path, out: &Path) -> io::Result<()> {
    std::fs::create_dir_all(out)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (from, to) = (entry.path(), out.join(entry.file_name()));
        if from.is_dir() {
            compress(&from, &to)?;
            continue;
        }
        // Without a time, so that the same file is compressed to the same bytes.
        let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
        encoder.write_all(&std::fs::read(&from)?)?;
        std::fs::write(to, encoder.finish()?)?;
    }
    Ok(())
}
