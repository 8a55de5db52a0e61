//! The segmenter that knows Chinese, Japanese and Thai words.
//!
//! Its dictionaries are compressed in the program (`build.rs`) and unpacked when they are used for the first time: 2.1
//! MB of memory. Those of Burmese, Khmer and Lao, which ICU has as well, are left out: no analyzer is for them.

use std::io::Read as _;
use std::sync::LazyLock;

use flate2::read::ZlibDecoder;
use icu_collections::char16trie::Char16Trie;
use icu_collections::codepointinvlist::CodePointInversionList;
use icu_provider::{
    DataError, DataErrorKind, DataMarker, DataPayload, DataProvider, DataRequest, DataResponse, DataResponseMetadata,
};
use icu_segmenter::options::WordBreakOptions;
use icu_segmenter::provider::{
    Baked, DictionaryBreakData, SegmenterBreakGraphemeClusterV1, SegmenterBreakWordOverrideV1, SegmenterBreakWordV1,
    SegmenterDictionaryAutoV2, SegmenterDictionaryExtendedV2,
};
use icu_segmenter::{WordSegmenter, WordSegmenterBorrowed};
use zerotrie::ZeroTrieSimpleAscii;
use zerovec::ZeroVec;

/// Gives what the segmenter asks for.
struct Packed;

macro_rules! compiled_in {
    ($($marker:ty),*) => {$(
        impl DataProvider<$marker> for Packed {
            fn load(&self, request: DataRequest) -> Result<DataResponse<$marker>, DataError> {
                Baked.load(request)
            }
        }
    )*};
}

compiled_in!(SegmenterBreakGraphemeClusterV1, SegmenterBreakWordOverrideV1, SegmenterBreakWordV1);

macro_rules! unpacked {
    ($($marker:ty: $name:literal by $unpack:ident),*) => {$(
        impl DataProvider<$marker> for Packed {
            fn load(&self, request: DataRequest) -> Result<DataResponse<$marker>, DataError> {
                if request.id.marker_attributes.as_str() != $name {
                    return Err(DataErrorKind::IdentifierNotFound.with_req(<$marker as DataMarker>::INFO, request));
                }
                let payload = DataPayload::from_owned($unpack().ok_or(DataError::custom("a dictionary is damaged"))?);
                Ok(DataResponse { metadata: DataResponseMetadata::default(), payload })
            }
        }
    )*};
}

unpacked!(
    SegmenterDictionaryAutoV2: "cjdict" by chinese_japanese,
    SegmenterDictionaryExtendedV2: "thaidict" by thai
);

fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(packed).read_to_end(&mut bytes).ok().map(|_| bytes)
}

fn chinese_japanese() -> Option<DictionaryBreakData<'static>> {
    let bytes = unpack(include_bytes!(concat!(env!("OUT_DIR"), "/chinese_japanese.z")))?;
    Some(DictionaryBreakData::Char16Trie(Char16Trie::new(ZeroVec::parse_bytes(&bytes).ok()?.into_owned())))
}

fn thai() -> Option<DictionaryBreakData<'static>> {
    let bytes = unpack(include_bytes!(concat!(env!("OUT_DIR"), "/thai.z")))?;
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let (bounds, words) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*count)).ok()?.checked_mul(4)?)?;
    let bounds: Vec<u32> = bounds.as_chunks::<4>().0.iter().map(|bound| u32::from_le_bytes(*bound)).collect();
    Some(DictionaryBreakData::ZeroTrie {
        alphabet: CodePointInversionList::try_from_u32_inversion_list_slice(&bounds).ok()?,
        trie: ZeroTrieSimpleAscii::from_store(ZeroVec::new_owned(words.to_vec())),
    })
}

/// The segmenter.
pub(super) fn segmenter() -> WordSegmenterBorrowed<'static> {
    static DATA: LazyLock<WordSegmenter> = LazyLock::new(|| {
        // Invariant: its data is compiled in.
        WordSegmenter::try_new_dictionary_unstable(&Packed, WordBreakOptions::default()).expect("dictionaries of words")
    });
    DATA.as_borrowed()
}

#[cfg(test)]
mod tests {
    use icu_provider::{DataIdentifierBorrowed, DataMarkerAttributes};

    use super::*;

    fn compiled<M: DataMarker>(name: &str) -> DataPayload<M>
    where
        Baked: DataProvider<M>,
    {
        let id = DataIdentifierBorrowed::for_marker_attributes(DataMarkerAttributes::try_from_str(name).unwrap());
        Baked.load(DataRequest { id, ..DataRequest::default() }).unwrap().payload
    }

    #[test]
    fn unpacked_dictionaries_are_those_of_icu() {
        assert!(Some(compiled::<SegmenterDictionaryAutoV2>("cjdict").get()) == chinese_japanese().as_ref());
        assert!(Some(compiled::<SegmenterDictionaryExtendedV2>("thaidict").get()) == thai().as_ref());
    }

    #[test]
    fn words_of_a_language_without_an_analyzer_are_not_cut() {
        let cut = |text: &str| segmenter().segment_str(text).collect::<Vec<_>>();
        let (thai, lao) = ("ทุกสองสัปดาห์", "ພາສາລາວ");
        assert_eq!(cut(thai), [0, 9, 18, 39]);
        assert_eq!(cut(&format!("{thai}{lao}")), [0, 9, 18, 39, 39 + lao.len()]);
    }
}
