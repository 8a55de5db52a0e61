//! Intervals against an evaluation that tries all choices, on random texts and functions.

use proptest::prelude::{Just, Strategy, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;

use super::*;

/// Words of texts and functions.
const WORDS: usize = 4;

fn found(source: &Source<usize>, text: &[usize]) -> Vec<(i64, i64)> {
    let positions: Vec<Vec<u32>> =
        (0..WORDS).map(|word| (0..text.len()).filter(|at| text[*at] == word).map(|at| at as u32).collect()).collect();
    let list = of(source, &|word| &positions[word][..], &mut || Ok(())).unwrap();
    list.iter().map(|one| (one.start, one.end)).collect()
}

/// All that are given but those within which another is, in order.
fn least(mut all: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    all.sort_unstable();
    all.dedup();
    let is_least = |one: &(i64, i64)| !all.iter().any(|other| other != one && other.0 >= one.0 && other.1 <= one.1);
    all.iter().filter(|one| is_least(one)).copied().collect()
}

/// Every choice of one of each list.
fn choices(lists: &[Vec<(i64, i64)>]) -> Vec<Vec<(i64, i64)>> {
    lists.iter().fold(vec![Vec::new()], |all, list| {
        let with = |some: &Vec<(i64, i64)>| list.iter().map(|one| [&some[..], &[*one]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(with).collect()
    })
}

fn span(some: &[(i64, i64)]) -> (i64, i64) {
    (some.iter().map(|one| one.0).min().unwrap(), some.iter().map(|one| one.1).max().unwrap())
}

fn naive(source: &Source<usize>, text: &[usize]) -> Vec<(i64, i64)> {
    let all = |sources: &[Source<usize>]| sources.iter().map(|one| naive(one, text)).collect::<Vec<_>>();
    let chains = |sources: &[Source<usize>], fits: fn(i64, i64) -> bool| {
        let chains = choices(&all(sources)).into_iter();
        let is_chain = |some: &Vec<(i64, i64)>| some.windows(2).all(|two| fits(two[0].1, two[1].0));
        least(chains.filter(is_chain).map(|some| span(&some)).collect())
    };
    match source {
        Source::Nothing => Vec::new(),
        Source::Word(word) => {
            (0..text.len()).filter(|at| text[*at] == *word).map(|at| (at as i64, at as i64)).collect()
        }
        Source::Or(sources) => least(all(sources).concat()),
        Source::Phrase(sources) => chains(sources, |end, start| start == end + 1),
        Source::Ordered(sources) => chains(sources, |end, start| start > end),
        Source::AtLeast { minimum, sources } => {
            let lists = all(sources);
            let mut spans = Vec::new();
            for mask in 0..1_usize << lists.len() {
                if mask.count_ones() as usize == *minimum {
                    let some: Vec<Vec<(i64, i64)>> =
                        (0..lists.len()).filter(|at| mask >> at & 1 == 1).map(|at| lists[at].clone()).collect();
                    spans.extend(choices(&some).iter().map(|some| span(some)));
                }
            }
            least(spans)
        }
        Source::Repeated { source, times } => naive(source, text).windows(*times).map(span).collect(),
        // Here of words only, so that the gaps are what words leave free.
        Source::MaxGaps(most, source) => {
            let words = source.extent();
            naive(source, text).into_iter().filter(|one| one.1 - one.0 + 1 - words <= *most).collect()
        }
        Source::MaxWidth(most, source) => naive(source, text).into_iter().filter(|one| one.1 - one.0 < *most).collect(),
        Source::Extended { source, before, after } => {
            naive(source, text).into_iter().map(|one| ((one.0 - before).max(0), one.1 + after)).collect()
        }
        Source::Related { source, relation, reference } => {
            let reference = naive(reference, text);
            let any = |test: &dyn Fn(&(i64, i64)) -> bool| reference.iter().any(test);
            let stands = |one: &(i64, i64)| match relation {
                Relation::Containing => any(&|other| other.0 >= one.0 && other.1 <= one.1),
                Relation::NotContaining => !any(&|other| other.0 >= one.0 && other.1 <= one.1),
                Relation::ContainedBy => any(&|other| other.0 <= one.0 && other.1 >= one.1),
                Relation::NotContainedBy => !any(&|other| other.0 <= one.0 && other.1 >= one.1),
                Relation::Overlapping => any(&|other| other.0 <= one.1 && other.1 >= one.0),
                Relation::NonOverlapping => !any(&|other| other.0 <= one.1 && other.1 >= one.0),
                Relation::Before => any(&|other| other.0 > one.1),
                Relation::After => any(&|other| other.1 < one.0),
            };
            naive(source, text).into_iter().filter(|one| stands(one)).collect()
        }
    }
}

fn relations() -> impl Strategy<Value = Relation> {
    select(vec![
        Relation::Containing,
        Relation::NotContaining,
        Relation::ContainedBy,
        Relation::NotContainedBy,
        Relation::Overlapping,
        Relation::NonOverlapping,
        Relation::Before,
        Relation::After,
    ])
}

fn sources() -> impl Strategy<Value = Source<usize>> {
    let word = || (0..WORDS).prop_map(Source::Word);
    let words = || proptest::collection::vec(word(), 2..4);
    let gaps = (0_i64..3, words(), proptest::bool::ANY).prop_map(|(most, sources, in_order)| {
        let whole = Source::AtLeast { minimum: sources.len(), sources: sources.clone() };
        // Equal words share a position where order does not count.
        let is_plain = in_order || (1..sources.len()).all(|at| !sources[..at].contains(&sources[at]));
        Source::MaxGaps(most, Box::new(if in_order || !is_plain { Source::Ordered(sources) } else { whole }))
    });
    let leaf = prop_oneof![6 => word(), 1 => Just(Source::Nothing), 2 => gaps];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let some = || proptest::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            some().prop_map(Source::Or),
            some().prop_map(Source::Phrase),
            some().prop_map(Source::Ordered),
            (some(), 1_usize..4)
                .prop_map(|(sources, minimum)| { Source::AtLeast { minimum: minimum.min(sources.len()), sources } }),
            (inner.clone(), 2_usize..4)
                .prop_map(|(source, times)| Source::Repeated { source: Box::new(source), times }),
            (inner.clone(), 1_i64..6).prop_map(|(source, most)| Source::MaxWidth(most, Box::new(source))),
            (inner.clone(), 0_i64..3, 0_i64..3)
                .prop_map(|(source, before, after)| { Source::Extended { source: Box::new(source), before, after } }),
            (inner.clone(), relations(), inner.clone()).prop_map(|(source, relation, reference)| {
                Source::Related { source: Box::new(source), relation, reference: Box::new(reference) }
            }),
        ]
    })
}

/// Sources whose alternatives are of different lengths, and all that each of them may be.
fn alternatives() -> impl Strategy<Value = Vec<Vec<usize>>> {
    proptest::collection::vec(proptest::collection::vec(0..WORDS, 1..4), 1..4)
}

proptest! {
    #[test]
    fn intervals_are_those_of_an_evaluation_of_all_choices(
        source in sources(),
        text in proptest::collection::vec(0..WORDS, 0..9),
    ) {
        prop_assert_eq!(found(&source, &text), naive(&source, &text), "{:?}", source);
    }

    #[test]
    fn a_phrase_of_alternatives_is_any_of_the_phrases_that_it_may_be(
        parts in proptest::collection::vec(alternatives(), 1..4),
        text in proptest::collection::vec(0..WORDS, 0..12),
    ) {
        let word = |list: &Vec<usize>| Source::phrase(list.iter().copied().map(Source::Word).collect()).unwrap();
        let source = Source::phrase(parts.iter().map(|some| Source::or(some.iter().map(word).collect())).collect());
        let mut spans = Vec::new();
        for choice in parts.iter().fold(vec![Vec::new()], |all, some| {
            let with = |before: &Vec<usize>| some.iter().map(|one| [&before[..], one].concat()).collect::<Vec<_>>();
            all.iter().flat_map(with).collect::<Vec<_>>()
        }) {
            let starts = (0..text.len()).filter(|at| text[*at..].starts_with(&choice));
            spans.extend(starts.map(|at| (at as i64, (at + choice.len()) as i64 - 1)));
        }
        prop_assert_eq!(found(&source.unwrap(), &text), least(spans));
    }
}

#[test]
fn the_narrowest_of_intervals_that_end_together_is_taken() {
    let (apple, wolf, orange, banana) = (0, 1, 2, 3);
    let text = [apple, wolf, apple, orange, banana];
    let words = |list: &[usize]| list.iter().copied().map(Source::Word).collect::<Vec<_>>();
    assert_eq!(found(&Source::unordered(words(&[apple, banana])), &text), [(2, 4)]);
    assert_eq!(found(&Source::unordered(words(&[apple, apple])), &text), [(0, 2)]);
    assert_eq!(found(&Source::at_least(2, words(&[wolf, orange, banana])), &text), [(1, 3), (3, 4)]);
}
