//! Tokenizers that look at single characters: letters, and what stands between spaces.

use super::MAX_TOKEN;

/// Tells `each` the places of runs of characters that `is_part`. Runs above the length of a token are cut, as Lucene's
/// tokenizers of characters do.
pub fn tokens(text: &str, is_part: impl Fn(char) -> bool, mut each: impl FnMut(usize, usize)) {
    let mut start = None;
    let mut units = 0;
    for (at, c) in text.char_indices() {
        if !is_part(c) {
            if let Some(start) = start.take() {
                each(start, at);
            }
            continue;
        }
        let from = *start.get_or_insert_with(|| {
            units = 0;
            at
        });
        units += c.len_utf16();
        if units >= MAX_TOKEN {
            each(from, at + c.len_utf8());
            start = None;
        }
    }
    if let Some(start) = start {
        each(start, text.len());
    }
}
