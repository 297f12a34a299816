//! The filesystem, asked in this process and through the kernel. What the store holds is read from its own files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jp_fs::vfs::Rules;
use jp_store::ConversationId;
use jp_store::disk::RealDisk;
use jp_store::journal::Change;
use jp_store::lock::Wait;
use jp_store::store::{Store, Surroundings};
use jp_tests::driver::{Driver, InProcess, Memory, Mirror, RealMount, clock};
use jp_tests::{Place, Sample, TestEnv, Workspace, contents, dirname, pretty, wait_for};
use serde_json::{Value, json};

// It is there before anything is watched.
mod beginning;
// A request that fails has happened or has not.
mod either;
// Every call of every kind of change fails, and the process stops after each.
mod faults;
// The store is full.
mod full;
// Listings in pieces while names change.
mod listings;
// What renames and removals leave in the store and hide here.
mod own_names;
// Random operations against a model.
mod random;
// What is known of the store's directories is not looked for again.
mod remembered;
// One suite for all drivers.
mod suite;
// When saves reach the disk.
mod to_disk;

/// "Anna", a root.
const A: u64 = 17_528_832_001;
/// "Berta", a child of A, with a note.
const B: u64 = 17_528_842_001;
/// "Clara", a child of B.
const C: u64 = 17_528_852_001;
/// "Dora", a root.
const D: u64 = 17_528_862_001;
/// "Lena", a root that this worktree does not show.
const L: u64 = 17_528_872_001;
/// "Olga", an archived root.
const O: u64 = 17_528_882_001;
/// Nobody's yet.
const N: u64 = 17_528_892_001;

const A_PATH: &str = "17528832001-anna";
const B_PATH: &str = "17528832001-anna/conversations/17528842001-berta";
const C_PATH: &str = "17528832001-anna/conversations/17528842001-berta/conversations/17528852001-clara";
const D_PATH: &str = "17528862001-dora";
const O_PATH: &str = ".archive/17528882001-olga";

const BEFORE: i64 = 1_750_000_000_000_000_000;
const LIMIT: Duration = Duration::from_secs(20);

/// How the tree is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// In this process, forgetting every name at once.
    Forgetful,
    /// In this process, forgetting nothing.
    Mindful,
    /// Through the kernel.
    Kernel,
    /// Through a kernel that asks at every open.
    CompatOpen,
    /// As real files that are kept in step.
    Mirror,
}

/// A store, a worktree, and a way to use it as a tree.
struct World {
    workspace: Workspace,
    driver: Box<dyn Driver>,
    which: Which,
}

impl World {
    /// The sample, used in this way and by these rules. `None` where that is not possible, which is said.
    #[track_caller]
    fn new(which: Which, rules: Rules) -> Option<Self> {
        let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
        write_sample(&workspace);
        let mut flags = match which {
            Which::Forgetful | Which::Mindful => {
                let memory = if which == Which::Forgetful { Memory::Short } else { Memory::Long };
                let driver = Box::new(InProcess::new(&workspace, rules, memory));
                return Some(Self { workspace, driver, which });
            }
            Which::Mirror => {
                let driver = Box::new(Mirror::new(&workspace));
                return Some(Self { workspace, driver, which });
            }
            Which::Kernel => vec![],
            Which::CompatOpen => vec!["--compat-open"],
        };
        flags.extend(
            [(rules.read_only, "--read-only"), (rules.all, "--all"), (rules.strict, "--strict")]
                .iter()
                .filter_map(|(chosen, flag)| chosen.then_some(*flag)),
        );
        let driver = Box::new(RealMount::new(&workspace, &flags)?);
        Some(Self { workspace, driver, which })
    }

    /// The same sample in another way of use.
    #[track_caller]
    fn another(&self, rules: Rules) -> Self {
        Self::new(self.which, rules).expect("what was possible once is possible")
    }

    /// Asserts that something holds, at once or, where news take their time, in a while.
    #[track_caller]
    fn sees(&mut self, what: &str, mut holds: impl FnMut(&mut dyn Driver) -> bool) {
        if self.driver.is_prompt() {
            assert!(holds(&mut *self.driver), "{what}");
        } else {
            wait_for(what, LIMIT, || holds(&mut *self.driver));
        }
    }

    /// Asserts that there is nothing at a path, or will be in a while.
    #[track_caller]
    fn gone(&mut self, path: &str) {
        self.sees(&format!("{path} is gone"), |driver| driver.stat(path) == Err(libc::ENOENT));
    }

    /// Asserts that a path can be read and has these bytes, or will have in a while.
    #[track_caller]
    fn shows(&mut self, path: &str, bytes: &[u8]) {
        self.sees(&format!("{path} has the right bytes"), |driver| driver.read(path).as_deref() == Ok(bytes));
    }

    /// Asserts that a directory has these names, or will have in a while.
    #[track_caller]
    fn lists(&mut self, path: &str, names: &[&str]) {
        let mut last = None;
        let found = |driver: &mut dyn Driver| {
            let listed = driver.list(path);
            let same = listed.as_ref().is_ok_and(|listed| listed == names);
            last = Some(listed);
            same
        };
        if self.driver.is_prompt() {
            let mut found = found;
            assert!(found(&mut *self.driver), "{path} lists {last:?}, not {names:?}");
        } else {
            self.sees(&format!("{path} lists {names:?}"), found);
        }
    }

    /// The conversation's directory in the store.
    #[track_caller]
    fn stored(&self, id: u64) -> PathBuf {
        self.find_stored(id).unwrap_or_else(|| panic!("{id} is not in the store"))
    }

    #[track_caller]
    fn find_stored(&self, id: u64) -> Option<PathBuf> {
        let all = self.workspace.silo().join("conversations");
        let mut found: Vec<PathBuf> = Vec::new();
        for dir in [all.join(".archive"), all] {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().split('-').next() == Some(&id.to_string()) {
                    found.push(entry.path());
                }
            }
        }
        assert!(found.len() < 2, "{id} is in the store twice: {found:?}");
        found.pop()
    }

    /// A file of a conversation in the store.
    #[track_caller]
    fn bytes(&self, id: u64, name: &str) -> Vec<u8> {
        let path = self.stored(id).join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    }

    /// A key of a conversation's metadata in the store.
    #[track_caller]
    fn meta(&self, id: u64, key: &str) -> Value {
        let value: Value = serde_json::from_slice(&self.bytes(id, "metadata.json")).expect("metadata is JSON");
        value[key].clone()
    }

    /// The mirrored parent of a conversation.
    fn mirrored(&self, id: u64) -> Value {
        let mirror = open(&self.workspace, true).mirror().expect("the mirror can be read");
        mirror.parent(ConversationId::new(id).expect("a small number")).map_or(Value::Null, |parent| json!(parent))
    }

    /// All conversations of the store, with their bytes.
    fn store(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        contents(&self.workspace.silo().join("conversations"))
    }

    /// Drafts on disk: why each is one, and its bytes. What real files hold that cannot be taken from them is the same.
    fn drafts(&self) -> BTreeMap<String, (Value, Vec<u8>)> {
        if self.which == Which::Mirror {
            return self.driver.held().iter().filter_map(|held| self.held(held)).collect();
        }
        let state = self.state().join("drafts");
        let found =
            contents(&state).into_iter().filter(|(path, _)| path.components().count() == 2 && !path.starts_with("new"));
        found
            .map(|(path, bytes)| {
                let end = bytes.iter().position(|byte| *byte == b'\n').expect("a draft has a header");
                let header: Value = serde_json::from_slice(&bytes[..end]).expect("the header is JSON");
                (path.to_string_lossy().into_owned(), (header["reason"].clone(), bytes[end + 1..].to_vec()))
            })
            .collect()
    }

    /// What is held, as a draft would be told.
    fn held(&self, reason: &str) -> Option<(String, (Value, Vec<u8>))> {
        let (path, reason) = reason.split_once(": ")?;
        let path = self.workspace.storage().join("conversations").join(path);
        let (file, dir) = (path.file_name()?.to_str()?, path.parent()?.file_name()?.to_str()?);
        let line = reason.strip_prefix("line ").and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        let key = format!("{}/{file}", dir.split('-').next()?);
        Some((key, (json!({ "line": line.unwrap_or(0), "reason": reason }), fs::read(&path).ok()?)))
    }

    /// What was kept of a conversation because it lost against something.
    fn kept(&self, id: u64) -> Vec<Vec<u8>> {
        contents(&self.workspace.silo().join("vfs/conflicts").join(id.to_string())).into_values().collect()
    }

    /// The links that were kept of a conversation, with where they point.
    fn kept_links(&self, id: u64) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![self.workspace.silo().join("vfs/conflicts").join(id.to_string())];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match fs::read_link(entry.path()) {
                    Ok(target) => {
                        found.push(format!("{} -> {}", entry.file_name().to_string_lossy(), target.display()));
                    }
                    Err(_) => dirs.push(entry.path()),
                }
            }
        }
        found.sort();
        found
    }

    /// This worktree's state in the store.
    fn state(&self) -> PathBuf {
        open(&self.workspace, true).layout().worktree_state()
    }
}

/// The store of a workspace, with its own conversations covered or not.
fn open(workspace: &Workspace, covered: bool) -> Store {
    let around = Surroundings {
        disk: std::sync::Arc::new(RealDisk::default()),
        data_dir: Some(workspace.env().data()),
        pid: std::process::id(),
        session: None,
        clock: clock(),
        covered: std::sync::Arc::new(|_| false),
    };
    let under = workspace.storage().join("conversations");
    Store::open_with_work(around, workspace.root(), under, covered).expect("the store can be opened")
}

fn id(n: u64) -> ConversationId {
    ConversationId::new(n).expect("a small number")
}

fn samples() -> [Sample; 6] {
    [
        Sample::new(A).title("Anna").key("unknown", json!(7)),
        Sample::new(B).title("Berta").parent(A).file("notes.md", "a note\n"),
        Sample::new(C).title("Clara").parent(B),
        Sample::new(D).title("Dora"),
        Sample::new(L).title("Lena"),
        Sample::new(O).title("Olga").archived(),
    ]
}

/// All but one are in both roots, and remembered as such.
fn write_sample(workspace: &Workspace) {
    for (n, sample) in [A, B, C, D, L, O].into_iter().zip(samples()) {
        sample.mtime(BEFORE).write(workspace, if n == L { Place::User } else { Place::Both });
    }
    let (writer, _) = open(workspace, false).writer().expect("the store can be written");
    for n in [A, B, C, D, O] {
        let guard = writer.lock(id(n), &Wait::none()).expect("nobody holds it");
        writer.sync(&guard).expect("both copies agree");
    }
}

/// The same in the store alone: meant to be shown, with nothing beneath the tree. Made quickly, for those who make many.
fn write_bare_sample(workspace: &Workspace) {
    for sample in samples() {
        sample.mtime(BEFORE).write(workspace, Place::User);
    }
    fs::create_dir_all(workspace.storage().join("conversations")).expect("a workspace takes a directory");
    let (writer, _) = open(workspace, true).writer().expect("the store can be written");
    writer.note(&[A, B, C, D, O].map(|n| Change::Show(id(n)))).expect("noted");
}

/// Metadata of a new conversation.
fn metadata(title: &str, parent: Option<u64>) -> Vec<u8> {
    let mut sample = Sample::new(N).title(title);
    if let Some(parent) = parent {
        sample = sample.parent(parent);
    }
    pretty(&sample.metadata())
}

/// Events that no sample has.
fn events(text: &str) -> Vec<u8> {
    pretty(&json!([{ "timestamp": "2026-01-01 00:00:00.0", "type": "chat_request", "content": text }]))
}

/// A path in a directory of the tree.
fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// The name of a conversation's directory.
fn name(n: u64, title: &str) -> String {
    dirname(n, Some(title))
}
