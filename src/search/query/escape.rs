//! Escapes of query texts, over UTF-16 units as the reference counts them.

/// The text without its escapes: `\x` is `x`, `\u00e9` is `é`.
pub(super) fn unescape(units: &[u16]) -> Result<String, String> {
    let mut output = Vec::with_capacity(units.len());
    let mut rest = units.iter().copied();
    while let Some(unit) = rest.next() {
        if unit != u16::from(b'\\') {
            output.push(unit);
            continue;
        }
        let Some(escaped) = rest.next() else {
            return Err("Term can not end with escape character.".into());
        };
        if escaped != u16::from(b'u') {
            output.push(escaped);
            continue;
        }
        let mut code = 0;
        for _ in 0..4 {
            let Some(unit) = rest.next() else {
                return Err("Truncated unicode escape sequence.".into());
            };
            code = code << 4 | hex_digit(unit)?;
        }
        output.push(code);
    }
    Ok(String::from_utf16_lossy(&output))
}

fn hex_digit(unit: u16) -> Result<u16, String> {
    let digit = char::from_u32(u32::from(unit)).filter(char::is_ascii).and_then(|c| c.to_digit(16));
    digit
        .map(|digit| digit as u16)
        .ok_or_else(|| format!("Non-hex character in Unicode escape sequence: {}", String::from_utf16_lossy(&[unit])))
}
