//! Opens a path relative to a directory without following any link: by one call where the kernel has it (Linux 5.6), else
//! name by name.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::OnceLock;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, fstatat};

/// A link anywhere on the way is `ELOOP`. At the end, too, unless the flags have both `O_PATH` and `O_NOFOLLOW`.
pub(super) fn open(top: BorrowedFd<'_>, path: &OsStr, flags: OFlag, mode: Mode) -> Result<OwnedFd> {
    if can_resolve() { in_one_call(top, path, flags, mode) } else { by_names(top, path, flags, mode) }
}

fn can_resolve() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        // In a container the call may be forbidden as well as missing.
        in_one_call(nix::fcntl::AT_FDCWD, OsStr::new("."), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).is_ok()
    })
}

pub(super) fn in_one_call(top: BorrowedFd<'_>, path: &OsStr, flags: OFlag, mode: Mode) -> Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    // The call refuses a mode for a file that is not made.
    let mode = if flags.contains(OFlag::O_CREAT) { mode } else { Mode::empty() };
    let how = OpenHow::new().flags(flags).mode(mode).resolve(resolve);
    loop {
        match openat2(top, path, how) {
            // The kernel could not tell that nothing was renamed on the way.
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            opened => return opened,
        }
    }
}

pub(super) fn by_names(top: BorrowedFd<'_>, path: &OsStr, flags: OFlag, mode: Mode) -> Result<OwnedFd> {
    let mut names = Path::new(path).components().peekable();
    let mut above: Option<OwnedFd> = None;
    while let Some(component) = names.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => OsStr::new("."),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::EXDEV),
        };
        let here = above.as_ref().map_or(top, |dir| dir.as_fd());
        if names.peek().is_none() {
            return openat(here, name, flags | OFlag::O_NOFOLLOW, mode).map_err(|errno| or_link(here, name, errno));
        }
        let on_the_way = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let next = openat(here, name, on_the_way, Mode::empty()).map_err(|errno| or_link(here, name, errno))?;
        above = Some(next);
    }
    Err(Errno::ENOENT)
}

/// A link where a directory has to be is said not to be one.
fn or_link(dir: BorrowedFd<'_>, name: &OsStr, errno: Errno) -> Errno {
    let is_link = || {
        fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFLNK)
    };
    if errno == Errno::ENOTDIR && is_link() { Errno::ELOOP } else { errno }
}
