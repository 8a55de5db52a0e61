//! Unzips gzip in bounded steps while an attachment is sent.

use std::io::Write;

use flate2::write::MultiGzDecoder;

use crate::http::{Problem, Result};
use crate::limits;

/// An unzipping under way. Feed it [`Gunzip::steps`] of the stored bytes: each makes at most about 1 MB.
pub struct Gunzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    out: Vec<u8>,
}

impl Gunzip {
    /// Starts.
    pub fn new() -> Gunzip {
        Gunzip { decoder: MultiGzDecoder::new(Vec::new()), out: Vec::new() }
    }

    /// Cuts zipped bytes into steps.
    pub fn steps(chunk: &[u8]) -> impl Iterator<Item = &[u8]> {
        chunk.chunks(limits::HTTP_INFLATE_STEP_BYTES)
    }

    /// Unzips one step; what it yields is good until the next.
    ///
    /// # Errors
    /// When the bytes are not gzip: the client that sent them said so.
    pub fn push(&mut self, step: &[u8]) -> Result<&[u8]> {
        self.decoder.write_all(step).map_err(|_| damaged())?;
        self.out.clear();
        self.out.append(self.decoder.get_mut());
        Ok(&self.out)
    }

    /// Ends; yields what is left.
    ///
    /// # Errors
    /// As [`Gunzip::push`].
    pub fn finish(self) -> Result<Vec<u8>> {
        self.decoder.finish().map_err(|_| damaged())
    }
}

fn damaged() -> Problem {
    Problem::internal("The stored attachment is not properly gzipped.")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::Gunzip;

    #[test]
    fn steps_give_back_the_plain_bytes() {
        let text = "some text that repeats ".repeat(50_000);
        let mut zip = GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(text.as_bytes()).unwrap();
        let zipped = zip.finish().unwrap();
        let (mut gunzip, mut out) = (Gunzip::new(), Vec::new());
        for step in Gunzip::steps(&zipped) {
            out.extend_from_slice(gunzip.push(step).unwrap());
        }
        out.extend(gunzip.finish().unwrap());
        assert_eq!(out, text.as_bytes());
        assert!(Gunzip::new().push(b"plain text").is_err());
    }
}
