//! Tokens of the analyzers against what was recorded from Lucene 4.10, and what holds for any text.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::Value;
use settee_search::analysis::{Analyzer, Spec};

/// The reference's table of Polish stems (Stempel, 2 MB, learned) is not here: words keep their endings.
const NO_TABLE: &str = "no table of Polish stems";
/// The reference's own dictionary cuts elsewhere than that of ICU.
const OTHER_DICTIONARY: &str = "another dictionary";
/// The reference's Japanese dictionary knows parts of speech and base forms too.
const NO_BASE_FORMS: &str = "a dictionary without base forms";

/// Samples that are known to differ: analyzer, how the text begins, why.
const DIFFER: &[(&str, &str, &str)] = &[
    ("chinese", "他昨天买了两本新", OTHER_DICTIONARY),
    ("chinese", "东京都是日本的首", OTHER_DICTIONARY),
    ("chinese", "我是中国人", OTHER_DICTIONARY),
    ("chinese", "今天的天气很好，", OTHER_DICTIONARY),
    ("chinese", "他有12本书和3", OTHER_DICTIONARY),
    ("chinese", "计算机软件工程师", OTHER_DICTIONARY),
    ("chinese", "日本語 中文 한", OTHER_DICTIONARY),
    ("japanese", "私は学校に行きま", NO_BASE_FORMS),
    ("japanese", "関西国際空港に着", NO_BASE_FORMS),
    ("japanese", "東京都に住んでい", NO_BASE_FORMS),
    ("japanese", "昨日の夜に友達と", NO_BASE_FORMS),
    ("japanese", "寿司が食べたい。", NO_BASE_FORMS),
    ("japanese", "日本語 中文 한", NO_BASE_FORMS),
    ("polish", "Dzieci p", NO_TABLE),
    ("polish", "książka,", NO_TABLE),
    ("polish", "To jest ", NO_TABLE),
    ("polish", "Samochod", NO_TABLE),
    ("polish", "Nauczyci", NO_TABLE),
    ("polish", "WARSZAWA", NO_TABLE),
    ("polish", "The quic", NO_TABLE),
    ("polish", "McDonald", NO_TABLE),
    ("polish", "Contact ", NO_TABLE),
    ("polish", "See http", NO_TABLE),
    ("polish", "3.14 1,0", NO_TABLE),
    ("polish", "Café naï", NO_TABLE),
    ("polish", "I ❤️ 🍣 a", NO_TABLE),
    ("thai", "หนังสือใ", OTHER_DICTIONARY),
    ("thai", "เมืองนี้", OTHER_DICTIONARY),
    ("thai", "กรุงเทพเ", OTHER_DICTIONARY),
];

/// The specification that a design document's value names; a name that is missing is none that exists.
fn spec(value: &Value) -> Spec {
    if let Some(name) = value.as_str() {
        return Spec::Named { name: name.to_owned(), stopwords: None };
    }
    let name = value["name"].as_str().unwrap_or("").to_owned();
    if name != "perfield" {
        let words = |list: &Vec<Value>| list.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect();
        return Spec::Named { name, stopwords: value["stopwords"].as_array().map(words) };
    }
    let default = value.get("default").map_or_else(|| spec(&Value::from("standard")), spec);
    let fields = value["fields"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), spec(v))).collect();
    Spec::PerField { default: Box::new(default), fields }
}

#[test]
fn tokens_are_those_that_were_recorded() {
    let data: Value = serde_json::from_str(include_str!("data/analyzers.json")).expect("data");
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for sample in data["samples"].as_array().expect("samples") {
        let name = sample[0].as_str().map_or_else(|| sample[0].to_string(), str::to_owned);
        let text = sample[1].as_str().expect("text");
        let expected: Vec<&str> = sample[2].as_array().expect("tokens").iter().filter_map(Value::as_str).collect();
        let positions: Vec<u64> = match sample[3].as_array() {
            Some(list) => list.iter().filter_map(Value::as_u64).collect(),
            None => (0..expected.len() as u64).collect(),
        };
        let found = Analyzer::new(spec(&sample[0])).map(|a| a.tokens("default", text)).unwrap_or_default();
        let texts: Vec<&str> = found.iter().map(|t| t.text.as_str()).collect();
        let places: Vec<u64> = found.iter().map(|t| u64::from(t.position)).collect();
        let is_same = texts == expected && places == positions;
        let is_known = DIFFER.iter().any(|(a, t, _)| *a == name && text.starts_with(t));
        let count = counts.entry(name.clone()).or_default();
        count.0 += usize::from(is_same);
        count.1 += 1;
        if is_same == is_known {
            wrong.push(format!("{name}: {text:?}\n  was {expected:?} {positions:?}\n  is  {texts:?} {places:?}"));
        }
    }
    let summary: Vec<String> = counts.iter().map(|(name, (same, all))| format!("{name} {same}/{all}")).collect();
    println!("{}", summary.join("\n"));
    assert!(wrong.is_empty(), "{} samples:\n{}", wrong.len(), wrong.join("\n"));
}

/// All names of analyzers.
const NAMES: &[&str] = &[
    "standard",
    "keyword",
    "simple",
    "whitespace",
    "simple_asciifolding",
    "classic",
    "email",
    "arabic",
    "armenian",
    "basque",
    "brazilian",
    "bulgarian",
    "catalan",
    "chinese",
    "cjk",
    "czech",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "galician",
    "german",
    "greek",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "japanese",
    "latvian",
    "norwegian",
    "persian",
    "polish",
    "portuguese",
    "romanian",
    "russian",
    "spanish",
    "swedish",
    "thai",
    "turkish",
];

fn analyzer(name: &str) -> Analyzer {
    Analyzer::new(Spec::Named { name: name.to_owned(), stopwords: None }).expect("an analyzer")
}

static ALL: LazyLock<Vec<(&str, Analyzer)>> =
    LazyLock::new(|| NAMES.iter().map(|name| (*name, analyzer(name))).collect());

/// Tokens lie on characters of the text and ascend.
fn check(name: &str, analyzer: &Analyzer, text: &str) {
    let mut last = (0, 0);
    analyzer.for_each_token("f", text, &mut |token| {
        assert!(token.start <= token.end && token.end <= text.len(), "{name}: {token:?}");
        assert!(text.is_char_boundary(token.start) && text.is_char_boundary(token.end), "{name}: {token:?}");
        assert!((token.position, token.start) >= last, "{name}: {token:?} behind {last:?}");
        last = (token.position, token.start);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_has_tokens_in_their_order(text in "\\PC{0,60}") {
        for (name, analyzer) in ALL.iter() {
            check(name, analyzer, &text);
        }
    }

    #[test]
    fn text_of_awkward_characters_has_tokens_in_their_order(
        text in "[aeIİısxyzß'’.,:;@/_&#%\\-\"\\[\\]0-9\u{301}\u{307}\u{200c}\u{200d}αςΰ日本あカーｶﾞ한กเ้कि्ʻ👍 \n\\\\]{0,40}"
    ) {
        for (name, analyzer) in ALL.iter() {
            check(name, analyzer, &text);
        }
    }

    #[test]
    fn words_of_endings_are_stemmed_without_a_panic(
        parts in proptest::collection::vec(prop_oneof![
            Just("iss"), Just("ement"), Just("ation"), Just("al"), Just("y"), Just("ies"), Just("ando"), Just("mente"),
            Just("ες"), Just("ουσα"), Just("αγαμε"), Just("овци"), Just("ия"), Just("meng"), Just("kan"), Just("ium"),
            Just("ların"), Just("ий"), Just("ekben"), Just("ssa"), Just("ال"), Just("ون"), Just("ों"), Just("ाएंगी"),
            Just("ķš"), Just("us"), Just("dh'"), Just("h"), Just("ené"), Just("čt"), Just("ů"),
        ], 0..6)
    ) {
        let word = parts.concat();
        for (name, analyzer) in ALL.iter() {
            check(name, analyzer, &word);
        }
    }
}

#[test]
fn unknown_names_are_errors_on_top_and_the_default_below() {
    let missing = Spec::Named { name: "Standard".to_owned(), stopwords: None };
    assert!(Analyzer::new(missing.clone()).is_err());
    let keyword = Spec::Named { name: "keyword".to_owned(), stopwords: None };
    let fields = BTreeMap::from([("a".to_owned(), missing.clone())]);
    let both = Analyzer::new(Spec::PerField { default: Box::new(keyword), fields: fields.clone() }).expect("analyzer");
    assert!(both.is_keyword("a") && both.is_keyword("b"));
    let none = Analyzer::new(Spec::PerField { default: Box::new(missing), fields }).expect("analyzer");
    assert!(!none.is_keyword("a"));
    assert_eq!(none.tokens("a", "The Fox")[0].text, "fox");
}

#[test]
fn places_are_those_of_the_text_as_it_was_written() {
    let text = "L’avion, ＡＢ 東京 ﾊﾞ";
    let places = |name: &str| -> Vec<&str> {
        analyzer(name).tokens("f", text).iter().map(|token| &text[token.start..token.end]).collect()
    };
    assert_eq!(places("french"), ["L’avion", "ＡＢ", "東", "京", "ﾊﾞ"]);
    assert_eq!(places("cjk"), ["L’avion", "ＡＢ", "東京", "ﾊﾞ"]);
}

#[test]
fn long_tokens_are_dropped_or_cut() {
    let text = format!("a {} b", "x".repeat(300));
    let found = |name: &str| -> Vec<(usize, u32)> {
        analyzer(name).tokens("f", &text).iter().map(|token| (token.text.len(), token.position)).collect()
    };
    assert_eq!(found("spanish"), [(1, 2)]);
    assert_eq!(found("german"), [(1, 0), (1, 2)]);
    assert_eq!(found("whitespace"), [(1, 0), (255, 1), (45, 2), (1, 3)]);
    assert_eq!(found("keyword"), [(304, 0)]);
}

/// Time for texts of one awkward kind must grow with their length: the reference time is that of plain words.
#[test]
fn long_texts_take_time_by_their_length() {
    const LENGTH: usize = 1 << 18;
    let kinds = [
        "word ",
        "a-",
        "a.",
        "_",
        "-",
        "@",
        "a@",
        "1,",
        "a'",
        "http://",
        "[",
        "\"",
        "x",
        "a--",
        "\"a",
        "[a:",
        "http://a,",
        "a@b.",
        "www.a",
        "a.b@c.d-",
        "ا",
        "ไ",
        "日",
        "あ",
        "a_1-",
    ];
    for name in ["standard", "classic", "email", "cjk", "chinese", "japanese", "thai", "english", "turkish"] {
        let analyzer = analyzer(name);
        for kind in kinds {
            let text = kind.repeat(LENGTH / kind.len());
            let begun = Instant::now();
            let mut count = 0u64;
            analyzer.for_each_token("f", &text, &mut |_| count += 1);
            let spent = begun.elapsed();
            assert!(
                spent < Duration::from_secs(120),
                "{name}: {LENGTH} bytes of {kind:?}: {count} tokens in {spent:?}"
            );
            if spent > Duration::from_millis(300) {
                println!("{name}: {kind:?}: {count} tokens in {spent:?}");
            }
        }
    }
}
