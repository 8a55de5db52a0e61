//! Marked fragments as the reference makes them.

use settee_search::analysis::{Analyzer, Spec};
use settee_search::highlight::fragments;
use settee_search::query::parse;
use settee_search::search::Highlight;

const DOG: &str = "The quick brown fox jumps over the lazy dog. The fox is quick.";
const HOUND: &str = "Nothing here <b>but</b> a Fox & a hound";
const COUNT: &str = "one two three four five six seven eight nine ten fox eleven twelve thirteen fourteen fifteen \
    sixteen seventeen eighteen fox nineteen twenty";

fn marked(query: &str, text: &str, size: usize, number: usize) -> Vec<String> {
    let spec = Spec::Named { name: "standard".to_owned(), stopwords: None };
    let analyzer = Analyzer::new(spec).expect("an analyzer");
    let query = parse(query, &analyzer).expect("a query");
    let how = Highlight { fields: Vec::new(), pre_tag: "[".to_owned(), post_tag: "]".to_owned(), number, size };
    fragments(&query, &analyzer, "default", text, &how)
}

#[test]
fn words_are_marked_and_html_is_left_as_it_is() {
    assert_eq!(marked("fox", DOG, 100, 1), ["The quick brown [fox] jumps over the lazy dog. The [fox] is quick."]);
    assert_eq!(marked("u:fox", HOUND, 100, 1), ["Nothing here <b>but</b> a [Fox] & a hound"]);
    assert_eq!(
        marked("fox", COUNT, 100, 1),
        ["one two three four five six seven eight nine ten [fox] eleven twelve thirteen fourteen fifteen"]
    );
    assert_eq!(marked("fox OR quick", "a quick note", 100, 1), ["a [quick] note"]);
    assert_eq!(marked("fox OR quick", "x", 100, 1), [""; 0]);
    assert_eq!(marked("*:*", DOG, 100, 1), [""; 0]);
    assert_eq!(marked("quick NOT fox", DOG, 100, 1).concat().matches('[').count(), 2);
}

#[test]
fn a_phrase_marks_only_its_own_words() {
    assert_eq!(
        marked("\"quick brown\"", DOG, 100, 1),
        ["The [quick] [brown] fox jumps over the lazy dog. The fox is quick."]
    );
    assert_eq!(marked("\"brown quick\"", DOG, 100, 1), [""; 0]);
    assert_eq!(
        marked("\"brown quick\"~2", DOG, 100, 1),
        ["The [quick] [brown] fox jumps over the lazy dog. The fox is quick."]
    );
}

#[test]
fn expanded_terms_mark_the_words_they_stand_for() {
    let all = "one two three [four] five six seven eight nine ten [fox] eleven twelve thirteen [fourteen] fifteen";
    assert_eq!(marked("fo*", COUNT, 100, 1), [all]);
    assert_eq!(marked("f?x", DOG, 100, 1).concat().matches("[fox]").count(), 2);
    assert_eq!(marked("/f.x/", DOG, 100, 1).concat().matches("[fox]").count(), 2);
    assert_eq!(marked("fxo~1", DOG, 100, 1).concat().matches("[fox]").count(), 2);
    assert_eq!(marked("[fo TO fp]", DOG, 100, 1).concat().matches("[fox]").count(), 2);
}

#[test]
fn fragments_are_cut_at_words_and_come_by_their_worth() {
    assert_eq!(marked("fox", DOG, 20, 2), ["The quick brown [fox]", " dog. The [fox]"]);
    assert_eq!(marked("fox", HOUND, 20, 2), ["Nothing here <b>but</b> a [Fox] & a hound"]);
    assert_eq!(marked("fox", COUNT, 20, 2), [" nine ten [fox] eleven", " [fox] nineteen twenty"]);
    assert_eq!(marked("fox", HOUND, 20, 1), [">but</b> a [Fox] & a hound"]);
    assert_eq!(marked("fox", COUNT, 20, 1), [" nine ten [fox] eleven"]);
}

#[test]
fn the_end_of_a_long_text_is_not_looked_at() {
    let text = format!("fox {} fox", "word ".repeat(20_000));
    let found = marked("fox", &text, 1_000_000, 1);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("[fox] word"));
    assert!(found[0].len() < 60_000, "{} bytes", found[0].len());
    assert_eq!(marked("fox", &text[4..], 100, 1), [""; 0]);
}
