//! Filesystems that other hosts or other programs change without the kernel here hearing of it, so that watching is not
//! enough. Known by the number that `statfs` gives them.

use std::fs::File;
use std::io;
use std::path::Path;

use jp_store::beneath::AllowedDirs;

/// Numbers from the kernel's `linux/magic.h` and the sources of the others, and what people call them.
const REMOTE: [(i64, &str); 20] = [
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x6573_5546, "FUSE"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0x786f_4256, "a shared folder of VirtualBox"),
    (0xbacb_acbc, "a shared folder of VMware"),
    (0x7c7c_6673, "a shared folder of Parallels"),
];

/// What a filesystem of this number is called, if others may change it unheard.
pub(crate) fn name(magic: i64) -> Option<&'static str> {
    // Some systems give the number a sign.
    let magic = magic & 0xffff_ffff;
    REMOTE.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

/// Why one of these directories has to be polled, if it has to. What cannot be asked is taken for local: whatever is wrong with it
/// shows when it is used.
pub(crate) fn reason<'a>(allowed: &AllowedDirs, dirs: impl IntoIterator<Item = &'a Path>) -> Option<String> {
    dirs.into_iter().find_map(|dir| {
        let name = name(allowed.filesystem_type(dir).ok()?)?;
        Some(unheard(dir, name))
    })
}

/// Fails if watching a directory that is open is not enough: another filesystem may be mounted anywhere beneath a local store.
pub(crate) fn check(dir: &File, path: &Path) -> io::Result<()> {
    match AllowedDirs::filesystem_type_of(dir).ok().and_then(name) {
        Some(name) => Err(io::Error::other(unheard(path, name))),
        None => Ok(()),
    }
}

fn unheard(dir: &Path, name: &str) -> String {
    format!("{} is on {name}, where the system does not tell of changes from elsewhere", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |magic: i64, expected: Option<&str>| assert_eq!(name(magic), expected, "{magic:#x}");
        check(0x6969, Some("NFS"));
        check(0x517b, Some("SMB"));
        check(0xff53_4d42, Some("SMB"));
        check(i64::from(0xff53_4d42_u32.cast_signed()), Some("SMB"));
        check(0xfe53_4d42, Some("SMB"));
        check(0x0102_1997, Some("9p"));
        check(0x00c3_6400, Some("Ceph"));
        check(0x6573_5546, Some("FUSE"));
        // ext4, XFS, btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs, FAT, exFAT, eCryptfs, ramfs.
        for local in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x794c_7630,
            0x2fc1_2fc1,
            0xf2f5_2010,
            0xca45_1a4e,
            0x4d44,
            0x2011_bab0,
            0xf15f,
            0x8584_58f6,
        ] {
            check(local, None);
        }
        let numbers: std::collections::BTreeSet<_> = REMOTE.iter().map(|(magic, _)| magic).collect();
        assert_eq!(numbers.len(), REMOTE.len());
    }
}
