//! Bytes that are known to be a whole managed file. Whoever has one has checked it, and nobody needs to check it again.

use crate::json::JsonError;
use crate::observe::check;
use crate::reconcile::ManagedFile;

/// A managed file's bytes, checked.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    file: ManagedFile,
    bytes: &'a [u8],
}

impl<'a> Document<'a> {
    /// These bytes, if they are such a file.
    pub fn of(file: ManagedFile, bytes: &'a [u8]) -> Result<Self, JsonError> {
        check(file, bytes).map(|()| Self { file, bytes })
    }

    /// Which file it is.
    pub fn file(&self) -> ManagedFile {
        self.file
    }

    /// Its bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}
