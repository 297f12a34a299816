//! The mounts of a store, as they are known from outside: what each daemon wrote down, whether it lives, what lies at a
//! mount point, and how a dead one is cleared away.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use jp_fs::mount::Status;
use jp_store::beneath::{AllowedDirs, Over, trusted};
use jp_store::layout::{CONVERSATIONS, Layout};
use jp_store::modes::Access;
use jp_store::mountinfo;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use serde::{Deserialize, Serialize};

use crate::control::{self, Address, Asked, Request};
use crate::error::{self, Error, Result};
use crate::process;

/// How long a daemon may take to say how it is.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a change waits for all mounts to show it.
const REFRESH: Duration = Duration::from_secs(1);

/// No record is longer.
const LONGEST_RECORD: u64 = 1 << 20;

/// Where a worktree's daemon keeps its things.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    pub(crate) dir: PathBuf,
    files: AllowedDirs,
}

/// What a daemon writes down of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pid: u32,
    /// When that process began; another with the same number began at another time.
    pub(crate) started: Option<u64>,
    pub(crate) point: PathBuf,
    pub(crate) project: PathBuf,
    /// Records of an older version are of mounts.
    #[serde(default)]
    pub(crate) kind: Kind,
    pub(crate) options: Vec<String>,
    pub(crate) version: String,
    pub(crate) since: String,
}

/// What a daemon does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// It serves a filesystem.
    #[default]
    Mount,
    /// It keeps the real files in step.
    Mirror,
}

/// A daemon that is, or was, behind a mount.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) state: StateDir,
    pub(crate) record: Record,
}

/// What there is at a mount point.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Nothing is mounted there.
    Free,
    /// A mount or a mirror of ours that works.
    Live,
    /// One of ours whose process is there and does not answer.
    Mute,
    /// One of ours whose process is gone.
    Dead,
    /// Something that is not ours.
    Foreign { kind: String },
}

impl StateDir {
    /// That of this worktree.
    pub(crate) fn of(layout: &Layout) -> Self {
        Self { dir: layout.worktree_state(), files: beneath(&layout.store.dir) }
    }

    /// One that is reached from a directory above it.
    #[cfg(test)]
    pub(crate) fn in_dir(dir: PathBuf, top: &Path) -> Self {
        Self { dir, files: beneath(top) }
    }

    /// How its files are reached.
    pub(crate) fn files(&self) -> &AllowedDirs {
        &self.files
    }

    pub(crate) fn record_file(&self) -> PathBuf {
        self.dir.join("mount.json")
    }

    pub(crate) fn socket(&self) -> Address {
        Address { files: self.files.clone(), path: self.dir.join("control.sock") }
    }

    fn remove(&self, path: &Path) {
        match self.files.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
            _ => {}
        }
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("mount.log")
    }

    /// Held by the daemon as long as it lives.
    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("mount.lock")
    }

    pub(crate) fn drafts(&self) -> PathBuf {
        self.dir.join("drafts")
    }

    /// What a daemon wrote here; a record that makes no sense counts as none.
    pub(crate) fn known(&self) -> Option<Known> {
        let record = self.files.read_within(&self.record_file(), LONGEST_RECORD).ok()?;
        let record = serde_json::from_slice(&record).ok()?;
        Some(Known { state: self.clone(), record })
    }

    /// Writes a record, whole or not at all.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let path = self.record_file();
        let failed = |error: &io::Error| Error::io("write", &path, error);
        let mut text = serde_json::to_vec_pretty(record).map_err(|error| failed(&error.into()))?;
        text.push(b'\n');
        self.files.put(&path, &text, 0o600, Over::Anything).map_err(|error| failed(&error))
    }

    /// Makes the directory, for nobody but its owner: whoever reaches the socket can end the mount.
    pub(crate) fn make(&self) -> Result<()> {
        let failed = |error: io::Error| Error::io("make", &self.dir, &error);
        let mode = Access::Private.dir();
        self.files.create_dirs(&self.dir, mode).map_err(failed)?;
        self.files.set_mode(&self.dir, mode).map_err(failed)
    }

    /// Forgets a mount that has ended.
    pub(crate) fn forget(&self) {
        for path in [self.record_file(), self.socket().path] {
            self.remove(&path);
        }
    }
}

impl Record {
    /// Refuses to take a mount for a mirror, or the other way around, or for one with other options.
    pub(crate) fn check_same(&self, wanted: Kind, options: &[String]) -> Result<()> {
        let there = match (self.kind, wanted) {
            (Kind::Mount, Kind::Mount) | (Kind::Mirror, Kind::Mirror) => return self.check_options(options),
            (Kind::Mount, Kind::Mirror) => "is mounted, and cannot be mirrored at the same time",
            (Kind::Mirror, Kind::Mount) => "is mirrored, and cannot be mounted at the same time",
        };
        Err(Error::no(format!("{} {there}", self.point.display())).hint("`jp unmount` ends that first"))
    }

    fn check_options(&self, wanted: &[String]) -> Result<()> {
        let set = |options: &[String]| options.iter().cloned().collect::<BTreeSet<_>>();
        let (there, wanted) = (set(&self.options), set(wanted));
        if there == wanted {
            return Ok(());
        }
        let name = |options: &BTreeSet<String>| {
            if options.is_empty() {
                return "no options".to_owned();
            }
            options.iter().map(|option| format!("--{option}")).collect::<Vec<_>>().join(" ")
        };
        let how = match self.kind {
            Kind::Mount => "mounted",
            Kind::Mirror => "mirrored",
        };
        let (there, asked) = (name(&there), name(&wanted));
        let told = format!("{} is already {how} with {there}, not with {asked}", self.point.display());
        Err(Error::no(told).hint("`jp unmount` ends that one; then mount again"))
    }
}

impl Known {
    /// Whether the process that wrote the record is still there.
    pub(crate) fn alive(&self) -> bool {
        let started = process::started(self.record.pid);
        started.is_some() && started == self.record.started
    }

    /// Whether something is shown there: a mirror is there as long as its process, a mount only until it is detached.
    pub(crate) fn is_there(&self) -> bool {
        self.alive() && (self.record.kind == Kind::Mirror || mountinfo::is_ours_mounted(&self.record.point))
    }

    /// How the daemon says it is; `None` when it does not say.
    pub(crate) fn status(&self) -> Option<Status> {
        control::ask(&self.state.socket(), &Request::Status, ANSWER).ok()?.status
    }
}

/// Every mount of a store, whichever worktree's it is.
pub(crate) fn of_store(layout: &Layout) -> Vec<Known> {
    below(&layout.store.vfs(), &beneath(&layout.store.dir))
}

/// Every mount of every store.
pub(crate) fn of_user(data_dir: &Path) -> Vec<Known> {
    let (stores, files) = (data_dir.join("workspace"), beneath(data_dir));
    let names = files.list(&stores).unwrap_or_default();
    names.iter().flat_map(|(name, _)| below(&stores.join(name).join("vfs"), &files)).collect()
}

fn below(vfs: &Path, files: &AllowedDirs) -> Vec<Known> {
    let names = files.list(vfs).unwrap_or_default();
    let state = |name| StateDir { dir: vfs.join(name), files: files.clone() };
    let mut found: Vec<Known> = names.into_iter().filter_map(|(name, _)| state(name).known()).collect();
    found.sort_by(|a, b| a.record.point.cmp(&b.record.point));
    found
}

/// What is beneath this directory. Where it cannot be used there is nothing.
fn beneath(dir: &Path) -> AllowedDirs {
    let files = AllowedDirs::default();
    if let Err(error) = files.allow(dir) {
        tracing::debug!("{} is not used: {error}", dir.display());
    }
    files
}

/// The mounts of a store whose processes are gone, and what was known of them.
pub(crate) fn stale(layout: &Layout) -> Vec<(PathBuf, Option<Known>)> {
    let (live, dead): (Vec<_>, Vec<_>) = of_store(layout).into_iter().partition(Known::alive);
    let default = mountinfo::place(&layout.storage.join(CONVERSATIONS));
    let noted = live.iter().chain(&dead).any(|known| known.record.point == default);
    let mut found: Vec<_> = dead.into_iter().map(|known| (known.record.point.clone(), Some(known))).collect();
    if !noted && matches!(standing(&default, None), Standing::Dead) {
        found.push((default, None));
    }
    found
}

/// The mounts of a store whose processes are there and do not answer, with those processes where they are known.
pub(crate) fn mute(layout: &Layout) -> Vec<(PathBuf, Option<u32>)> {
    let known: Vec<_> = of_store(layout).into_iter().filter(Known::is_there).collect();
    let default = mountinfo::place(&layout.storage.join(CONVERSATIONS));
    let noted = known.iter().any(|known| known.record.point == default);
    let silent = known.into_iter().filter(|known| known.status().is_none());
    let mut found: Vec<_> = silent.map(|known| (known.record.point, Some(known.record.pid))).collect();
    if !noted && matches!(standing(&default, None), Standing::Mute) {
        found.push((default, None));
    }
    found
}

/// What is at a point, given what is known of a mount there.
pub(crate) fn standing(point: &Path, known: Option<&Known>) -> Standing {
    let mounts = mountinfo::read();
    let known = known.filter(|known| known.record.point == point);
    match mountinfo::at(&mounts, point) {
        None => {
            // The kernel knows nothing of a mirror; only its process does.
            return match known.filter(|known| known.record.kind == Kind::Mirror) {
                None => Standing::Free,
                Some(known) if !known.alive() => Standing::Dead,
                Some(known) if known.status().is_some() => Standing::Live,
                Some(_) => Standing::Mute,
            };
        }
        Some(mount) if !mount.is_ours() => return Standing::Foreign { kind: mount.kind.clone() },
        Some(_) => {}
    }
    match known {
        Some(known) if known.alive() => {
            if known.status().is_some() {
                Standing::Live
            } else {
                Standing::Mute
            }
        }
        // Another store's mount can lie over a dead one of ours.
        Some(_) => match probe(point) {
            Probe::Answers => Standing::Live,
            Probe::Dead | Probe::Silent => Standing::Dead,
        },
        None => match probe(point) {
            Probe::Answers => Standing::Live,
            Probe::Dead => Standing::Dead,
            Probe::Silent => Standing::Mute,
        },
    }
}

enum Probe {
    Answers,
    Dead,
    Silent,
}

/// Asks a mount something that the kernel cannot answer from memory, from a thread that may hang.
fn probe(point: &Path) -> Probe {
    let (send, receive) = mpsc::channel();
    let point = point.to_owned();
    std::thread::spawn(move || send.send(trusted::ask(&point)));
    let dead = [Errno::ENOTCONN as i32, Errno::ECONNABORTED as i32];
    match receive.recv_timeout(ANSWER) {
        Ok(Err(error)) if error.raw_os_error().is_some_and(|code| dead.contains(&code)) => Probe::Dead,
        Ok(_) => Probe::Answers,
        Err(_) => Probe::Silent,
    }
}

/// Takes a mount away. A lazy one goes at once, for whoever is not in it yet.
pub(crate) fn detach(point: &Path, lazy: bool) -> Result<()> {
    jp_fs::mount::unmount(point, lazy).map_err(|error| {
        let failed = Error::new(error::Kind::Damaged, format!("cannot unmount {}", point.display())).because(&error);
        match error.kind() {
            io::ErrorKind::NotFound => failed.hint("install fuse3, which has `fusermount3`"),
            _ => failed,
        }
    })
}

/// Lets go of everybody who waits for an answer that will not come. The kernel does that by itself once the last thread of
/// the daemon is gone; one that was telling the kernel something may in turn be waiting for them. What cannot be done here
/// leaves them waiting, and the mount goes all the same. Says whether the mount is gone with it.
fn cut_off(point: &Path) -> bool {
    let mounts = mountinfo::read();
    let Some(mount) = mountinfo::at(&mounts, point) else { return false };
    let switch = format!("/sys/fs/fuse/connections/{}/abort", mount.device.1);
    if trusted::write(&switch, b"1").is_ok() {
        return false;
    }
    umount2(point, MntFlags::MNT_FORCE | MntFlags::UMOUNT_NOFOLLOW).is_ok()
}

/// Clears away a dead mount and what its daemon left behind.
pub(crate) fn clear(point: &Path, known: Option<&Known>) -> Result<()> {
    // Dead ones can lie over each other, and a live one of another store over them. A mirror leaves nothing of the kind.
    while mountinfo::at(&mountinfo::read(), point).is_some() && matches!(standing(point, known), Standing::Dead) {
        if !cut_off(point) {
            detach(point, true)?;
        }
    }
    if let Some(known) = known {
        known.state.forget();
    }
    Ok(())
}

/// Tells every live mount of a store that something changed, so that it is seen there at once. A mount that does not
/// answer in time finds out by itself.
pub(crate) fn refresh(layout: &Layout) {
    let until = Instant::now() + REFRESH;
    let left = || until.saturating_duration_since(Instant::now());
    let ask = |known: &Known| match Asked::begin(&known.state.socket(), &Request::Refresh, left()) {
        Ok(asked) => Some(asked),
        Err(error) => {
            tracing::debug!("the mount at {} was not told: {error}", known.record.point.display());
            None
        }
    };
    let asked: Vec<Asked> = of_store(layout).iter().filter_map(ask).collect();
    for asked in asked {
        if let Err(error) = asked.end() {
            tracing::debug!("a mount does not say that it has looked: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn records() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = dir.path().join("workspace/main-otvo8/vfs");
        let state = StateDir::in_dir(vfs.join("0123456789abcdef"), dir.path());
        fs::create_dir_all(vfs.parent().unwrap()).unwrap();
        assert!(state.known().is_none() && of_user(dir.path()).is_empty());
        state.make().unwrap();
        assert_eq!(fs::metadata(&state.dir).unwrap().permissions().mode() & 0o777, 0o700);
        let me = std::process::id();
        let record = Record {
            pid: me,
            started: process::started(me),
            point: "/p/.jp/conversations".into(),
            project: "/p".into(),
            kind: Kind::Mount,
            options: vec!["strict".into()],
            version: "0".into(),
            since: "2025-07-20T12:00:00Z".into(),
        };
        state.write(&record).unwrap();
        let [known] = &of_user(dir.path())[..] else { panic!("one mount") };
        assert_eq!((&known.record, known.alive()), (&record, true));
        assert!(known.status().is_none(), "nobody listens");
        let mut older = serde_json::to_value(&record).unwrap();
        older.as_object_mut().unwrap().remove("kind");
        assert_eq!(serde_json::from_value::<Record>(older).unwrap(), record);
        // The same number, another process.
        state.write(&Record { started: Some(1), ..record.clone() }).unwrap();
        assert!(!state.known().unwrap().alive());
        fs::write(state.record_file(), "{").unwrap();
        assert!(state.known().is_none());
        state.forget();
        state.forget();
        assert!(!state.record_file().exists());
    }

    #[test]
    fn nothing_is_mounted_in_a_plain_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(standing(&dir.path().canonicalize().unwrap(), None), Standing::Free));
        assert!(matches!(standing(Path::new("/proc"), None), Standing::Foreign { .. }));
    }

    #[test]
    fn a_mirror_is_there_as_long_as_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let me = std::process::id();
        let record = Record {
            pid: me,
            started: process::started(me),
            point: point.clone(),
            project: point.clone(),
            kind: Kind::Mirror,
            options: Vec::new(),
            version: "0".into(),
            since: "2025-07-20T12:00:00Z".into(),
        };
        let state = StateDir::in_dir(point.clone(), point.parent().unwrap());
        state.write(&record).unwrap();
        let known = state.known().unwrap();
        assert!(matches!(standing(&point, Some(&known)), Standing::Mute), "nobody listens");
        assert!(matches!(standing(Path::new("/elsewhere"), Some(&known)), Standing::Free));
        let dead = Known { record: Record { started: Some(1), ..record }, ..known };
        assert!(matches!(standing(&point, Some(&dead)), Standing::Dead));
        clear(&point, Some(&dead)).unwrap();
        assert!(state.known().is_none());
    }
}
