//! Brazilian Portuguese, as Lucene has it: endings that count only in certain regions of the word, which are those of
//! the word before anything was taken off.

use super::super::unicode::is_letter;
use super::Word;

/// Endings of nouns that stand in the second region, and what is put in their place. The first that fits; `amente`
/// counts in the first region already.
const NOUNS: &[(&str, &str)] = &[
    ("uciones", "u"),
    ("imentos", ""),
    ("amentos", ""),
    ("adores", ""),
    ("adoras", ""),
    // The reference forgets to keep the change of this one.
    ("logias", "logias"),
    ("encias", "ente"),
    ("amente", ""),
    ("idades", ""),
    ("acoes", ""),
    ("imento", ""),
    ("amento", ""),
    ("adora", ""),
    ("ismos", ""),
    ("istas", ""),
    ("logia", "log"),
    ("ucion", "u"),
    ("encia", "ente"),
    ("mente", ""),
    ("idade", ""),
    ("acao", ""),
    ("ezas", ""),
    ("icos", ""),
    ("icas", ""),
    ("ismo", ""),
    ("avel", ""),
    ("ivel", ""),
    ("ista", ""),
    ("osos", ""),
    ("osas", ""),
    ("ador", ""),
    ("ivas", ""),
    ("ivos", ""),
    ("iras", "ir"),
    ("eza", ""),
    ("ico", ""),
    ("ica", ""),
    ("oso", ""),
    ("osa", ""),
    ("iva", ""),
    ("ivo", ""),
    ("ira", "ir"),
];

/// Endings of verbs, longest first.
const VERBS: &str = "issemos essemos assemos ariamos eriamos iriamos iremos eremos aremos avamos iramos eramos \
    aramos asseis esseis isseis arieis erieis irieis irmos iamos armos ermos areis ereis ireis asses esses \
    isses astes assem essem issem ardes erdes irdes ariam eriam iriam arias erias irias estes istes aveis aria \
    eria iria asse esse isse aste este iste arei erei irei aram eram iram avam arem erem irem ando endo indo \
    arao erao irao adas idas aras eras iras avas ares eres ires ados idos amos emos imos ieis ada ida ara era \
    ira iam ado ido ias ais eis ear ia ei am em ar er ir as es is eu iu ou";

fn is_vowel(c: char) -> bool {
    matches!(c, 'a' | 'e' | 'i' | 'o' | 'u')
}

/// What is behind the first consonant that follows a vowel; the last letter is not looked at. None: there is no such
/// part.
fn region(word: &[char]) -> Option<&[char]> {
    let inner = &word[..word.len().saturating_sub(1)];
    let vowel = inner.iter().position(|c| is_vowel(*c))?;
    let consonant = inner[vowel..].iter().position(|c| !is_vowel(*c))?;
    Some(&word[vowel + consonant + 1..])
}

/// The part of a word where endings of verbs count.
fn verb_region(word: &[char]) -> Option<&[char]> {
    let last = word.len().checked_sub(1)?;
    let behind = |wanted: bool| (2..last).find(|at| is_vowel(word[*at]) == wanted).map(|at| &word[at + 1..]);
    if last > 0
        && !is_vowel(word[1])
        && let Some(found) = behind(true)
    {
        return Some(found);
    }
    if last > 1
        && is_vowel(word[0])
        && is_vowel(word[1])
        && let Some(found) = behind(false)
    {
        return Some(found);
    }
    (last > 2).then(|| &word[3..])
}

/// A region, kept while the word changes.
struct Region(Option<Word>);

impl Region {
    fn of(part: Option<&[char]>) -> Region {
        Region(part.map(|part| Word(part.to_vec())))
    }

    fn ends(&self, ending: &str) -> bool {
        self.0.as_ref().is_some_and(|part| part.ends(ending))
    }
}

/// Takes an ending off that the word has.
fn take(word: &mut Word, ending: &str) {
    if word.ends(ending) {
        word.replace(ending, "");
    }
}

fn plain(word: &mut Word) {
    for c in word.iter_mut() {
        *c = match *c {
            'á' | 'â' | 'ã' => 'a',
            'é' | 'ê' => 'e',
            'í' => 'i',
            'ó' | 'ô' | 'õ' => 'o',
            'ú' | 'ü' => 'u',
            'ç' => 'c',
            'ñ' => 'n',
            other => other,
        };
    }
    let is_mark = |c: &char| matches!(c, '"' | '\'' | '-' | ',' | ';' | '.' | '?' | '!');
    if word.len() >= 2 && word.first().is_some_and(is_mark) {
        word.remove(0);
    }
    if word.len() >= 2 && word.last().is_some_and(is_mark) {
        word.cut(1);
    }
}

/// Takes the ending of a noun off; whether there was one.
fn noun(word: &mut Word, r1: &Region, r2: &Region, rv: &Region) -> bool {
    let fits = |(ending, _): &&(&str, &str)| match *ending {
        "amente" => r1.ends(ending),
        "ira" => rv.ends(ending) && word.ends("eira"),
        "iras" => rv.ends(ending) && word.ends("eiras"),
        _ => r2.ends(ending),
    };
    let Some((ending, by)) = NOUNS.iter().find(fits) else { return false };
    word.replace(ending, by);
    true
}

/// Takes the ending of a verb off; whether there was one.
fn verb(word: &mut Word, rv: &Region) -> bool {
    let Some(ending) = VERBS.split_whitespace().find(|ending| rv.ends(ending)) else { return false };
    // The reference looks for `ava` where it found `ira`, and so takes nothing off.
    if ending != "ira" {
        take(word, ending);
    }
    true
}

/// Stems a word.
pub fn stem(word: &mut Word) {
    let original = word.clone();
    plain(word);
    if word.len() >= 30 || word.len() <= 2 {
        *word = original;
        return;
    }
    if !word.iter().all(|c| is_letter(*c)) {
        return;
    }
    let r1 = Region::of(region(word));
    let r2 = Region::of(r1.0.as_ref().and_then(|part| region(part)));
    let rv = Region::of(verb_region(word));
    if noun(word, &r1, &r2, &rv) || verb(word, &rv) {
        if rv.ends("ci") {
            take(word, "i");
        }
    } else if let Some(ending) = ["os", "a", "i", "o"].into_iter().find(|ending| rv.ends(ending)) {
        take(word, ending);
    }
    if rv.ends("e") {
        if rv.ends("gue") {
            take(word, "e");
            take(word, "u");
        } else if rv.ends("cie") {
            take(word, "e");
            take(word, "i");
        } else {
            take(word, "e");
        }
    }
}
