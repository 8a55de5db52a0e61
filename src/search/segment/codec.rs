//! Integers, checksums and numbers as the bytes of segments hold them.

use super::SegmentError;

/// Appends an unsigned integer, seven bits a byte, low bits first.
pub(crate) fn put(output: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

/// Appends bytes behind their length.
pub(crate) fn put_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    put(output, bytes.len() as u64);
    output.extend_from_slice(bytes);
}

/// Reads what [`put`] wrote and moves `at` behind it.
#[inline]
pub(crate) fn get(bytes: &[u8], at: &mut usize) -> Result<u64, SegmentError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(SegmentError::Damaged("end of a list"))?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(SegmentError::Damaged("an integer"))
}

/// Reads an integer of 32 bits.
#[inline]
pub(crate) fn get32(bytes: &[u8], at: &mut usize) -> Result<u32, SegmentError> {
    u32::try_from(get(bytes, at)?).map_err(|_| SegmentError::Damaged("an integer"))
}

/// Reads bytes behind their length.
pub(crate) fn get_bytes<'a>(bytes: &'a [u8], at: &mut usize) -> Result<&'a [u8], SegmentError> {
    let length = get(bytes, at)? as usize;
    let end = at.checked_add(length).filter(|end| *end <= bytes.len()).ok_or(SegmentError::Damaged("a length"))?;
    let found = &bytes[*at..end];
    *at = end;
    Ok(found)
}

/// Reads text behind its length.
pub(crate) fn get_text<'a>(bytes: &'a [u8], at: &mut usize) -> Result<&'a str, SegmentError> {
    std::str::from_utf8(get_bytes(bytes, at)?).map_err(|_| SegmentError::Damaged("text"))
}

/// An integer of a few bytes, little-endian.
#[inline]
pub(crate) fn fixed(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    let length = bytes.len().min(8);
    whole[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(whole)
}

/// The bytes that hold integers up to this one.
pub(crate) fn width(value: u64) -> usize {
    (8 - value.leading_zeros() as usize / 8).max(1)
}

/// A checksum. A change within any eight bytes alone always changes it.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = (bytes.len() as u64).wrapping_mul(FACTOR);
    for chunk in bytes.chunks(8) {
        state = (state ^ fixed(chunk)).wrapping_mul(FACTOR);
        state ^= state >> 29;
    }
    state
}

/// A checksum of four bytes. One change in four thousand million goes unnoticed.
pub(crate) fn short_checksum(bytes: &[u8]) -> u32 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let state = checksum(bytes);
    // High bits change with all others, so that they are kept.
    let state = (state ^ state >> 32).wrapping_mul(FACTOR);
    ((state ^ state >> 32).wrapping_mul(FACTOR) >> 32) as u32
}

/// A number as an integer of the same order.
pub(crate) fn sortable(value: f64) -> u64 {
    let bits = if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The number of which [`sortable`] made this.
pub(crate) fn unsortable(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

/// Lengths that a byte holds as they are; longer ones lose their low bits.
const EXACT_LENGTHS: u32 = 24;

/// The length of a text as one byte, as Lucene 9 keeps it: small ones as they are, others with four bits of precision.
pub(crate) fn length_byte(length: u32) -> u8 {
    if length < EXACT_LENGTHS {
        return length as u8;
    }
    let rest = length.min(i32::MAX as u32) - EXACT_LENGTHS;
    let bits = 32 - rest.leading_zeros();
    let coded = if bits < 4 {
        rest
    } else {
        let shift = bits - 4;
        ((rest >> shift) & 0x07) | ((shift + 1) << 3)
    };
    (EXACT_LENGTHS + coded).min(255) as u8
}

/// The length that a byte stands for.
pub(crate) fn length_value(byte: u8) -> u32 {
    let coded = u32::from(byte);
    if coded < EXACT_LENGTHS {
        return coded;
    }
    let rest = coded - EXACT_LENGTHS;
    let (bits, shift) = (rest & 0x07, rest >> 3);
    EXACT_LENGTHS + if shift == 0 { bits } else { (bits | 0x08) << (shift - 1) }
}

/// A length norm as one byte: three bits of mantissa, five of exponent, as Lucene's DefaultSimilarity keeps it.
pub(crate) fn norm_byte(norm: f32) -> u8 {
    let bits = norm.to_bits() as i32;
    let small = bits >> (24 - 3);
    if small <= (63 - 15) << 3 {
        return u8::from(bits > 0);
    }
    if small >= ((63 - 15) << 3) + 0x100 {
        return 255;
    }
    (small - ((63 - 15) << 3)) as u8
}

/// The norm that a byte stands for.
pub(crate) fn norm_value(byte: u8) -> f32 {
    if byte == 0 {
        return 0.0;
    }
    f32::from_bits((u32::from(byte) << (24 - 3)) + ((63 - 15) << 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(get(&bytes, &mut 0), Ok(value));
        }
        assert!(get(&[0x80], &mut 0).is_err());
        assert!(get(&[0xff; 11], &mut 0).is_err());
    }

    #[test]
    fn every_bit_counts_in_a_checksum() {
        let bytes: Vec<u8> = (0..=99).collect();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(short_checksum(&changed), short_checksum(&bytes), "bit {bit}");
        }
    }

    #[test]
    fn numbers_keep_their_order() {
        let numbers = [f64::NEG_INFINITY, -1e300, -1.0, -0.0, 0.0, 1e-300, 1.0, f64::INFINITY, f64::NAN];
        for pair in numbers.windows(2) {
            assert!(sortable(pair[0]) < sortable(pair[1]), "{pair:?}");
            assert_eq!(unsortable(sortable(pair[0])).to_bits(), pair[0].to_bits());
        }
    }

    #[test]
    fn lengths_are_those_of_lucene() {
        for length in 0..40 {
            assert_eq!(length_value(length_byte(length)), length);
        }
        for (length, kept) in [(40, 40), (41, 40), (56, 56), (100, 96), (1000, 984), (i32::MAX as u32, 2_013_265_944)] {
            assert_eq!(length_value(length_byte(length)), kept, "{length}");
        }
        assert_eq!((length_byte(u32::MAX), length_byte(i32::MAX as u32)), (255, 255));
    }

    #[test]
    fn norms_are_those_of_lucene() {
        assert_eq!(norm_value(norm_byte(1.0)), 1.0);
        assert_eq!(norm_value(norm_byte(0.5)), 0.5);
        assert_eq!(norm_value(norm_byte((1.0 / 3f64.sqrt()) as f32)), 0.5);
        assert_eq!(norm_value(norm_byte((1.0 / 2f64.sqrt()) as f32)), 0.625);
        assert_eq!(norm_byte(0.0), 0);
        assert_eq!(norm_byte(f32::INFINITY), 255);
    }
}
