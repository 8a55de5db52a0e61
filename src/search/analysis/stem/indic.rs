//! Normal forms of the scripts of India, and stems of Hindi (A. Ramanathan, D. Rao), as Lucene has them.

use super::Word;

/// Scripts by the first character of their block, as bits of [`COMPOSED`].
const SCRIPTS: [(u32, u16); 9] = [
    (0x0900, D),
    (0x0980, B),
    (0x0A00, G),
    (0x0A80, J),
    (0x0B00, O),
    (0x0B80, T),
    (0x0C00, E),
    (0x0C80, K),
    (0x0D00, M),
];

const D: u16 = 1;
const B: u16 = 2;
const G: u16 = 4;
const J: u16 = 8;
const O: u16 = 16;
const T: u16 = 32;
const E: u16 = 64;
const K: u16 = 128;
const M: u16 = 256;

/// No third character.
const NONE: u16 = 0x100;
/// A zero width joiner as the third.
const JOIN: u16 = 0xff;

/// Two or three characters, by their place in the block, that are written as one, and in which scripts.
const COMPOSED: &[(u16, u16, u16, u16, u16)] = &[
    (0x05, 0x3E, 0x45, 0x11, D | J),
    (0x05, 0x3E, 0x46, 0x12, D),
    (0x05, 0x3E, 0x47, 0x13, D | J),
    (0x05, 0x3E, 0x48, 0x14, D | J),
    (0x05, 0x3E, NONE, 0x06, D | B | G | J | O),
    (0x05, 0x45, NONE, 0x72, D),
    (0x05, 0x45, NONE, 0x0D, J),
    (0x05, 0x46, NONE, 0x04, D),
    (0x05, 0x47, NONE, 0x0F, J),
    (0x05, 0x48, NONE, 0x10, G | J),
    (0x05, 0x49, NONE, 0x11, D | J),
    (0x05, 0x4A, NONE, 0x12, D),
    (0x05, 0x4B, NONE, 0x13, D | J),
    (0x05, 0x4C, NONE, 0x14, D | G | J),
    (0x06, 0x45, NONE, 0x11, D | J),
    (0x06, 0x46, NONE, 0x12, D),
    (0x06, 0x47, NONE, 0x13, D | J),
    (0x06, 0x48, NONE, 0x14, D | J),
    (0x07, 0x57, NONE, 0x08, M),
    (0x09, 0x41, NONE, 0x0A, D),
    (0x09, 0x57, NONE, 0x0A, T | M),
    (0x0E, 0x46, NONE, 0x10, M),
    (0x0F, 0x45, NONE, 0x0D, D),
    (0x0F, 0x46, NONE, 0x0E, D),
    (0x0F, 0x47, NONE, 0x10, D),
    (0x0F, 0x57, NONE, 0x10, O),
    (0x12, 0x3E, NONE, 0x13, M),
    (0x12, 0x4C, NONE, 0x14, E | K),
    (0x12, 0x55, NONE, 0x13, E),
    (0x12, 0x57, NONE, 0x14, T | M),
    (0x13, 0x57, NONE, 0x14, O),
    (0x15, 0x3C, NONE, 0x58, D),
    (0x16, 0x3C, NONE, 0x59, D | G),
    (0x17, 0x3C, NONE, 0x5A, D | G),
    (0x1C, 0x3C, NONE, 0x5B, D | G),
    (0x21, 0x3C, NONE, 0x5C, D | B | O),
    (0x22, 0x3C, NONE, 0x5D, D | B | O),
    (0x23, 0x4D, JOIN, 0x7A, M),
    (0x24, 0x4D, JOIN, 0x4E, B),
    (0x28, 0x3C, NONE, 0x29, D),
    (0x28, 0x4D, JOIN, 0x7B, M),
    (0x2B, 0x3C, NONE, 0x5E, D | G),
    (0x2F, 0x3C, NONE, 0x5F, D | B),
    (0x2C, 0x41, 0x41, 0x0B, E),
    (0x30, 0x3C, NONE, 0x31, D),
    (0x30, 0x4D, JOIN, 0x7C, M),
    (0x32, 0x4D, JOIN, 0x7D, M),
    (0x33, 0x3C, NONE, 0x34, D),
    (0x33, 0x4D, JOIN, 0x7E, M),
    (0x35, 0x41, NONE, 0x2E, E),
    (0x3E, 0x45, NONE, 0x49, D | J),
    (0x3E, 0x46, NONE, 0x4A, D),
    (0x3E, 0x47, NONE, 0x4B, D | J),
    (0x3E, 0x48, NONE, 0x4C, D | J),
    (0x3F, 0x55, NONE, 0x40, K),
    (0x41, 0x41, NONE, 0x42, G),
    (0x46, 0x3E, NONE, 0x4A, T | M),
    (0x46, 0x42, 0x55, 0x4B, K),
    (0x46, 0x42, NONE, 0x4A, K),
    (0x46, 0x46, NONE, 0x48, M),
    (0x46, 0x55, NONE, 0x47, E | K),
    (0x46, 0x56, NONE, 0x48, E | K),
    (0x46, 0x57, NONE, 0x4C, T | M),
    (0x47, 0x3E, NONE, 0x4B, B | O | T | M),
    (0x47, 0x57, NONE, 0x4C, B | O),
    (0x4A, 0x55, NONE, 0x4B, K),
    (0x72, 0x3F, NONE, 0x07, G),
    (0x72, 0x40, NONE, 0x08, G),
    (0x72, 0x47, NONE, 0x0F, G),
    (0x73, 0x41, NONE, 0x09, G),
    (0x73, 0x42, NONE, 0x0A, G),
    (0x73, 0x4B, NONE, 0x13, G),
];

/// The script of a character and its place in the block.
fn place(c: char) -> Option<(u32, u16, u16)> {
    let (first, flag) = SCRIPTS.into_iter().find(|(first, _)| (*first..first + 0x80).contains(&(c as u32)))?;
    Some((first, flag, (c as u32 - first) as u16))
}

/// Letters that are written in several characters as one.
pub fn normal(word: &mut Word) {
    let mut at = 0;
    while at + 1 < word.len() {
        compose(word, at);
        at += 1;
    }
}

fn compose(word: &mut Word, at: usize) {
    let Some((block, flag, first)) = place(word[at]) else { return };
    let Some((second_block, _, second)) = place(word[at + 1]) else { return };
    if second_block != block {
        return;
    }
    let third = match word.get(at + 2) {
        Some('\u{200d}') => Some(JOIN),
        Some(c) => place(*c).filter(|(third_block, ..)| *third_block == block).map(|(_, _, third)| third),
        None => None,
    };
    let fits = |rule: &&(u16, u16, u16, u16, u16)| {
        rule.0 == first && rule.4 & flag != 0 && rule.1 == second && (rule.2 == NONE || Some(rule.2) == third)
    };
    let Some((_, _, last, one, _)) = COMPOSED.iter().find(fits) else { return };
    word[at] = char::from_u32(block + u32::from(*one)).unwrap_or(word[at]);
    word.drain(at + 1..at + if *last == NONE { 2 } else { 3 });
}

/// Hindi: spellings that differ by habit.
pub fn hindi_normal(word: &mut Word) {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word.iter().copied().peekable();
    while let Some(c) = rest.next() {
        out.push(match c {
            '\u{928}' if rest.peek() == Some(&'\u{94d}') => {
                rest.next();
                '\u{902}'
            }
            '\u{93c}' | '\u{94d}' | '\u{200c}' | '\u{200d}' => continue,
            '\u{901}' => '\u{902}',
            '\u{929}' => '\u{928}',
            '\u{931}' => '\u{930}',
            '\u{934}' => '\u{933}',
            '\u{958}' => '\u{915}',
            '\u{959}' => '\u{916}',
            '\u{95a}' => '\u{917}',
            '\u{95b}' => '\u{91c}',
            '\u{95c}' => '\u{921}',
            '\u{95d}' => '\u{922}',
            '\u{95e}' => '\u{92b}',
            '\u{95f}' => '\u{92f}',
            '\u{945}' | '\u{946}' | '\u{948}' => '\u{947}',
            '\u{949}' | '\u{94a}' | '\u{94c}' => '\u{94b}',
            '\u{90d}' | '\u{90e}' | '\u{910}' => '\u{90f}',
            '\u{911}' | '\u{912}' | '\u{914}' => '\u{913}',
            '\u{972}' | '\u{906}' => '\u{905}',
            '\u{908}' => '\u{907}',
            '\u{90a}' => '\u{909}',
            '\u{960}' => '\u{90b}',
            '\u{961}' => '\u{90c}',
            '\u{940}' => '\u{93f}',
            '\u{942}' => '\u{941}',
            '\u{944}' => '\u{943}',
            '\u{963}' => '\u{962}',
            other => other,
        });
    }
    **word = out;
}

/// Hindi endings, by the length that the word must exceed.
const HINDI: [(usize, &[&str]); 5] = [
    (6, &["ाएंगी", "ाएंगे", "ाऊंगी", "ाऊंगा", "ाइयाँ", "ाइयों", "ाइयां"]),
    (
        5,
        &[
            "ाएगी",
            "ाएगा",
            "ाओगी",
            "ाओगे",
            "एंगी",
            "ेंगी",
            "एंगे",
            "ेंगे",
            "ूंगी",
            "ूंगा",
            "ातीं",
            "नाओं",
            "नाएं",
            "ताओं",
            "ताएं",
            "ियाँ",
            "ियों",
            "ियां",
        ],
    ),
    (
        4,
        &[
            "ाकर",
            "ाइए",
            "ाईं",
            "ाया",
            "ेगी",
            "ेगा",
            "ोगी",
            "ोगे",
            "ाने",
            "ाना",
            "ाते",
            "ाती",
            "ाता",
            "तीं",
            "ाओं",
            "ाएं",
            "ुओं",
            "ुएं",
            "ुआं",
        ],
    ),
    (3, &["कर", "ाओ", "िए", "ाई", "ाए", "ने", "नी", "ना", "ते", "ीं", "ती", "ता", "ाँ", "ां", "ों", "ें"]),
    (2, &["ो", "े", "ू", "ु", "ी", "ि", "ा"]),
];

/// Hindi.
pub fn hindi(word: &mut Word) {
    for (longer, endings) in HINDI {
        if word.len() > longer
            && let Some(ending) = word.ending(endings)
        {
            word.replace(ending, "");
            return;
        }
    }
}
