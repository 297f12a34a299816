//! Looks at one unit of one conversation on both sides and asks [`reconcile`](crate::reconcile) what that means. Reads
//! only.

use std::path::{Path, PathBuf};

use crate::beneath::WrongKind;
use crate::disk::{Contents, Disk, Kind, NotRegular, Stat};
use crate::error::{Context as _, Error, Result};
use crate::events;
use crate::files::stat;
use crate::join::{self, StreamFiles};
use crate::json::{self, JsonError};
use crate::layout::managed;
use crate::meta::Meta;
use crate::recall::{Recall, Source};
use crate::reconcile::{
    self, Action, Base, Digest, Digests, ManagedFile, Root, Side, Stamp, Unit, is_conclusive, newer,
};
use crate::scan::is_absent;
use crate::time::Timestamp;

impl From<Stat> for Stamp {
    fn from(stat: Stat) -> Self {
        Self { mtime: stat.mtime, size: stat.size, ino: stat.ino }
    }
}

/// The bytes of a unit's files on one side, in the order of [`Unit::files`].
#[derive(Clone, Debug)]
pub struct UnitBytes {
    unit: Unit,
    files: Vec<Option<Contents>>,
    /// A file that is there and is not a regular one, and what it is.
    irregular: Option<(ManagedFile, NotRegular)>,
}

/// How the winner of two copies is found that both have bytes of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// The one that was modified last.
    #[default]
    Newest,
    /// By what the copies say; file times are not considered. For copies in a worktree that the store did not know.
    Content {
        /// The time: what claims to be later says nothing.
        now: Timestamp,
    },
}

impl UnitBytes {
    /// Reads the unit from a conversation directory; `None` when none of its files is there. Fails if one of them is not a
    /// regular file.
    pub fn read(disk: &dyn Disk, dir: &Path, unit: Unit) -> Result<Option<Self>> {
        match Self::read_irregular(disk, dir, unit)? {
            Some(Self { irregular: Some((file, NotRegular(what))), .. }) => {
                let path = managed(dir, file);
                Err(WrongKind::error(&path, what)).context("read", &path)
            }
            read => Ok(read),
        }
    }

    /// As [`UnitBytes::read`]. If a file is not a regular one, the unit has a problem and lacks that file.
    pub(crate) fn read_irregular(disk: &dyn Disk, dir: &Path, unit: Unit) -> Result<Option<Self>> {
        // A writer may replace the first file between our two reads: what was read first is looked at again.
        for _ in 0..16 {
            let mut files = Vec::new();
            let mut irregular = None;
            for &file in unit.files() {
                let read = read_file(disk, &managed(dir, file));
                if let Err(Error::Io { source, .. }) = &read
                    && let Some(kind) = NotRegular::of(source)
                {
                    irregular = Some((file, kind));
                    files.push(None);
                } else {
                    files.push(read?);
                }
            }
            if irregular.is_some() {
                return Ok(Some(Self { unit, files, irregular }));
            }
            let first = managed(dir, unit.files()[0]);
            let again = if unit.files().len() > 1 { stat_file(disk, &first)? } else { None };
            let unmoved = unit.files().len() == 1 || again == files[0].as_ref().map(|contents| contents.stat.into());
            if unmoved {
                let there = files.iter().any(Option::is_some);
                return Ok(there.then_some(Self { unit, files, irregular }));
            }
        }
        Err(std::io::Error::other("it keeps changing")).context("read", dir)
    }

    /// The fingerprint of a single file, or `None` when it is not there.
    pub(crate) fn read_one(disk: &dyn Disk, dir: &Path, file: ManagedFile) -> Result<Option<Digest>> {
        Ok(read_file(disk, &managed(dir, file))?.map(|contents| Digest::of(&contents.bytes)))
    }

    /// The bytes of one of its files.
    pub fn file(&self, file: ManagedFile) -> Option<&Contents> {
        let at = self.unit.files().iter().position(|&other| other == file)?;
        self.files[at].as_ref()
    }

    /// The bytes of one of its files, taken out.
    pub fn into_file(mut self, file: ManagedFile) -> Option<Vec<u8>> {
        let at = self.unit.files().iter().position(|&other| other == file)?;
        self.files[at].take().map(|contents| contents.bytes)
    }

    /// Fingerprints, in the order of [`Unit::files`].
    pub fn digests(&self) -> Digests {
        let files = self.unit.files().iter().zip(&self.files);
        let digests = files.map(|(&file, contents)| match (contents, self.irregular) {
            (Some(contents), _) => Some(Digest::of(&contents.bytes)),
            // Not what anybody else has, and not missing either.
            (None, Some((irregular, kind))) if irregular == file => Some(Digest::of(kind.to_string().as_bytes())),
            (None, _) => None,
        });
        digests.collect()
    }

    /// A file that is not a regular one, and what it is.
    pub(crate) fn irregular(&self) -> Option<(ManagedFile, NotRegular)> {
        self.irregular
    }

    /// The stream, as [`join`] reads it.
    fn stream_files(&self) -> StreamFiles<'_> {
        let bytes = |file| self.file(file).map(|contents| &*contents.bytes);
        StreamFiles {
            events: bytes(ManagedFile::Events),
            has_base_config: self.file(ManagedFile::BaseConfig).is_some(),
        }
    }

    /// When any of its files was modified last.
    pub fn newest(&self) -> Option<i64> {
        self.files.iter().flatten().map(|contents| contents.stat.mtime).max()
    }

    /// Why the unit is not a document, if it is not.
    pub fn problem(&self) -> Option<(ManagedFile, Flaw)> {
        if let Some((file, kind)) = self.irregular {
            return Some((file, Flaw::Broken(JsonError::new(kind.to_string()))));
        }
        self.unit.files().iter().find_map(|&file| match self.file(file) {
            Some(contents) => check(file, &contents.bytes).err().map(|reason| (file, Flaw::Broken(reason))),
            None => (file != ManagedFile::BaseConfig).then_some((file, Flaw::Missing)),
        })
    }
}

/// What is wrong with a managed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It is not there and must be.
    Missing,
    /// It is no such document.
    Broken(JsonError),
}

/// Whether these bytes may become this managed file.
pub fn check(file: ManagedFile, bytes: &[u8]) -> Result<(), JsonError> {
    match file {
        ManagedFile::Metadata => Meta::parse(bytes).map(drop),
        ManagedFile::Events => events::validate(bytes).map(drop),
        ManagedFile::BaseConfig => json::object(bytes).map(drop),
    }
}

/// A unit on both sides, with the decision.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Which unit.
    pub unit: Unit,
    /// The store's bytes.
    pub store: Option<UnitBytes>,
    /// The workspace's bytes.
    pub work: Option<UnitBytes>,
    /// What is to be done.
    pub action: Action,
}

impl Observed {
    /// Reads both sides whole and decides.
    pub fn of(disk: &dyn Disk, unit: Unit, dirs: Dirs<'_>, base: Option<&Base>, rule: Rule) -> Result<Self> {
        let store = dirs.store.map_or(Ok(None), |dir| UnitBytes::read(disk, dir, unit))?;
        let work = dirs.work.map_or(Ok(None), |dir| UnitBytes::read_irregular(disk, dir, unit))?;
        let remembered: Option<Digests> =
            base.map(|base| unit.files().iter().map(|&file| base.file(file).digest).collect());
        let nothing = || vec![None; unit.files().len()];
        let digests = |side: &Option<UnitBytes>| side.as_ref().map_or_else(nothing, UnitBytes::digests);
        let (in_store, in_work) = (digests(&store), digests(&work));
        let has =
            |side: &Digests, file| unit.files().iter().zip(side).any(|(&it, bytes)| it == file && bytes.is_some());
        let side = |side: &Option<UnitBytes>, mine, other| match side {
            None if base.is_some() => Side::Deleted,
            None => Side::Absent,
            Some(_) if reconcile::lost(mine, other, remembered.as_ref()) => Side::Deleted,
            Some(bytes) => match (bytes.problem(), reconcile::side(mine, other, remembered.as_ref())) {
                (None, side) => side,
                // It never had that file, which was hidden when it was copied out; the other side has it.
                (Some((file, Flaw::Missing)), Side::Same) if has(other, file) => Side::Deleted,
                (Some(_), _) => Side::Broken,
            },
        };
        let newer = match (rule, &store, &work) {
            (Rule::Content { now }, Some(store), Some(work)) => winner(disk, dirs, store, work, now)?,
            (Rule::Newest | Rule::Content { .. }, ..) => {
                newer(store.as_ref().and_then(UnitBytes::newest), work.as_ref().and_then(UnitBytes::newest))
            }
        };
        let sides = (side(&store, &in_store, &in_work), side(&work, &in_work, &in_store));
        let mut action = reconcile::decide(sides.0, sides.1, newer);
        // A copy that misses something is a damaged copy, not a removed one.
        if action == Action::Unproject && dirs.work.is_some() {
            action = Action::Export;
        } else if action == Action::Drop && dirs.store.is_some() {
            action = Action::Import;
        } else if sides == (Side::Deleted, Side::Deleted) && store.is_some() && work.is_some() {
            // Each has what the other lost: nothing may be taken for the whole.
            action = Action::Hold;
        }
        Ok(Self { unit, store, work, action })
    }

    /// Whether the workspace's copy has nothing of its own in this unit: what is there of it is as it was left. A file that
    /// is hidden or was removed is not there.
    pub(crate) fn is_as_left(&self, base: Option<&Base>) -> bool {
        let Some(work) = &self.work else { return true };
        let mut files = self.unit.files().iter().zip(work.digests());
        base.is_some_and(|base| files.all(|(&file, now)| now.is_none() || now == base.file(file).digest))
    }

    /// The side to read from.
    pub fn current(&self) -> Option<(Root, &UnitBytes)> {
        let preferred = self.action.source();
        [preferred, preferred.other()].into_iter().find_map(|root| {
            let side = match root {
                Root::Store => self.store.as_ref(),
                Root::Work => self.work.as_ref(),
            };
            side.map(|bytes| (root, bytes))
        })
    }
}

/// Which of two units wins by what they say. Metadata follows the stream if the streams differ.
fn winner(disk: &dyn Disk, dirs: Dirs<'_>, store: &UnitBytes, work: &UnitBytes, now: Timestamp) -> Result<Root> {
    if store.unit == Unit::Stream {
        return Ok(join::stream_winner(store.stream_files(), work.stream_files(), now));
    }
    let read = |dir: Option<&Path>| match dir {
        Some(dir) => UnitBytes::read_irregular(disk, dir, Unit::Stream),
        None => Ok(None),
    };
    if let (Some(in_store), Some(in_work)) = (read(dirs.store)?, read(dirs.work)?)
        && in_store.digests() != in_work.digests()
    {
        return Ok(join::stream_winner(in_store.stream_files(), in_work.stream_files(), now));
    }
    let activated = |side: &UnitBytes| {
        let meta = side.file(ManagedFile::Metadata).and_then(|contents| Meta::parse(&contents.bytes).ok());
        meta.map(|meta| meta.last_activated_at())
    };
    Ok(join::later(activated(store), activated(work), now))
}

/// Whether the copy in the worktree begins as the store's copy does.
pub(crate) fn begins_alike(disk: &dyn Disk, store: &Path, work: &Path) -> Result<bool> {
    let read = |dir: &Path| UnitBytes::read_irregular(disk, dir, Unit::Stream);
    let (store, work) = (read(store)?, read(work)?);
    if [&store, &work].into_iter().flatten().any(|side| side.irregular.is_some()) {
        // What it would say cannot be read.
        return Ok(false);
    }
    Ok(join::begins_alike(files_of(store.as_ref()), files_of(work.as_ref())))
}

/// Whether a copy has no events, so that every other begins as it does.
pub(crate) fn has_no_events(disk: &dyn Disk, dir: &Path) -> Result<bool> {
    let stream = UnitBytes::read_irregular(disk, dir, Unit::Stream)?;
    let regular = stream.as_ref().is_none_or(|stream| stream.irregular.is_none());
    Ok(regular && join::begins_alike(files_of(stream.as_ref()), files_of(None)))
}

fn files_of(stream: Option<&UnitBytes>) -> StreamFiles<'_> {
    stream.map_or(StreamFiles { events: None, has_base_config: false }, UnitBytes::stream_files)
}

/// The directories of one conversation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dirs<'a> {
    /// In the store.
    pub store: Option<&'a Path>,
    /// In the workspace.
    pub work: Option<&'a Path>,
}

impl<'a> Dirs<'a> {
    /// The one in a root.
    pub fn of(self, root: Root) -> Option<&'a Path> {
        match root {
            Root::Store => self.store,
            Root::Work => self.work,
        }
    }
}

/// Says which side a reader should take, reading as little as it can. Broken content is not noticed here.
pub fn glance(disk: &dyn Disk, unit: Unit, dirs: Dirs<'_>, base: Option<&Base>, rule: Rule) -> Result<Root> {
    let (store, work) = match (dirs.store, dirs.work) {
        (Some(store), Some(work)) => (store, work),
        (None, Some(_)) => return Ok(Root::Work),
        (Some(_), None) | (None, None) => return Ok(Root::Store),
    };
    let mut newest = (None, None);
    let mut conclusive = base.is_some();
    for &file in unit.files() {
        let in_store = stat_file(disk, &managed(store, file))?;
        let in_work = stat_file(disk, &managed(work, file))?;
        newest.0 = newest.0.max(in_store.map(|stamp| stamp.mtime));
        newest.1 = newest.1.max(in_work.map(|stamp| stamp.mtime));
        if let Some(base) = base {
            let remembered = base.file(file);
            conclusive &= is_conclusive(remembered.store, in_store, base.taken)
                && is_conclusive(remembered.work, in_work, base.taken);
        }
    }
    match (base, rule) {
        (None, Rule::Newest) => Ok(newer(newest.0, newest.1)),
        (Some(_), _) if conclusive => Ok(Root::Store),
        (Some(_) | None, _) => Ok(Observed::of(disk, unit, dirs, base, rule)?.action.source()),
    }
}

/// What a glance at metadata tells.
#[derive(Debug)]
pub(crate) struct Glance {
    /// The copy that is current.
    pub(crate) root: Root,
    /// The store's bytes, where they were read on the way.
    pub(crate) store: Option<(Contents, Source)>,
    /// What is wrong with the workspace's copy, where that had to be read anyway.
    pub(crate) held: Option<JsonError>,
    /// The workspace's copy has no such file.
    pub(crate) missing: bool,
    /// Stamps tell that both copies are as they were left.
    pub(crate) alike: bool,
}

/// As [`glance`] for metadata, which nearly always comes from the store: its bytes are read on the way.
pub(crate) fn glance_metadata(
    disk: &dyn Disk,
    recall: &Recall,
    dirs: Dirs<'_>,
    base: Option<&Base>,
    rule: Rule,
) -> Result<Glance> {
    let one = |root, missing| Ok(Glance { root, store: None, held: None, missing, alike: false });
    let (store, work) = match (dirs.store, dirs.work) {
        (Some(store), Some(work)) => (store, work),
        (None, Some(work)) => {
            return one(Root::Work, stat_file(disk, &managed(work, ManagedFile::Metadata))?.is_none());
        }
        (Some(_), None) | (None, None) => return one(Root::Store, false),
    };
    let contents = recall.read(disk, &managed(store, ManagedFile::Metadata))?;
    let in_store = contents.as_ref().map(|(contents, _)| Stamp::from(contents.stat));
    let in_work = stat_file(disk, &managed(work, ManagedFile::Metadata))?;
    let conclusive = base.is_some_and(|base| {
        let remembered = base.file(ManagedFile::Metadata);
        is_conclusive(remembered.store, in_store, base.taken) && is_conclusive(remembered.work, in_work, base.taken)
    });
    let (root, held, alike) = match (base, rule) {
        (None, Rule::Newest) => {
            (newer(in_store.map(|stamp| stamp.mtime), in_work.map(|stamp| stamp.mtime)), None, false)
        }
        (Some(_), _) if conclusive => (Root::Store, None, true),
        (Some(_) | None, _) => {
            let observed = Observed::of(disk, Unit::Metadata, dirs, base, rule)?;
            let flaw = observed.work.as_ref().and_then(UnitBytes::problem);
            let held = flaw.and_then(|(_, flaw)| match flaw {
                Flaw::Broken(reason) => Some(reason),
                Flaw::Missing => None,
            });
            (observed.action.source(), held, false)
        }
    };
    Ok(Glance { root, store: contents, held, missing: in_work.is_none(), alike })
}

/// A managed file's bytes, or `None` when it is not there.
pub fn read_file(disk: &dyn Disk, path: &Path) -> Result<Option<Contents>> {
    match disk.read(path) {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).context("read", path),
    }
}

/// A managed file's stamp, or `None` when it is not there.
pub(crate) fn stat_file(disk: &dyn Disk, path: &Path) -> Result<Option<Stamp>> {
    Ok(stat(disk, path)?.map(Into::into))
}

/// Every file and directory beneath a conversation directory that is not a managed file and not a child conversation, as
/// paths relative to it. Directories come before what is in them.
pub(crate) fn unmanaged(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>> {
    use crate::id::ConversationId;
    use crate::layout::CONVERSATIONS;

    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        let here = dir.join(&inner);
        for entry in disk.list(&here).context("list", &here)? {
            let at_top = inner.as_os_str().is_empty();
            if at_top && entry.name.to_str().and_then(ManagedFile::from_name).is_some() {
                continue;
            }
            let path = inner.join(&entry.name);
            if entry.kind == Kind::Dir {
                let is_child = inner == Path::new(CONVERSATIONS) && ConversationId::from_dirname(&entry.name).is_some();
                if is_child {
                    continue;
                }
                open.push(path.clone());
            }
            // The children's directory itself belongs to the tree. A stranger inside it is listed, so that it is not lost with
            // the copy.
            if path != Path::new(CONVERSATIONS) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
