//! English: M. F. Porter's algorithm of 1980, with the two later rules (`bli`, `logi`) of his own program.

use super::Word;

/// Step 2: long endings, the first that fits.
const STEP2: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];

const STEP3: [(&str, &str); 7] =
    [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];

const STEP4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
];

/// Whether the letter at `at` is a consonant; `y` is one at the beginning and behind a vowel.
fn is_consonant(word: &[char], at: usize) -> bool {
    match word[at] {
        'a' | 'e' | 'i' | 'o' | 'u' => false,
        'y' => {
            // Runs of `y` take turns.
            let run = word[..at].iter().rev().take_while(|c| **c == 'y').count();
            let before = match (at - run).checked_sub(1) {
                None => false,
                Some(before) => !matches!(word[before], 'a' | 'e' | 'i' | 'o' | 'u'),
            };
            before == (run % 2 == 1)
        }
        _ => true,
    }
}

/// How often consonants follow vowels.
fn measure(stem: &[char]) -> usize {
    let mut count = 0;
    let mut was_vowel = false;
    let mut was_consonant = false;
    for (at, c) in stem.iter().enumerate() {
        let consonant = match c {
            'a' | 'e' | 'i' | 'o' | 'u' => false,
            'y' => at == 0 || !was_consonant,
            _ => true,
        };
        count += usize::from(consonant && was_vowel);
        was_vowel = !consonant;
        was_consonant = consonant;
    }
    count
}

fn has_vowel(stem: &[char]) -> bool {
    (0..stem.len()).any(|at| !is_consonant(stem, at))
}

fn is_doubled(word: &[char]) -> bool {
    let n = word.len();
    n >= 2 && word[n - 1] == word[n - 2] && is_consonant(word, n - 1)
}

/// Consonant, vowel, consonant, the last none of w, x, y.
fn is_short(word: &[char]) -> bool {
    let n = word.len();
    n >= 3
        && is_consonant(word, n - 1)
        && !is_consonant(word, n - 2)
        && is_consonant(word, n - 3)
        && !matches!(word[n - 1], 'w' | 'x' | 'y')
}

fn plurals_and_participles(word: &mut Word) {
    if word.ends("sses") || word.ends("ies") {
        word.cut(2);
    } else if word.ends("s") && !word.ends("ss") {
        word.cut(1);
    }
    if word.ends("eed") {
        if measure(word.before("eed")) > 0 {
            word.cut(1);
        }
        return;
    }
    let Some(ending) = ["ed", "ing"].into_iter().find(|e| word.ends(e)) else { return };
    if !has_vowel(word.before(ending)) {
        return;
    }
    word.cut(ending.len());
    if word.ends("at") || word.ends("bl") || word.ends("iz") {
        word.push('e');
    } else if is_doubled(word) {
        if !matches!(word.last(), Some('l' | 's' | 'z')) {
            word.cut(1);
        }
    } else if measure(word) == 1 && is_short(word) {
        word.push('e');
    }
}

/// Replaces the first ending of the list that the word has, if what is before it has a measure.
fn replace(word: &mut Word, endings: &[(&str, &str)]) {
    let Some((ending, by)) = endings.iter().find(|(ending, _)| word.ends(ending)) else { return };
    if measure(word.before(ending)) > 0 {
        word.replace(ending, by);
    }
}

fn bare_endings(word: &mut Word) {
    let fits = |e: &&str| word.ends(e) && (*e != "ion" || matches!(word.before(e).last(), Some('s' | 't')));
    let Some(ending) = STEP4.into_iter().find(fits) else { return };
    if measure(word.before(ending)) > 1 {
        word.cut(ending.len());
    }
}

/// Stems a lower-case word.
pub fn stem(word: &mut Word) {
    if word.len() <= 2 {
        return;
    }
    plurals_and_participles(word);
    if word.ends("y") && has_vowel(word.before("y")) {
        word.replace("y", "i");
    }
    if word.len() > 1 {
        replace(word, &STEP2);
    }
    replace(word, &STEP3);
    if word.len() > 1 {
        bare_endings(word);
    }
    if word.ends("e") {
        // The measure is that of the whole word, of which a final vowel makes no difference.
        let m = measure(word);
        if m > 1 || m == 1 && !is_short(word.before("e")) {
            word.cut(1);
        }
    }
    if word.ends("l") && is_doubled(word) && measure(word) > 1 {
        word.cut(1);
    }
}
