//! Segments whose bytes are not what was written: each change is noticed, none panics or asks for much memory.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::{any, prop_assert, proptest};
use settee_search::analysis::{Analyzer, Spec};
use settee_search::document::{Document, Field, Options, Value};
use settee_search::search::{Answer, Limits, Request, SearchError, Sort, search};
use settee_search::segment::{Deleted, Part, Segment, SegmentError, build, merge};

fn analyzer() -> Analyzer {
    Analyzer::new(Spec::Named { name: "standard".into(), stopwords: None }).expect("a known analyzer")
}

fn segment() -> Bytes {
    let text = |number: u64| format!("w{} w{} common words of document {number}", number % 7, number % 31);
    let field = |name: &str, value: Value| Field {
        name: name.into(),
        value,
        options: Options { store: true, facet: true, ..Options::default() },
    };
    let documents: Vec<Document> = (0..300)
        .map(|number| Document {
            number: number * 3,
            id: format!("p{}:d{number}", number % 3),
            fields: vec![
                field("default", Value::Text(text(number))),
                field("n", Value::Number(number as f64 / 4.0)),
                field("kind", Value::Text(format!("k{}", number % 5))),
            ],
        })
        .collect();
    build(&documents, &analyzer())
}

fn requests() -> Vec<Request> {
    let by = |name: &str, is_text| Sort::Field { name: name.into(), is_text, reverse: false };
    let ask = |query: &str, sort: Vec<Sort>| Request {
        query: query.into(),
        limit: 300,
        sort,
        counts: Some(vec!["kind".into()]),
        partition: Some("p1".into()),
        ..Request::default()
    };
    vec![
        ask("*:*", Vec::new()),
        ask("w1 OR (common AND -w3)", vec![by("n", false)]),
        ask("\"w2 w2 common\"~3 w* n:[1 TO 20] /w.*/ w5~1", vec![by("kind", true)]),
    ]
}

/// All that one may do with a segment.
fn use_all(bytes: Bytes) -> Result<Vec<Answer>, SearchError> {
    let segment = Segment::open(Arc::new(bytes)).map_err(SearchError::Segment)?;
    let parts = [Part { segment, deleted: Arc::new(Deleted::default()) }];
    let ask = |request: &Request| search(&parts, &analyzer(), request, &Limits::default(), &mut || true);
    let answers: Result<Vec<Answer>, SearchError> = requests().iter().map(ask).collect();
    merge(&parts).map_err(SearchError::Segment)?;
    answers
}

fn is_damage(error: &SearchError) -> bool {
    matches!(error, SearchError::Segment(SegmentError::Damaged(_)))
}

proptest! {
    #[test]
    fn a_changed_byte_is_damage(place in any::<u32>(), change in 1..=255u8) {
        let mut bytes = segment().to_vec();
        let place = place as usize % bytes.len();
        bytes[place] ^= change;
        prop_assert!(use_all(Bytes::from(bytes)).is_err_and(|error| is_damage(&error)), "byte {} changed", place);
    }

    #[test]
    fn a_cut_or_longer_segment_is_damage(length in any::<u32>(), more in 1..9000usize) {
        let whole = segment();
        let cut = whole.slice(..length as usize % whole.len());
        prop_assert!(use_all(cut).is_err_and(|error| is_damage(&error)));
        let mut longer = whole.to_vec();
        longer.resize(whole.len() + more, 0);
        prop_assert!(use_all(Bytes::from(longer)).is_err_and(|error| is_damage(&error)));
    }

    #[test]
    fn any_bytes_are_no_segment(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(use_all(Bytes::from(bytes)).is_err_and(|error| is_damage(&error)));
    }

    #[test]
    fn deleted_documents_come_back_or_are_damage(
        numbers in proptest::collection::vec(any::<u64>(), 0..40),
        place in any::<usize>(),
        change in 1..=255u8,
    ) {
        let mut deleted = Deleted::default();
        for number in numbers {
            deleted.insert(number);
        }
        let mut bytes = deleted.to_bytes();
        prop_assert!(Deleted::parse(&bytes) == Ok(deleted));
        let place = place % bytes.len();
        bytes[place] ^= change;
        prop_assert!(Deleted::parse(&bytes).is_err());
    }
}

#[test]
fn a_changed_bit_at_the_ends_of_blocks_is_damage() {
    let whole = segment();
    let places: Vec<usize> = (1..=whole.len() / 4096).map(|block| block * 4096 - 1).collect();
    assert!(!places.is_empty());
    for place in places.into_iter().chain(whole.len() - 60..whole.len()) {
        let mut bytes = whole.to_vec();
        bytes[place] ^= 0x80;
        assert!(use_all(Bytes::from(bytes)).is_err_and(|error| is_damage(&error)), "byte {place} changed");
    }
}

#[test]
fn an_undamaged_segment_answers() {
    let answers = use_all(segment()).expect("answers");
    assert_eq!(answers.iter().map(|answer| answer.total).collect::<Vec<_>>()[0], 100);
    assert_eq!(build(&[], &analyzer()), build(&[], &analyzer()));
    assert_eq!(use_all(build(&[], &analyzer())).expect("answers of no documents").len(), 3);
}
