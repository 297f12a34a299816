//! The store's own books: the mirror and a worktree's ledger, each a file with a journal of what changed since. Read whole
//! once, then only what was appended.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::disk::{Contents, Disk, Stat};
use crate::error::{Context as _, Result};
use crate::files::stat;
use crate::id::ConversationId;
use crate::journal;
use crate::json::{self, JsonError};
use crate::layout::StoreRoot;
use crate::ledger::Ledger;
use crate::lines;
use crate::mirror::journal::Footing;
use crate::mirror::{self, Mirror};
use crate::observe::read_file;
use crate::problem::{Problem, What};
use crate::scan::is_absent;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// How often a book is read again when it is written anew meanwhile.
const PATIENCE: usize = 16;

/// The books of a store as they were last read. Whoever keeps one can bring it up to date for little.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// The mirrored links.
    pub mirror: Mirror,
    /// What this worktree remembers.
    pub ledger: Ledger,
    links: Seen,
    shown: Seen,
    /// What lines of the ledger's journal are written on top of.
    on: Option<journal::Footing>,
    /// Whether the mirror's file is one.
    sound: bool,
}

/// How a book looked, and how far its journal was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    file: Option<Stat>,
    /// Inode, size and change time: what was added may be taken back, and something as long come in its place.
    journal: Option<(u64, u64, i64)>,
    read: u64,
}

impl Seen {
    fn look(disk: &dyn Disk, file: &Path, journal: &Path) -> Result<Self> {
        let journal = stat(disk, journal)?.map(|stat| (stat.ino, stat.size, stat.ctime));
        Ok(Self { file: stat(disk, file)?, journal, read: 0 })
    }

    fn is_as(&self, now: &Self) -> bool {
        (self.file, self.journal) == (now.file, now.journal)
    }

    /// Where to go on reading the journal, if all that happened since is that lines were added to it.
    fn resume(&self, now: &Self) -> Option<u64> {
        let (ino, size, _) = now.journal?;
        let same = self.journal.is_none_or(|(before, ..)| before == ino) && size >= self.read;
        (self.file == now.file && same).then_some(self.read)
    }
}

/// How the books looked at one moment.
#[derive(Clone, Copy, Debug)]
pub struct BooksLook {
    links: Seen,
    shown: Seen,
    on: journal::Footing,
}

impl Books {
    /// The books that a snapshot was seen by, taken out of it. It was taken after this look at them: what was written
    /// meanwhile is read again, which changes nothing. What real files are measured against is left out.
    pub fn take(snapshot: &mut Snapshot, looked: BooksLook) -> Self {
        let sound = !snapshot.problems().iter().any(|problem| matches!(problem.what, What::Mirror { .. }));
        let mirror = std::mem::take(&mut snapshot.mirror);
        let ledger = std::mem::take(&mut snapshot.ledger).without_bases();
        Self { mirror, ledger, links: looked.links, shown: looked.shown, on: Some(looked.on), sound }
    }

    /// Reads what was written since the last time, and says of whom the books say something else now.
    pub fn follow(&mut self, store: &Store) -> Result<BTreeSet<ConversationId>> {
        let mut changed = self.follow_mirror(store)?;
        changed.extend(self.follow_ledger(store)?);
        Ok(changed)
    }

    /// Whether nothing was written since the last time. What the mirror's file says must be beyond doubt, too.
    pub fn is_current(&self, store: &Store) -> Result<bool> {
        let (links, shown) = store.books_now()?;
        let on = journal::Footing::new(store.identity()?, shown.file);
        Ok(self.sound && self.links.is_as(&links) && self.shown.is_as(&shown) && self.on == Some(on))
    }

    fn follow_mirror(&mut self, store: &Store) -> Result<BTreeSet<ConversationId>> {
        let (disk, root) = (store.disk(), &store.layout.store);
        let now = Seen::look(disk, &root.tree_file(), &root.tree_journal())?;
        if self.links.is_as(&now) {
            return Ok(BTreeSet::new());
        }
        if let Some(from) = self.links.resume(&now).filter(|_| store.layout.siblings.is_empty()) {
            let lines = tail(disk, &root.tree_journal(), from)?;
            let still = stat(disk, &root.tree_file())? == now.file;
            if let Some(lines) = lines.filter(|_| still) {
                let whole = lines::whole(&lines);
                self.links = Seen { read: from + whole as u64, ..now };
                return Ok(mirror::journal::replay(&mut self.mirror, &lines[..whole], Footing::new(now.file)));
            }
        }
        let (new, problems) = store.look_at_mirror()?;
        let changed = self.mirror.differences(&new);
        (self.mirror, self.sound, self.links) = (new, problems.is_empty(), now);
        Ok(changed)
    }

    fn follow_ledger(&mut self, store: &Store) -> Result<BTreeSet<ConversationId>> {
        let (disk, layout) = (store.disk(), &store.layout);
        let now = Seen::look(disk, &layout.projection_file(), &layout.journal_file())?;
        let on = journal::Footing::new(store.identity()?, now.file);
        if self.shown.is_as(&now) && self.on == Some(on) {
            return Ok(BTreeSet::new());
        }
        if let Some(from) = self.shown.resume(&now).filter(|_| self.on == Some(on)) {
            let lines = tail(disk, &layout.journal_file(), from)?;
            let still = store.footing()? == on;
            if let Some(lines) = lines.filter(|_| still) {
                let whole = lines::whole(&lines);
                self.shown = Seen { read: from + whole as u64, ..now };
                return Ok(journal::replay(&mut self.ledger, &lines[..whole], on));
            }
        }
        let new = store.read_ledger()?.without_bases();
        let changed = self.ledger.differences(&new);
        (self.ledger, self.on, self.shown) = (new, Some(on), now);
        Ok(changed)
    }
}

impl Store {
    /// How the books look.
    pub fn look_at_books(&self) -> Result<BooksLook> {
        let (links, shown) = self.books_now()?;
        Ok(BooksLook { links, shown, on: journal::Footing::new(self.identity()?, shown.file) })
    }

    /// All conversations as they are now, with the books they were seen by.
    pub fn snapshot_with_books(&self) -> Result<(Snapshot, Books)> {
        let looked = self.look_at_books()?;
        let snapshot = self.snapshot()?;
        let books = Books::take(&mut snapshot.clone(), looked);
        Ok((snapshot, books))
    }

    /// The mirror with its journal, and with what the siblings' mirrors add.
    pub fn mirror(&self) -> Result<Mirror> {
        self.look_at_mirror().map(|(mirror, _)| mirror)
    }

    pub(crate) fn look_at_mirror(&self) -> Result<(Mirror, Vec<Problem>)> {
        let (mut mirror, mut problems) = (Mirror::default(), Vec::new());
        for root in std::iter::once(&self.layout.store).chain(&self.layout.siblings) {
            let (found, problem) = read_mirror(self.disk(), root)?;
            mirror.absorb(&found);
            problems.extend(problem);
        }
        Ok((mirror, problems))
    }

    fn books_now(&self) -> Result<(Seen, Seen)> {
        let (disk, layout) = (self.disk(), &self.layout);
        let links = Seen::look(disk, &layout.store.tree_file(), &layout.store.tree_journal())?;
        Ok((links, Seen::look(disk, &layout.projection_file(), &layout.journal_file())?))
    }
}

/// One silo's mirror. A file that does not parse counts as empty, and is told of.
fn read_mirror(disk: &dyn Disk, root: &StoreRoot) -> Result<(Mirror, Option<Problem>)> {
    let (file, journal) = (root.tree_file(), root.tree_journal());
    let mut tries = 0;
    loop {
        let contents = match disk.read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            contents => Some(contents.context("read", &file)?),
        };
        let on = Footing::new(contents.as_ref().map(|contents| contents.stat));
        let lines = read_file(disk, &journal)?;
        tries += 1;
        // Whoever wrote the file anew between the two reads has removed the journal of the one that was read.
        if tries < PATIENCE && on != Footing::new(stat(disk, &file)?) {
            continue;
        }
        let (mut mirror, reason) = parse(contents.as_ref());
        mirror::journal::replay(&mut mirror, lines.as_ref().map_or(&[], |lines| &lines.bytes), on);
        return Ok((mirror, reason.map(|reason| Problem { id: None, path: file, what: What::Mirror { reason } })));
    }
}

fn parse(contents: Option<&Contents>) -> (Mirror, Option<JsonError>) {
    let Some(contents) = contents else { return (Mirror::default(), None) };
    match serde_json::from_slice(&contents.bytes) {
        Ok(mirror) => (mirror, None),
        Err(error) => {
            let shape = || JsonError::new(error.to_string());
            (Mirror::default(), Some(json::object(&contents.bytes).err().unwrap_or_else(shape)))
        }
    }
}

/// What a file has from here on; `None` when it is gone.
fn tail(disk: &dyn Disk, path: &Path, from: u64) -> Result<Option<Vec<u8>>> {
    match disk.read_from(path, from) {
        Ok(contents) => Ok(Some(contents.bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).context("read", path),
    }
}
