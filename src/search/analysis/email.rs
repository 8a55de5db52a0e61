//! The standard tokenizer with two more kinds of token: addresses of pages and of mailboxes. The longest match counts.
//!
//! Without a scheme a name of a host must end in a top-level domain as it was known in 2012, the time of the reference.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::standard;

/// Top-level domains of IANA's root zone of 2012.
const TOP: &str = "ac ad ae aero af ag ai al am an ao aq ar arpa as asia at au aw ax az ba bb bd be bf bg bh bi \
    biz bj bm bn bo br bs bt bv bw by bz ca cat cc cd cf cg ch ci ck cl cm cn co com coop cr cu cv cw cx cy cz \
    de dj dk dm do dz ec edu ee eg er es et eu fi fj fk fm fo fr ga gb gd ge gf gg gh gi gl gm gn gov gp gq gr \
    gs gt gu gw gy hk hm hn hr ht hu id ie il im in info int io iq ir is it je jm jo jobs jp ke kg kh ki km kn \
    kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mil mk ml mm mn mo mobi mp mq mr ms mt \
    mu museum mv mw mx my mz na name nc ne net nf ng ni nl no np nr nu nz om org pa pe pf pg ph pk pl pm pn \
    post pr pro ps pt pw py qa re ro rs ru rw sa sb sc sd se sg sh si sj sk sl sm sn so sr st su sv sx sy sz \
    tc td tel tf tg th tj tk tl tm tn to tp tr travel tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws \
    xn--0zwm56d xn--11b5bs3a9aj6g xn--3e0b707e xn--45brj9c xn--80akhbyknj4f xn--80ao21a xn--90a3ac \
    xn--9t4b11yi5a xn--clchc0ea0b2g2a9gcd xn--deba0ad xn--fiqs8s xn--fiqz9s xn--fpcrj9c3d xn--fzc2c9e2c \
    xn--g6w251d xn--gecrj9c xn--h2brj9c xn--hgbk6aj7f53bba xn--hlcj6aya9esc7a xn--j6w193g xn--jxalpdlp \
    xn--kgbechtv xn--kprw13d xn--kpry57d xn--lgbbat1ad8j xn--mgb9awbf xn--mgbaam7a8h xn--mgbayh7gpa \
    xn--mgbbh1a71e xn--mgbc0a9azcg xn--mgberp4a5d4ar xn--o3cw4h xn--ogbpf8fl xn--p1ai xn--pgbs0dh xn--s9brj9c \
    xn--wgbh1c xn--wgbl6a xn--xkc2al3hye2a xn--xkc2dl3a5ee0h xn--yfro4i67o xn--ygbi2ammx xn--zckzah xxx ye yt \
    za zm zw";

/// The same as a set.
static NAMES: LazyLock<HashSet<&'static str>> = LazyLock::new(|| TOP.split_ascii_whitespace().collect());

/// Reads a text from the front.
struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// No host with a top-level domain begins before this place.
    no_host: usize,
    /// No mailbox begins before this place.
    no_mailbox: usize,
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

/// Bytes of the name of a mailbox; the reference takes `+-/` for a range.
fn is_atom(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*'..=b'/' | b'=' | b'?' | b'^'..=b'`' | b'{'..=b'~')
}

impl Reader<'_> {
    fn at(&self, place: usize) -> u8 {
        self.bytes.get(place).copied().unwrap_or(0)
    }

    fn run(&self, from: usize, is_in: impl Fn(u8) -> bool) -> usize {
        self.bytes[from.min(self.bytes.len())..]
            .iter()
            .position(|b| !is_in(*b))
            .map_or(self.bytes.len(), |at| from + at)
    }

    /// A run of characters of an address, `%` with two hexadecimal digits among them.
    fn escaped(&self, from: usize, is_in: impl Fn(u8) -> bool) -> usize {
        let mut at = from;
        loop {
            at = self.run(at, |b| is_unreserved(b) || is_in(b));
            let is_escape =
                self.at(at) == b'%' && self.at(at + 1).is_ascii_hexdigit() && self.at(at + 2).is_ascii_hexdigit();
            if !is_escape {
                return at;
            }
            at += 3;
        }
    }

    /// Whether the text has these letters here, in any case.
    fn has(&self, at: usize, letters: &str) -> bool {
        self.bytes.get(at..at + letters.len()).is_some_and(|part| part.eq_ignore_ascii_case(letters.as_bytes()))
    }

    /// The end of one part of a host's name: letters, digits and, between them, hyphens.
    fn label(&self, from: usize) -> Option<usize> {
        if !self.at(from).is_ascii_alphanumeric() {
            return None;
        }
        let mut end = self.run(from, |b| b.is_ascii_alphanumeric() || b == b'-');
        while self.at(end - 1) == b'-' {
            end -= 1;
        }
        Some(end)
    }

    /// The end of a host's name, and the end of its longest part that ends in a top-level domain.
    fn host(&self, from: usize) -> Option<(usize, Option<usize>)> {
        let mut end = self.label(from)?;
        let mut strict = None;
        while self.at(end) == b'.' {
            let Some(next) = self.label(end + 1) else { break };
            if let Some(top) = self.top(end + 1, next) {
                strict = Some(top);
            }
            end = next;
        }
        Some((end, strict))
    }

    /// The end of the top-level domain that a part of a name begins with, a full stop behind it included.
    fn top(&self, from: usize, end: usize) -> Option<usize> {
        let longest = (from + 24).min(end);
        let name = self.text[from..longest].to_ascii_lowercase();
        let is_top = |to: usize| NAMES.contains(&name[..to - from]);
        let to = (from + 2..=longest).rev().find(|to| is_top(*to))?;
        Some(if to == end && self.at(to) == b'.' { to + 1 } else { to })
    }

    fn ip4(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for part in 0..4 {
            if part > 0 {
                if self.at(at) != b'.' {
                    return None;
                }
                at += 1;
            }
            let end = self.run(at, |b| b.is_ascii_digit()).min(at + 3);
            let is_octet = |end: usize| end > at && self.text[at..end].parse::<u16>().is_ok_and(|n| n < 256);
            at = if is_octet(end) {
                end
            } else if end > at + 1 && is_octet(end - 1) {
                end - 1
            } else {
                return None;
            };
        }
        Some(at)
    }

    /// A host in brackets, by its number.
    fn bracketed(&self, from: usize, is_mailbox: bool) -> Option<usize> {
        if self.at(from) != b'[' {
            return None;
        }
        let inner = from + 1;
        let end = self.run(inner, |b| {
            b.is_ascii_hexdigit() || matches!(b, b':' | b'.' | b'i' | b'I' | b'p' | b'P' | b'v' | b'V')
        });
        if self.at(end) != b']' || end - inner > 64 {
            return None;
        }
        let inside = &self.text[inner..end];
        let is_ip6 = |text: &str| text.parse::<std::net::Ipv6Addr>().is_ok();
        let fits = if is_mailbox {
            let six = inside.get(..5).filter(|tag| tag.eq_ignore_ascii_case("ipv6:")).map(|_| &inside[5..]);
            self.ip4(inner) == Some(end) || six.is_some_and(is_ip6)
        } else {
            is_ip6(inside)
        };
        fits.then_some(end + 1)
    }

    fn port(&self, from: usize) -> usize {
        let end = self.run(from + 1, |b| b.is_ascii_digit()).min(from + 6);
        if self.at(from) == b':' && end > from + 1 { end } else { from }
    }

    /// What may follow a host: path, query, fragment.
    fn path(&self, from: usize) -> usize {
        let mut at = from;
        while self.at(at) == b'/' {
            at = self.escaped(at + 1, |b| matches!(b, b';' | b':' | b'@' | b'&' | b'='));
        }
        for mark in [b'?', b'#'] {
            if self.at(at) == mark {
                at = self.escaped(at + 1, |b| is_delimiter(b) || matches!(b, b':' | b'@' | b'/' | b'?'));
            }
        }
        at
    }

    /// Any host, with the name of a user and a port.
    fn authority(&self, from: usize) -> Option<usize> {
        let login = self.escaped(from, is_delimiter);
        let login = if self.at(login) == b':' { self.escaped(login + 1, is_delimiter) } else { login };
        let host = |from: usize| {
            let named = self.host(from).map(|(end, _)| end);
            self.bracketed(from, false).max(named).map(|end| self.port(end))
        };
        let with_login = if self.at(login) == b'@' { host(login + 1) } else { None };
        with_login.max(host(from))
    }

    /// An address that names its scheme.
    fn full(&self, from: usize) -> Option<usize> {
        let scheme = ["http://", "https://", "ftp://", "file://"].into_iter().find(|scheme| self.has(from, scheme))?;
        let at = from + scheme.len();
        match scheme {
            "http://" | "https://" => self.authority(at).map(|end| self.path(end)),
            _ => {
                let host = match self.authority(at) {
                    Some(end) => end,
                    None if scheme == "file://" => at,
                    None => return None,
                };
                let mut end = host;
                while self.at(end) == b'/' {
                    end = self.escaped(end + 1, |b| matches!(b, b'?' | b':' | b'@' | b'&' | b'='));
                }
                (end > host).then_some(end)
            }
        }
    }

    /// A host that is known by its top-level domain or by numbers, and what follows it.
    fn bare(&mut self, from: usize) -> Option<usize> {
        if let Some(end) = self.bracketed(from, false).max(self.ip4(from)) {
            return Some(self.path(self.port(end)));
        }
        if from < self.no_host {
            return None;
        }
        match self.host(from)? {
            (_, Some(end)) => Some(self.path(self.port(end))),
            (end, None) => {
                self.no_host = end;
                None
            }
        }
    }

    /// The name of a mailbox: its end.
    fn mailbox_name(&self, from: usize) -> Option<usize> {
        if self.at(from) == b'"' {
            let mut at = from + 1;
            loop {
                match self.at(at) {
                    b'"' => return Some(at + 1),
                    0 | 9 | 10 | 13 | 0x80.. => return None,
                    b'\\' => at += 2,
                    _ => at += 1,
                }
                if at - from > super::MAX_TOKEN {
                    return None;
                }
            }
        }
        let end = self.run(from, is_atom);
        (end > from).then_some(end)
    }

    fn mailbox(&mut self, from: usize) -> Option<usize> {
        if from < self.no_mailbox {
            return None;
        }
        let name = self.mailbox_name(from)?;
        let domain = if self.at(name) == b'@' {
            self.bracketed(name + 1, true).max(self.host(name + 1).and_then(|(_, strict)| strict))
        } else {
            None
        };
        if domain.is_none() && self.at(from) != b'"' {
            self.no_mailbox = name;
        }
        domain
    }
}

/// Tells `each` the places of the tokens of a text, in bytes.
pub fn tokens(text: &str, mut each: impl FnMut(usize, usize)) {
    let mut reader = Reader { text, bytes: text.as_bytes(), no_host: 0, no_mailbox: 0 };
    let mut at = 0;
    // No word begins before this place.
    let mut no_word = 0;
    while at < text.len() {
        let mut is_token = false;
        let mut end = at + text[at..].chars().next().map_or(1, char::len_utf8);
        if at >= no_word {
            match standard::next(text, at, false) {
                (word, Some(_)) => (end, is_token) = (word, true),
                (next, None) => no_word = next,
            }
        }
        if reader.at(at) < 0x80 {
            for found in [reader.full(at), reader.bare(at), reader.mailbox(at)].into_iter().flatten() {
                if found > end || !is_token {
                    (end, is_token) = (found, true);
                }
            }
        }
        if is_token {
            each(at, end);
        }
        at = end;
    }
}
