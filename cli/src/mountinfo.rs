//! What is mounted where, as the kernel's own list says. Nothing here looks at a mount point itself: a filesystem whose
//! process hangs would hang whoever asks.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use jp_store::beneath::trusted;

/// What our mounts are called: the source in the kernel's list, and the kind after `fuse.`.
const NAME: &str = "jp";

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: OsString,
    /// The number of its device, by which the kernel keeps its connections apart.
    pub(crate) device: u64,
}

impl Mount {
    /// Whether it is one of ours, alive or dead.
    pub(crate) fn is_ours(&self) -> bool {
        self.source == NAME && matches!(self.kind.as_str(), "fuse" | "fuse.jp")
    }
}

/// Everything this process sees mounted.
pub(crate) fn read() -> Vec<Mount> {
    parse(&trusted::read("/proc/self/mountinfo").unwrap_or_default())
}

/// What is mounted at a point. Mounts lie over each other, and the last one listed is on top.
pub(crate) fn at<'a>(mounts: &'a [Mount], point: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.point == point)
}

/// Whether a mount of ours covers a point.
pub(crate) fn is_ours_mounted(point: &Path) -> bool {
    at(&read(), &place(point)).is_some_and(Mount::is_ours)
}

/// The point as the kernel names it: no links above it. The point itself is resolved only where nothing is mounted on it.
pub(crate) fn place(point: &Path) -> PathBuf {
    let above = point.parent().and_then(|parent| trusted::canonical(parent).ok());
    let (Some(above), Some(name)) = (above, point.file_name()) else {
        return trusted::canonical(point).unwrap_or_else(|_| point.to_owned());
    };
    let place = above.join(name);
    if at(&read(), &place).is_some() {
        return place;
    }
    trusted::canonical(&place).unwrap_or(place)
}

/// The list as values. A line that makes no sense is passed over.
pub(crate) fn parse(list: &[u8]) -> Vec<Mount> {
    list.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?.1.parse().ok()?;
    let point = unescape(fields.nth(1)?);
    // Any number of optional fields lies between the options and the dash.
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8(unescape(fields.next()?)).ok()?;
    let source = OsString::from_vec(unescape(fields.next()?));
    Some(Mount { point: OsString::from_vec(point).into(), kind, source, device })
}

/// The kernel writes blanks, newlines and backslashes as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] = rest {
            plain.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = after;
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let check = |line: &str, expected: Option<(&str, &str, &str, bool)>| {
            let found = parse(line.as_bytes());
            let found = found.first().map(|mount| {
                (mount.point.to_str().unwrap(), mount.kind.as_str(), mount.source.to_str().unwrap(), mount.is_ours())
            });
            assert_eq!(found, expected, "{line}");
        };
        check("", None);
        check("no such line", None);
        check("1 2 0:3 / /mnt rw", None);
        check("25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw", Some(("/sys", "sysfs", "sysfs", false)));
        check("90 30 0:50 / /p rw,nodev - fuse.jp jp rw,user_id=0", Some(("/p", "fuse.jp", "jp", true)));
        check("90 30 0:50 / /p rw,nodev - fuse jp rw", Some(("/p", "fuse", "jp", true)));
        check("90 30 0:50 / /p rw - fuse.sshfs jp rw", Some(("/p", "fuse.sshfs", "jp", false)));
        check("90 30 0:50 / /p rw - fuse.jp other rw", Some(("/p", "fuse.jp", "other", false)));
        check("90 30 0:50 / /p rw master:1 propagate_from:2 - fuse jp rw", Some(("/p", "fuse", "jp", true)));
        check("90 30 0:50 / /a\\040b\\134c\\011d\\012e rw - fuse jp rw", Some(("/a b\\c\td\ne", "fuse", "jp", true)));
        check("90 30 0:50 / /a\\04 rw - fuse jp rw", Some(("/a\\04", "fuse", "jp", true)));
        check("90 30 0:50 / /a\\777 rw - fuse jp rw", Some(("/a\\777", "fuse", "jp", true)));
    }

    #[test]
    fn the_last_one_is_on_top() {
        let mounts =
            parse(b"1 0 0:1 / /p rw - fuse.jp jp rw\n2 1 0:2 / /p rw - tmpfs none rw\n3 0 0:3 / /q rw - fuse jp rw\n");
        let kind = |point: &str| at(&mounts, Path::new(point)).map(|mount| mount.kind.as_str());
        assert_eq!((kind("/p"), kind("/q"), kind("/r")), (Some("tmpfs"), Some("fuse"), None));
    }

    #[test]
    fn a_plain_directory_is_not_ours() {
        assert!(!is_ours_mounted(Path::new("/")));
        assert!(!is_ours_mounted(Path::new("/nowhere/at/all")));
    }
}
