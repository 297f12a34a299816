//! Whether this system lets us mount, asked before anything is done about it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use jp_store::beneath::trusted;

use crate::error::{Error, Result};

const DEVICE: &str = "/dev/fuse";
/// The number of that device. Containers put something else in the place of what they do not give.
const NUMBER: (u64, u64) = (10, 229);
const CONFIGURATION: &str = "/etc/fuse.conf";
/// Mounts for whoever may not.
const HELPER: &str = "fusermount3";

/// Whether there is something to mount with.
pub(crate) fn driver() -> Result<()> {
    device().map_err(|error| unusable(&error))?;
    if is_root() {
        return Ok(());
    }
    let asked = Command::new(HELPER).arg("--version").stdin(Stdio::null()).output();
    match asked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(helpless(&error)),
        // One that is there and does not work says so when it is needed.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn device() -> io::Result<()> {
    use nix::sys::stat::{major, minor};
    let found = trusted::open_device(DEVICE)?.metadata()?.rdev();
    if (major(found), minor(found)) == NUMBER {
        return Ok(());
    }
    Err(io::Error::other("something else is in its place"))
}

/// Whether other users may be let into a mount.
pub(crate) fn others(allow_other: bool) -> Result<()> {
    if allow_other && !is_root() && !allows_others(&trusted::read_text(CONFIGURATION).unwrap_or_default()) {
        return Err(Error::no("this system does not let other users into a mount of yours")
            .hint(format!("root can allow it: a line `user_allow_other` in {CONFIGURATION}"))
            .hint("or leave `--allow-other` out"));
    }
    Ok(())
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn helpless(error: &io::Error) -> Error {
    let told = Error::no(format!("cannot mount: {HELPER} cannot be used")).because(error);
    told.hint("install fuse3: without root, mounting needs it")
}

fn unusable(error: &io::Error) -> Error {
    let told = Error::no(format!("cannot mount: {DEVICE} cannot be used")).because(error);
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            told.hint(format!("root can allow it: `chmod 666 {DEVICE}`")).hint("in a container: `--cap-add SYS_ADMIN`")
        }
        _ => told
            .hint("install fuse3, such as `apt-get install fuse3`, and load it with `modprobe fuse`")
            .hint(format!("in a container: `--device {DEVICE} --cap-add SYS_ADMIN`")),
    }
}

fn allows_others(configuration: &str) -> bool {
    let settings = configuration.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    settings.into_iter().any(|setting| setting == "user_allow_other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let check = |text: &str, expected| assert_eq!(allows_others(text), expected, "{text}");
        check("", false);
        check("# user_allow_other\nmount_max = 1000\n", false);
        check("mount_max = 1000\n  user_allow_other  # for the web server\n", true);
        check("user_allow_others\n", false);
    }

    #[test]
    fn advice() {
        let check = |kind: io::ErrorKind, hint: &str| {
            let told = unusable(&kind.into());
            assert!(told.hints.join("\n").contains(hint), "{:?}", told.hints);
        };
        check(io::ErrorKind::PermissionDenied, "chmod 666 /dev/fuse");
        check(io::ErrorKind::NotFound, "apt-get install fuse3");
    }
}
