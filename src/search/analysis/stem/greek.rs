//! Greek: G. Ntais' rules, as Lucene has them. Words are in lower case without accents, the final sigma is `σ`.
//! Rules and words: Apache Lucene 4, Apache License 2.0.

use super::Word;

/// A word whose end was moved; what is behind it can be given back.
struct Cut<'a> {
    word: &'a mut Word,
    length: usize,
}

impl Cut<'_> {
    fn ends(&self, ending: &str) -> bool {
        let mut at = self.length;
        for c in ending.chars().rev() {
            if at == 0 || self.word[at - 1] != c {
                return false;
            }
            at -= 1;
        }
        true
    }

    /// Whether it has one of the endings, which are separated by spaces.
    fn ends_one(&self, endings: &str) -> bool {
        endings.split_whitespace().any(|ending| self.ends(ending))
    }

    /// Whether it is one of the words, which are separated by spaces.
    fn is_one(&self, words: &str) -> bool {
        let own = &self.word[..self.length];
        words.split_whitespace().any(|word| word.chars().eq(own.iter().copied()))
    }

    fn ends_vowel(&self) -> bool {
        self.ends_one("α ε η ι ο υ ω")
    }

    fn ends_vowel_not_y(&self) -> bool {
        self.ends_one("α ε η ι ο ω")
    }

    /// Takes `count` letters off if the word is longer than `longer` and has one of the endings; whether it did.
    fn off(&mut self, longer: usize, endings: &str, count: usize) -> bool {
        let fits = self.length > longer && self.ends_one(endings);
        if fits {
            self.length = self.length.saturating_sub(count);
        }
        fits
    }

    /// Gives letters back.
    fn back(&mut self, count: usize) {
        self.length = (self.length + count).min(self.word.len());
    }

    /// Writes letters behind the word's end and takes them in.
    fn add(&mut self, letters: &str) {
        for c in letters.chars() {
            match self.word.get_mut(self.length) {
                Some(place) => *place = c,
                None => self.word.push(c),
            }
            self.length += 1;
        }
    }
}

/// Irregular nouns: longer than, endings, letters to take off. The first that fits.
const NOUNS: &[(usize, &str, usize)] = &[
    (9, "καθεστωτοσ καθεστωτων", 4),
    (8, "γεγονοτοσ γεγονοτων", 4),
    (8, "καθεστωτα", 3),
    (7, "τατογιου τατογιων", 4),
    (7, "γεγονοτα", 3),
    (7, "καθεστωσ", 2),
    (6, "σκαγιου σκαγιων ολογιου ολογιων κρεατοσ κρεατων περατοσ περατων τερατοσ τερατων", 4),
    (6, "τατογια", 3),
    (6, "γεγονοσ", 2),
    (5, "φαγιου φαγιων σογιου σογιων", 4),
    (5, "σκαγια ολογια κρεατα περατα τερατα", 3),
    (4, "φαγια σογια φωτοσ φωτων", 3),
    (4, "κρεασ περασ τερασ", 2),
    (3, "φωτα", 2),
    (2, "φωσ", 1),
];

/// Endings of words that no rule before has changed.
const ENDINGS: &[(usize, &str)] = &[
    (9, "ιοντουσαν"),
    (8, "ιομασταν ιοσασταν ιουμαστε οντουσαν"),
    (7, "ιεμαστε ιεσαστε ιομουνα ιοσαστε ιοσουνα ιουνται ιουνταν ηθηκατε ομασταν οσασταν ουμαστε"),
    (6, "ιομουν ιονταν ιοσουν ηθειτε ηθηκαν ομουνα οσαστε οσουνα ουνται ουνταν ουσατε"),
    (5, "αγατε ιεμαι ιεται ιεσαι ιοταν ιουμα ηθεισ ηθουν ηκατε ησατε ησουν ομουν ονται ονταν οσουν ουμαι ουσαν"),
    (4, "αγαν αμαι ασαι αται ειτε εσαι εται ηδεσ ηδων ηθει ηκαν ησαν ησει ησεσ ομαι οταν"),
    (3, "αει εισ ηθω ησω ουν ουσ"),
    (2, "αν ασ αω ει εσ ησ οι οσ ου υσ ων"),
    (1, "α ε η ι ο υ ω"),
];

/// Words that keep `αν`.
const KEEP_AN: &str = "βετερ βουλκ βραχμ γ δραδουμ θ καλπουζ καστελ κορμορ λαοπλ μωαμεθ μ μουσουλμ ν ουλ π πελεκ \
    πλ πολισ πορτολ σαρακατσ σουλτ τσαρλατ ορφ τσιγγ τσοπ φωτοστεφ χ ψυχοπλ αγ ορφ γαλ γερ δεκ διπλ αμερικαν \
    ουρ πιθ πουριτ σ ζωντ ικ καστ κοπ λιχ λουθηρ μαιντ μελ σιγ σπ στεγ τραγ τσαγ φ ερ αδαπ αθιγγ αμηχ ανικ \
    ανοργ απηγ απιθ ατσιγγ βασ βασκ βαθυγαλ βιομηχ βραχυκ διατ διαφ ενοργ θυσ καπνοβιομηχ καταγαλ κλιβ κοιλαρφ \
    λιβ μεγλοβιομηχ μικροβιομηχ νταβ ξηροκλιβ ολιγοδαμ ολογαλ πενταρφ περηφ περιτρ πλατ πολυδαπ πολυμηχ στεφ \
    ταβ τετ υπερηφ υποκοπ χαμηλοδαπ ψηλοταβ";

/// Words that keep `ικ`.
const KEEP_IK: &str = "αλ αδ ενδ αμαν αμμοχαλ ηθ ανηθ αντιδ φυσ βρωμ γερ εξωδ καλπ καλλιν καταδ μουλ μπαν μπαγιατ \
    μπολ μποσ νιτ ξικ συνομηλ πετσ πιτσ πικαντ πλιατσ ποστελν πρωτοδ σερτ συναδ τσαμ υποδ φιλον φυλοδ χασ";

/// Words that keep `ετ`.
const KEEP_ET: &str =
    "αβαρ βεν εναρ αβρ αδ αθ αν απλ βαρον ντρ σκ κοπ μπορ νιφ παγ παρακαλ σερπ σκελ συρφ τοκ υ δ εμ θαρρ θ";

/// Endings that keep `ετ`.
const KEEP_ET_BEHIND: &str = "οδ αιρ φορ ταθ διαθ σχ ενδ ευρ τιθ υπερθ ραθ ενθ ροθ σθ πυρ αιν συνδ συν συνθ χωρ \
    πον βρ καθ ευθ εκθ νετ ρον αρκ βαρ βολ ωφελ";

/// Words that keep `ουσ`.
const KEEP_OUS: &str = "φαρμακ χαδ αγκ αναρρ βρομ εκλιπ λαμπιδ λεχ μ πατ ρ λ μεδ μεσαζ υποτειν αμ αιθ ανηκ δεσποζ \
    ενδιαφερ δε δευτερευ καθαρευ πλε τσα";

/// Words that keep `αγ`.
const KEEP_AG: &str = "αβαστ πολυφ αδηφ παμφ ρ ασπ αφ αμαλ αμαλλι ανυστ απερ ασπαρ αχαρ δερβεν δροσοπ ξεφ νεοπ \
    νομοτ ολοπ ομοτ προστ προσωποπ συμπ συντ τ υποτ χαρ αειπ αιμοστ ανυπ αποτ αρτιπ διατ εν επιτ κροκαλοπ \
    σιδηροπ λ ναυ ουλαμ ουρ π τρ μ";

/// Stems a word.
pub fn stem(word: &mut Word) {
    let length = word.len();
    if length < 4 {
        return;
    }
    let mut cut = Cut { word, length };
    for (longer, endings, count) in NOUNS {
        if cut.off(*longer, endings, *count) {
            break;
        }
    }
    plurals(&mut cut);
    adjectives(&mut cut);
    first_persons(&mut cut);
    second_persons(&mut cut);
    past(&mut cut);
    last_verbs(&mut cut);
    if cut.length == length {
        for (longer, endings) in ENDINGS {
            if cut.off(*longer, endings, *longer) {
                break;
            }
        }
    }
    if !cut.off(0, "εστερ εστατ", 5) {
        cut.off(0, "οτερ οτατ υτερ υτατ ωτερ ωτατ", 4);
    }
    let length = cut.length;
    word.truncate(length);
}

fn plurals(cut: &mut Cut<'_>) {
    if cut.off(4, "αδεσ αδων", 4) && !cut.ends_one("οκ μαμ μαν μπαμπ πατερ γιαγι νταντ κυρ θει πεθερ")
    {
        cut.back(2);
    }
    if cut.off(4, "εδεσ εδων", 4) && cut.ends_one("οπ ιπ εμπ υπ γηπ δαπ κρασπ μιλ") {
        cut.back(2);
    }
    if cut.off(5, "ουδεσ ουδων", 5) && cut.ends_one("αρκ καλιακ πεταλ λιχ πλεξ σκ σ φλ φρ βελ λουλ χν σπ τραγ φε")
    {
        cut.back(3);
    }
    if cut.off(3, "εωσ εων", 3) && cut.is_one("θ δ ελ γαλ ν π ιδ παρ") {
        cut.back(1);
    }
}

fn adjectives(cut: &mut Cut<'_>) {
    if (cut.off(2, "ια", 2) || cut.off(3, "ιου ιων", 3)) && cut.ends_vowel() {
        cut.back(1);
    }
    if (cut.off(3, "ικα ικο", 3) || cut.off(4, "ικου ικων", 4)) && (cut.ends_vowel() || cut.is_one(KEEP_IK))
    {
        cut.back(2);
    }
}

fn first_persons(cut: &mut Cut<'_>) {
    if cut.length == 5 && cut.ends("αγαμε") {
        cut.length -= 1;
    } else {
        if !cut.off(7, "ηθηκαμε", 7) && !cut.off(6, "ουσαμε", 6) {
            cut.off(5, "αγαμε ησαμε ηκαμε", 5);
        }
        if cut.off(3, "αμε", 3) && cut.is_one("αναπ αποθ αποκ αποστ βουβ ξεθ ουλ πεθ πικρ ποτ σιχ χ")
        {
            cut.back(2);
        }
    }
    // The reference guards only the first ending of each length against words that are nothing else.
    let removed = cut.off(8, "ιουντανε", 8)
        || cut.off(7, "ιοντανε", 7)
        || cut.off(0, "ουντανε ηθηκανε", 7)
        || cut.off(6, "ιοτανε", 6)
        || cut.off(0, "οντανε ουσανε", 6)
        || cut.off(5, "αγανε", 5)
        || cut.off(0, "ησανε οτανε ηκανε", 5);
    if removed && cut.is_one("τρ τσ") {
        cut.add("αγαν");
    }
    if cut.off(3, "ανε", 3) && (cut.ends_vowel_not_y() || cut.is_one(KEEP_AN)) {
        cut.back(2);
    }
}

fn second_persons(cut: &mut Cut<'_>) {
    cut.off(5, "ησετε", 5);
    if cut.off(3, "ετε", 3) && (cut.is_one(KEEP_ET) || cut.ends_vowel_not_y() || cut.ends_one(KEEP_ET_BEHIND)) {
        cut.back(2);
    }
    if cut.off(5, "οντασ ωντασ", 5) {
        if cut.length == 3 && cut.ends("αρχ") {
            cut.add("οντ");
        }
        if cut.ends("κρε") {
            cut.add("ωντ");
        }
    }
    if cut.off(6, "ομαστε", 6) && cut.is_one("ον") {
        cut.back(5);
    }
    if cut.off(5, "ιεστε", 5) && cut.is_one("π απ συμπ ασυμπ ακαταπ αμεταμφ") {
        cut.back(4);
    }
    if cut.off(4, "εστε", 4) && cut.is_one("αλ αρ εκτελ ζ μ ξ παρακαλ αρ προ νισ") {
        cut.back(3);
    }
}

fn past(cut: &mut Cut<'_>) {
    if !cut.off(6, "ηθηκεσ", 6) {
        cut.off(5, "ηθηκα ηθηκε", 5);
    }
    if (cut.off(4, "ηκεσ", 4) || cut.off(3, "ηκα ηκε", 3))
        && (cut.is_one("διαθ θ παρακαταθ προσθ συνθ") || cut.ends_one("σκωλ σκουλ ναρθ σφ οθ πιθ"))
    {
        cut.back(2);
    }
    if (cut.off(5, "ουσεσ", 5) || cut.off(4, "ουσα ουσε", 4))
        && (cut.is_one(KEEP_OUS)
            || cut.ends_vowel()
            || cut.ends_one("ποδαρ βλεπ πανταχ φρυδ μαντιλ μαλλ κυματ λαχ ληγ φαγ ομ πρωτ"))
    {
        cut.back(3);
    }
    if cut.off(4, "αγεσ", 4) || cut.off(3, "αγα αγε", 3) {
        let keeps = cut.is_one(KEEP_AG) || cut.ends_one("οφ πελ χορτ λλ σφ ρπ φρ πρ λοχ σμην");
        if keeps && !cut.is_one("ψοφ ναυλοχ") && !cut.ends("κολλ") {
            cut.back(2);
        }
    }
    if (cut.off(4, "ησου", 4) || cut.off(3, "ησε ησα", 3)) && cut.is_one("ν χερσον δωδεκαν ερημον μεγαλον επταν")
    {
        cut.back(2);
    }
    if cut.off(4, "ηστε", 4) && cut.is_one("ασβ σβ αχρ χρ απλ αειμν δυσχρ ευχρ κοινοχρ παλιμψ")
    {
        cut.back(3);
    }
}

fn last_verbs(cut: &mut Cut<'_>) {
    if (cut.off(6, "ησουνε ηθουνε", 6) || cut.off(4, "ουνε", 4)) && cut.is_one("ν ρ σπι στραβομουτσ κακομουτσ εξων")
    {
        cut.add("ουν");
    }
    if (cut.off(6, "ησουμε ηθουμε", 6) || cut.off(4, "ουμε", 4)) && cut.is_one("παρασουσ φ χ ωριοπλ αζ αλλοσουσ ασουσ")
    {
        cut.add("ουμ");
    }
    if !cut.off(5, "ματων ματοσ", 3) {
        cut.off(4, "ματα", 2);
    }
}
