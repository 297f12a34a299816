//! A walk: operations drawn by a seed, each followed by a comparison with the model of all that it touched, and every so
//! often of everything.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use jp_tests::{Random, contents};

use super::model::{METADATA, Model, join};
use super::world::{LARGE, LARGE_DIR, Touched, World, large_name, told};
use super::{CLASSES, Class};
use crate::mount::said;

/// How many steps lie between two comparisons of everything.
const COMPARE_ALL: usize = 100;
/// How many of the last operations a report names.
const REPORTED: usize = 30;
/// Names of user files.
pub(super) const NAMES: [&str; 6] = ["a.md", "b.md", "with space.txt", "sub/c.md", "sub/deep/d.md", "kept-events.md"];

pub(super) struct Walk {
    pub(super) world: World,
    pub(super) model: Model,
    pub(super) random: Random,
    pub(super) on: BTreeSet<Class>,
    log: Vec<String>,
    number: u64,
}

impl Walk {
    /// Walks so many steps, compares everything at the end and after unmounting. Panics with a report when something is not
    /// as the model says.
    pub(super) fn run(seed: u64, steps: usize, on: &BTreeSet<Class>) {
        let Some((world, model)) = World::new() else { return };
        let mut walk = Self { world, model, random: Random::new(seed), on: on.clone(), log: Vec::new(), number: 0 };
        let mut step = 0;
        let walked = catch_unwind(AssertUnwindSafe(|| {
            walk.compare_all();
            while step < steps {
                step += 1;
                walk.step(step);
            }
            walk.say("the end".to_owned());
            walk.compare_all();
            walk.end();
        }));
        if let Err(panic) = walked {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let what = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default();
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("two-mounts-{seed}.log"));
            // The report has the end of it, which must do where it cannot be written.
            let _ = fs::write(&file, walk.log.join("\n") + "\n" + &what);
            let last = walk.log[walk.log.len().saturating_sub(REPORTED)..].join("\n");
            panic!("JP_RANDOM_SEED={seed}, step {step}, after\n{last}\n{what}\n(everything is in {})", file.display());
        }
    }

    fn step(&mut self, step: usize) {
        // Most operations can be done most of the time.
        for _ in 0..1000 {
            let class = self.draw();
            let before = self.log.len();
            let archives = self.archives();
            if let Some(mut touched) = self.perform(class) {
                if self.archives() != archives {
                    // Nobody made or removed `.archive` itself, and the kernel hears of it later.
                    touched.by = None;
                }
                for line in &mut self.log[before..] {
                    *line = format!("{step:>6} {class:?}: {line}");
                }
                if let Some(told) = self.world.difference(&self.model, &touched) {
                    panic!("{told}");
                }
                if step.is_multiple_of(COMPARE_ALL) {
                    self.compare_all();
                }
                return;
            }
            self.log.truncate(before);
        }
        panic!("none of {:?} can be done", self.on);
    }

    /// In which worktrees `.archive` is listed.
    fn archives(&self) -> Vec<bool> {
        let views = 0..self.model.views.len();
        views.map(|w| !self.model.conversations_in(w, ".archive").is_empty()).collect()
    }

    fn draw(&mut self) -> Class {
        let on: Vec<(Class, u64)> =
            CLASSES.iter().filter(|(class, _, _)| self.on.contains(class)).map(|(class, _, n)| (*class, *n)).collect();
        let mut at = self.random.below(on.iter().map(|(_, weight)| weight).sum());
        for (class, weight) in on {
            if at < weight {
                return class;
            }
            at -= weight;
        }
        unreachable!("the number is below the sum of the weights")
    }

    fn perform(&mut self, class: Class) -> Option<Touched> {
        match class {
            Class::SaveEvents => self.save_events(),
            Class::SaveBroken => self.save_broken(),
            Class::WriteFile => self.write_file(),
            Class::Append => self.append(),
            Class::AppendInTurn => self.append_in_turn(),
            Class::AppendAtOnce => self.append_at_once(),
            Class::Map => self.map(),
            Class::RenameFile => self.rename_file(),
            Class::RenameDirectory => self.rename_directory(),
            Class::UnlinkFile => self.unlink_file(),
            Class::UnlinkManaged => self.unlink_managed(),
            Class::RestoreEqual => self.restore_equal(),
            Class::ManagedAway => self.managed_away(),
            Class::LargeListing => self.large_listing(),
            Class::Threads => self.threads(),
            Class::SaveMetadata => self.save_metadata(),
            Class::Move => self.move_conversation(false),
            Class::TouchAfterMove => self.move_conversation(true),
            Class::Retitle => self.retitle(),
            Class::RemoveTree => self.remove_tree(),
            Class::MakeKnown => self.make_known(),
            Class::Arrive => self.arrive(),
            Class::CommandNew => self.command_new(),
            Class::CommandTitle => self.command_title(),
            Class::CommandMove => self.command_move(),
            Class::CommandHide => self.command_hide(),
            Class::CommandShow => self.command_show(),
            Class::CommandRemove => self.command_remove(),
            Class::CommandArchive => self.command_archive(),
            Class::CommandExport => self.command_export(),
            Class::StoreEvents => self.store_events(),
            Class::StoreFile => self.store_file(),
            Class::StoreRemove => self.store_remove(),
            Class::Locked => self.locked(),
            Class::MapLocked => self.map_locked(),
            Class::HolderThread => self.holder_thread(),
            Class::Unmount => self.unmount(),
            Class::Mount => self.mount(),
            // Rules for other operations.
            Class::OldNames
            | Class::RemoveElsewhere
            | Class::BeneathHidden
            | Class::HiddenFollows
            | Class::DoctorHidden => None,
        }
    }

    #[track_caller]
    fn compare_all(&mut self) {
        if let Some(told) = self.world.any_difference(&self.model) {
            panic!("{told}");
        }
    }

    /// Unmounts, and looks at the real files, the reports and the third worktree.
    fn end(&mut self) {
        for w in 0..2 {
            if self.world.is_mounted[w] {
                self.unmount_one(w);
            }
        }
        self.say("export in the third worktree".to_owned());
        self.world.jp(2, &["export"]).ok();
        self.world.jp(2, &["export", "--check"]).ok();
        if let Some(told) = self.world.whole(&self.model, 2, &self.world.worktrees[2].point()) {
            panic!("in the real files of the third worktree: {told}");
        }
        for w in 0..3 {
            self.check_doctor(w);
        }
    }

    /// `jp doctor` finds nothing but managed files that are hidden, and drafts.
    fn check_doctor(&mut self, w: usize) {
        for ((id, name), bytes) in std::mem::take(&mut self.model.views[w].left_drafts) {
            self.say(format!("worktree {w}: the draft of {name} of {id}, which is gone, is given up"));
            let conversation = format!("jp-c{id}");
            let shown = self.world.jp(w, &["draft", "show", &conversation, &name]).ok();
            assert!(shown.raw == bytes, "expected {}: {}", told(&bytes), shown.told());
            self.world.jp(w, &["draft", "drop", "--yes", &conversation, &name]).ok();
        }
        self.say(format!("worktree {w}: jp doctor"));
        let doctor = self.world.jp(w, &["doctor"]);
        let view = &self.model.views[w];
        let is_hidden = |line: &str| {
            let name = line.strip_suffix(": the file is missing").and_then(|path| path.rsplit('/').next());
            !self.on.contains(&Class::DoctorHidden)
                && view.once_hidden.iter().any(|(_, other)| Some(other.as_str()) == name)
        };
        let found = doctor.stdout.lines().filter(|line| line.starts_with("damage"));
        let found: Vec<&str> = found.filter(|line| !is_hidden(line)).collect();
        let is_well = doctor.code == 0 || !view.drafts.is_empty() || doctor.stdout.contains("the file is missing");
        assert!(found.is_empty() && is_well, "{}", doctor.told());
    }

    /// Unmounts one. The real files must be what the mount showed, drafts excepted.
    pub(super) fn unmount_one(&mut self, w: usize) {
        let point = self.world.worktrees[w].point();
        let drafts: BTreeSet<PathBuf> = self.model.views[w]
            .drafts
            .keys()
            .filter(|(id, _)| self.model.is_visible(w, *id))
            .map(|(id, name)| PathBuf::from(join(&self.model.path(*id), name)))
            .collect();
        let mut unsure: Vec<PathBuf> = Vec::new();
        if !self.on.contains(&Class::HiddenFollows) {
            let hidden = self.model.views[w].once_hidden.iter().filter(|(id, _)| self.model.is_visible(w, *id));
            unsure.extend(hidden.map(|(id, name)| PathBuf::from(join(&self.model.path(*id), name))));
        }
        let mut shown = contents(&point);
        let ended = self.world.worktrees[w].end(&[]);
        self.world.is_mounted[w] = false;
        let mut real = contents(&point);
        for path in drafts.iter().chain(&unsure) {
            shown.retain(|other, _| !other.starts_with(path));
            real.retain(|other, _| !other.starts_with(path));
        }
        let paths: BTreeSet<&PathBuf> = shown.keys().chain(real.keys()).collect();
        let short = |bytes: Option<&Vec<u8>>| bytes.map(|bytes| told(&bytes[..bytes.len().min(40)]));
        let wrong: Vec<_> = paths
            .into_iter()
            .filter(|path| shown.get(*path) != real.get(*path))
            .map(|path| (path, short(shown.get(path)), short(real.get(path))))
            .take(20)
            .collect();
        assert!(
            wrong.is_empty(),
            "unmounted {w}: path, what the mount showed, the real file: {wrong:#?}\n{}",
            ended.told()
        );
        let check = self.world.jp(w, &["export", "--check"]);
        assert!(check.code == 0 || !drafts.is_empty(), "{}", check.told());
    }

    // What operations are made of.

    pub(super) fn say(&mut self, what: String) {
        self.log.push(what);
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit.max(1) as u64) as usize
    }

    pub(super) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub(super) fn choose<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len());
        from.get(at).cloned()
    }

    /// One of the mounts.
    pub(super) fn a_mount(&mut self) -> Option<usize> {
        let mounted: Vec<usize> = (0..2).filter(|w| self.world.is_mounted[*w]).collect();
        self.choose(&mounted)
    }

    /// A conversation that a worktree shows.
    pub(super) fn visible(&mut self, w: usize) -> Option<u64> {
        self.conversation(|model, id| model.is_visible(w, id))
    }

    pub(super) fn conversation(&mut self, among: impl Fn(&Model, u64) -> bool) -> Option<u64> {
        let all: Vec<u64> = self.model.all.keys().copied().filter(|id| among(&self.model, *id)).collect();
        self.choose(&all)
    }

    /// Whether a change of the tree may be made: it takes nothing out of sight, or that is what is tried.
    pub(super) fn may_change(&self, change: impl FnOnce(&mut Model)) -> bool {
        let mut after = self.model.clone();
        change(&mut after);
        // Real files that no mount covers stay where they are if something above them is local.
        let first = if self.on.contains(&Class::BeneathHidden) { 2 } else { 0 };
        let views = first..self.model.views.len();
        !views
            .into_iter()
            .any(|w| self.model.all.keys().any(|id| self.model.is_visible(w, *id) && !after.is_visible(w, *id)))
    }

    /// The name of a user file that may or may not be there.
    pub(super) fn file_name(&mut self, id: u64) -> String {
        if id == LARGE && self.chance(2) {
            let number = self.random.below(310);
            return join(LARGE_DIR, &large_name(number));
        }
        NAMES[self.below(NAMES.len())].to_owned()
    }

    /// Whether a worktree shows a file of the store under a name for certain.
    pub(super) fn is_shown(&self, w: usize, id: u64, name: &str) -> bool {
        let is_draft = self.model.views[w].drafts.contains_key(&(id, name.to_owned()));
        self.model.is_visible(w, id) && !is_draft && self.model.shown(w, id, name).is_some_and(|it| it.is_certain)
    }

    /// A user file that a worktree shows.
    pub(super) fn user_file(&mut self, w: usize) -> Option<(u64, String)> {
        let id = self.visible(w)?;
        let wanted = self.file_name(id);
        self.is_shown(w, id, &wanted).then_some((id, wanted))
    }

    pub(super) fn at(&self, w: usize, id: u64, name: &str) -> PathBuf {
        self.world.mount(w, &join(&self.model.path(id), name))
    }

    /// The path of a file in a mount, and its directory made.
    pub(super) fn at_made(&self, w: usize, id: u64, name: &str) -> PathBuf {
        let path = self.at(w, id, name);
        if name.contains('/') {
            fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory is made");
        }
        path
    }

    pub(super) fn unique(&mut self) -> String {
        self.number += 1;
        format!("step {:06}", self.number)
    }

    /// Text that was never written before, of lines.
    pub(super) fn fresh(&mut self) -> String {
        let text = self.unique();
        let size = if self.chance(12) { 60_000 } else { 800 };
        let lines = self.below(size / 20);
        format!("{text}\n{}", "nineteen characters\n".repeat(lines))
    }

    /// An `events.json` that was never written before.
    pub(super) fn fresh_events(&mut self) -> Vec<u8> {
        let text = self.unique();
        let size = if self.chance(12) { 30_000 } else { 600 };
        let size = self.below(size);
        said(&text, size).into_bytes()
    }

    /// The bytes of a file in the store.
    pub(super) fn stored(&self, id: u64, name: &str) -> Vec<u8> {
        if name != METADATA
            && let Some(bytes) = self.model.get(id).files.get(name)
        {
            return bytes.clone();
        }
        fs::read(self.world.stored(id).join(name)).expect("the store has it")
    }
}
