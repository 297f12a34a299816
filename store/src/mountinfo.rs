//! What is mounted where, as the kernel's own list says. Nothing here looks at a mount point itself: a filesystem whose
//! process hangs would hang whoever asks.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use crate::beneath::{Kind, trusted};

/// What our mounts are called: the source in the kernel's list, and the kind after `fuse.`.
const NAME: &str = "jp";
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// Filesystems of the kernel's own. Any other may keep whoever asks waiting.
const LOCAL: [&str; 22] = [
    "bcachefs", "btrfs", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "iso9660", "jfs",
    "nilfs2", "ntfs3", "overlay", "ramfs", "reiserfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its own number.
    id: u64,
    /// The number of the mount that it lies on.
    parent: u64,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The kind of its filesystem.
    pub kind: String,
    /// What is mounted.
    pub source: OsString,
    /// Both numbers of its device. By the second one the kernel keeps its FUSE connections apart.
    pub device: (u64, u64),
    /// Which directory of its filesystem is shown there.
    root: PathBuf,
}

/// Where a directory lies in its filesystem, whatever is mounted where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    device: (u64, u64),
    path: PathBuf,
}

impl Location {
    /// Whether it is another one or lies in it.
    pub fn is_within(&self, outer: &Self) -> bool {
        self.device == outer.device && self.path.starts_with(&outer.path)
    }

    /// That of a name in it.
    pub fn join(self, name: impl AsRef<Path>) -> Self {
        Self { path: self.path.join(name), ..self }
    }
}

impl Mount {
    /// Whether it is one of ours, alive or dead.
    pub fn is_ours(&self) -> bool {
        self.source == NAME && matches!(self.kind.as_str(), "fuse" | "fuse.jp")
    }

    /// Whether the kernel itself has its files, so that whoever looks at one waits for no other process or machine.
    fn is_local(&self) -> bool {
        LOCAL.contains(&self.kind.as_str())
    }
}

/// Everything this process sees mounted.
pub fn read() -> Vec<Mount> {
    parse(&trusted::read("/proc/self/mountinfo").unwrap_or_default())
}

/// What is mounted at a point. Mounts lie over each other, and the last one listed is on top.
pub fn at<'a>(mounts: &'a [Mount], point: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.point == point)
}

/// Whether a mount of ours covers a point.
pub fn is_ours_mounted(point: &Path) -> bool {
    at(&read(), &place(point)).is_some_and(Mount::is_ours)
}

/// The point as the kernel names it: no links above it. The point itself is resolved only where nothing is mounted on it.
pub fn place(point: &Path) -> PathBuf {
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

/// The mounts that a path without links leads through, the innermost last.
fn on_the_way<'a>(mounts: &'a [Mount], path: &Path) -> Vec<&'a Mount> {
    let is_top = |mount: &Mount| mount.parent == mount.id || mounts.iter().all(|other| other.id != mount.parent);
    let mut way: Vec<&Mount> = Vec::new();
    for _ in mounts {
        let last = way.last().copied();
        let next = mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .filter(|mount| last.map_or(is_top(mount), |last| mount.parent == last.id && mount.id != last.id))
            // What lies nearer to the root covers what is mounted beneath it.
            .min_by_key(|mount| mount.point.as_os_str().len());
        let Some(next) = next else { break };
        if last.is_some_and(|last| last.point == next.point) {
            way.pop();
        }
        way.push(next);
    }
    way
}

/// Where a path without links lies in its filesystem; `None` if the list does not say.
pub fn locate(mounts: &[Mount], path: &Path) -> Option<Location> {
    let mount = *on_the_way(mounts, path).last()?;
    let rest = path.strip_prefix(&mount.point).ok()?;
    Some(Location { device: mount.device, path: mount.root.join(rest) })
}

/// A path without links, `.` and `..`, for one that somebody else wrote down. Nothing on the way to it is looked at that may
/// keep whoever asks waiting: the kernel has all of it, or it is on a filesystem that this program uses anyway, namely that
/// of one of `used`. `None` where that is not so.
pub fn resolve_quickly(mounts: &[Mount], path: &Path, used: &[&Path]) -> io::Result<Option<PathBuf>> {
    let used: Vec<_> = used.iter().filter_map(|path| on_the_way(mounts, path).last().map(|mount| mount.id)).collect();
    let is_quick = |path: &Path| {
        let way = on_the_way(mounts, path);
        !way.is_empty() && way.iter().all(|mount| mount.is_local() || used.contains(&mount.id))
    };
    let mut found = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            found.pop();
            continue;
        }
        found.push(name);
        if !is_quick(&found) {
            return Ok(None);
        }
        if Kind::from(trusted::stat(&found)?.file_type()) == Kind::Link {
            links += 1;
            if links > MOST_LINKS {
                return Ok(None);
            }
            let target = trusted::read_link(&found)?;
            found.pop();
            if target.has_root() {
                found = PathBuf::from("/");
            }
            let mut names = names(&target);
            names.append(&mut rest);
            rest = names;
        }
    }
    Ok(Some(found))
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

/// The list as values. A line that makes no sense is passed over.
pub fn parse(list: &[u8]) -> Vec<Mount> {
    list.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (id, parent) = (text()?.parse().ok()?, text()?.parse().ok()?);
    let (major, minor) = text()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let root = OsString::from_vec(unescape(fields.next()?)).into();
    let point = unescape(fields.next()?);
    // Any number of optional fields lies between the options and the dash.
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8(unescape(fields.next()?)).ok()?;
    let source = OsString::from_vec(unescape(fields.next()?));
    Some(Mount { id, parent, point: OsString::from_vec(point).into(), kind, source, device, root })
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
    fn where_a_path_lies() {
        let mounts = parse(
            b"1 1 0:1 / / rw - rootfs rootfs rw\n2 1 8:1 / / rw - ext4 /dev/sda rw\n3 2 8:2 /@home /home rw - btrfs b rw\n\
              4 2 0:9 / /home/u/net rw - nfs4 server:/ rw\n5 3 8:1 /srv/store /home/u/bound rw - ext4 /dev/sda rw\n\
              6 3 0:8 / /home/u/f rw - fuse.sshfs s rw\n7 6 0:7 / /home/u/f/in rw - tmpfs t rw\n",
        );
        let check = |path: &str, expected: Option<((u64, u64), &str)>| {
            let expected = expected.map(|(device, path)| Location { device, path: path.into() });
            assert_eq!(locate(&mounts, Path::new(path)), expected, "{path}");
        };
        check("/", Some(((8, 1), "/")));
        check("/srv/store/x", Some(((8, 1), "/srv/store/x")));
        check("/home/u", Some(((8, 2), "/@home/u")));
        check("/home/u/bound/x", Some(((8, 1), "/srv/store/x")));
        check("/home/u/boundary", Some(((8, 2), "/@home/u/boundary")));
        // What is mounted over the directory above it hides it.
        check("/home/u/net/x", Some(((8, 2), "/@home/u/net/x")));
        assert_eq!(locate(&[], Path::new("/")), None);
        let bound = locate(&mounts, Path::new("/home/u/bound/x")).unwrap();
        let check = |outer: &str, expected| {
            assert_eq!(bound.is_within(&locate(&mounts, Path::new(outer)).unwrap()), expected, "{outer}");
        };
        check("/srv", true);
        check("/srv/store/x", true);
        check("/srv/sto", false);
        check("/home/u", false);
        let local = |path: &str| on_the_way(&mounts, Path::new(path)).iter().all(|mount| mount.is_local());
        assert!(local("/home/u/x") && local("/home/u/bound") && !local("/home/u/f/x"));
        assert!(!local("/home/u/f/in/x"), "the way there leads through another process");
    }

    #[test]
    fn links_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        for (target, link) in [("a/../a", "to-a"), ("/", "a/root"), ("round", "round")] {
            std::os::unix::fs::symlink(target, top.join(link)).unwrap();
        }
        let mounts = parse(b"1 1 8:1 / / rw - ext4 d rw\n2 1 0:9 / /far rw - nfs s rw\n");
        let find = |path: &Path| resolve_quickly(&mounts, path, &[]).map_err(|error| error.kind());
        assert_eq!(find(&top.join("to-a/b")), Ok(Some(top.join("a/b"))));
        assert_eq!(find(&top.join("to-a/none")), Err(io::ErrorKind::NotFound));
        assert_eq!(find(&top.join("round")), Ok(None));
        assert_eq!(find(Path::new("/far/x")), Ok(None));
        assert_eq!(find(&top.join("a/root/far/x")), Ok(None), "a link does not lead past the question");
        assert_eq!(
            resolve_quickly(&mounts, Path::new("/far"), &[Path::new("/far/us")]).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(resolve_quickly(&[], &top, &[]).unwrap(), None);
    }

    #[test]
    fn a_plain_directory_is_not_ours() {
        assert!(!is_ours_mounted(Path::new("/")));
        assert!(!is_ours_mounted(Path::new("/nowhere/at/all")));
    }
}
