//! Files of the user's own in a conversation: what both roots have of them, seen against how they were left. Reads only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::beneath::LARGEST;
use crate::disk::{Disk, Kind, Stat};
use crate::error::{Context as _, Result};
use crate::files::{NewContent, exists, kind, stat};
use crate::id::ConversationId;
use crate::layout::{CONVERSATIONS, managed};
use crate::ledger::Entry;
use crate::meta::Meta;
use crate::observe::{Rule, read_file, unmanaged};
use crate::path_text::{to_path, to_text};
use crate::presence::Projection;
use crate::reconcile::{Action, Digest, FileBase, ManagedFile, Root, Stamp, decide_own, is_conclusive, newer};
use crate::scan::is_absent;
use crate::scratch::is_scratch;
use crate::transcript;

/// A draft of the user's next message lies in the store's directory only.
const NOT_EXPORTED: &str = "QUERY_MESSAGE.md";

/// What a directory's fingerprint is: there is nothing to it but being one.
const DIRECTORY: Digest = Digest([0; 16]);

/// What stands for the fingerprint of a file that is too large to be read. It says nothing about the bytes.
const TOO_LARGE: Digest = Digest([0xff; 16]);

/// One file on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) kind: Kind,
    pub(crate) stamp: Stamp,
    pub(crate) digest: Digest,
}

/// One file on both sides, with the decision.
#[derive(Clone, Debug)]
pub(crate) struct OwnFile {
    /// Where it is in the conversation's directory.
    pub(crate) path: PathBuf,
    pub(crate) store: Option<Copy>,
    pub(crate) work: Option<Copy>,
    pub(crate) action: Action,
    /// It was hidden and is there again: it is shown from now on.
    pub(crate) shown: bool,
    /// Only the store has it, and it is meant to be here.
    pub(crate) comes_out: bool,
}

impl OwnFile {
    /// What is remembered of it when both have it alike.
    pub(crate) fn base(&self) -> Option<FileBase> {
        let (store, work) = (self.store?, self.work?);
        let alike = store.digest == work.digest && store.digest != TOO_LARGE;
        alike.then_some(FileBase { digest: Some(store.digest), store: Some(store.stamp), work: Some(work.stamp) })
    }

    /// The side whose bytes count, where one is to be copied over the other.
    pub(crate) fn source(&self) -> Option<Root> {
        match self.action {
            Action::Export => Some(Root::Store),
            Action::Import | Action::Restore => Some(Root::Work),
            Action::Conflict { winner } => Some(winner),
            Action::Keep if self.comes_out => Some(Root::Store),
            Action::Keep | Action::Unproject | Action::Drop | Action::Hold => None,
        }
    }
}

/// Whether a file is too large to be copied from one root to the other. It stays where it is and is named; the rest of its
/// conversation goes on without it.
fn is_too_large(stat: &Stat) -> bool {
    stat.kind == Kind::File && stat.size > LARGEST
}

/// Takes out of these files of a directory those that are too large to be copied.
pub(crate) fn take_too_large(disk: &dyn Disk, dir: &Path, paths: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut large = Vec::new();
    for path in &*paths {
        if stat(disk, &dir.join(path))?.is_some_and(|stat| is_too_large(&stat)) {
            large.push(path.clone());
        }
    }
    paths.retain(|path| !large.contains(path));
    Ok(large)
}

/// The files that are left out when a conversation is copied whole, from the store or into it.
pub(crate) fn left_out(disk: &dyn Disk, dir: &Path, entry: Option<&Entry>) -> Result<Vec<OwnFile>> {
    let mut paths = unmanaged(disk, dir)?;
    paths.retain(|path| is_exported(path) && !hides(entry, path));
    let held = |path| OwnFile { path, store: None, work: None, action: Action::Hold, shown: false, comes_out: false };
    Ok(take_too_large(disk, dir, &mut paths)?.into_iter().map(held).collect())
}

/// The fingerprint of what is about to be written.
pub(crate) fn digest(content: &NewContent) -> Digest {
    match content {
        NewContent::File { bytes, .. } => Digest::of(bytes),
        NewContent::Dir => DIRECTORY,
        NewContent::Link(target) => digest_of_link(target),
    }
}

fn digest_of_link(target: &Path) -> Digest {
    Digest::of(&[b"link:", target.as_os_str().as_encoded_bytes()].concat())
}

/// Whether a file of the store is copied out.
pub(crate) fn is_exported(path: &Path) -> bool {
    path != Path::new(NOT_EXPORTED) && !path.iter().any(is_scratch)
}

/// Whether a file, or a directory it is in, is hidden.
pub(crate) fn hides(entry: Option<&Entry>, path: &Path) -> bool {
    let Some(hidden) = entry.map(|entry| &entry.hidden).filter(|hidden| !hidden.is_empty()) else { return false };
    path.ancestors().any(|path| hidden.contains(&*to_text(path)))
}

/// Whether a copy that is there was hidden, so that somebody has brought it back.
pub(crate) fn came_back(entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.intent == Projection::LocalOnly && entry.first_seen.is_none())
}

/// Whether a path in a directory leads through directories alone, and so to nowhere else.
pub(crate) fn leads_inside(disk: &dyn Disk, dir: &Path, path: &Path) -> Result<bool> {
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if stat(disk, &dir.join(above))?.is_some_and(|stat| stat.kind != Kind::Dir) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks at every file of the user's own in the two directories of a conversation.
pub(crate) fn look(
    disk: &dyn Disk,
    store: &Path,
    work: &Path,
    entry: Option<&Entry>,
    rule: Rule,
) -> Result<Vec<OwnFile>> {
    let mut paths: BTreeMap<PathBuf, [Option<Stat>; 2]> = BTreeMap::new();
    for (index, dir) in [store, work].into_iter().enumerate() {
        for path in unmanaged(disk, dir)? {
            // What lies among conversations and is not one belongs to none of them.
            if path.iter().any(is_scratch) || path.starts_with(CONVERSATIONS) {
                continue;
            }
            let full = dir.join(&path);
            // What goes while we look is not there.
            let found = stat(disk, &full)?.filter(|stat| stat.kind != Kind::Other);
            if let Some(found) = found {
                paths.entry(path).or_default()[index] = Some(found);
            }
        }
    }
    if let Some([None, Some(_)]) = paths.get(Path::new(transcript::NAME))
        && is_made(disk, &work.join(transcript::NAME))?
    {
        paths.remove(Path::new(transcript::NAME));
    }
    let left = entry.and_then(|entry| entry.left.as_ref());
    let taken = entry.and_then(|entry| entry.base).map_or(i64::MIN, |base| base.taken);
    let remembered = left.into_iter().flat_map(|left| left.own.keys());
    for path in remembered {
        paths.entry(to_path(path).into_owned()).or_default();
    }
    let mut found = Vec::with_capacity(paths.len());
    for (path, [in_store, in_work]) in paths {
        if in_work.is_none() && !is_exported(&path) {
            continue;
        }
        let base = left.and_then(|left| left.own.get(&*to_text(&path)));
        let read = |dir: &Path, stat: Option<Stat>, known: Option<Stamp>| match stat {
            Some(stat) => copy(disk, &dir.join(&path), stat, known, base, taken),
            None => Ok(None),
        };
        let store = read(store, in_store, base.and_then(|base| base.store))?;
        let work = read(work, in_work, base.and_then(|base| base.work))?;
        let mtime = |copy: Option<Copy>| copy.map(|copy| copy.stamp.mtime);
        // What a copy lacks that was brought back is not meant to be here.
        let hidden = hides(entry, &path) || (work.is_none() && came_back(entry));
        let (action, shown) = decide_own(
            store.map(|copy| copy.digest),
            work.map(|copy| copy.digest),
            base.and_then(|base| base.digest),
            hidden,
            match rule {
                Rule::Newest => newer(mtime(store), mtime(work)),
                Rule::Content { .. } => Root::Store,
            },
        );
        let comes_out = action == Action::Keep && store.is_some() && work.is_none() && !hidden;
        let mut file = OwnFile { path, store, work, action, shown, comes_out };
        let large = [store, work].map(|copy| copy.is_some_and(|copy| copy.digest == TOO_LARGE));
        if large == [true; 2] || large != [false; 2] && file.source().is_some() {
            (file.action, file.comes_out) = (Action::Hold, false);
        }
        found.push(file);
    }
    Ok(found)
}

/// Whether the files that were left alike are known to be so still, without reading any. There are no others: the caller
/// has seen that no name changed.
pub(crate) fn are_as_left(
    disk: &dyn Disk,
    store: &Path,
    work: &Path,
    own: &BTreeMap<String, FileBase>,
    taken: i64,
) -> Result<bool> {
    for (path, base) in own {
        let path = to_path(path);
        let stamp = |dir: &Path| Ok(stat(disk, &dir.join(&path))?.map(Stamp::from));
        // A directory is looked at like a file: it has changed when the names in it have.
        if !is_conclusive(base.store, stamp(store)?, taken) || !is_conclusive(base.work, stamp(work)?, taken) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a copy has no files of the user's own but those that both had alike, as they were left. Programs' scratch is
/// nobody's.
pub(crate) fn has_nothing_new(disk: &dyn Disk, work: &Path, entry: Option<&Entry>) -> Result<bool> {
    let left = entry.and_then(|entry| entry.left.as_ref());
    for path in unmanaged(disk, work)? {
        let full = work.join(&path);
        if path.iter().any(is_scratch) || is_transcript_as_left(disk, work, &path, entry)? {
            continue;
        }
        let Some(found) = stat(disk, &full)? else { continue };
        let Some(base) = left.and_then(|left| left.own.get(&*to_text(&path))) else { return Ok(false) };
        // This may be the last copy, and times can be set: it is read.
        let now = copy(disk, &full, found, None, None, i64::MIN)?;
        if now.map(|now| now.digest) != base.digest {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a program works on something in a copy, and may not have saved it yet.
pub(crate) fn has_scratch(disk: &dyn Disk, work: &Path) -> Result<bool> {
    Ok(unmanaged(disk, work)?.iter().any(|path| path.iter().any(is_scratch)))
}

/// Whether a file of a copy is the transcript that was written there, and nobody has written to it since.
pub(crate) fn is_transcript_as_left(disk: &dyn Disk, work: &Path, path: &Path, entry: Option<&Entry>) -> Result<bool> {
    let written = entry.and_then(|entry| entry.left.as_ref()?.transcript?.digest);
    if path != Path::new(transcript::NAME) || written.is_none() || !is_made(disk, &work.join(path))? {
        return Ok(false);
    }
    Ok(read_file(disk, &work.join(path))?.map(|contents| Digest::of(&contents.bytes)) == written)
}

/// Whether a file is a transcript that was made, and so nobody's own.
pub(crate) fn is_made(disk: &dyn Disk, path: &Path) -> Result<bool> {
    // Whatever else it is, it is not a file that was written here.
    if kind(disk, path)? != Some(Kind::File) {
        return Ok(false);
    }
    Ok(read_file(disk, path)?.is_some_and(|contents| transcript::is_made(&contents.bytes)))
}

/// The transcript of what a directory of the store has; `None` where the user has a file of that name, or the events are
/// not sound.
pub(crate) fn made_from(disk: &dyn Disk, id: ConversationId, store: &Path) -> Result<Option<Vec<u8>>> {
    if exists(disk, &store.join(transcript::NAME))? {
        return Ok(None);
    }
    let read = |file| read_file(disk, &managed(store, file));
    let Some(events) = read(ManagedFile::Events)? else { return Ok(None) };
    let meta = read(ManagedFile::Metadata)?.and_then(|contents| Meta::parse(&contents.bytes).ok());
    Ok(transcript::render(id, meta.as_ref(), &events.bytes))
}

/// The fingerprint of a file or of a link. `None` where neither is, or it is too large to be read.
pub(crate) fn digest_at(disk: &dyn Disk, path: &Path) -> Result<Option<Digest>> {
    let Some(found) = stat(disk, path)?.filter(|stat| matches!(stat.kind, Kind::File | Kind::Link)) else {
        return Ok(None);
    };
    if found.size > LARGEST {
        return Ok(None);
    }
    Ok(copy(disk, path, found, None, None, i64::MIN)?.map(|copy| copy.digest))
}

fn copy(
    disk: &dyn Disk,
    path: &Path,
    stat: Stat,
    known: Option<Stamp>,
    base: Option<&FileBase>,
    taken: i64,
) -> Result<Option<Copy>> {
    let unread = base.and_then(|base| base.digest).filter(|_| is_conclusive(known, Some(stat.into()), taken));
    let (stamp, digest) = match (stat.kind, unread) {
        (Kind::Dir, _) => (stat.into(), DIRECTORY),
        (_, Some(digest)) => (stat.into(), digest),
        (Kind::File, None) if is_too_large(&stat) => (stat.into(), TOO_LARGE),
        (Kind::Link, None) => {
            let target = disk.read_link(path).context("read link", path)?;
            (stat.into(), digest_of_link(&target))
        }
        (Kind::File | Kind::Other, None) => match disk.read(path) {
            Ok(contents) => (contents.stat.into(), Digest::of(&contents.bytes)),
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error).context("read", path),
        },
    };
    Ok(Some(Copy { kind: stat.kind, stamp, digest }))
}
