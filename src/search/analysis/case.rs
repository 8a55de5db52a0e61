//! Letters in lower case as languages have it, without accents, and in one width.

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::props::GeneralCategory;

use super::stem::Word;
use super::unicode::{category, lower};

/// Greek: no accents, one sigma.
pub fn greek(text: &mut String) {
    *text = text
        .chars()
        .map(|c| match c {
            'ς' => 'σ',
            'Ά' | 'ά' => 'α',
            'Έ' | 'έ' => 'ε',
            'Ή' | 'ή' => 'η',
            'Ί' | 'Ϊ' | 'ί' | 'ϊ' | 'ΐ' => 'ι',
            'Ύ' | 'Ϋ' | 'ύ' | 'ϋ' | 'ΰ' => 'υ',
            'Ό' | 'ό' => 'ο',
            'Ώ' | 'ώ' => 'ω',
            '\u{3a2}' => 'ς',
            _ => lower(c),
        })
        .collect();
}

/// Turkish: `I` is the capital of `ı`, unless a dot follows it.
pub fn turkish(text: &mut String) {
    let is_mark = |c: char| category(c) == GeneralCategory::NonspacingMark;
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut is_behind_i = false;
    for (at, c) in letters.iter().copied().enumerate() {
        is_behind_i = c == 'I' || is_behind_i && is_mark(c);
        match c {
            '\u{307}' if is_behind_i => {}
            'I' => {
                let marks = letters[at + 1..].iter().take_while(|c| is_mark(**c));
                out.push(if marks.into_iter().any(|c| *c == '\u{307}') { 'i' } else { 'ı' });
                is_behind_i = out.ends_with('i');
            }
            _ => out.push(lower(c)),
        }
    }
    *text = out;
}

/// Irish: `n` and `t` before a capital vowel become a prefix with a hyphen.
pub fn irish(text: &mut String) {
    let mut letters = text.chars();
    let first = letters.next();
    let is_prefix = matches!(first, Some('n' | 't'))
        && matches!(letters.next(), Some('A' | 'E' | 'I' | 'O' | 'U' | 'Á' | 'É' | 'Í' | 'Ó' | 'Ú'));
    if is_prefix {
        text.insert(1, '-');
    }
    super::filter::to_lower(text);
}

/// Letters that have no accent which could be taken off, and what they are without it: as Lucene 4 has it (Apache
/// License 2.0).
const PLAIN: &[(&str, &str)] = &[
    ("ᴀ", "A"),
    ("ɐəɚᶏᶕẚₔⱥ", "a"),
    ("ᴁ", "AE"),
    ("ꜳ", "aa"),
    ("æǣǽᴂ", "ae"),
    ("ꜵ", "ao"),
    ("ꜷ", "au"),
    ("ꜹꜻ", "av"),
    ("ꜽ", "ay"),
    ("ʙᴃ", "B"),
    ("ƀƃɓᵬᶀ", "b"),
    ("ʗᴄ", "C"),
    ("ƈȼɕↄꜿ", "c"),
    ("ᴅᴆ", "D"),
    ("ðđƌȡɖɗᵭᶁᶑꝺ", "d"),
    ("ȸ", "db"),
    ("ʣʥ", "dz"),
    ("ᴇⱻ", "E"),
    ("ǝɇɘɛɜɝɞʚᴈᶒᶓᶔⱸ", "e"),
    ("ꜰꟻ", "F"),
    ("ƒᵮᶂẛꝼ", "f"),
    ("ǥǧɢʛ", "G"),
    ("ɠɡᵷᵹᶃꝿ", "g"),
    ("ʜ", "H"),
    ("ħɥɦʮʯⱨⱶ", "h"),
    ("ƕ", "hv"),
    ("ɪᵻꟾ", "I"),
    ("ıɨᴉᵼᶖ", "i"),
    ("ᴊ", "J"),
    ("ȷɉɟʄʝ", "j"),
    ("ᴋ", "K"),
    ("ƙʞᶄⱪꝁꝃꝅ", "k"),
    ("ʟᴌ", "L"),
    ("ŀłƚȴɫɬɭᶅⱡꝇꝉꞁ", "l"),
    ("ỻ", "ll"),
    ("ʪ", "ls"),
    ("ʫ", "lz"),
    ("ᴍꟽꟿ", "M"),
    ("ɯɰɱᵯᶆ", "m"),
    ("ɴᴎ", "N"),
    ("ŉŋƞȵɲɳᵰᶇ", "n"),
    ("ᴏᴐ", "O"),
    ("øǿɔɵᴖᴗᶗⱺꝋꝍ", "o"),
    ("ɶ", "OE"),
    ("ᴕ", "OU"),
    ("œᴔ", "oe"),
    ("ꝏ", "oo"),
    ("ȣ", "ou"),
    ("ᴘ", "P"),
    ("ƥᵱᵽᶈꝑꝓꝕꟼ", "p"),
    ("ĸɋʠꝗꝙ", "q"),
    ("ȹ", "qp"),
    ("ʀʁᴙᴚ", "R"),
    ("ɍɼɽɾɿᵲᵳᶉꝛꞃ", "r"),
    ("ꜱꞅ", "S"),
    ("ȿʂᵴᶊẜẝ", "s"),
    ("ß", "ss"),
    ("ᴛ", "T"),
    ("ŧƫƭȶʇʈᵵⱦ", "t"),
    ("ʨ", "tc"),
    ("þᵺꝧ", "th"),
    ("ʦ", "ts"),
    ("ꜩ", "tz"),
    ("ᴜᵾ", "U"),
    ("ʉᶙ", "u"),
    ("ᵫ", "ue"),
    ("ᴠ", "V"),
    ("ʋʌᶌⱱⱴꝟ", "v"),
    ("ꝡ", "vy"),
    ("ᴡ", "W"),
    ("ƿʍⱳ", "w"),
    ("ᶍ", "x"),
    ("ʏ", "Y"),
    ("ƴɏʎỿ", "y"),
    ("ᴢ", "Z"),
    ("ƶȝȥɀʐʑᵶᶎⱬꝣ", "z"),
];

/// Lower-case letters as ASCII where Lucene's table has a form for them.
pub fn fold(text: &mut String) {
    if text.is_ascii() {
        return;
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0'..='\x7f' => out.push(c),
            '\u{c0}'..='\u{2af}'
            | '\u{1d00}'..='\u{1eff}'
            | '\u{2071}'..='\u{2094}'
            | '\u{2184}'
            | '\u{2c60}'..='\u{2c7c}'
            | '\u{a722}'..='\u{a7ff}'
            | '\u{fb00}'..='\u{fb06}'
            | '\u{ff41}'..='\u{ff5a}' => fold_letter(c, &mut out),
            _ => out.push(c),
        }
    }
    *text = out;
}

fn fold_letter(c: char, out: &mut String) {
    if let Some((_, plain)) = PLAIN.iter().find(|(letters, _)| letters.contains(c)) {
        out.push_str(plain);
        return;
    }
    // Modifier letters and one ligature have other forms in Unicode than the table knows.
    if matches!(c, '\u{1d2c}'..='\u{1d5b}' | '\u{1d9b}'..='\u{1dbf}' | '\u{fb05}' | '\u{a7f2}'..='\u{a7f4}') {
        out.push(c);
        return;
    }
    let from = out.len();
    let is_mark = |c: &char| category(*c) == GeneralCategory::NonspacingMark;
    let normalizer = DecomposingNormalizerBorrowed::new_nfkd();
    out.extend(normalizer.normalize_iter(std::iter::once(c)).filter(|c| !is_mark(c)));
    if !out[from..].is_ascii() {
        out.truncate(from);
        out.push(c);
    }
}

/// Half-width Katakana from U+FF65 on as full-width ones.
const KATAKANA: &str = "・ヲァィゥェォャュョッーアイウエオカキクケコサシスセソタチツテト\
    ナニヌネノハヒフヘホマミムメモヤユヨラリルレロワン\u{3099}\u{309a}";

/// A full-width Katakana with its mark of voice.
fn voiced(c: char, mark: char) -> Option<char> {
    let step = match (c, mark) {
        ('ウ', '\u{ff9e}') => 78,
        ('ワ'..='ヲ', '\u{ff9e}') => 8,
        ('ハ' | 'ヒ' | 'フ' | 'ヘ' | 'ホ', '\u{ff9f}') => 2,
        (
            'カ' | 'キ' | 'ク' | 'ケ' | 'コ' | 'サ' | 'シ' | 'ス' | 'セ' | 'ソ' | 'タ' | 'チ' | 'ツ' | 'テ' | 'ト'
            | 'ハ' | 'ヒ' | 'フ' | 'ヘ' | 'ホ' | 'ヽ',
            '\u{ff9e}',
        ) => 1,
        _ => return None,
    };
    char::from_u32(c as u32 + step)
}

/// Full-width Latin letters as ASCII, half-width Katakana as full-width ones.
pub fn width(word: &mut Word) {
    if !word.iter().any(|c| ('\u{ff01}'..='\u{ff9f}').contains(c)) {
        return;
    }
    let mut out: Vec<char> = Vec::with_capacity(word.len());
    for c in word.iter().copied() {
        match c {
            '\u{ff01}'..='\u{ff5e}' => out.push(char::from_u32(c as u32 - 0xfee0).unwrap_or(c)),
            '\u{ff65}'..='\u{ff9f}' => {
                if let Some(last) = out.last_mut()
                    && let Some(one) = voiced(*last, c)
                {
                    *last = one;
                    continue;
                }
                out.push(KATAKANA.chars().nth(c as usize - 0xff65).unwrap_or(c));
            }
            _ => out.push(c),
        }
    }
    **word = out;
}
