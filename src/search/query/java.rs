//! Numbers as Java reads and writes them, which decides whether a word of a query is a number.

/// A number as Java's `Double.toString` writes it.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    decimal(&format!("{:e}", value), value.abs())
}

/// A number as Java's `Float.toString` writes it.
pub(crate) fn float_text(value: f32) -> String {
    if !value.is_finite() {
        return double_text(f64::from(value));
    }
    decimal(&format!("{:e}", value), f64::from(value.abs()))
}

/// Digits in Rust's scientific form to Java's: plain between a thousandth and ten million.
fn decimal(scientific: &str, size: f64) -> String {
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let all: String = digits.chars().filter(|c| *c != '.').collect();
    if size == 0.0 {
        return format!("{sign}0.0");
    }
    if !(1e-3..1e7).contains(&size) {
        let rest = if all.len() > 1 { &all[1..] } else { "0" };
        return format!("{sign}{}.{rest}E{exponent}", &all[..1]);
    }
    if exponent < 0 {
        return format!("{sign}0.{}{all}", "0".repeat((-exponent - 1) as usize));
    }
    let whole = exponent as usize + 1;
    if all.len() <= whole {
        format!("{sign}{all}{}.0", "0".repeat(whole - all.len()))
    } else {
        format!("{sign}{}.{}", &all[..whole], &all[whole..])
    }
}

/// The number that Java's `Double.valueOf` reads: decimal or hexadecimal, with an optional suffix of a type.
pub(crate) fn parse_double(text: &str) -> Option<f64> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    match rest {
        "NaN" => return Some(f64::NAN),
        "Infinity" => return Some(sign * f64::INFINITY),
        _ => {}
    }
    let is_hex = rest.len() > 2 && (rest.starts_with("0x") || rest.starts_with("0X"));
    if is_hex {
        let body = rest[2..].strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(&rest[2..]);
        // The exponent's digits are decimal, so a suffix behind them is one; before `p` there is none.
        return hexadecimal(body).map(|value| sign * value);
    }
    let body = rest.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(rest);
    let is_plain = body.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && body.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'.');
    if !is_plain {
        return None;
    }
    body.parse::<f64>().ok().map(|value| sign * value)
}

/// `1.8p3`: hexadecimal digits and a power of two, which is not optional.
fn hexadecimal(body: &str) -> Option<f64> {
    let (digits, power) = body.split_once(['p', 'P'])?;
    let power_digits = power.strip_prefix(['+', '-']).unwrap_or(power);
    if power_digits.is_empty() || !power_digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let power: i64 = power.parse::<i64>().unwrap_or(if power.starts_with('-') { -100_000 } else { 100_000 });
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let (mut mantissa, mut shift) = (0u64, 0i64);
    for (is_part, byte) in whole.bytes().map(|b| (false, b)).chain(part.bytes().map(|b| (true, b))) {
        let digit = u64::from((byte as char).to_digit(16)?);
        if mantissa >> 58 == 0 {
            mantissa = mantissa << 4 | digit;
            shift -= i64::from(is_part) * 4;
        } else {
            // Digits beyond what a double holds: only whether any is not zero counts.
            mantissa |= u64::from(digit != 0);
            shift += i64::from(!is_part) * 4;
        }
    }
    let power = (power + shift).clamp(-2_200, 2_200) as i32;
    let half = power / 2;
    Some(mantissa as f64 * 2f64.powi(half) * 2f64.powi(power - half))
}

/// The number that Java's `Float.valueOf` reads.
pub(crate) fn parse_float(text: &str) -> Option<f32> {
    let plain = text.trim_matches(|c: char| c <= ' ');
    let body = plain.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(plain);
    match parse_double(text) {
        Some(value) if value.is_finite() && !body.contains(['x', 'X']) => Some(body.parse().unwrap_or(value as f32)),
        other => other.map(|value| value as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_java_writes_them() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (7.0, "7.0"),
            (9.99, "9.99"),
            (0.001, "0.001"),
            (0.00012, "1.2E-4"),
            (1e7, "1.0E7"),
            (1234567.5, "1234567.5"),
            (1e-10, "1.0E-10"),
            (-1.25e30, "-1.25E30"),
            (f64::INFINITY, "Infinity"),
        ];
        for (value, text) in cases {
            assert_eq!(double_text(value), text);
        }
        assert_eq!(float_text(0.1), "0.1");
        assert_eq!(float_text(10.0), "10.0");
    }

    #[test]
    fn numbers_are_read_as_java_reads_them() {
        let numbers = [
            ("7", 7.0),
            ("1e3", 1000.0),
            ("0x1p3", 8.0),
            ("0x.8p1", 1.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("7f", 7.0),
            ("2.0d", 2.0),
            ("07", 7.0),
            ("+3", 3.0),
            ("-Infinity", f64::NEG_INFINITY),
            (" 4 ", 4.0),
        ];
        for (text, value) in numbers {
            assert_eq!(parse_double(text), Some(value), "{text}");
        }
        for text in ["0x7", "", "-", ".", "inf", "nan", "1e", "f", "1_0", "infinity", "0x", "0xp1", "e1", "--1"] {
            assert_eq!(parse_double(text), None, "{text}");
        }
        assert!(parse_double("NaN").is_some_and(f64::is_nan));
    }
}
