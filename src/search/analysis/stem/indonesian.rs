//! Indonesian: F. Z. Tala's rules, as Lucene has them.

use super::Word;

/// What was taken off before decides what may be taken off after.
#[derive(Default)]
struct State {
    syllables: i32,
    removed: u8,
}

const KE: u8 = 1;
const PENG: u8 = 2;
const DI: u8 = 4;
const MENG: u8 = 8;
const TER: u8 = 16;
const BER: u8 = 32;
const PE: u8 = 64;

fn is_vowel(c: char) -> bool {
    matches!(c, 'a' | 'e' | 'i' | 'o' | 'u')
}

/// Stems a word.
pub fn stem(word: &mut Word) {
    let vowels = word.iter().filter(|c| is_vowel(**c)).count();
    let mut state = State { syllables: i32::try_from(vowels).unwrap_or(i32::MAX), removed: 0 };
    if state.syllables > 2 && word.ending(&["kah", "lah", "pun"]).is_some() {
        word.cut(3);
        state.syllables -= 1;
    }
    if state.syllables > 2
        && let Some(ending) = word.ending(&["ku", "mu", "nya"])
    {
        word.cut(ending.len());
        state.syllables -= 1;
    }
    if first_prefix(word, &mut state) {
        if suffix(word, &mut state) {
            second_prefix(word, &mut state);
        }
    } else {
        second_prefix(word, &mut state);
        suffix(word, &mut state);
    }
}

/// Takes letters off the beginning and notes it.
fn off(word: &mut Word, state: &mut State, count: usize, flag: u8) {
    word.drain(..count);
    state.removed |= flag;
    state.syllables -= 1;
}

/// Takes a prefix of the first order off; whether there was one.
fn first_prefix(word: &mut Word, state: &mut State) -> bool {
    if state.syllables <= 2 {
        return false;
    }
    let vowel_at = |at: usize| word.get(at).is_some_and(|c| is_vowel(*c));
    let is_soft_s = vowel_at(4);
    let is_soft_t = vowel_at(3);
    let (count, flag, turned) = if word.starts("meng") {
        (4, MENG, None)
    } else if word.starts("meny") && is_soft_s {
        (3, MENG, Some('s'))
    } else if word.starts("men") || word.starts("mem") {
        (3, MENG, None)
    } else if word.starts("me") {
        (2, MENG, None)
    } else if word.starts("peng") {
        (4, PENG, None)
    } else if word.starts("peny") {
        if is_soft_s { (3, PENG, Some('s')) } else { (4, PENG, None) }
    } else if word.starts("pen") && is_soft_t {
        (2, PENG, Some('t'))
    } else if word.starts("pen") || word.starts("pem") {
        (3, PENG, None)
    } else if word.starts("di") {
        (2, DI, None)
    } else if word.starts("ter") {
        (3, TER, None)
    } else if word.starts("ke") {
        (2, KE, None)
    } else {
        return false;
    };
    off(word, state, count, flag);
    if let (Some(c), Some(first)) = (turned, word.first_mut()) {
        *first = c;
    }
    true
}

fn second_prefix(word: &mut Word, state: &mut State) {
    if state.syllables <= 2 {
        return;
    }
    let is_split = word.starts("be") && word.len() > 4 && !is_vowel(word[2]) && word[3] == 'e' && word[4] == 'r';
    if word.starts("ber") || word.len() == 7 && word.starts("belajar") {
        off(word, state, 3, BER);
    } else if is_split {
        off(word, state, 2, BER);
    } else if word.starts("per") || word.len() == 7 && word.starts("pelajar") {
        off(word, state, 3, 0);
    } else if word.starts("pe") {
        off(word, state, 2, PE);
    }
}

/// Takes a suffix off; whether there was one that may go with the prefixes.
fn suffix(word: &mut Word, state: &mut State) -> bool {
    if state.syllables <= 2 {
        return false;
    }
    let none_of = |flags: u8| state.removed & flags == 0;
    let count = if word.ends("kan") && none_of(KE | PENG | PE) {
        3
    } else if word.ends("an") && none_of(DI | MENG | TER) {
        2
    } else if word.ends("i") && !word.ends("si") && none_of(BER | KE | PENG) {
        1
    } else {
        return false;
    };
    word.cut(count);
    state.syllables -= 1;
    true
}
