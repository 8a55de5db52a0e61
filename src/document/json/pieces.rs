//! Reading a long list within a JSON object piece by piece: of `{"docs":[..]}` only one piece is in memory as values.

use super::parse::Parser;
use super::{JsonError, Object, Value};

/// How large a piece may be.
#[derive(Clone, Copy, Debug)]
pub struct PieceSize {
    /// Elements.
    pub elements: usize,
    /// Bytes of their text; a larger element goes alone.
    pub bytes: usize,
}

/// Some elements of the list, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where the first of them begins.
    at: usize,
    /// How many there are.
    pub count: usize,
}

/// An object that was read, but for the elements of one of its lists.
#[derive(Debug)]
pub struct Scanned {
    /// The other members; the list is there as an empty one.
    pub members: Object,
    /// The pieces of the list, in order.
    pub pieces: Vec<Piece>,
}

/// Reads a JSON text and shows `each` the elements of the list `name` of the object that it is, with the number of
/// their piece; `None` for a text of something else than an object. Of two members of that name the last counts, and
/// `each` begins with piece 0 again.
///
/// # Errors
/// As [`parse`](super::parse).
pub fn scan(
    text: &[u8],
    name: &str,
    size: PieceSize,
    mut each: impl FnMut(usize, Value),
) -> Result<Option<Scanned>, JsonError> {
    let mut parser = Parser::of(text)?;
    if parser.next_token()? != b'{' {
        return super::parse(text).map(|_| None);
    }
    let (mut members, mut pieces) = (Vec::new(), Vec::new());
    if parser.next_is(b'}') {
        return parser.end().map(|()| Some(Scanned { members: Object::new(), pieces }));
    }
    loop {
        let member = parser.member_name()?;
        let value = match member == name && parser.next_is(b'[') {
            true => {
                pieces = list(&mut parser, size, &mut each)?;
                Value::Array(Vec::new())
            }
            false => parser.within(1)?,
        };
        members.push((member, value));
        match parser.next_token()? {
            b',' => {}
            b'}' => break,
            _ => return Err(JsonError),
        }
    }
    parser.end()?;
    Ok(Some(Scanned { members: members.into_iter().collect(), pieces }))
}

/// The elements of a list whose bracket was read.
fn list(
    parser: &mut Parser<'_>,
    size: PieceSize,
    each: &mut impl FnMut(usize, Value),
) -> Result<Vec<Piece>, JsonError> {
    let mut pieces: Vec<Piece> = Vec::new();
    if parser.next_is(b']') {
        return Ok(pieces);
    }
    loop {
        let at = parser.at();
        let element = parser.within(2)?;
        match pieces.last_mut() {
            Some(piece) if piece.count < size.elements && parser.at() - piece.at <= size.bytes => piece.count += 1,
            _ => pieces.push(Piece { at, count: 1 }),
        }
        each(pieces.len() - 1, element);
        match parser.next_token()? {
            b',' => {}
            b']' => return Ok(pieces),
            _ => return Err(JsonError),
        }
    }
}

/// The elements of a piece of the text that was scanned.
///
/// # Errors
/// For another text.
pub fn elements(text: &[u8], piece: Piece) -> Result<Vec<Value>, JsonError> {
    let mut parser = Parser::of(text.get(piece.at..).ok_or(JsonError)?)?;
    let mut out = Vec::with_capacity(piece.count);
    loop {
        out.push(parser.within(2)?);
        if out.len() == piece.count {
            return Ok(out);
        }
        if parser.next_token()? != b',' {
            return Err(JsonError);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: PieceSize = PieceSize { elements: 2, bytes: 12 };

    #[test]
    fn a_list_in_pieces_is_the_list() {
        let text =
            br#" {"a": [1] , "docs" : [ {"x":1}, [2,{"y":"],"}] ,3, "a long text of its own" ,null,{}] ,"b":{}} "#;
        let mut seen = Vec::new();
        let scanned = scan(text, "docs", SIZE, |piece, value| seen.push((piece, value))).unwrap().unwrap();
        let again: Vec<Value> = scanned.pieces.iter().flat_map(|piece| elements(text, *piece).unwrap()).collect();
        assert!(scanned.pieces.len() > 2);
        assert_eq!(again, seen.into_iter().map(|(_, value)| value).collect::<Vec<_>>());
        let Value::Object(mut whole) = super::super::parse(text).unwrap() else { panic!("an object") };
        assert_eq!(whole.get("docs").unwrap().as_array().unwrap(), again);
        *whole.get_mut("docs").unwrap() = Value::Array(Vec::new());
        assert_eq!(scanned.members, whole);
    }

    #[test]
    fn what_is_refused_whole_is_refused_in_pieces() {
        for text in [
            r#"{"docs":[{}}"#,
            r#"{"docs":[1,]}"#,
            r#"{"docs":[1]"#,
            r#"{"docs":[1]}x"#,
            r#"{"docs":[1],}"#,
            "{",
            "",
            "[1",
            r#"{"docs" [1]}"#,
            r#"{docs:[1]}"#,
        ] {
            assert!(super::super::parse(text.as_bytes()).is_err(), "{text}");
            assert_eq!(scan(text.as_bytes(), "docs", SIZE, |_, _| {}).unwrap_err(), JsonError, "{text}");
        }
        for text in ["[1]", "1", "null"] {
            assert!(scan(text.as_bytes(), "docs", SIZE, |_, _| {}).unwrap().is_none(), "{text}");
        }
        for text in [r#"{"docs":1}"#, "{}", r#"{"docs":[],"docs":{"a":1}}"#] {
            let scanned = scan(text.as_bytes(), "docs", SIZE, |_, _| {}).unwrap().unwrap();
            assert_eq!(Value::Object(scanned.members), super::super::parse(text.as_bytes()).unwrap());
        }
    }

    #[test]
    fn levels_count_from_the_outermost_object_on() {
        let deep = |levels: usize| format!("{{\"docs\":[{}{}]}}", "[".repeat(levels), "]".repeat(levels));
        for (levels, holds) in [(crate::limits::JSON_DEPTH_MAX - 2, true), (crate::limits::JSON_DEPTH_MAX - 1, false)] {
            let text = deep(levels);
            assert_eq!(super::super::parse(text.as_bytes()).is_ok(), holds);
            assert_eq!(scan(text.as_bytes(), "docs", SIZE, |_, _| {}).is_ok(), holds);
        }
    }
}
