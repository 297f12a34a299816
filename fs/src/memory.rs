//! What the store's directories looked like when they were last looked at, so that a walk through the mount does not walk
//! the disk again. Every change goes through a seam that forgets what it changes, and a watch tells of what others change;
//! where nothing is watched nothing is remembered.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use jp_store::ConversationId;
use jp_store::disk::Kind;
use jp_store::reconcile::ManagedFile;
use parking_lot::Mutex;

use crate::backing::Stat;

/// What is remembered. Nothing, until it is woken.
#[derive(Debug, Default)]
pub struct Memory {
    roots: OnceLock<Roots>,
    /// Nobody tells any more what changes.
    asleep: AtomicBool,
    seen: Mutex<Seen>,
}

/// Where what is remembered lies.
#[derive(Debug)]
struct Roots {
    /// The directories that hold conversations.
    partitions: [PathBuf; 2],
    /// The directory that holds scratch, which is nobody's but ours.
    scratch: PathBuf,
}

#[derive(Debug, Default)]
struct Seen {
    /// Grows with everything that is forgotten: what was looked at before is not remembered after.
    age: u64,
    dirs: HashMap<(u8, ConversationId), Sketch>,
    scratch: Option<HashSet<OsString>>,
}

/// A conversation's directory.
#[derive(Debug)]
struct Sketch {
    /// The name it had; there may be two of one id.
    name: Box<OsStr>,
    own: Option<Stat>,
    files: Vec<Inside>,
    /// Whether those are all, because they were listed.
    whole: bool,
}

/// A name in a conversation's directory.
#[derive(Debug)]
struct Inside {
    name: Name,
    kind: Kind,
    /// What it was like, where that was looked at.
    stat: Option<Stat>,
}

/// A name. Nearly all are the same three, which need no room of their own.
#[derive(Debug)]
enum Name {
    Managed(ManagedFile),
    Other(Box<OsStr>),
}

impl Name {
    fn new(name: &OsStr) -> Self {
        let managed = name.to_str().and_then(ManagedFile::from_name);
        managed.map_or_else(|| Self::Other(name.into()), Self::Managed)
    }

    fn get(&self) -> &OsStr {
        match self {
            Self::Managed(file) => OsStr::new(file.name()),
            Self::Other(name) => name,
        }
    }
}

/// A place that can be remembered.
struct Spot<'a> {
    key: (u8, ConversationId),
    dir: &'a OsStr,
    file: Option<&'a OsStr>,
}

/// When something was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(u64);

impl Memory {
    /// From now on somebody tells what changes in these directories of conversations; the one with scratch is changed by
    /// nobody but us.
    pub fn wake(&self, partitions: [PathBuf; 2], scratch: PathBuf) {
        self.roots.get_or_init(|| Roots { partitions, scratch });
    }

    /// Nobody tells any more what changes: nothing is remembered from now on, nor what was before. It is not woken again.
    pub fn sleep(&self) {
        // In this order: whoever is about to remember something learns of it here or by its age.
        self.asleep.store(true, Ordering::SeqCst);
        self.forget_all();
    }

    fn roots(&self) -> Option<&Roots> {
        self.roots.get().filter(|_| !self.asleep.load(Ordering::SeqCst))
    }

    /// To be taken before looking at what is to be remembered.
    pub fn age(&self) -> Age {
        Age(self.seen.lock().age)
    }

    /// What is known of a path; an error where it is known not to be there.
    pub fn stat(&self, path: &Path) -> Option<io::Result<Stat>> {
        let spot = self.spot(path)?;
        let seen = self.seen.lock();
        let sketch = seen.dirs.get(&spot.key).filter(|sketch| &*sketch.name == spot.dir)?;
        let Some(file) = spot.file else { return sketch.own.map(Ok) };
        match sketch.files.iter().find(|inside| inside.name.get() == file) {
            Some(inside) => inside.stat.map(Ok),
            None => sketch.whole.then(|| Err(io::ErrorKind::NotFound.into())),
        }
    }

    /// What is known to be in a directory.
    pub fn list(&self, path: &Path) -> Option<io::Result<Vec<(OsString, Kind)>>> {
        if let Some(name) = self.scratch_name(path) {
            let seen = self.seen.lock();
            let gone = !seen.scratch.as_ref()?.contains(name);
            return gone.then(|| Err(io::ErrorKind::NotFound.into()));
        }
        let spot = self.spot(path).filter(|spot| spot.file.is_none())?;
        let seen = self.seen.lock();
        let sketch = seen.dirs.get(&spot.key).filter(|sketch| sketch.whole && &*sketch.name == spot.dir)?;
        Some(Ok(sketch.files.iter().map(|inside| (inside.name.get().to_owned(), inside.kind)).collect()))
    }

    /// Remembers what a path was like.
    pub fn note_stat(&self, since: Age, path: &Path, stat: &Stat) {
        let Some(spot) = self.spot(path) else { return };
        let mut seen = self.seen.lock();
        let Some(sketch) = seen.sketch(since, &spot) else { return };
        let Some(file) = spot.file else {
            sketch.own = Some(*stat);
            return;
        };
        match sketch.files.iter_mut().find(|inside| inside.name.get() == file) {
            Some(inside) => inside.stat = Some(*stat),
            None => sketch.files.push(Inside { name: Name::new(file), kind: stat.kind, stat: Some(*stat) }),
        }
    }

    /// Remembers what was in a directory.
    pub fn note_list(&self, since: Age, path: &Path, names: &[(OsString, Kind)]) {
        if self.roots().is_some_and(|roots| path == roots.scratch) {
            let mut seen = self.seen.lock();
            if seen.age == since.0 {
                seen.scratch = Some(names.iter().map(|(name, _)| name.clone()).collect());
            }
            return;
        }
        let Some(spot) = self.spot(path).filter(|spot| spot.file.is_none()) else { return };
        let mut seen = self.seen.lock();
        let Some(sketch) = seen.sketch(since, &spot) else { return };
        let before = std::mem::take(&mut sketch.files);
        let known =
            |name: &OsStr| before.iter().find(|inside| inside.name.get() == name).and_then(|inside| inside.stat);
        let inside = names.iter().map(|(name, kind)| Inside { name: Name::new(name), kind: *kind, stat: known(name) });
        (sketch.files, sketch.whole) = (inside.collect(), true);
    }

    /// The directory with scratch, if that must be listed to know what is at a path in it.
    pub fn wants_scratch(&self, path: &Path) -> Option<&Path> {
        self.scratch_name(path)?;
        let unknown = self.seen.lock().scratch.is_none();
        self.roots().filter(|_| unknown).map(|roots| &*roots.scratch)
    }

    /// Something changed at a path, or may have.
    pub fn forget(&self, path: &Path) {
        let Some(roots) = self.roots() else {
            // What is being looked at now is not remembered once it is woken.
            self.seen.lock().age += 1;
            return;
        };
        if path.starts_with(&roots.scratch) {
            let mut seen = self.seen.lock();
            seen.age += 1;
            seen.scratch = None;
        } else if let Some((key, _)) = self.key(path) {
            let mut seen = self.seen.lock();
            seen.age += 1;
            seen.dirs.remove(&key);
        }
    }

    /// Anything may have changed.
    pub fn forget_all(&self) {
        let mut seen = self.seen.lock();
        *seen = Seen { age: seen.age + 1, ..Seen::default() };
    }

    /// The conversation whose directory a path is, or lies in at any depth, and the rest of the path after the partition.
    fn key<'a>(&self, path: &'a Path) -> Option<((u8, ConversationId), &'a [u8])> {
        let roots = self.roots()?;
        // The archive lies among the conversations, so it is asked first.
        for number in [1, 0] {
            if let Some(rest) = beneath(path, &roots.partitions[usize::from(number)]) {
                let name = rest.split(|&byte| byte == b'/').next()?;
                return Some(((number, ConversationId::from_dirname(OsStr::from_bytes(name))?), rest));
            }
        }
        None
    }

    /// The place a path is, if it is a conversation's directory or right in one.
    fn spot<'a>(&self, path: &'a Path) -> Option<Spot<'a>> {
        let (key, rest) = self.key(path)?;
        let mut names = rest.split(|&byte| byte == b'/').map(OsStr::from_bytes);
        // A path joined with nothing ends in a slash.
        let (dir, file) = (names.next()?, names.next().filter(|file| !file.is_empty()));
        names.next().is_none().then_some(Spot { key, dir, file })
    }

    /// Whose scratch a path lies in.
    fn scratch_name<'a>(&self, path: &'a Path) -> Option<&'a OsStr> {
        let rest = beneath(path, &self.roots()?.scratch)?;
        rest.split(|&byte| byte == b'/').next().map(OsStr::from_bytes)
    }
}

/// The rest of a path beneath a directory. Both are spelt as we spell them, so bytes tell, which is much sooner than
/// components do.
fn beneath<'a>(path: &'a Path, dir: &Path) -> Option<&'a [u8]> {
    let rest = path.as_os_str().as_bytes().strip_prefix(dir.as_os_str().as_bytes())?;
    rest.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

impl Seen {
    /// Where something that was looked at is to be remembered; `None` when it may have changed since.
    fn sketch(&mut self, since: Age, spot: &Spot<'_>) -> Option<&mut Sketch> {
        if self.age != since.0 {
            return None;
        }
        let blank = || Sketch { name: spot.dir.into(), own: None, files: Vec::new(), whole: false };
        let sketch = self.dirs.entry(spot.key).or_insert_with(blank);
        if &*sketch.name != spot.dir {
            *sketch = blank();
        }
        Some(sketch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "/s/conversations/17528832001-title";
    const FILE: &str = "/s/conversations/17528832001-title/metadata.json";

    fn awake() -> Memory {
        let memory = Memory::default();
        memory.wake(["/s/conversations", "/s/conversations/.archive"].map(PathBuf::from), "/s/vfs/w/scratch".into());
        memory
    }

    fn stat(size: u64) -> Stat {
        let kind = Kind::File;
        Stat { kind, size, mtime: 1, atime: 1, ctime: 1, mode: 0o644, uid: 0, gid: 0, ino: 7, links: 1 }
    }

    fn note(memory: &Memory, path: &str, size: u64) {
        memory.note_stat(memory.age(), Path::new(path), &stat(size));
    }

    fn size(memory: &Memory, path: &str) -> Option<Option<u64>> {
        memory.stat(Path::new(path)).map(|known| known.ok().map(|stat| stat.size))
    }

    #[test]
    fn nothing_is_remembered_before_it_is_woken() {
        let memory = Memory::default();
        let before = memory.age();
        note(&memory, FILE, 3);
        assert_eq!(size(&memory, FILE), None);
        // What was looked at before somebody changed it is not remembered afterwards either.
        memory.forget(Path::new(FILE));
        memory.wake(["/s/conversations", "/s/conversations/.archive"].map(PathBuf::from), "/x".into());
        memory.note_stat(before, Path::new(FILE), &stat(3));
        assert_eq!(size(&memory, FILE), None);
    }

    #[test]
    fn nothing_is_remembered_once_nobody_tells() {
        let memory = awake();
        note(&memory, FILE, 3);
        memory.note_list(memory.age(), Path::new("/s/vfs/w/scratch"), &[]);
        let before = memory.age();
        memory.sleep();
        assert_eq!(size(&memory, FILE), None);
        memory.note_stat(before, Path::new(FILE), &stat(3));
        note(&memory, FILE, 3);
        memory.note_list(memory.age(), Path::new(DIR), &[]);
        assert_eq!((size(&memory, FILE), size(&memory, DIR)), (None, None));
        let home = Path::new("/s/vfs/w/scratch/17528832001");
        assert!(memory.list(Path::new(DIR)).is_none() && memory.list(home).is_none());
        assert!(memory.wants_scratch(home).is_none());
    }

    #[test]
    fn what_was_looked_at_is_known_until_something_near_it_changes() {
        for change in [FILE, DIR, "/s/conversations/17528832001-title/sub/deep.txt", "/s/conversations/17528832001-new"]
        {
            let memory = awake();
            note(&memory, FILE, 3);
            note(&memory, DIR, 4096);
            note(&memory, "/s/conversations/17528832002-other/metadata.json", 5);
            assert_eq!(size(&memory, FILE), Some(Some(3)));
            assert_eq!(size(&memory, &format!("{DIR}/")), Some(Some(4096)));
            memory.forget(Path::new(change));
            assert_eq!((size(&memory, FILE), size(&memory, DIR)), (None, None), "{change}");
            assert_eq!(size(&memory, "/s/conversations/17528832002-other/metadata.json"), Some(Some(5)));
        }
    }

    #[test]
    fn what_changed_while_it_was_looked_at_is_not_remembered() {
        let memory = awake();
        let age = memory.age();
        memory.forget(Path::new(FILE));
        memory.note_stat(age, Path::new(FILE), &stat(3));
        memory.note_list(age, Path::new(DIR), &[]);
        assert_eq!(size(&memory, FILE), None);
    }

    #[test]
    fn a_whole_listing_tells_what_is_not_there() {
        let memory = awake();
        note(&memory, FILE, 3);
        assert_eq!(size(&memory, &format!("{DIR}/.gitignore")), None);
        let names = [("metadata.json".into(), Kind::File), ("notes".into(), Kind::Dir)];
        memory.note_list(memory.age(), Path::new(DIR), &names);
        assert_eq!(size(&memory, &format!("{DIR}/.gitignore")), Some(None));
        // It is known to be there, but not what it is like.
        assert_eq!(size(&memory, &format!("{DIR}/notes")), None);
        assert_eq!(size(&memory, &format!("{DIR}/notes/a")), None);
        assert_eq!(size(&memory, FILE), Some(Some(3)));
        assert_eq!(memory.list(Path::new(DIR)).unwrap().unwrap(), names);
    }

    #[test]
    fn names_and_partitions_are_told_apart() {
        let memory = awake();
        note(&memory, FILE, 3);
        assert_eq!(size(&memory, "/s/conversations/17528832001-former/metadata.json"), None);
        assert_eq!(size(&memory, "/s/conversations/.archive/17528832001-title/metadata.json"), None);
        note(&memory, "/s/conversations/.archive/17528832001-title/metadata.json", 9);
        assert_eq!(size(&memory, FILE), Some(Some(3)));
        for elsewhere in ["/s/conversations", "/s/conversations/.trash/17528832001-title/a", "/s/vfs/tree.json", "/s/c"]
        {
            note(&memory, elsewhere, 1);
            assert_eq!(size(&memory, elsewhere), None, "{elsewhere}");
        }
        memory.forget_all();
        assert_eq!(size(&memory, FILE), None);
    }

    #[test]
    fn scratch_that_nobody_made_is_not_looked_for() {
        let memory = awake();
        let home = Path::new("/s/vfs/w/scratch/17528832001");
        let scratch = memory.wants_scratch(home).unwrap().to_owned();
        memory.note_list(memory.age(), &scratch, &[("root".into(), Kind::Dir)]);
        assert!(memory.wants_scratch(home).is_none());
        assert!(memory.list(home).unwrap().is_err());
        assert!(memory.list(Path::new("/s/vfs/w/scratch/root")).is_none());
        memory.forget(&home.join("x.swp"));
        assert!(memory.list(home).is_none());
    }
}
