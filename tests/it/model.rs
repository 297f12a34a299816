//! Random operations on a store, against a model small enough to be obviously right. After each operation the store, looked
//! at anew, says what the model says, and the workspace shows it where the tree wants it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jp_store::disk::RealDisk;
use jp_store::layout::Partition;
use jp_store::lock::{Guard, Wait};
use jp_store::meta::Meta;
use jp_store::presence::{Projection, StoragePresence};
use jp_store::problem::What;
use jp_store::reconcile::ManagedFile;
use jp_store::store::{Store, Surroundings};
use jp_store::tree::Tree;
use jp_store::writer::{Seed, Strategy, Writer};
use jp_store::{ConversationId, Error, Result};
use jp_tests::{Random, TestEnv, Workspace};

const SEEDS: u64 = 24;
const STEPS: usize = 60;

/// What a conversation is.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    title: String,
    parent: Option<ConversationId>,
    archived: bool,
    events: String,
}

#[derive(Clone, Debug, Default)]
struct Model {
    known: BTreeMap<ConversationId, Known>,
    /// Conversations that were hidden by name, and not shown since.
    hidden: Vec<ConversationId>,
}

impl Model {
    fn tree(&self, archived: bool) -> Tree {
        let part = self.known.iter().filter(|(_, known)| known.archived == archived);
        Tree::new(part.map(|(&id, known)| (id, known.parent)))
    }

    fn subtree(&self, id: ConversationId) -> Vec<ConversationId> {
        let below = self.tree(self.known[&id].archived).descendants(id);
        std::iter::once(id).chain(below).collect()
    }

    fn is_hidden(&self, id: ConversationId) -> bool {
        let tree = self.tree(self.known[&id].archived);
        self.hidden.contains(&id) || tree.ancestors(id).any(|above| self.hidden.contains(&above))
    }
}

struct Run {
    workspace: Workspace,
    store: Store,
    random: Random,
    model: Model,
    log: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        // Each look at the clock is a second later, so that ids and times differ.
        let ticks = AtomicI64::new(1_787_000_000);
        let around = Surroundings {
            disk: Arc::new(RealDisk::default()),
            data_dir: Some(workspace.env().data()),
            pid: std::process::id(),
            session: None,
            clock: Arc::new(move || jiff::Timestamp::from_second(ticks.fetch_add(1, Ordering::Relaxed)).unwrap()),
            covered: Arc::new(|_| false),
        };
        let store = Store::open(around, workspace.root()).unwrap();
        Self {
            workspace,
            store,
            random: Random::new(seed + 1),
            model: Model::default(),
            log: vec![format!("seed {seed}")],
        }
    }

    fn writer(&self) -> Writer {
        self.store.writer().unwrap().0
    }

    fn under_lock<T>(&self, id: ConversationId, work: impl FnOnce(&Writer, &Guard) -> Result<T>) -> Result<T> {
        let writer = self.writer();
        let guard = writer.lock(id, &Wait::none())?;
        work(&writer, &guard)
    }

    fn pick(&mut self) -> Option<ConversationId> {
        let count = self.model.known.len() as u64;
        let nth = (count > 0).then(|| self.random.below(count))?;
        self.model.known.keys().nth(nth as usize).copied()
    }

    fn step(&mut self) {
        let dice = self.random.below(20);
        let Some(id) = self.pick().filter(|_| dice > 3) else { return self.create() };
        let known = self.model.known[&id].clone();
        match dice {
            4..=6 => self.retitle(id),
            7..=9 => self.reparent(id),
            10 => self.hide(id),
            11..=12 => self.show(id),
            13 => self.archive(id, &known),
            14 => self.unarchive(id, &known),
            15 => self.remove(id),
            16 => self.edit_by_hand(id),
            17 => self.lose_the_key(id, &known),
            _ => self.replace(id),
        }
    }

    fn create(&mut self) {
        let parent = self.pick().filter(|id| !self.model.known[id].archived);
        let local = self.random.below(4) == 0;
        let title = format!("title {}", self.random.below(1000));
        self.log.push(format!("create beneath {parent:?}, local {local}"));
        let mut meta = Meta::new(self.store.now());
        meta.set_title(Some(&title));
        let seed = Seed {
            meta,
            events: b"[]\n".to_vec(),
            base_config: Some(b"{}\n".to_vec()),
            parent,
            projection: if local { Projection::LocalOnly } else { Projection::Projected },
        };
        let id = self.writer().create(seed).unwrap().id();
        if local {
            self.model.hidden.push(id);
        }
        self.model.known.insert(id, Known { title, parent, archived: false, events: "[]\n".to_owned() });
    }

    fn retitle(&mut self, id: ConversationId) {
        let title = ["Über alles", "../../etc/passwd", "", "a b", "日本語"][self.random.below(5) as usize];
        self.log.push(format!("retitle {id} to {title:?}"));
        self.under_lock(id, |writer, guard| writer.edit(guard, |meta| meta.set_title(Some(title)))).unwrap();
        self.model.known.get_mut(&id).unwrap().title = title.to_owned();
    }

    fn reparent(&mut self, id: ConversationId) {
        let parent = self.pick().filter(|_| self.random.below(4) > 0);
        self.log.push(format!("reparent {id} beneath {parent:?}"));
        let result = self.under_lock(id, |writer, guard| writer.reparent(guard, parent));
        let archived = self.model.known[&id].archived;
        let allowed = parent.is_none_or(|parent| {
            self.model.known[&parent].archived == archived && !self.model.tree(archived).would_cycle(id, parent)
        });
        match result {
            Ok(()) => assert!(allowed, "a wrong parent was taken"),
            Err(Error::Refused(reason)) => {
                let vanishes = parent.is_some_and(|parent| self.model.is_hidden(parent));
                assert!(!allowed || vanishes, "refused: {reason}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        self.model.known.get_mut(&id).unwrap().parent = parent;
    }

    fn hide(&mut self, id: ConversationId) {
        self.log.push(format!("hide {id}"));
        self.writer().toggle(id, Projection::LocalOnly, &Wait::none()).unwrap();
        self.model.hidden.push(id);
    }

    fn show(&mut self, id: ConversationId) {
        self.log.push(format!("show {id}"));
        let tree = self.model.tree(self.model.known[&id].archived);
        let up: Vec<_> = tree.ancestors(id).chain([id]).collect();
        self.writer().toggle_with(id, Projection::Projected, &up, &Wait::none()).unwrap();
        self.model.hidden.retain(|hidden| !up.contains(hidden));
        let found = self.store.snapshot().unwrap().get(id).unwrap().clone();
        assert!(found.work.is_some(), "{id} is not shown");
    }

    fn archive(&mut self, id: ConversationId, known: &Known) {
        self.log.push(format!("archive {id}"));
        let result = self.writer().archive(id, &Wait::none());
        assert_eq!(result.is_ok(), !known.archived, "{result:?}");
        for id in if result.is_ok() { self.model.subtree(id) } else { Vec::new() } {
            self.model.known.get_mut(&id).unwrap().archived = true;
        }
    }

    fn unarchive(&mut self, id: ConversationId, known: &Known) {
        self.log.push(format!("unarchive {id}"));
        let result = self.writer().unarchive(id, &Wait::none());
        assert_eq!(result.is_ok(), known.archived, "{result:?}");
        for id in if result.is_ok() { self.model.subtree(id) } else { Vec::new() } {
            self.model.known.get_mut(&id).unwrap().archived = false;
        }
    }

    fn remove(&mut self, id: ConversationId) {
        let strategy = [Strategy::Refuse, Strategy::Cascade, Strategy::Promote][self.random.below(3) as usize];
        self.log.push(format!("remove {id} {strategy:?}"));
        let tree = self.model.tree(self.model.known[&id].archived);
        let result = self.writer().remove(id, strategy, &Wait::none());
        let gone = match strategy {
            Strategy::Refuse if !tree.children(id).is_empty() => {
                assert!(matches!(result, Err(Error::Refused(_))));
                return;
            }
            Strategy::Refuse => vec![id],
            Strategy::Cascade => self.model.subtree(id),
            Strategy::Promote => {
                for child in tree.children(id) {
                    self.model.known.get_mut(child).unwrap().parent = tree.parent(id);
                }
                vec![id]
            }
        };
        result.unwrap_or_else(|error| panic!("{error}"));
        self.model.known.retain(|id, _| !gone.contains(id));
        self.model.hidden.retain(|id| !gone.contains(id));
    }

    /// An edit of the real file in the workspace, taken in by the next write.
    fn edit_by_hand(&mut self, id: ConversationId) {
        let Some(work) = self.store.snapshot().unwrap().get(id).unwrap().work.clone() else { return };
        self.log.push(format!("edit {id} by hand"));
        let text = format!("[\n  {{\"timestamp\": \"2025-07-19 00:00:00.0\", \"type\": \"x{}\"}}\n]\n", self.log.len());
        fs::write(work.dir.join("events.json"), &text).unwrap();
        self.model.known.get_mut(&id).unwrap().events = text;
        if self.random.below(2) == 0 {
            self.retitle(id);
        }
    }

    /// Another program rewrites the metadata and drops what it does not know.
    fn lose_the_key(&mut self, id: ConversationId, known: &Known) {
        self.log.push(format!("{id} loses its parent_id"));
        let found = self.store.snapshot().unwrap().get(id).unwrap().clone();
        for dir in [found.dirs().store, found.dirs().work].into_iter().flatten() {
            let path = dir.join("metadata.json");
            let mut meta = Meta::parse(&fs::read(&path).unwrap()).unwrap();
            // An explicit root is a key too, and without it the mirror has nothing to say.
            meta.set_parent(jp_store::meta::Parent::Absent);
            fs::write(&path, meta.to_bytes()).unwrap();
        }
        assert_eq!(self.model.known[&id].parent, known.parent);
    }

    fn replace(&mut self, id: ConversationId) {
        self.log.push(format!("replace the events of {id}"));
        let text = format!("[{}]", " ".repeat(self.log.len()));
        self.under_lock(id, |writer, guard| writer.replace(guard, ManagedFile::Events, text.as_bytes())).unwrap();
        self.model.known.get_mut(&id).unwrap().events = text;
        let torn = self.under_lock(id, |writer, guard| writer.replace(guard, ManagedFile::Events, b"[{"));
        assert!(matches!(torn, Err(Error::Invalid { .. })), "{torn:?}");
    }

    fn check(&self) {
        let snapshot = self.store.snapshot().unwrap();
        let found: BTreeMap<_, _> = snapshot
            .all()
            .map(|found| {
                let stream = self.store.stream(&snapshot, found).unwrap();
                let known = Known {
                    title: found.title().unwrap_or_default().to_owned(),
                    parent: found.parent,
                    archived: found.partition == Partition::Archived,
                    events: String::from_utf8(stream.events.unwrap_or_default()).unwrap(),
                };
                (found.id, known)
            })
            .collect();
        assert_eq!(found, self.model.known);
        for problem in snapshot.problems() {
            // An archived child is no hindrance to removing its parent.
            let gone = |parent| !self.model.known.contains_key(&parent);
            assert!(matches!(problem.what, What::MissingParent { parent } if gone(parent)), "{problem}");
        }
        for found in snapshot.all() {
            let Some(work) = &found.work else {
                assert_eq!(found.presence, StoragePresence::UserLocalOnly, "{}", found.id);
                continue;
            };
            // Where a parent that is hidden comes back from the archive, what was shown without it stays where it is.
            if let Some(wanted) = snapshot.work_dir(self.store.layout(), found.id) {
                assert_eq!(wanted, work.dir, "{}", found.id);
            }
            assert!(!self.model.hidden.contains(&found.id), "{} is shown", found.id);
        }
        assert_eq!(self.store.conflicts().unwrap(), [], "a conflict out of nothing");
        assert!(!self.workspace.storage().join("conversations/.tmp").exists(), "scratch stays behind");
    }
}

#[test]
fn the_store_does_what_the_model_does() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            let log = run.log.len();
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run.step();
                run.check();
            }));
            if let Err(panic) = checked {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let what = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default();
                panic!("{}\n(the last {} are this step's)\n{what}", run.log.join("\n"), run.log.len() - log);
            }
        }
    }
}
