//! Normal forms of Arabic and Persian letters, and light stems of Arabic, as Lucene has them.

use super::Word;

/// Arabic: one form for each of several letters, no vowel marks.
pub fn normal(word: &mut Word) {
    word.retain(|c| !matches!(c, '\u{640}' | '\u{64b}'..='\u{652}'));
    for c in word.iter_mut() {
        *c = match *c {
            '\u{622}' | '\u{623}' | '\u{625}' => '\u{627}',
            '\u{649}' => '\u{64a}',
            '\u{629}' => '\u{647}',
            other => other,
        };
    }
}

/// Persian: letters that Arabic writes in another way.
pub fn persian_normal(word: &mut Word) {
    word.retain(|c| *c != '\u{654}');
    for c in word.iter_mut() {
        *c = match *c {
            '\u{6cc}' | '\u{6d2}' => '\u{64a}',
            '\u{6a9}' => '\u{643}',
            '\u{6c0}' | '\u{6c1}' => '\u{647}',
            other => other,
        };
    }
}

/// Arabic: one prefix, then each suffix that is there.
pub fn stem(word: &mut Word) {
    for prefix in ["ال", "وال", "بال", "كال", "فال", "لل", "و"] {
        let length = prefix.chars().count();
        let least = if length == 1 { 4 } else { length + 2 };
        if word.len() >= least && word.starts(prefix) {
            word.drain(..length);
            break;
        }
    }
    for suffix in ["ها", "ان", "ات", "ون", "ين", "يه", "ية", "ه", "ة", "ي"] {
        let length = suffix.chars().count();
        if word.len() >= length + 2 && word.ends(suffix) {
            word.cut(length);
        }
    }
}
