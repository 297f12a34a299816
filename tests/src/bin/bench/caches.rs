//! What the system remembers of the disk, and how to make it forget.

use std::fs;
use std::io;

const DROP: &str = "/proc/sys/vm/drop_caches";

/// Whether we may make the system forget.
pub(crate) fn can_drop() -> bool {
    nix::unistd::geteuid().is_root() && fs::OpenOptions::new().write(true).open(DROP).is_ok()
}

/// Brings everything to disk and forgets all names, attributes and contents.
pub(crate) fn drop_all() -> io::Result<()> {
    nix::unistd::sync();
    fs::write(DROP, "3\n").map_err(|err| io::Error::new(err.kind(), format!("cannot write {DROP}: {err}")))
}
