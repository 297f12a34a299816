//! The tree without a kernel: paths are walked by looking names up one by one, and what was looked up is forgotten again,
//! at once or at the end.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use jp_fs::backing::{Backing, RealBacking};
use jp_fs::caller::Caller;
use jp_fs::error::FsError;
use jp_fs::node::ROOT;
use jp_fs::teller;
use jp_fs::vfs::{Attr, Lookup, Noticed, Rename, Rules, Seen, SetAttr, Vfs};
use jp_store::disk::{Disk, Kind, RealDisk};
use jp_store::lock::Wait;
use jp_store::store::{Clock, Store, Surroundings};
use jp_store::writer::Writer;

use super::{Attributes, Done, Driver, Held, How};
use crate::env::Workspace;

/// The time of day, for a mount that is like any other.
pub fn clock() -> Clock {
    #[expect(clippy::disallowed_methods, reason = "a mount in process has nobody to hand it a clock")]
    Arc::new(jiff::Timestamp::now)
}

/// No path goes through more links.
const LINKS: usize = 40;
/// As much as a kernel asks for at once.
const PIECE: u32 = 1 << 17;

/// When numbers are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// After each request, as a kernel without memory would.
    Short,
    /// Not before the end.
    Long,
}

/// A filesystem in this process, over the store of a workspace whose own conversations it covers.
pub struct InProcess {
    workspace: Workspace,
    rules: Rules,
    memory: Memory,
    disk: Arc<dyn Disk>,
    backing: Arc<dyn Backing>,
    clock: Clock,
    vfs: Rc<Vfs>,
    /// How often each number was told and not forgotten yet.
    told: HashMap<u64, u64>,
}

impl InProcess {
    /// The tree of a workspace. What only the workspace has is imported first, as a mount does.
    #[track_caller]
    pub fn new(workspace: &Workspace, rules: Rules, memory: Memory) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::default());
        let backing = Arc::new(RealBacking::new(disk.allowed().clone()));
        Self::over(workspace, rules, memory, disk, backing, clock())
            .unwrap_or_else(|error| panic!("cannot begin: {error}"))
    }

    /// The same over any disk and with any clock.
    pub fn over(
        workspace: &Workspace,
        rules: Rules,
        memory: Memory,
        disk: Arc<dyn Disk>,
        backing: Arc<dyn Backing>,
        clock: Clock,
    ) -> Result<Self, FsError> {
        let vfs = begin(workspace, rules, &disk, &backing, &clock)?;
        Ok(Self {
            workspace: workspace.clone(),
            rules,
            memory,
            disk,
            backing,
            clock,
            vfs: Rc::new(vfs),
            told: HashMap::new(),
        })
    }

    /// What answers.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// The number at the end of a path, which stays known until [`InProcess::forget`].
    pub fn know(&mut self, path: &str) -> Done<u64> {
        let walked = self.walk(path, true);
        if let Ok((attr, _)) = &walked
            && let Some(count) = self.told.get_mut(&attr.number)
        {
            *count -= 1;
        }
        self.settle();
        walked.map(|(attr, _)| attr.number)
    }

    /// The kernel forgets a number that was told once by [`InProcess::know`].
    pub fn forget(&self, number: u64) {
        self.vfs.forget(number, 1);
    }

    /// The same request by another process.
    pub fn lookup_by(&mut self, pid: u32, dir: &str, name: &str) -> Done<Option<Attributes>> {
        let (dir, _) = self.walk(dir, true)?;
        let found = self.vfs.lookup(Caller { pid }, dir.number, OsStr::new(name)).map_err(|error| error.errno());
        let found = match found? {
            Lookup::Found(found) => {
                self.note(found.attr.number);
                Some(told(&found.attr))
            }
            Lookup::Absent { .. } => None,
        };
        self.settle();
        Ok(found)
    }

    /// Names of a directory from a position in it, each with the position after it, as many as asked for.
    pub fn list_from(&mut self, path: &str, after: u64, count: usize) -> Done<Vec<(u64, String)>> {
        let (dir, _) = self.walk(path, true)?;
        let listing = self.vfs.list(dir.number, after).map_err(|error| error.errno())?;
        self.settle();
        let rest = listing.rest();
        Ok(rest.map(|(position, listed)| (position, listed.name.to_string_lossy().into_owned())).take(count).collect())
    }

    fn note(&mut self, number: u64) {
        *self.told.entry(number).or_default() += 1;
    }

    /// Forgets what the request looked up, unless memory is long.
    fn settle(&mut self) {
        if self.memory == Memory::Short {
            self.forget_all();
        }
    }

    fn forget_all(&mut self) {
        for (number, count) in self.told.drain() {
            self.vfs.forget(number, count);
        }
    }

    /// What a path leads to, and the directory it was found in.
    fn walk(&mut self, path: &str, follow: bool) -> Done<(Attr, u64)> {
        let mut at = self.vfs.attr(ROOT).map_err(|error| error.errno())?;
        let mut above = vec![at];
        let mut parts: Vec<String> = parts(path).rev().collect();
        let mut links = 0;
        while let Some(part) = parts.pop() {
            if part == ".." {
                at = above.pop().unwrap_or(at);
                continue;
            }
            if at.kind != Kind::Dir {
                return Err(libc::ENOTDIR);
            }
            let found = match self.vfs.lookup(me(), at.number, OsStr::new(&part)) {
                Ok(Lookup::Found(found)) => found.attr,
                Ok(Lookup::Absent { .. }) => return Err(libc::ENOENT),
                Err(error) => return Err(error.errno()),
            };
            self.note(found.number);
            if found.kind == Kind::Link && (follow || !parts.is_empty()) {
                links += 1;
                if links > LINKS {
                    return Err(libc::ELOOP);
                }
                let target = self.vfs.read_link(found.number).map_err(|error| error.errno())?;
                parts.extend(self::parts(&target.to_string_lossy()).rev());
                continue;
            }
            above.push(at);
            at = found;
        }
        let dir = above.last().map_or(ROOT, |dir| dir.number);
        Ok((at, dir))
    }

    fn write_whole(&mut self, path: &str, bytes: &[u8], piece: usize) -> Done<()> {
        let opened = match self.walk(path, true) {
            Ok((attr, _)) => self
                .vfs
                .set_attr(me(), attr.number, SetAttr { size: Some(0), ..SetAttr::default() })
                .map(|found| found.attr),
            Err(libc::ENOENT) => {
                let (dir, name) = split(path);
                let (dir, _) = self.walk(dir, true)?;
                let made = self.vfs.create(me(), dir.number, OsStr::new(name), 0o644);
                made.inspect(|attr| self.note(attr.number))
            }
            Err(errno) => return Err(errno),
        };
        let number = opened.map_err(|error| error.errno())?.number;
        let mut offset = 0;
        for piece in bytes.chunks(piece.max(1)) {
            write_all(&self.vfs, number, offset, piece).map_err(|error| error.errno())?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// One request on what a path leads to.
    fn on<T>(&mut self, path: &str, follow: bool, work: impl FnOnce(&Vfs, Attr) -> Result<T, FsError>) -> Done<T> {
        let walked = self.walk(path, follow);
        let done = walked.and_then(|(attr, _)| work(&self.vfs, attr).map_err(|error| error.errno()));
        self.settle();
        done
    }

    /// One request on a name in a directory.
    fn at<T>(&mut self, path: &str, work: impl FnOnce(&Vfs, u64, &OsStr) -> Result<T, FsError>) -> Done<T> {
        let (dir, name) = split(path);
        let walked = self.walk(dir, true);
        let done = walked.and_then(|(dir, _)| match dir.kind {
            Kind::Dir => work(&self.vfs, dir.number, OsStr::new(name)).map_err(|error| error.errno()),
            Kind::File | Kind::Link | Kind::Other => Err(libc::ENOTDIR),
        });
        self.settle();
        done
    }

    /// One request that makes something, whose number is told with the answer.
    fn make(&mut self, path: &str, work: impl FnOnce(&Vfs, u64, &OsStr) -> Result<Attr, FsError>) -> Done<()> {
        let attr = self.at(path, work)?;
        self.note(attr.number);
        self.settle();
        Ok(())
    }
}

/// As programs write that go on where a write ended.
fn write_all(vfs: &Vfs, number: u64, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
    let mut done = 0;
    while done < bytes.len() {
        done += vfs.write(me(), number, offset + done as u64, &bytes[done..])?;
    }
    Ok(())
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.forget_all();
    }
}

impl Driver for InProcess {
    fn read(&mut self, path: &str) -> Done<Vec<u8>> {
        self.on(path, true, |vfs, attr| match attr.kind {
            Kind::Dir => Err(FsError::IsDir),
            Kind::File | Kind::Link | Kind::Other => read_all(vfs, attr.number),
        })
    }

    fn write_in_pieces(&mut self, path: &str, bytes: &[u8], piece: usize) -> Done<()> {
        let done = self.write_whole(path, bytes, piece);
        self.settle();
        done
    }

    fn write_at(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Done<()> {
        self.on(path, true, |vfs, attr| write_all(vfs, attr.number, offset, bytes))
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        self.on(path, true, |vfs, attr| {
            let mut done = 0;
            while done < bytes.len() {
                done += vfs.append(me(), attr.number, attr.size + done as u64, &bytes[done..])?;
            }
            Ok(())
        })
    }

    fn truncate(&mut self, path: &str, size: u64) -> Done<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.on(path, true, |vfs, attr| vfs.set_attr(me(), attr.number, set).map(drop))
    }

    fn create(&mut self, path: &str) -> Done<()> {
        self.make(path, |vfs, dir, name| vfs.create(me(), dir, name, 0o644))
    }

    fn rename_how(&mut self, from: &str, to: &str, how: How) -> Done<()> {
        let how = match how {
            How::Replace => Rename::Replace,
            How::NoReplace => Rename::NoReplace,
            How::Exchange => Rename::Exchange,
        };
        let ((old, from), (new, to)) = (split(from), split(to));
        let walked = self.walk(old, true).and_then(|(old, _)| Ok((old, self.walk(new, true)?.0)));
        let done = walked.and_then(|(old, new)| {
            let (from, to) = ((old.number, OsStr::new(from)), (new.number, OsStr::new(to)));
            self.vfs.rename(me(), from, to, how).map_err(|error| error.errno())
        });
        self.settle();
        done
    }

    fn unlink(&mut self, path: &str) -> Done<()> {
        self.at(path, |vfs, dir, name| vfs.remove_file(me(), dir, name))
    }

    fn rmdir(&mut self, path: &str) -> Done<()> {
        self.at(path, |vfs, dir, name| vfs.remove_dir(me(), dir, name))
    }

    fn mkdir(&mut self, path: &str) -> Done<()> {
        self.make(path, |vfs, dir, name| vfs.make_dir(me(), dir, name, 0o755))
    }

    fn mkdir_and_leave(&mut self, path: &str) -> Done<()> {
        let mut child = Command::new("true").spawn().expect("there is a program that does nothing");
        let caller = Caller { pid: child.id() };
        child.wait().expect("a child can be waited for");
        self.make(path, |vfs, dir, name| vfs.make_dir(caller, dir, name, 0o755))?;
        self.vfs.end_fresh();
        Ok(())
    }

    fn symlink(&mut self, target: &str, path: &str) -> Done<()> {
        self.make(path, |vfs, dir, name| vfs.make_link(me(), dir, name, Path::new(target)))
    }

    fn readlink(&mut self, path: &str) -> Done<String> {
        self.on(path, false, |vfs, attr| match attr.kind {
            Kind::Link => vfs.read_link(attr.number),
            Kind::File | Kind::Dir | Kind::Other => Err(FsError::Invalid("no link".to_owned())),
        })
        .map(|target: PathBuf| target.to_string_lossy().into_owned())
    }

    fn list(&mut self, path: &str) -> Done<Vec<String>> {
        self.on(path, true, |vfs, attr| {
            let listing = vfs.list(attr.number, 0)?;
            let names = listing.rest().map(|(_, listed)| listed.name.to_string_lossy().into_owned());
            let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
            names.sort();
            Ok(names)
        })
    }

    fn stat(&mut self, path: &str) -> Done<Attributes> {
        self.on(path, false, |vfs, attr| vfs.attr(attr.number)).map(|attr| told(&attr))
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Done<()> {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.on(path, true, |vfs, attr| vfs.set_attr(me(), attr.number, set).map(drop))
    }

    fn set_mtime(&mut self, path: &str, mtime: i64) -> Done<()> {
        let set = SetAttr { mtime: Some(mtime), ..SetAttr::default() };
        self.on(path, true, |vfs, attr| vfs.set_attr(me(), attr.number, set).map(drop))
    }

    fn sync(&mut self, path: &str) -> Done<()> {
        self.on(path, true, |vfs, attr| vfs.sync(me(), attr.number))
    }

    fn hold(&mut self, path: &str) -> Done<Box<dyn Held>> {
        let number = self.know(path)?;
        Ok(Box::new(Known { vfs: self.vfs.clone(), number }))
    }

    fn look(&mut self) {
        let noticed = Noticed { everything: true, ..Noticed::default() };
        self.vfs.notice(noticed).unwrap_or_else(|error| panic!("cannot look: {error}"));
        self.vfs.tend_waiting();
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn remount(&mut self) {
        self.forget_all();
        self.vfs.tend_drafts();
        self.vfs.keep_former();
        let followed = self.vfs.writer().fold().and_then(|()| {
            let real = real(&self.workspace, &self.disk, &self.clock)?;
            real.uncover(&Wait::none())
        });
        followed.unwrap_or_else(|error| panic!("cannot end: {error}"));
        let vfs = begin(&self.workspace, self.rules, &self.disk, &self.backing, &self.clock);
        self.vfs = Rc::new(vfs.unwrap_or_else(|error| panic!("cannot begin again: {error}")));
    }
}

/// A number that is known.
struct Known {
    vfs: Rc<Vfs>,
    number: u64,
}

impl Held for Known {
    fn read(&mut self) -> Done<Vec<u8>> {
        read_all(&self.vfs, self.number).map_err(|error| error.errno())
    }

    fn cut_and_write(&mut self, size: u64, bytes: &[u8]) -> Done<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let cut = self.vfs.set_attr(me(), self.number, set);
        cut.and_then(|_| write_all(&self.vfs, self.number, size, bytes)).map_err(|error| error.errno())
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.vfs.forget(self.number, 1);
    }
}

/// As a mount begins: what the workspace has is taken in, then its own files are covered.
fn begin(
    workspace: &Workspace,
    rules: Rules,
    disk: &Arc<dyn Disk>,
    backing: &Arc<dyn Backing>,
    clock: &Clock,
) -> Result<Vfs, FsError> {
    let real = real(workspace, disk, clock)?;
    let (_, seen) = Seen::by(real.store(), || Ok(real.cover_and_look()?))?;
    let (writer, _) = real.store().covered().writer()?;
    let (outbox, _) = teller::post();
    let vfs = Vfs::with(writer, backing.clone(), under(workspace), rules, outbox, Some(seen))?;
    vfs.catch_up()?;
    Ok(vfs)
}

/// The store with the workspace's own files in reach.
fn real(workspace: &Workspace, disk: &Arc<dyn Disk>, clock: &Clock) -> Result<Writer, jp_store::Error> {
    let around = Surroundings {
        disk: disk.clone(),
        data_dir: Some(workspace.env().data()),
        pid: std::process::id(),
        session: None,
        clock: clock.clone(),
        covered: Arc::new(|_| false),
    };
    let store = Store::open_with_work(around, workspace.root(), under(workspace), false)?;
    Ok(store.writer()?.0)
}

fn under(workspace: &Workspace) -> PathBuf {
    workspace.storage().join("conversations")
}

fn read_all(vfs: &Vfs, number: u64) -> Result<Vec<u8>, FsError> {
    let mut bytes = Vec::new();
    loop {
        let piece = vfs.read(number, bytes.len() as u64, PIECE)?;
        bytes.extend_from_slice(&piece);
        if piece.len() < PIECE as usize {
            return Ok(bytes);
        }
    }
}

fn me() -> Caller {
    Caller { pid: std::process::id() }
}

fn told(attr: &Attr) -> Attributes {
    Attributes { kind: attr.kind, size: attr.size, mode: attr.mode, mtime: attr.mtime, ino: attr.number }
}

fn parts(path: &str) -> impl DoubleEndedIterator<Item = String> {
    let parts: Vec<String> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect();
    parts.into_iter()
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
