//! The `Range` header of an attachment GET: the bytes to send, if any.
//!
//! Pure. Only the unit `bytes` counts; an unreadable header is ignored (RFC 2616 section 14.27, and what CouchDB 3.5
//! was measured to do: `bytes=0-` and ten or more ranges answer the whole body with 200).

use crate::limits::BYTE_RANGES_MAX;

/// First and last byte of a range, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, never before `first`.
    pub last: u64,
}

impl ByteRange {
    /// The value of `Content-Range` for a body of `total` bytes.
    pub fn content_range(self, total: u64) -> String {
        format!("bytes {}-{}/{total}", self.first, self.last)
    }
}

/// What a `Range` header asks of a body of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The whole body: no range, or one that is ignored.
    Whole,
    /// One range, answered by 206.
    One(ByteRange),
    /// Several ranges, answered by 206 `multipart/byteranges`, in the order asked.
    Several(Vec<ByteRange>),
    /// A range that lies outside of the body: 416.
    Unsatisfiable,
}

/// Decides what to send of a body of `total` bytes.
pub fn wanted(header: Option<&str>, total: u64) -> Wanted {
    let Some(specs) = header.and_then(|h| h.trim().strip_prefix("bytes=")) else { return Wanted::Whole };
    let mut out = Vec::new();
    for spec in specs.split(',').filter(|spec| !spec.is_empty()) {
        if out.len() + 1 >= BYTE_RANGES_MAX {
            return Wanted::Whole;
        }
        match one(spec.trim(), total) {
            Spec::Unreadable => return Wanted::Whole,
            Spec::Outside => return Wanted::Unsatisfiable,
            Spec::Range(range) => out.push(range),
        }
    }
    match out.as_slice() {
        [] => Wanted::Whole,
        [single] => Wanted::One(*single),
        _ => Wanted::Several(out),
    }
}

enum Spec {
    Unreadable,
    Outside,
    Range(ByteRange),
}

fn one(spec: &str, total: u64) -> Spec {
    let Some((first, last)) = spec.split_once('-') else { return Spec::Unreadable };
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().unwrap_or(u64::MAX));
    let (first, last) = match (first.is_empty(), last.is_empty()) {
        (true, true) => return Spec::Unreadable,
        (true, false) => match number(last) {
            None => return Spec::Unreadable,
            Some(suffix) => (total.saturating_sub(suffix), if suffix == 0 { 0 } else { u64::MAX }),
        },
        (false, true) => match number(first) {
            None | Some(0) => return Spec::Unreadable,
            Some(first) => (first, u64::MAX),
        },
        (false, false) => match (number(first), number(last)) {
            (Some(first), Some(last)) => (first, last),
            _ => return Spec::Unreadable,
        },
    };
    if first >= total || last < first {
        return Spec::Outside;
    }
    Spec::Range(ByteRange { first, last: last.min(total - 1) })
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, Wanted, wanted};

    fn one(first: u64, last: u64) -> Wanted {
        Wanted::One(ByteRange { first, last })
    }

    #[test]
    fn single_ranges_are_cut_to_the_body() {
        for (header, answer) in [
            ("bytes=2-5", one(2, 5)),
            ("bytes=7-", one(7, 9)),
            ("bytes=-3", one(7, 9)),
            ("bytes=-30", one(0, 9)),
            ("bytes=5-100", one(5, 9)),
            ("bytes=0-0", one(0, 0)),
            ("bytes=2-3,", one(2, 3)),
            ("bytes=,,2-3", one(2, 3)),
            ("bytes=,", Wanted::Whole),
            ("bytes=0-9", one(0, 9)),
            ("bytes=99999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=5-2", Wanted::Unsatisfiable),
            ("bytes=10-20", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=0-", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
            ("bytes=x-y", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=", Wanted::Whole),
        ] {
            assert_eq!(wanted(Some(header), 10), answer, "{header}");
        }
        assert_eq!(wanted(None, 10), Wanted::Whole);
        assert_eq!(wanted(Some("bytes=0-0"), 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn several_ranges_keep_their_order_and_ten_are_too_many() {
        let Wanted::Several(ranges) = wanted(Some("bytes=4-5, 0-1,-2"), 10) else { panic!("several") };
        assert_eq!(ranges.iter().map(|r| (r.first, r.last)).collect::<Vec<_>>(), [(4, 5), (0, 1), (8, 9)]);
        assert_eq!(ranges[2].content_range(10), "bytes 8-9/10");
        let nine = format!("bytes={}", ["1-1"; 9].join(","));
        assert!(matches!(wanted(Some(&nine), 10), Wanted::Several(r) if r.len() == 9));
        let ten = format!("bytes={}", ["1-1"; 10].join(","));
        assert_eq!(wanted(Some(&ten), 10), Wanted::Whole);
    }
}
