//! Writes the dictionaries of words that `analysis/segmenter.rs` unpacks, compressed: 1.6 MB of the program and not 3.0.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use icu_provider::{DataIdentifierBorrowed, DataMarker, DataMarkerAttributes, DataPayload, DataProvider, DataRequest};
use icu_segmenter::provider::{Baked, DictionaryBreakData, SegmenterDictionaryAutoV2, SegmenterDictionaryExtendedV2};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let words: DataPayload<SegmenterDictionaryAutoV2> = dictionary("cjdict");
    let DictionaryBreakData::Char16Trie(trie) = words.get() else { panic!("another form of dictionary") };
    write("chinese_japanese.z", &[trie.data.as_bytes()]);

    let words: DataPayload<SegmenterDictionaryExtendedV2> = dictionary("thaidict");
    let DictionaryBreakData::ZeroTrie { alphabet, trie } = words.get() else { panic!("another form of dictionary") };
    // The bounds of the ranges of letters, and how many there are, stand before the words.
    let bounds: Vec<u32> = alphabet.iter_ranges().flat_map(|range| [*range.start(), *range.end() + 1]).collect();
    let bytes: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
    let count = u32::try_from(bounds.len()).expect("a few").to_le_bytes();
    write("thai.z", &[&count, &bytes, trie.as_bytes()]);
}

fn dictionary<M: DataMarker>(name: &str) -> DataPayload<M>
where
    Baked: DataProvider<M>,
{
    let id = DataIdentifierBorrowed::for_marker_attributes(DataMarkerAttributes::try_from_str(name).expect("a name"));
    Baked.load(DataRequest { id, ..DataRequest::default() }).expect("compiled in").payload
}

fn write(name: &str, parts: &[&[u8]]) {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    for part in parts {
        encoder.write_all(part).expect("to memory");
    }
    let folder = std::env::var_os("OUT_DIR").expect("set by cargo");
    std::fs::write(Path::new(&folder).join(name), encoder.finish().expect("to memory")).expect("written");
}
