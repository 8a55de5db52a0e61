//! The files of the administration page (`src/http/page`), inside the binary: names, types, ETags, compressed bytes.
//!
//! A file is compressed in the program (`src/build.rs`); it is unpacked when it is asked for the first time, and kept
//! so. Every file below `src/http/page` stands in [`FILES`]; a test fails where one is missing.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use flate2::read::GzDecoder;

use super::response::state_etag;

/// A file of the page.
#[derive(Debug)]
pub struct Asset {
    /// Its path below `/_utils/`.
    pub path: &'static str,
    /// What is in it, compressed by gzip.
    packed: &'static [u8],
}

/// A table of files by their paths below `page/`.
macro_rules! assets {
    ($($path:literal,)*) => {
        &[$(Asset { path: $path, packed: include_bytes!(concat!(env!("OUT_DIR"), "/page/", $path)) }),*]
    };
}

/// All files of the page, one a line, sorted.
const FILES: &[Asset] = assets! {
    "app.css",
    "app.js",
    "icon.svg",
    "index.html",
    "js/api.js",
    "js/chart.js",
    "js/columns.js",
    "js/csv.js",
    "js/diff.js",
    "js/dom.js",
    "js/format.js",
    "js/json.js",
    "js/jump.js",
    "js/router.js",
    "js/session.js",
    "js/text.js",
    "js/text/cluster.js",
    "js/text/operate.js",
    "js/trial.js",
    "js/trial_worker.js",
    "js/ui.js",
    "js/ui/dialog.js",
    "js/ui/editor.js",
    "js/ui/form.js",
    "js/ui/highlight.js",
    "js/ui/icons.js",
    "js/ui/parts.js",
    "js/ui/table.js",
    "js/views/account.js",
    "js/views/changes.js",
    "js/views/cluster_charts.js",
    "js/views/cluster_map.js",
    "js/views/cluster_overview.js",
    "js/views/cluster_place.js",
    "js/views/cluster_rebalance.js",
    "js/views/databases.js",
    "js/views/db_create.js",
    "js/views/db_frame.js",
    "js/views/design.js",
    "js/views/doc_attachments.js",
    "js/views/doc_conflicts.js",
    "js/views/doc_merge.js",
    "js/views/doc_tree.js",
    "js/views/document.js",
    "js/views/documents.js",
    "js/views/index.js",
    "js/views/login.js",
    "js/views/mango.js",
    "js/views/mango_indexes.js",
    "js/views/mango_plan.js",
    "js/views/operate_common.js",
    "js/views/operate_compaction.js",
    "js/views/operate_config.js",
    "js/views/operate_log.js",
    "js/views/operate_permissions.js",
    "js/views/operate_replication_form.js",
    "js/views/operate_replications.js",
    "js/views/operate_routes.js",
    "js/views/operate_snapshots.js",
    "js/views/operate_tasks.js",
    "js/views/operate_users.js",
    "js/views/samples.js",
    "js/views/search.js",
    "js/views/search_kinds.js",
    "js/views/setup.js",
    "js/views/transfer_read.js",
    "js/views/transfer_write.js",
    "js/views/view.js",
    "js/views/welcome.js",
    "js/warnings.js",
    "operate.css",
    "theme.js",
};

/// The file of a path below `/_utils/`.
pub fn find(path: &str) -> Option<&'static Asset> {
    FILES.iter().find(|file| file.path == path)
}

/// The `Content-Type` of a file, by the end of its name.
pub fn content_type(path: &str) -> &'static str {
    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
    match end.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "gif" => "image/gif",
        "jpg" | "jpeg" => "image/jpeg",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "eot" => "application/vnd.ms-fontobject",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Whether gzip makes files of a type smaller.
fn is_text(content_type: &str) -> bool {
    content_type.starts_with("text/") || matches!(content_type, "application/json" | "image/svg+xml")
}

/// One form of a file, with its ETag (quoted).
#[derive(Clone, Debug)]
pub struct Form {
    /// The bytes.
    pub bytes: Bytes,
    /// Names the content and the form.
    pub etag: String,
    /// Whether the bytes are compressed by gzip.
    pub is_gzip: bool,
}

/// The forms of files that were asked for.
#[derive(Debug, Default)]
pub struct Forms {
    // A blocking lock: held while a file is unpacked, once for each.
    kept: Mutex<BTreeMap<(&'static str, bool), Form>>,
}

impl Forms {
    /// A file as a client takes it; `gzip`: whether the client accepts that coding.
    pub fn get(&self, file: &'static Asset, gzip: bool) -> Form {
        let is_gzip = gzip && is_text(content_type(file.path));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry((file.path, is_gzip)).or_insert_with(|| Form::of(file, is_gzip)).clone()
    }
}

impl Form {
    fn of(file: &Asset, is_gzip: bool) -> Form {
        let etag = state_etag(&[file.packed, if is_gzip { b"gzip" } else { b"" }]);
        let bytes = if is_gzip { Bytes::from_static(file.packed) } else { file.plain().into() };
        Form { bytes, etag, is_gzip }
    }
}

impl Asset {
    fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        // Invariant: `src/build.rs` compressed it.
        GzDecoder::new(self.packed).read_to_end(&mut plain).expect("what gzip made");
        plain
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn walk(dir: &Path, root: &Path, out: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, root, out),
                false => out.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned()),
            }
        }
    }

    #[test]
    fn every_file_of_the_page_is_in_the_table_once_and_sorted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/page");
        let mut there = Vec::new();
        walk(&root, &root, &mut there);
        there.sort();
        let table: Vec<&str> = FILES.iter().map(|file| file.path).collect();
        assert_eq!(table, there, "src/http/assets.rs lists what is below src/http/page");
    }

    #[test]
    fn a_compressed_file_is_the_file_and_has_an_etag_of_its_own() {
        let (forms, file) = (Forms::default(), find("index.html").unwrap());
        let (plain, gzip) = (forms.get(file, false), forms.get(file, true));
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&gzip.bytes[..]).read_to_end(&mut text).unwrap();
        let page = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/page/index.html")).unwrap();
        assert!(text == page && plain.bytes == page && gzip.is_gzip && !plain.is_gzip);
        assert_ne!(plain.etag, gzip.etag);
        // Kept: the same bytes, not unpacked again.
        assert_eq!(forms.get(file, false).bytes.as_ptr(), plain.bytes.as_ptr());
    }

    /// What the page may take on the wire when it is opened for the first time.
    #[test]
    fn the_whole_page_takes_less_than_half_a_megabyte_on_the_wire() {
        let forms = Forms::default();
        let bytes: usize = FILES.iter().map(|file| forms.get(file, true).bytes.len()).sum();
        assert!(bytes < 500_000, "{bytes} bytes");
    }

    #[test]
    fn types_follow_the_ends_of_names() {
        let kinds = ["a/b.js", "x.CSS", "fonts/f.woff2", "LICENSE", "a.b/c"].map(content_type);
        let expected = [
            "text/javascript; charset=utf-8",
            "text/css; charset=utf-8",
            "font/woff2",
            "application/octet-stream",
            "application/octet-stream",
        ];
        assert_eq!(kinds, expected);
    }
}
