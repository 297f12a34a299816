//! How a snapshot is taken: names first, then metadata side by side, then what follows from it. Reads only.

use std::path::Path;

use super::held::{Names, Standing};
use super::{Sight, Snapshot};
use crate::conversation::Conversation;
use crate::disk::{Contents, Disk};
use crate::error::{Error, Result};
use crate::files::{exists, is_hollow};
use crate::id::ConversationId;
use crate::layout::{Layout, Partition, managed};
use crate::ledger::{At, Ledger};
use crate::meta::{Meta, Parent};
use crate::mirror::Mirror;
use crate::moved::Moved;
use crate::observe::{Glance, Rule, glance_metadata, read_file, stat_file};
use crate::own::came_back;
use crate::parallel;
use crate::plan::Nesting;
use crate::presence::{Facts, Projection, StoragePresence, covered, intent, presence};
use crate::problem::{Problem, What};
use crate::recall::{Recall, Source};
use crate::reconcile::{Base, ManagedFile, Root};
use crate::scan::{Depth, Place, Scan};
use crate::sighting::is_trashed;

/// How often to look again when directories move under our eyes.
const PATIENCE: usize = 5;

impl Snapshot {
    /// Looks at everything. Directories that are renamed or removed while we look are looked for again.
    pub fn take(disk: &dyn Disk, layout: &Layout, ledger: Ledger, mirror: Mirror) -> Result<Self> {
        let sight = if layout.covered { Sight::Covered } else { Sight::Usual };
        Self::take_with(disk, layout, &Recall::default(), ledger, mirror, sight, Standing::default())
    }

    /// As [`Snapshot::take`], seeing this much of the real files.
    pub(crate) fn take_with(
        disk: &dyn Disk,
        layout: &Layout,
        recall: &Recall,
        ledger: Ledger,
        mirror: Mirror,
        sight: Sight,
        standing: Standing,
    ) -> Result<Self> {
        let mut snapshot = Self { ledger, mirror, sight, standing, ..Self::default() };
        for _ in 0..PATIENCE {
            snapshot.look(disk, layout, recall)?;
            if snapshot.vanished(disk)?.is_empty() {
                snapshot.note_oddities();
                return Ok(snapshot);
            }
        }
        for id in snapshot.vanished(disk)? {
            snapshot.problems.retain(|problem| problem.id != Some(id));
            snapshot.remove(id);
        }
        snapshot.note_oddities();
        Ok(snapshot)
    }

    /// The same moment as it looks from beneath a mount over the real files, given that these have nothing that the store
    /// lacks.
    pub(crate) fn cover(self, layout: &Layout) -> Self {
        let (layout, sight) = (layout.clone().cover(), Sight::Covered);
        let Self { mut ledger, mirror, gathered, duplicates, problems, .. } = self;
        ledger.covered = true;
        let conversations = self.conversations.into_values().filter(|found| found.store.is_some()).map(|found| {
            let Conversation { id, store, meta, parent, origin, looked, .. } = *found;
            let placed = place(&layout, &ledger, sight, id, store, None);
            (id, Box::new(Conversation { meta, parent, origin, looked, ..placed }))
        });
        let conversations = conversations.collect();
        let duplicates = duplicates.into_iter().map(|(id, mut others)| {
            others.retain(|(root, _)| *root == Root::Store);
            (id, others)
        });
        let duplicates = duplicates.collect();
        Self { conversations, ledger, mirror, sight, gathered, duplicates, problems, ..Self::default() }
    }

    /// Conversations without metadata whose directory is not there any more.
    fn vanished(&self, disk: &dyn Disk) -> Result<Vec<ConversationId>> {
        let mut vanished = Vec::new();
        for found in self.all().filter(|found| found.meta.is_none()) {
            for dir in [found.dirs().store, found.dirs().work].into_iter().flatten() {
                match exists(disk, dir) {
                    Ok(true) => {}
                    Ok(false) => {
                        vanished.push(found.id);
                        break;
                    }
                    // It is there, and no path reaches it.
                    Err(error) if error.is_about_one_file() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(vanished)
    }

    fn look(&mut self, disk: &dyn Disk, layout: &Layout, recall: &Recall) -> Result<()> {
        *self = Self {
            ledger: std::mem::take(&mut self.ledger),
            mirror: std::mem::take(&mut self.mirror),
            sight: self.sight,
            standing: self.standing,
            gathered: recall.gathered(),
            ..Self::default()
        };
        let mut places = self.names(disk, layout)?;
        let by_content = self.hold_back(disk, layout, &mut places)?;
        let now = self.standing.now;
        let mut placed: Vec<_> = places
            .into_iter()
            .filter_map(|(id, [store, work])| {
                if store.is_empty() && self.sight.hides(&self.ledger, id) {
                    // Removed for good while its real files were covered.
                    return None;
                }
                let rule = if by_content.contains(&id) { Rule::Content { now } } else { Rule::Newest };
                let [store, work] = [(Root::Store, store), (Root::Work, work)]
                    .map(|(root, places)| self.choose(disk, layout, id, root, rule, places));
                Some(Box::new(Conversation { rule, ..place(layout, &self.ledger, self.sight, id, store, work) }))
            })
            .collect();
        let (ledger, mirror) = (&self.ledger, &self.mirror);
        let look = |found: &Conversation| {
            let mut reader =
                Reader { disk, recall, ledger, problems: Vec::new(), hollow: false, read: None, alike: false };
            let meta = reader.meta(found);
            let (parent, origin) = reader.lineage(mirror, layout, found, meta.as_ref());
            (meta, parent, origin, reader)
        };
        let read = parallel::map(&placed, |found| look(found));
        for (found, mut read) in placed.iter_mut().zip(read) {
            if read.3.hollow {
                // Somebody removed its files and left directories behind, as git does that knows of none.
                **found = place(layout, ledger, self.sight, found.id, found.store.take(), None);
                read = look(found);
            }
            let (meta, parent, origin, reader) = read;
            (found.meta, found.parent, found.origin) = (meta, parent, origin);
            found.alike = reader.alike;
            if let Some((contents, source)) = reader.read {
                found.looked = Some(contents.stat);
                self.gathered.add(contents, source);
            }
            if found.store.is_some() || found.work.is_some() {
                self.problems.extend(reader.problems);
            }
        }
        let there = |found: &Conversation| found.store.is_some() || found.work.is_some();
        self.conversations = placed.into_iter().filter(|found| there(found)).map(|found| (found.id, found)).collect();
        self.heed_moves(disk, layout)?;
        self.bar_parents(disk, layout)?;
        self.note_lost(disk, layout)
    }

    /// Copies whose conversation the store had and was not told to remove.
    fn note_lost(&mut self, disk: &dyn Disk, layout: &Layout) -> Result<()> {
        let mut lost = Vec::new();
        for found in self.all().filter(|found| found.store.is_none() && self.base(found.id).is_some()) {
            if !self.is_removed(disk, layout, found.id)? && !is_trashed(disk, layout, found.id)? {
                lost.push(Problem {
                    id: Some(found.id),
                    path: found.path().to_owned(),
                    what: What::Lost { id: found.id },
                });
            }
        }
        self.problems.extend(lost);
        Ok(())
    }

    /// What lies elsewhere than it was left was moved by somebody, and hangs where it lies.
    fn heed_moves(&mut self, disk: &dyn Disk, layout: &Layout) -> Result<()> {
        if self.sight != Sight::Usual || self.ledger.covered {
            // What is beneath a mount was moved by nobody; it is behind.
            return Ok(());
        }
        let flat = self.ledger.form.nesting == Nesting::Flat;
        let mut moves = Vec::new();
        for found in self.conversations.values() {
            let entry = self.ledger.get(found.id);
            let (Some(work), Some(_)) = (&found.work, &found.store) else { continue };
            let left = entry.and_then(|entry| entry.left.as_ref()?.at.as_ref());
            if left.is_some_and(|left| left.is(work)) {
                continue;
            }
            let Some(now) = layout.work.as_ref().and_then(|root| root.at(&work.dir)) else { continue };
            let silent = || found.meta.as_ref().is_some_and(|meta| meta.parent() == Parent::Absent);
            // What was hidden and came back as a root, and says nothing else, is one, whatever it was meanwhile.
            let back = left.is_none() && came_back(entry) && now.beneath.is_none() && silent();
            if left.is_none() && !back {
                continue;
            }
            let left = left.cloned().unwrap_or_else(|| At { beneath: found.parent, ..now.clone() });
            let above = found.parent.filter(|parent| {
                let beside = self.conversations.get(parent).map(|parent| parent.partition);
                beside == Some(found.partition) && !flat
            });
            let wanted = At { beneath: above, name: found.id.dirname(found.title()), partition: found.partition };
            moves.extend(Moved::of(found.id, &left, &now, &wanted).map(|moved| (found.id, moved)));
        }
        let mut moved_from = Vec::new();
        for (id, moved) in moves {
            let Some(found) = self.conversations.get_mut(&id) else { continue };
            moved_from.push(found.clone());
            found.parent = moved.parent.unwrap_or(found.parent);
            found.partition = moved.partition.unwrap_or(found.partition);
            if let (Some(meta), Some(title)) = (&mut found.meta, &moved.title) {
                meta.set_title(Some(title));
            }
            found.moved = Some(moved);
        }
        for before in moved_from {
            let parent = self.get(before.id).and_then(|found| found.moved.as_ref()?.parent.flatten());
            let barred = match parent {
                Some(parent) => self.bar(disk, layout, before.id, parent)?,
                None => None,
            };
            self.barred.extend(barred.map(|barred| (barred.id, barred)));
            // What would close a circle or hang beneath what is private is not done, and not shown as if it were.
            if (barred.is_some() || self.circle(before.id).is_some())
                && let Some(found) = self.conversations.get_mut(&before.id)
            {
                **found = Conversation { moved: found.moved.take(), ..*before };
            }
        }
        Ok(())
    }

    /// Every directory that names a conversation, by id and root.
    fn names(&mut self, disk: &dyn Disk, layout: &Layout) -> Result<Names> {
        let mut names = Names::new();
        let flat = if layout.is_single_root() { Depth::Nested } else { Depth::Flat };
        let stores = std::iter::once(&layout.store).chain(&layout.siblings);
        let stores = stores.map(|root| (Root::Store, Partition::ALL.map(|part| (part, root.partition(part))), flat));
        let work = layout.work.iter();
        let work =
            work.map(|root| (Root::Work, Partition::ALL.map(|part| (part, root.partition(part))), Depth::Nested));
        for (root, partitions, depth) in stores.chain(work) {
            let scan = Scan::of(disk, partitions, depth)?;
            for (id, place) in scan.places {
                names.entry(id).or_default()[root as usize].push(place);
            }
            let strangers = scan.strangers.into_iter();
            self.problems.extend(strangers.map(|path| Problem { id: None, path, what: What::Stranger }));
            let unreadable = scan.unreadable.iter();
            self.problems.extend(unreadable.map(|(id, error)| Problem::unlisted(*id, error)));
        }
        let siblings = layout.siblings.iter();
        self.problems.extend(siblings.map(|silo| Problem {
            id: None,
            path: silo.dir.clone(),
            what: What::UnmergedSilo,
        }));
        Ok(names)
    }

    /// The directory in use of several with one id; the others are duplicates.
    fn choose(
        &mut self,
        disk: &dyn Disk,
        layout: &Layout,
        id: ConversationId,
        root: Root,
        rule: Rule,
        mut places: Vec<Place>,
    ) -> Option<Place> {
        if places.len() == 1 {
            return places.pop();
        }
        if root == Root::Work && places.iter().any(|place| !is_hollow(disk, &place.dir)) {
            places.retain(|place| !is_hollow(disk, &place.dir));
        }
        let left = self.ledger.get(id).and_then(|entry| entry.left.as_ref()?.at.as_ref());
        let is_left = |place: &Place| {
            let work = layout.work.as_ref().filter(|_| root == Root::Work);
            left.is_some() && work.and_then(|work| work.at(&place.dir)).as_ref() == left
        };
        // A copy of a copy is not the copy, however new it is; nor is what lies in a copy of what it lay in.
        let all_left = |place: &Place| is_left(place) && self.lies_as_left(layout, &place.dir);
        let where_left = places.iter().position(all_left).or_else(|| places.iter().position(is_left));
        let in_place: Vec<_> = (0..places.len())
            .filter(|&index| root == Root::Work && self.lies_as_left(layout, &places[index].dir))
            .collect();
        let newest = || {
            if root == Root::Work && rule != Rule::Newest {
                // The order of their names, since times do not decide.
                return (!places.is_empty()).then_some(0);
            }
            let some: Vec<_> = in_place.iter().map(|&index| places[index].clone()).collect();
            in_use(disk, &some).map(|index| in_place[index]).or_else(|| in_use(disk, &places))
        };
        let base = self.ledger.get(id).and_then(|entry| entry.base.as_ref()).filter(|_| root == Root::Work);
        let known = base.and_then(|base| most_known(disk, &places, base));
        let chosen = where_left.or(known).or_else(newest)?;
        let chosen = places.swap_remove(chosen);
        for other in places {
            self.problems.push(Problem { id: Some(id), path: other.dir.clone(), what: What::Duplicate });
            self.duplicates.entry(id).or_default().push((root, other));
        }
        Some(chosen)
    }

    /// Whether everything that a directory of the workspace lies in is where it was left.
    fn lies_as_left(&self, layout: &Layout, dir: &Path) -> bool {
        let Some(root) = &layout.work else { return false };
        let above = dir.ancestors().skip(1).take_while(|above| above.starts_with(&root.conversations));
        let ids = above.filter_map(|above| Some((above, ConversationId::from_dirname(above.file_name()?)?)));
        ids.into_iter().all(|(above, id)| {
            let left = self.ledger.get(id).and_then(|entry| entry.left.as_ref()?.at.as_ref());
            left.is_some() && root.at(above).as_ref() == left
        })
    }

    /// Missing parents and circles, which the trees have dealt with.
    fn note_oddities(&mut self) {
        let mut oddities = Vec::new();
        for partition in Partition::ALL {
            let tree = self.tree(partition);
            // A parent in the other partition is put away, not missing.
            let missing = tree.missing().iter().filter(|(_, parent)| !self.conversations.contains_key(parent));
            oddities.extend(missing.map(|(&id, &parent)| (id, What::MissingParent { parent })));
            oddities.extend(tree.cut().iter().map(|(&id, &parent)| (id, What::Cycle { parent })));
        }
        for (id, what) in oddities {
            let dir = self.get(id).map(|found| found.path().to_owned()).unwrap_or_default();
            self.problems.push(Problem { id: Some(id), path: managed(&dir, ManagedFile::Metadata), what });
        }
    }
}

/// Reads metadata, noting what is wrong on the way.
struct Reader<'a> {
    disk: &'a dyn Disk,
    recall: &'a Recall,
    ledger: &'a Ledger,
    problems: Vec<Problem>,
    /// The copy in the workspace is directories and nothing else.
    hollow: bool,
    /// The store's file as it was found.
    read: Option<(Contents, Source)>,
    /// Both copies are as they were left.
    alike: bool,
}

impl Reader<'_> {
    /// Metadata from the copy that is current; from the other one where that cannot be read.
    fn meta(&mut self, conversation: &Conversation) -> Option<Meta> {
        let base = self.ledger.get(conversation.id).and_then(|entry| entry.base.as_ref());
        let dirs = conversation.dirs();
        let Glance { root: first, store: mut at_hand, held, missing, alike } =
            match glance_metadata(self.disk, self.recall, dirs, base, conversation.rule) {
                Ok(glance) => glance,
                Err(error) => {
                    self.unreadable(conversation, &error);
                    Glance { root: Root::Store, store: None, held: None, missing: false, alike: false }
                }
            };
        self.alike = alike;
        if let (true, Some(work)) = (missing, dirs.work) {
            self.hollow = is_hollow(self.disk, work);
        }
        // The store is read in its place, and would not show that it waits for a person.
        if let (Some(reason), Some(dir), Root::Store) = (held, dirs.work, first) {
            let path = managed(dir, ManagedFile::Metadata);
            let what = What::Broken { root: Root::Work, reason };
            self.note(Problem { id: Some(conversation.id), path, what });
        }
        [first, first.other()].into_iter().find_map(|root| {
            let dir = dirs.of(root)?;
            let path = managed(dir, ManagedFile::Metadata);
            let contents = match (root, at_hand.take()) {
                (Root::Store, Some(found)) => Ok(Some(found)),
                (Root::Store, None) => self.recall.read(self.disk, &path),
                (Root::Work, _) => read_file(self.disk, &path).map(|found| Some((found?, Source::Read))),
            };
            let what = match contents {
                Ok(Some((mut contents, source))) => {
                    let parsed = Meta::parse(&contents.bytes);
                    if root == Root::Store {
                        if let Source::Known(_) = source {
                            // The index has them, and they are many.
                            contents.bytes = Vec::new();
                        }
                        self.read = Some((contents, source));
                    }
                    match parsed {
                        Ok(meta) => return Some(meta),
                        Err(reason) => What::Broken { root, reason },
                    }
                }
                Ok(None) => What::Missing { root },
                Err(error) => match error.wrong_kind().filter(|_| root == Root::Work && dirs.store.is_some()) {
                    // The store's copy is read in its place.
                    Some(kind) => What::Irregular { kind },
                    None => {
                        self.unreadable(conversation, &error);
                        return None;
                    }
                },
            };
            self.note(Problem { id: Some(conversation.id), path, what });
            None
        })
    }

    /// Parent and origin, as far as metadata, mirror and place tell.
    fn lineage(
        &mut self,
        mirror: &Mirror,
        layout: &Layout,
        found: &Conversation,
        meta: Option<&Meta>,
    ) -> (Option<ConversationId>, Option<String>) {
        if let Some(Parent::Garbage(text)) = meta.map(Meta::parent) {
            let path = managed(found.path(), ManagedFile::Metadata);
            self.note(Problem { id: Some(found.id), path, what: What::GarbageParent { text } });
        }
        // Only what came from elsewhere takes its parent from where it lies: our own files say it themselves.
        let came = layout.is_single_root() || found.store.is_none();
        let beneath = if came { found.work.as_ref().or(found.store.as_ref()) } else { None };
        let parent = mirror.effective_parent(found.id, meta, beneath.and_then(|place| place.beneath));
        let origin = meta.and_then(Meta::origin).or_else(|| mirror.origin(found.id));
        (parent, origin.map(ToOwned::to_owned))
    }

    fn unreadable(&mut self, conversation: &Conversation, error: &Error) {
        self.note(Problem::unreadable(conversation.id, error, conversation.path()));
    }

    /// A file that is met twice is told of once.
    fn note(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// What only names tell: where it is, and where it is meant to be.
fn place(
    layout: &Layout,
    ledger: &Ledger,
    sight: Sight,
    id: ConversationId,
    store: Option<Place>,
    work: Option<Place>,
) -> Conversation {
    let entry = ledger.get(id);
    let work = work.filter(|_| !sight.hides(ledger, id));
    let facts = Facts {
        in_store: store.is_some(),
        in_work: work.is_some() || layout.is_single_root(),
        remembered: entry.map(|entry| entry.intent),
        exported: entry.is_some_and(|entry| entry.base.is_some()),
    };
    let found = presence(facts).unwrap_or(StoragePresence::UserLocalOnly);
    let (presence, intent) = match (sight, facts.remembered) {
        (Sight::Covered, remembered) => covered(remembered),
        (Sight::Beneath, Some(Projection::LocalOnly)) => (found, Projection::LocalOnly),
        (Sight::Usual | Sight::Beneath, _) => (found, intent(facts)),
    };
    let place = store.as_ref().or(work.as_ref());
    Conversation {
        id,
        partition: place.map_or(Partition::Live, |place| place.partition),
        presence,
        intent,
        store,
        work,
        meta: None,
        parent: None,
        origin: None,
        looked: None,
        alike: false,
        moved: None,
        rule: Rule::Newest,
    }
}

/// Which of several directories with one id is in use: live before archived, then the one whose metadata is newest.
fn in_use(disk: &dyn Disk, places: &[Place]) -> Option<usize> {
    let newest = |place: &Place| {
        let stamp = stat_file(disk, &managed(&place.dir, ManagedFile::Metadata)).ok().flatten();
        stamp.map(|stamp| stamp.mtime)
    };
    match places {
        [] => None,
        [_] => Some(0),
        [first, ..] => {
            let rivals = places.iter().enumerate().filter(|(_, place)| place.partition == first.partition);
            rivals.rev().max_by_key(|(_, place)| newest(place)).map(|(index, _)| index)
        }
    }
}

/// Which of several copies has most of the very files that are remembered: a copy of a copy has none of them.
fn most_known(disk: &dyn Disk, places: &[Place], base: &Base) -> Option<usize> {
    let is_known = |place: &Place, file: ManagedFile| {
        let now = stat_file(disk, &managed(&place.dir, file)).ok().flatten();
        now.is_some_and(|now| base.file(file).work.is_some_and(|then| then.ino == now.ino))
    };
    let known = |place: &Place| ManagedFile::ALL.into_iter().filter(|&file| is_known(place, file)).count();
    let counted = places.iter().map(known).enumerate().filter(|&(_, count)| count > 0);
    counted.max_by_key(|&(_, count)| count).map(|(index, _)| index)
}
