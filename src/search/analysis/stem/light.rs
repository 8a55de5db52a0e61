//! Light stemmers of western languages, of Jacques Savoy's work as Lucene has it: endings that the commonest forms
//! share.

use super::Word;

/// Takes accents off the vowels of Spanish and Italian.
fn plain_vowel(c: char) -> char {
    match c {
        'à' | 'á' | 'â' | 'ä' => 'a',
        'ò' | 'ó' | 'ô' | 'ö' => 'o',
        'è' | 'é' | 'ê' | 'ë' => 'e',
        'ù' | 'ú' | 'û' | 'ü' => 'u',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        _ => c,
    }
}

fn map(word: &mut Word, change: impl Fn(char) -> char) {
    for c in word.iter_mut() {
        *c = change(*c);
    }
}

/// German: `ae`, `oe`, `ue` and umlauts to plain vowels, `ß` to `ss`; `ue` stays behind a vowel and behind `q`.
pub fn german_normal(word: &mut Word) {
    #[derive(PartialEq)]
    enum State {
        Nothing,
        Vowel,
        Umlaut,
    }
    let mut state = State::Nothing;
    let mut out = Vec::with_capacity(word.len() + 1);
    for c in word.iter().copied() {
        state = match c {
            'a' | 'o' => State::Umlaut,
            'u' if state == State::Nothing => State::Umlaut,
            'e' if state == State::Umlaut => {
                state = State::Vowel;
                continue;
            }
            'u' | 'e' | 'i' | 'q' | 'y' | 'ä' | 'ö' | 'ü' => State::Vowel,
            _ => State::Nothing,
        };
        match c {
            'ä' => out.push('a'),
            'ö' => out.push('o'),
            'ü' => out.push('u'),
            'ß' => out.extend(['s', 's']),
            _ => out.push(c),
        }
    }
    **word = out;
}

/// German.
pub fn german(word: &mut Word) {
    map(word, |c| match c {
        'ä' | 'à' | 'á' | 'â' => 'a',
        'ö' | 'ò' | 'ó' | 'ô' => 'o',
        'ï' | 'ì' | 'í' | 'î' => 'i',
        'ü' | 'ù' | 'ú' | 'û' => 'u',
        _ => c,
    });
    let before_s = |c: char| matches!(c, 'b' | 'd' | 'f' | 'g' | 'h' | 'k' | 'l' | 'm' | 'n' | 't');
    let n = word.len();
    if n > 5 && word.ends("ern") {
        word.cut(3);
    } else if n > 4 && word.ending(&["em", "en", "er", "es"]).is_some() {
        word.cut(2);
    } else if n > 3 && (word.ends("e") || word.ends("s") && before_s(word.nth_last(2))) {
        word.cut(1);
    }
    let n = word.len();
    if n > 5 && word.ends("est") {
        word.cut(3);
    } else if n > 4 && (word.ends("er") || word.ends("en") || word.ends("st") && before_s(word.nth_last(3))) {
        word.cut(2);
    }
}

/// Spanish.
pub fn spanish(word: &mut Word) {
    if word.len() < 5 {
        return;
    }
    map(word, plain_vowel);
    match word.nth_last(1) {
        'o' | 'a' | 'e' => word.cut(1),
        's' if word.ends("eses") => word.cut(2),
        's' if word.ends("ces") => word.replace("ces", "z"),
        's' if matches!(word.nth_last(2), 'o' | 'a' | 'e') => word.cut(2),
        _ => {}
    }
}

/// Italian.
pub fn italian(word: &mut Word) {
    if word.len() < 6 {
        return;
    }
    map(word, plain_vowel);
    let before = word.nth_last(2);
    match word.nth_last(1) {
        'e' | 'i' => word.cut(if matches!(before, 'i' | 'h') { 2 } else { 1 }),
        'a' | 'o' => word.cut(if before == 'i' { 2 } else { 1 }),
        _ => {}
    }
}

/// Portuguese plurals and adverbs.
fn portuguese_suffix(word: &mut Word) {
    let n = word.len();
    if n > 4 && word.ends("es") && matches!(word.nth_last(3), 'r' | 's' | 'l' | 'z') {
        word.cut(2);
    } else if n > 3 && word.ends("ns") {
        word.replace("ns", "m");
    } else if n > 4 && (word.ends("eis") || word.ends("éis")) {
        word.replace("eis", "el");
    } else if n > 4 && word.ends("ais") {
        word.replace("ais", "al");
    } else if n > 4 && word.ends("óis") {
        word.replace("óis", "ol");
    } else if n > 4 && word.ends("is") {
        word.replace("is", "il");
    } else if n > 3 && (word.ends("ões") || word.ends("ães")) {
        word.replace("ões", "ão");
    } else if n > 6 && word.ends("mente") {
        word.cut(5);
    } else if n > 3 && word.ends("s") {
        word.cut(1);
    }
}

/// Portuguese feminine forms to masculine ones.
fn portuguese_feminine(word: &mut Word) {
    let n = word.len();
    if n > 7 && word.ending(&["inha", "iaca", "eira"]).is_some() {
        word.replace("a", "o");
        return;
    }
    if n <= 6 {
        return;
    }
    if word.ending(&["osa", "ica", "ida", "ada", "iva", "ama"]).is_some() {
        word.replace("a", "o");
    } else if word.ends("ona") {
        word.replace("ona", "ão");
    } else if word.ends("ora") {
        word.cut(1);
    } else if word.ends("esa") {
        word.replace("esa", "ês");
    } else if word.ends("na") {
        word.replace("a", "o");
    }
}

/// Portuguese.
pub fn portuguese(word: &mut Word) {
    if word.len() < 4 {
        return;
    }
    portuguese_suffix(word);
    if word.len() > 3 && word.ends("a") {
        portuguese_feminine(word);
    }
    if word.len() > 4 && matches!(word.nth_last(1), 'e' | 'a' | 'o') {
        word.cut(1);
    }
    map(word, |c| match c {
        'ã' => 'a',
        'õ' => 'o',
        'ç' => 'c',
        _ => plain_vowel(c),
    });
}

/// What a French rule does with the word behind it.
enum Next {
    /// On to the next rules.
    Go,
    /// Only the normal form is left to do.
    Stop,
}

/// A rule of French: longer than, ending, put in its place, what then.
type Rule = (usize, &'static str, &'static str, Next);

const FRENCH_TRICES: [Rule; 7] = [
    (11, "ficatrice", "fier", Next::Stop),
    (10, "ficateur", "fier", Next::Stop),
    (9, "catrice", "quer", Next::Stop),
    (8, "cateur", "quer", Next::Stop),
    (8, "atrice", "er", Next::Stop),
    (7, "ateur", "er", Next::Stop),
    (6, "trice", "teur", Next::Go),
];

const FRENCH_REST: [Rule; 10] = [
    (5, "ième", "", Next::Stop),
    (7, "teuse", "ter", Next::Stop),
    (6, "teur", "ter", Next::Stop),
    (5, "euse", "eu", Next::Stop),
    (8, "ère", "er", Next::Stop),
    (7, "ive", "if", Next::Stop),
    (4, "folle", "fou", Next::Stop),
    (4, "molle", "mou", Next::Stop),
    (9, "nnelle", "n", Next::Stop),
    (9, "nnel", "n", Next::Stop),
];

const FRENCH_LAST: [Rule; 8] = [
    (4, "ète", "et", Next::Go),
    (8, "ique", "", Next::Go),
    (8, "esse", "e", Next::Stop),
    (7, "inage", "in", Next::Stop),
    (9, "isation", "", Next::Stop),
    (9, "isateur", "", Next::Stop),
    (8, "ation", "", Next::Stop),
    (8, "ition", "", Next::Stop),
];

/// Runs rules in their order; whether one of them said to stop.
fn run(word: &mut Word, rules: &[Rule]) -> bool {
    for (longer, ending, by, next) in rules {
        if word.len() > *longer && word.ends(ending) {
            word.replace(ending, by);
            // What `-alisation` and `-ualisation` have in common with `-uel`.
            if *ending == "isation" && word.len() > 5 && word.ends("ual") {
                word.replace("ual", "uel");
            }
            if matches!(next, Next::Stop) {
                return true;
            }
        }
    }
    false
}

/// French.
pub fn french(word: &mut Word) {
    french_endings(word);
    french_normal(word);
}

fn french_endings(word: &mut Word) {
    if word.len() > 5 && word.ends("x") {
        if word.ends("aux") && word.nth_last(4) != 'e' {
            word.replace("aux", "alx");
        }
        word.cut(1);
    }
    if word.len() > 3 && word.ends("x") {
        word.cut(1);
    }
    if word.len() > 3 && word.ends("s") {
        word.cut(1);
    }
    if word.len() > 9 && word.ends("issement") {
        word.replace("issement", "ir");
        return;
    }
    if word.len() > 8 && word.ends("issant") {
        word.replace("issant", "ir");
        return;
    }
    if word.len() > 6 && word.ends("ement") {
        word.replace("ement", "e");
        if word.len() > 3 && word.ends("ive") {
            word.replace("ive", "if");
        }
        return;
    }
    if run(word, &FRENCH_TRICES) || run(word, &FRENCH_REST) {
        return;
    }
    run(word, &FRENCH_LAST);
}

/// French: accents off, no letter twice, last vowels off.
fn french_normal(word: &mut Word) {
    if word.len() <= 4 {
        return;
    }
    map(word, |c| match c {
        'à' | 'á' | 'â' => 'a',
        'ô' => 'o',
        'è' | 'é' | 'ê' => 'e',
        'ù' | 'û' => 'u',
        'î' => 'i',
        'ç' => 'c',
        _ => c,
    });
    word.dedup_by(|a, b| a == b && super::super::unicode::is_letter(*a));
    if word.len() > 4 && word.ends("ie") {
        word.cut(2);
    }
    if word.len() > 4 {
        if word.ends("r") {
            word.cut(1);
        }
        for _ in 0..2 {
            if word.ends("e") {
                word.cut(1);
            }
        }
        let last = word.nth_last(1);
        if last == word.nth_last(2) && super::super::unicode::is_letter(last) {
            word.cut(1);
        }
    }
}
