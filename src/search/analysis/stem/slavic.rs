//! Bulgarian (P. Nakov), Czech (L. Dolamic, J. Savoy) and Latvian (K. Kreslins), as Lucene has them.

use super::Word;

/// Bulgarian.
pub fn bulgarian(word: &mut Word) {
    if word.len() < 4 {
        return;
    }
    if word.len() > 5 && word.ends("ища") {
        word.cut(3);
        return;
    }
    article(word);
    plural(word);
    if word.len() > 3 {
        if word.ends("я") {
            word.cut(1);
        }
        if word.ending(&["а", "о", "е"]).is_some() {
            word.cut(1);
        }
    }
    if word.len() > 4 && word.ends("ен") {
        word.replace("ен", "н");
    }
    if word.len() > 5 && word.nth_last(2) == 'ъ' {
        let at = word.len() - 2;
        word.remove(at);
    }
}

fn article(word: &mut Word) {
    let n = word.len();
    if n > 6 && word.ends("ият") {
        word.cut(3);
    } else if n > 5 && word.ending(&["ът", "то", "те", "та", "ия"]).is_some() || n > 4 && word.ends("ят") {
        word.cut(2);
    }
}

fn plural(word: &mut Word) {
    /// Longer than, ending, by what.
    const ENDINGS: [(usize, &str, &str); 9] = [
        (6, "овци", "о"),
        (6, "ове", ""),
        (6, "еве", "й"),
        (5, "ища", ""),
        (5, "та", ""),
        (5, "ци", "к"),
        (5, "зи", "г"),
        (4, "си", "х"),
        (4, "и", ""),
    ];
    let n = word.len();
    for (longer, ending, by) in ENDINGS {
        // Between the rules for long and for short words: `е` before the last letter but one becomes `я`.
        if longer == 4 && n > 5 && word.nth_last(3) == 'е' && word.ends("и") {
            word.cut(1);
            let at = word.len() - 2;
            word[at] = 'я';
            return;
        }
        if n > longer && word.ends(ending) {
            word.replace(ending, by);
            return;
        }
    }
}

/// Czech.
pub fn czech(word: &mut Word) {
    /// Endings of cases, by the length that the word must exceed.
    const CASES: [(usize, &[&str]); 5] = [
        (7, &["atech"]),
        (6, &["ětem", "etem", "atům"]),
        (
            5,
            &[
                "ech", "ich", "ích", "ého", "ěmi", "emi", "ému", "ěte", "ete", "ěti", "eti", "ího", "iho", "ími",
                "ímu", "imu", "ách", "ata", "aty", "ých", "ama", "ami", "ové", "ovi", "ými",
            ],
        ),
        (4, &["em", "es", "ém", "ím", "ům", "at", "ám", "os", "us", "ým", "mi", "ou"]),
        (3, &["a", "e", "i", "o", "u", "ů", "y", "á", "é", "í", "ý", "ě"]),
    ];
    for (longer, endings) in CASES {
        if word.len() > longer
            && let Some(ending) = word.ending(endings)
        {
            word.replace(ending, "");
            break;
        }
    }
    if word.len() > 5 && word.ending(&["ov", "in", "ův"]).is_some() {
        word.cut(2);
    }
    czech_normal(word);
}

fn czech_normal(word: &mut Word) {
    for (ending, by) in [("čt", "ck"), ("št", "sk"), ("c", "k"), ("č", "k"), ("z", "h"), ("ž", "h")] {
        if word.ends(ending) {
            word.replace(ending, by);
            return;
        }
    }
    let n = word.len();
    if n > 1 && word[n - 2] == 'e' {
        word.remove(n - 2);
    } else if n > 2 && word[n - 2] == 'ů' {
        word[n - 2] = 'o';
    }
}

/// Latvian endings: the ending, vowels that the word must exceed, whether consonants before it were softened.
const LATVIAN: [(&str, usize, bool); 38] = [
    ("ajiem", 3, false),
    ("ajai", 3, false),
    ("ajam", 2, false),
    ("ajām", 2, false),
    ("ajos", 2, false),
    ("ajās", 2, false),
    ("iem", 2, true),
    ("ajā", 2, false),
    ("ais", 2, false),
    ("ai", 2, false),
    ("ei", 2, false),
    ("ām", 1, false),
    ("am", 1, false),
    ("ēm", 1, false),
    ("īm", 1, false),
    ("im", 1, false),
    ("um", 1, false),
    ("us", 1, true),
    ("as", 1, false),
    ("ās", 1, false),
    ("es", 1, false),
    ("os", 1, true),
    ("ij", 1, false),
    ("īs", 1, false),
    ("ēs", 1, false),
    ("is", 1, false),
    ("ie", 1, false),
    ("u", 1, true),
    ("a", 1, true),
    ("i", 1, true),
    ("e", 1, false),
    ("ā", 1, false),
    ("ē", 1, false),
    ("ī", 1, false),
    ("ū", 1, false),
    ("o", 1, false),
    ("s", 0, false),
    ("š", 0, false),
];

/// Latvian: soft consonants and what they come from; the first that fits.
const SOFT: [(&str, &str); 13] = [
    ("pj", "p"),
    ("bj", "b"),
    ("mj", "m"),
    ("vj", "v"),
    ("šņ", "sn"),
    ("žņ", "zn"),
    ("šļ", "sl"),
    ("žļ", "zl"),
    ("ļņ", "ln"),
    ("ļļ", "ll"),
    ("č", "c"),
    ("ļ", "l"),
    ("ņ", "n"),
];

/// Latvian.
pub fn latvian(word: &mut Word) {
    let vowels = word.iter().filter(|c| matches!(c, 'a' | 'e' | 'i' | 'o' | 'u' | 'ā' | 'ī' | 'ē' | 'ū')).count();
    let n = word.len();
    let fits = |(ending, over, _): &&(&str, usize, bool)| {
        vowels > *over && n >= ending.chars().count() + 3 && word.ends(ending)
    };
    let Some((ending, _, is_soft)) = LATVIAN.iter().find(fits) else { return };
    word.replace(ending, "");
    if !is_soft {
        return;
    }
    if ending.starts_with('u') {
        for (soft, hard) in [("kš", "kst"), ("ņņ", "nn")] {
            if word.ends(soft) {
                word.replace(soft, hard);
                return;
            }
        }
    }
    if let Some((soft, hard)) = SOFT.iter().find(|(soft, _)| word.ends(soft)) {
        word.replace(soft, hard);
    }
}
