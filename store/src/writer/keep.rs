//! Keeps bytes that lost against others, for a person to find.

use std::ffi::OsStr;
use std::path::Path;

use super::Writer;
use crate::conflict;
use crate::error::Result;
use crate::files::{NewFile, make_dirs, unused};
use crate::id::ConversationId;

impl Writer {
    /// Keeps one file among a conversation's losers. The label says what it lost against.
    pub fn keep(&self, id: ConversationId, label: &str, name: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let disk = self.store.disk();
        let owner = self.store.layout.store.conflicts().join(id.deciseconds().to_string());
        make_dirs(disk, &owner, self.store.layout.store_access())?;
        let time = conflict::dirname(self.store.now());
        let target = unused(disk, &owner, OsStr::new(&format!("{time}_{label}")))?;
        self.scratch().place(&target, &[NewFile::bytes(name, bytes.to_vec())])
    }
}
