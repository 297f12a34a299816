//! Random operations on two mounts of one store, with commands and plain edits of the store between them, against a model of
//! what each file must hold and what each listing must show.
//!
//! - `JP_RANDOM_SEED`: one seed instead of those below. `JP_RANDOM_STEPS`: how many steps each seed takes.
//! - `JP_RANDOM_ONLY`, `JP_RANDOM_ON`, `JP_RANDOM_OFF`: names from [`CLASSES`], with commas between them. `all` are all of them.

mod beside;
mod conversations;
mod files;
mod model;
mod walk;
mod world;

use std::collections::BTreeSet;

use jp_tests::{have, setting, words};

use self::walk::Walk;

/// The walks that are made when nothing else is said. Together they are 5,000 steps.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const STEPS: u64 = 1_000;

/// Classes of operations that fail with the program as it is. Each is taken out of this list when the program is right.
/// `JP_RANDOM_ON=all` switches them on for one run.
const SWITCHED_OFF: &[Class] = &[];

/// A class of operations, or a rule that makes others stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    SaveEvents,
    SaveBroken,
    WriteFile,
    Append,
    AppendInTurn,
    AppendAtOnce,
    Map,
    RenameFile,
    RenameDirectory,
    UnlinkFile,
    UnlinkManaged,
    RestoreEqual,
    ManagedAway,
    LargeListing,
    Threads,
    SaveMetadata,
    Move,
    TouchAfterMove,
    Retitle,
    RemoveTree,
    MakeKnown,
    Arrive,
    CommandNew,
    CommandTitle,
    CommandMove,
    CommandHide,
    CommandShow,
    CommandRemove,
    CommandArchive,
    CommandExport,
    StoreEvents,
    StoreFile,
    StoreRemove,
    Locked,
    MapLocked,
    HolderThread,
    Unmount,
    Mount,
    /// A name that a user file left is free for every worktree.
    OldNames,
    /// `jp c rm` also removes what other worktrees show.
    RemoveElsewhere,
    /// A conversation that another worktree shows moves beneath one that it hides.
    BeneathHidden,
    /// After an unmount the real files of names that are or were hidden are compared too.
    HiddenFollows,
    /// `jp doctor` does not report a managed file that is hidden on purpose.
    DoctorHidden,
}

/// Every class with its name and how often it is drawn.
const CLASSES: [(Class, &str, u64); 43] = [
    (Class::SaveEvents, "save-events", 60),
    (Class::SaveBroken, "save-broken", 12),
    (Class::WriteFile, "write-file", 150),
    (Class::Append, "append", 60),
    (Class::AppendInTurn, "append-in-turn", 20),
    (Class::AppendAtOnce, "append-at-once", 10),
    (Class::Map, "map", 30),
    (Class::RenameFile, "rename-file", 70),
    (Class::RenameDirectory, "rename-directory", 20),
    (Class::UnlinkFile, "unlink-file", 60),
    (Class::UnlinkManaged, "unlink-managed", 15),
    (Class::RestoreEqual, "restore-equal", 15),
    (Class::ManagedAway, "managed-away", 8),
    (Class::LargeListing, "large-listing", 6),
    (Class::Threads, "threads", 10),
    (Class::SaveMetadata, "save-metadata", 30),
    (Class::Move, "move", 40),
    (Class::TouchAfterMove, "touch-after-move", 15),
    (Class::Retitle, "retitle", 15),
    (Class::RemoveTree, "remove-tree", 10),
    (Class::MakeKnown, "make-known", 15),
    (Class::Arrive, "arrive", 10),
    (Class::CommandNew, "command-new", 5),
    (Class::CommandTitle, "command-title", 5),
    (Class::CommandMove, "command-move", 5),
    (Class::CommandHide, "command-hide", 4),
    (Class::CommandShow, "command-show", 6),
    (Class::CommandRemove, "command-remove", 6),
    (Class::CommandArchive, "command-archive", 4),
    (Class::CommandExport, "command-export", 2),
    (Class::StoreEvents, "store-events", 30),
    (Class::StoreFile, "store-file", 50),
    (Class::StoreRemove, "store-remove", 10),
    (Class::Locked, "locked", 8),
    (Class::MapLocked, "map-locked", 5),
    (Class::HolderThread, "holder-thread", 3),
    (Class::Unmount, "unmount", 2),
    (Class::Mount, "mount", 25),
    (Class::OldNames, "old-names", 0),
    (Class::RemoveElsewhere, "remove-elsewhere", 0),
    (Class::BeneathHidden, "beneath-hidden", 0),
    (Class::HiddenFollows, "hidden-follows", 0),
    (Class::DoctorHidden, "doctor-hidden", 0),
];

/// The classes that are on, by [`SWITCHED_OFF`] and what the caller says.
fn classes_on() -> BTreeSet<Class> {
    let named = |setting: &str| -> BTreeSet<Class> {
        let words = words(setting);
        for word in &words {
            assert!(word == "all" || CLASSES.iter().any(|(_, name, _)| name == word), "{setting}: there is no {word}");
        }
        let is_named = |name: &str| words.iter().any(|word| word == name || word == "all");
        CLASSES.iter().filter(|(_, name, _)| is_named(name)).map(|(class, _, _)| *class).collect()
    };
    let only = named("JP_RANDOM_ONLY");
    let mut on = if only.is_empty() {
        CLASSES.iter().map(|(class, _, _)| *class).filter(|class| !SWITCHED_OFF.contains(class)).collect()
    } else {
        only
    };
    on.extend(named("JP_RANDOM_ON"));
    let off = named("JP_RANDOM_OFF");
    on.retain(|class| !off.contains(class));
    on
}

#[test]
fn two_mounts_do_what_the_model_does() {
    if !have(&["python3", "git"]) {
        return;
    }
    let steps = usize::try_from(setting("JP_RANDOM_STEPS").unwrap_or(STEPS)).expect("steps can be counted");
    let seeds = setting("JP_RANDOM_SEED").map_or(SEEDS.to_vec(), |seed| vec![seed]);
    for seed in seeds {
        Walk::run(seed, steps, &classes_on());
    }
}
