//! Plants links, pipes, devices, modes and names at a place.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::geteuid;

use super::places::Place;
use super::sandbox::can_be_private;
use super::world::{SILO, World};

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// A link to an outside directory that contains conversations, lock files and numbered files.
    LinkToDir,
    /// A link to an outside file in the expected format, if there is one.
    LinkToFile,
    /// A link to a file with a password.
    LinkToSecret,
    /// A link to `..`.
    LinkToParent,
    /// A link to `../..`.
    LinkToGrandparent,
    /// A link to `/`.
    LinkToRoot,
    /// A link to itself.
    LinkToItself,
    /// A link to an outside path that does not exist.
    LinkToNothing,
    /// A link to the store.
    LinkToStore,
    /// A link to `/dev/zero`.
    LinkToZero,
    /// A FIFO without a writer.
    Pipe,
    /// A socket without a listener.
    Socket,
    /// A character device like `/dev/null`.
    NullDevice,
    /// A character device like `/dev/zero`.
    ZeroDevice,
    /// A directory with files in it.
    Dir,
    /// A text file.
    File,
    /// This mode on the existing entry; if there is none, on a new one.
    Mode(u32),
    /// Files with odd names, inside the directory.
    OddFiles,
    /// Directories with odd names.
    OddDirs,
    /// Links with odd names to a directory outside.
    OddLinksToDir,
    /// Links with odd names to a password.
    OddLinksToSecret,
    /// Pipes with odd names.
    OddPipes,
}

impl Kind {
    /// All kinds that the caller of the tests can plant.
    pub(super) fn all() -> Vec<Self> {
        use Kind::*;
        let mut all = vec![
            LinkToDir,
            LinkToFile,
            LinkToSecret,
            LinkToParent,
            LinkToGrandparent,
            LinkToItself,
            LinkToNothing,
            LinkToStore,
            LinkToZero,
            Pipe,
            Socket,
            Dir,
            File,
            Mode(0),
            Mode(0o777),
            Mode(0o4755),
            Mode(0o2775),
            Mode(0o1777),
            OddFiles,
            OddDirs,
            OddLinksToDir,
            OddLinksToSecret,
            OddPipes,
        ];
        if can_be_private() {
            all.push(LinkToRoot);
        }
        if geteuid().is_root() {
            all.extend([NullDevice, ZeroDevice]);
        }
        all
    }

    /// Whether it can be planted at this place.
    pub(super) fn fits(self, place: &Place) -> bool {
        // A link that the user names as the target of an export is the user's choice, and so is the directory behind it.
        let leads_out = [Self::LinkToDir, Self::LinkToParent, Self::LinkToGrandparent, Self::LinkToRoot];
        if place.pattern == "target" && leads_out.contains(&self) {
            return false;
        }
        !self.is_odd() || place.listed
    }

    /// Whether it leads to other files or blocks a reader, and not only looks odd.
    pub(super) fn leads_away(self) -> bool {
        !matches!(self, Self::Socket | Self::NullDevice | Self::Dir | Self::File | Self::Mode(_))
    }

    /// Whether it is planted inside a directory instead of replacing it.
    pub(super) fn is_odd(self) -> bool {
        matches!(self, Self::OddFiles | Self::OddDirs | Self::OddLinksToDir | Self::OddLinksToSecret | Self::OddPipes)
    }

    /// Whether only root can create it.
    pub(super) fn is_device(self) -> bool {
        matches!(self, Self::NullDevice | Self::ZeroDevice)
    }
}

/// Names that programs tend to misinterpret: options, numbers, control characters, invalid UTF-8.
pub(super) fn odd_names() -> Vec<OsString> {
    let mut names: Vec<OsString> =
        ["777", "1-1", "12345-0", "-rf", "..x", "...", "a\nb", "\x1b[2J\x1b]0;title\x07", " ", "*", "con\\x"]
            .iter()
            .map(OsString::from)
            .collect();
    names.push(OsString::from("n".repeat(255)));
    names.push(OsString::from_vec(b"bad-\xff\xfe".to_vec()));
    names
}

/// Plants something, and adds planted user files to the world. Returns false if the kind does not apply to what is there.
pub(super) fn plant(world: &mut World, place: &Place, kind: Kind) -> io::Result<bool> {
    let path = world.root().join(&place.path);
    if let Some(parent) = path.parent() {
        make_dirs(world, parent)?;
    }
    if kind.is_odd() {
        return plant_names(world, place, kind).map(|()| true);
    }
    if let Kind::Mode(mode) = kind {
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => return Ok(false),
            Ok(_) => {}
            Err(_) if place.listed => fs::create_dir(&path)?,
            Err(_) => fs::write(&path, "{}")?,
        }
        world.give(&path)?;
        // After the change of owner, which clears the setuid bit.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        return Ok(true);
    }
    clear(&path)?;
    let outside = world.root().join("outside");
    make(world, &path, kind, &outside)?;
    world.give(&path)?;
    Ok(true)
}

/// Changes if the planted entry is replaced.
pub(super) fn identity(path: &Path) -> Option<(u64, u32, u64)> {
    let meta = fs::symlink_metadata(path).ok()?;
    Some((meta.ino(), meta.mode(), meta.rdev()))
}

fn make(world: &World, path: &Path, kind: Kind, outside: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or(OsStr::new("any"));
    let device = |minor| mknod(path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, minor));
    match kind {
        Kind::LinkToDir | Kind::OddLinksToDir => symlink(outside, path),
        Kind::LinkToFile => symlink(suitable(outside, name), path),
        Kind::LinkToSecret | Kind::OddLinksToSecret => symlink(world.root().join("home/.ssh/credentials"), path),
        Kind::LinkToParent => symlink("..", path),
        Kind::LinkToGrandparent => symlink("../..", path),
        Kind::LinkToRoot => symlink("/", path),
        Kind::LinkToItself => symlink(name, path),
        Kind::LinkToNothing => symlink(outside.join("not-yet"), path),
        Kind::LinkToStore => symlink(world.root().join(SILO), path),
        Kind::LinkToZero => symlink("/dev/zero", path),
        Kind::Pipe | Kind::OddPipes => {
            mknod(path, SFlag::S_IFIFO, Mode::from_bits_truncate(0o644), 0).map_err(io::Error::from)
        }
        Kind::Socket => mknod(path, SFlag::S_IFSOCK, Mode::from_bits_truncate(0o644), 0).map_err(io::Error::from),
        Kind::NullDevice => device(3).map_err(io::Error::from),
        Kind::ZeroDevice => device(5).map_err(io::Error::from),
        Kind::Dir | Kind::OddDirs => {
            fs::create_dir(path)?;
            fs::write(path.join("777"), "the user's\n")?;
            fs::write(path.join("note.txt"), "the user's\n")
        }
        Kind::File | Kind::OddFiles => fs::write(path, "the user's\n"),
        Kind::Mode(_) => Ok(()),
    }
}

fn plant_names(world: &mut World, place: &Place, kind: Kind) -> io::Result<()> {
    let dir = world.root().join(&place.path);
    make_dirs(world, &dir)?;
    let outside = world.root().join("outside");
    for name in odd_names() {
        let path = dir.join(&name);
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        make(world, &path, kind, &outside)?;
        world.give(&path)?;
        if stays(place, &name, kind) {
            world.kept.push(place.path.join(&name));
        }
    }
    Ok(())
}

/// Whether a planted name must stay where it is. Files in a conversation move with it, a directory named like a conversation
/// is one, and the contents of a second silo move into the first.
fn stays(place: &Place, name: &OsStr, kind: Kind) -> bool {
    let moves = ["<conv>", ".trash", "feature-otvo8"].iter().any(|part| place.pattern.contains(part));
    if moves {
        return false;
    }
    let numbered = name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
    let of_conversations = ["conversations", ".archive", "target"].iter().any(|end| place.pattern.ends_with(end));
    kind != Kind::OddDirs || !numbered || !of_conversations
}

/// The outside file whose format fits a name best.
fn suitable(outside: &Path, name: &OsStr) -> PathBuf {
    let same = outside.join(name);
    if same.is_file() {
        return same;
    }
    let json = Path::new(name).extension().is_some_and(|end| end == "json");
    outside.join(if json { "any.json" } else { "credentials" })
}

fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Creates a directory and its parents, owned by the user.
fn make_dirs(world: &World, path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_dirs(world, parent)?;
    }
    fs::create_dir(path)?;
    world.give(path)
}
