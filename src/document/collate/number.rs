//! Numbers in the order of their exact values: integers of any size and floats in one scale.
//!
//! A key holds the sign, the exponent of the highest bit, and the bits below it in groups of seven with a mark that
//! more follow. Every number is a finite sum of powers of two, so nothing is rounded.

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};

use crate::json::Value;

/// Added to exponents (-1074 for the least float, 1023 for the greatest) to make them positive.
const EXPONENT_BIAS: i64 = 0x4000;
/// Bits of a group, and the number that they count to.
const GROUP_BITS: u64 = 7;
const GROUP_RADIX: u32 = 1 << GROUP_BITS;
/// Bits of a float's fraction as stored, and the exponent of the last of them in a float of exponent field 0.
const FRACTION_BITS: u32 = 52;
const LEAST_EXPONENT: i64 = -1074;

/// Compares two numbers. Other values count as zero.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
        (Value::Big(a), Value::Big(b)) => a.cmp(b),
        _ => {
            let (mut a_key, mut b_key) = (Vec::with_capacity(16), Vec::with_capacity(16));
            sort_key(a, 0, &mut a_key);
            sort_key(b, 0, &mut b_key);
            a_key.cmp(&b_key)
        }
    }
}

/// Appends a number's key; its first byte is `tag`, `tag + 1` or `tag + 2`: negative, zero, positive.
pub fn sort_key(number: &Value, tag: u8, out: &mut Vec<u8>) {
    let start = out.len();
    let negative = match number {
        Value::Int(value) => {
            small(value.unsigned_abs(), 0, tag, out);
            *value < 0
        }
        Value::Float(value) => {
            let bits = value.abs().to_bits();
            let fraction = bits & ((1 << FRACTION_BITS) - 1);
            let (mantissa, exponent) = match i64::try_from(bits >> FRACTION_BITS) {
                Ok(field) if field > 0 => (fraction | (1 << FRACTION_BITS), LEAST_EXPONENT + field - 1),
                _ => (fraction, LEAST_EXPONENT),
            };
            small(mantissa, exponent, tag, out);
            *value < 0.0
        }
        Value::Big(value) => {
            big(value, tag, out);
            value.sign() == Sign::Minus
        }
        _ => {
            out.push(tag + 1);
            false
        }
    };
    if negative {
        out[start] = tag;
        // What is greater in magnitude is less: all bytes behind the sign are turned around.
        out[start + 1..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// `mantissa` times two to the power of `exponent`.
fn small(mantissa: u64, exponent: i64, tag: u8, out: &mut Vec<u8>) {
    if mantissa == 0 {
        out.push(tag + 1);
        return;
    }
    let unused = mantissa.leading_zeros();
    head(63 - i64::from(unused) + exponent, tag, out);
    // The highest bit is known to be set and left out.
    let mut rest = (mantissa << unused) << 1;
    loop {
        let group = (rest >> (64 - GROUP_BITS)) as u8;
        rest <<= GROUP_BITS;
        out.push(group << 1 | u8::from(rest != 0));
        if rest == 0 {
            return;
        }
    }
}

fn big(value: &BigInt, tag: u8, out: &mut Vec<u8>) {
    let magnitude = value.magnitude();
    if magnitude.bits() <= 64 {
        // Invariant: 64 bits were just counted.
        return small(u64::try_from(magnitude).expect("at most 64 bits"), 0, tag, out);
    }
    let below = magnitude.bits() - 1;
    head(i64::try_from(below).unwrap_or(i64::MAX), tag, out);
    let groups = below.div_ceil(GROUP_BITS);
    let rest = (magnitude - (BigUint::from(1_u8) << below)) << (groups * GROUP_BITS - below);
    let mut digits = rest.to_radix_be(GROUP_RADIX);
    let missing = usize::try_from(groups).unwrap_or(usize::MAX).saturating_sub(digits.len());
    digits.splice(0..0, std::iter::repeat_n(0, missing));
    let last = digits.iter().rposition(|digit| *digit != 0).unwrap_or(0);
    out.extend(digits[..=last].iter().enumerate().map(|(at, digit)| digit << 1 | u8::from(at < last)));
}

fn head(exponent: i64, tag: u8, out: &mut Vec<u8>) {
    out.push(tag + 2);
    // Numbers come from texts that fit a double (`json::parse`); others would only be sorted together.
    let biased = u16::try_from(exponent + EXPONENT_BIAS).unwrap_or(u16::MAX);
    out.extend_from_slice(&biased.to_be_bytes());
}
