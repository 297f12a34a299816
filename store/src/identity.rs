//! Tells a directory from another that took its path, also after a reboot: by the filesystem's own id, the inode and the time
//! of birth. The number of a device says nothing: the same filesystem gets another one with the next boot, or through another
//! loop device.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk::{Disk, Stat};

/// Which directory something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The filesystem, where it has an id. What an older version wrote has none; it has the number of a device, which is not
    /// read.
    #[serde(default)]
    filesystem: Option<u64>,
    inode: u64,
    birth: Option<i64>,
}

impl Identity {
    /// What is known of a directory on a filesystem of this id.
    pub fn new(stat: Stat, filesystem: Option<u64>) -> Self {
        Self { filesystem, inode: stat.ino, birth: stat.birth }
    }

    /// The identity of what is at a path.
    pub fn of(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        Ok(Self::new(disk.stat(path)?, disk.filesystem(path)?))
    }

    /// Whether both are the same directory. What only one of them knows does not tell them apart.
    pub fn is_same(self, other: Self) -> bool {
        self.inode == other.inode && agree(self.filesystem, other.filesystem) && agree(self.birth, other.birth)
    }

    /// Everything that tells it from others.
    pub(crate) fn numbers(self) -> [u64; 3] {
        let birth = self.birth.map_or(u64::MAX, i64::cast_unsigned);
        [self.filesystem.unwrap_or(u64::MAX), self.inode, birth]
    }
}

fn agree<T: PartialEq>(ours: Option<T>, theirs: Option<T>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => ours == theirs,
        (None, _) | (_, None) => true,
    }
}

/// The id of a filesystem, given what `statfs` says and the number of its device. Some filesystems have no id, and some (XFS,
/// FAT) make it from the number of the device.
pub(crate) fn filesystem_id(told: u64, device: u64) -> Option<u64> {
    let (major, minor) = (u64::from(libc::major(device)), u64::from(libc::minor(device)));
    // As the kernel packs the number.
    let packed = minor & 0xff | major << 8 | (minor & !0xff) << 12;
    if told == 0 || told == packed || told == device { None } else { Some(told) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Kind;

    #[test]
    fn a_directory_and_others() {
        let at = |filesystem, inode, birth| Identity { filesystem, inode, birth };
        let here = at(Some(7), 2, Some(3));
        let check = |other: Identity, expected: bool| {
            assert_eq!((here.is_same(other), other.is_same(here)), (expected, expected), "{other:?}");
        };
        check(here, true);
        check(at(Some(8), 2, Some(3)), false);
        check(at(Some(7), 4, Some(3)), false);
        check(at(Some(7), 2, Some(5)), false);
        // A filesystem without an id or without times of birth, and what an older version wrote.
        check(at(None, 2, Some(3)), true);
        check(at(None, 2, Some(5)), false);
        check(at(None, 4, Some(3)), false);
        check(at(Some(7), 2, None), true);
        check(at(Some(8), 2, None), false);
        check(at(None, 2, None), true);
    }

    #[test]
    fn the_number_of_the_device_is_not_part_of_it() {
        let stat =
            |dev| Stat { kind: Kind::Dir, size: 0, mtime: 1, ctime: 1, ino: 2, dev, mode: 0o755, birth: Some(3) };
        assert_eq!(Identity::new(stat(1), Some(7)), Identity::new(stat(2), Some(7)));
        let older: Identity = serde_json::from_str(r#"{"device":64769,"inode":2,"birth":3}"#).unwrap();
        assert!(older.is_same(Identity::new(stat(9), Some(7))));
        assert!(!older.is_same(Identity::new(Stat { ino: 3, ..stat(64769) }, Some(7))));
        assert!(!older.is_same(Identity::new(Stat { birth: Some(4), ..stat(64769) }, Some(7))));
    }

    #[test]
    fn ids_that_are_numbers_of_devices() {
        let check = |told: u64, (major, minor): (u32, u32), expected: Option<u64>| {
            assert_eq!(filesystem_id(told, libc::makedev(major, minor)), expected, "{told:#x}");
        };
        check(0x1234_5678_9abc_def0, (7, 0), Some(0x1234_5678_9abc_def0));
        check(0, (7, 0), None);
        // XFS on /dev/loop0 and /dev/loop3, on /dev/nvme0n1p2, and on a device with a large number.
        check(0x700, (7, 0), None);
        check(0x703, (7, 3), None);
        check(0x1_0302, (259, 2), None);
        check(0x1001_0304, (259, 0x10004), None);
        check(0x703, (7, 4), Some(0x703));
    }
}
