//! Files that an operator put on every machine: the certificate of an authority, and one for all addresses of nodes
//! with its key. Processes read them. No fault touches them, nor the loss of the disk: an operator puts them there
//! again.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use settee::world::File;

/// All of them. They count from 1970 to 9999, as clocks may show anything; their Ed25519 keys sign without random
/// numbers.
pub(super) fn keys() -> BTreeMap<PathBuf, &'static [u8]> {
    BTreeMap::from([
        (PathBuf::from(AUTHORITY), include_bytes!("../../../keys/authority.pem").as_slice()),
        (PathBuf::from(CERTIFICATE), include_bytes!("../../../keys/node.pem").as_slice()),
        (PathBuf::from(KEY), include_bytes!("../../../keys/node.key").as_slice()),
    ])
}

/// The certificate of the authority.
pub(crate) const AUTHORITY: &str = "/keys/authority.pem";
/// The certificate of every node.
pub(crate) const CERTIFICATE: &str = "/keys/node.pem";
/// Its key.
pub(crate) const KEY: &str = "/keys/node.key";

/// Such a file, open.
#[derive(Debug)]
pub(super) struct Placed(pub(super) &'static [u8]);

impl File for Placed {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let found = self.0.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
