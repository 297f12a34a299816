//! Three worktrees of one store on disk, two of them mounted, and how they differ from the model, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use jp_tests::{Mounted, Sample, TestEnv, User, contents, ids, until};
use serde_json::Value;

use super::model::{CONFIG, Conversation, EVENTS, Expected, METADATA, Model, WORKTREES, dirs, join};

/// How long a change may take to be seen in another mount, on a machine that is busy.
const SEEN_WITHIN: Duration = Duration::from_secs(15);

/// The conversation with the large directory.
pub(super) const LARGE: u64 = ids::D;
pub(super) const LARGE_DIR: &str = "large";
const LARGE_COUNT: u64 = 300;

/// Conversations beside those of the sample: a root, a child of it, two more roots.
const MORE: [(u64, &str, Option<u64>); 4] = [
    (17_528_892_001, "Fifth", None),
    (17_528_902_001, "Sixth", Some(17_528_892_001)),
    (17_528_912_001, "Seventh", None),
    (17_528_922_001, "Eighth", None),
];

/// What an operation has changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    /// The worktree that did it: its mount must be right at once.
    pub(super) by: Option<usize>,
    /// Conversations that appeared, went, moved or got new metadata.
    pub(super) conversations: BTreeSet<u64>,
    pub(super) files: BTreeSet<(u64, String)>,
}

impl Touched {
    pub(super) fn file(by: Option<usize>, id: u64, name: &str) -> Self {
        Self { by, files: BTreeSet::from([(id, name.to_owned())]), ..Self::default() }
    }

    pub(super) fn files(by: Option<usize>, files: impl IntoIterator<Item = (u64, String)>) -> Self {
        Self { by, files: files.into_iter().collect(), ..Self::default() }
    }

    pub(super) fn conversations(by: Option<usize>, all: impl IntoIterator<Item = u64>) -> Self {
        Self { by, conversations: all.into_iter().collect(), ..Self::default() }
    }
}

pub(super) struct World {
    pub(super) worktrees: [Mounted; WORKTREES],
    pub(super) is_mounted: [bool; WORKTREES],
    pub(super) mapper: Mapper,
}

impl World {
    /// The worktrees with the sample and more in each, two of them mounted, and the model of them.
    pub(super) fn new() -> Option<(Self, Model)> {
        let main = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
        let (store, work) = (main.workspace().silo().join("conversations"), main.point());
        for (id, title, parent) in MORE {
            let mut sample = Sample::new(id).title(title).events(4);
            let mut dir = work.clone();
            if let Some(parent) = parent {
                sample = sample.parent(parent);
                dir = work.join(jp_tests::dirname(parent, Some("Fifth"))).join("conversations");
            }
            sample.write_below(&store);
            sample.write_below(&dir);
        }
        main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
        let (feature, side) = (main.worktree("feature"), main.worktree("side"));
        let large = main.stored(LARGE).join(LARGE_DIR);
        fs::create_dir(&large).expect("a conversation takes a directory");
        for number in 0..LARGE_COUNT {
            fs::write(large.join(large_name(number)), format!("number {number}\n")).expect("written");
        }
        for mounted in [&main, &feature] {
            mounted.begin(&[]);
        }
        side.jp(&["export"]).ok();
        let model = read_model(&store);
        let world = Self { worktrees: [main, feature, side], is_mounted: [true, true, false], mapper: Mapper::new() };
        Some((world, model))
    }

    pub(super) fn mount(&self, w: usize, path: &str) -> PathBuf {
        self.worktrees[w].point().join(path)
    }

    pub(super) fn stored(&self, id: u64) -> PathBuf {
        self.worktrees[0].stored(id)
    }

    pub(super) fn jp(&self, w: usize, args: &[&str]) -> jp_tests::Output {
        self.worktrees[w].jp(args)
    }

    /// How what was touched differs from the model, in the mount that did it at once, in the store at once, in the other
    /// mounts after a while.
    pub(super) fn difference(&self, model: &Model, touched: &Touched) -> Option<String> {
        if let Some(w) = touched.by.filter(|w| self.is_mounted[*w])
            && let Some(told) = self.in_mount(model, w, touched)
        {
            let later = self.soon(|| self.in_mount(model, w, touched));
            let later = if later.is_some() { "and it stays so" } else { "a moment later it is right" };
            return Some(format!("in mount {w}, which did it, {later}: {told}"));
        }
        if let Some(told) = self.in_store(model, touched) {
            let later = self.soon(|| self.in_store(model, touched));
            let later = if later.is_some() { "and it stays so" } else { "a moment later it is right" };
            return Some(format!("in the store, {later}: {told}"));
        }
        let others = (0..2).filter(|w| self.is_mounted[*w] && touched.by != Some(*w));
        let told = others.into_iter().find_map(|w| {
            let told = self.soon(|| self.in_mount(model, w, touched))?;
            Some(format!("in mount {w}, which did not do it, after {SEEN_WITHIN:?}: {told}"))
        });
        // Nobody makes or removes `conversations` itself, and the kernel hears of it later.
        let mut mounts = (0..2).filter(|w| self.is_mounted[*w] && !touched.conversations.is_empty());
        told.or_else(|| mounts.find_map(|w| self.soon(|| parents(model, w, &self.worktrees[w].point()))))
    }

    /// How anything at all differs from the model.
    pub(super) fn any_difference(&self, model: &Model) -> Option<String> {
        let mounts = (0..2).filter(|w| self.is_mounted[*w]);
        let told = mounts.into_iter().find_map(|w| {
            let told = self.soon(|| self.whole(model, w, &self.worktrees[w].point()))?;
            Some(format!("in all of mount {w}: {told}"))
        });
        told.or_else(|| Some(format!("in all of the store: {}", whole_store(model, &self.conversations())?)))
    }

    fn conversations(&self) -> PathBuf {
        self.worktrees[0].workspace().silo().join("conversations")
    }

    fn soon(&self, mut look: impl FnMut() -> Option<String>) -> Option<String> {
        let mut told = None;
        until(SEEN_WITHIN, || {
            told = look();
            told.is_none()
        });
        told
    }

    fn in_mount(&self, model: &Model, w: usize, touched: &Touched) -> Option<String> {
        let top = self.worktrees[w].point();
        if !touched.conversations.is_empty() {
            let told = places(model, w, &top);
            if told.is_some() {
                return told;
            }
            for id in touched.conversations.iter().copied().filter(|id| model.is_visible(w, *id)) {
                let told = directory(model, w, &top, id, "").or_else(|| file(model, w, &top, id, METADATA));
                if told.is_some() {
                    return told;
                }
            }
        }
        let mut listed = BTreeSet::new();
        for (id, name) in touched.files.iter().filter(|(id, _)| model.is_visible(w, *id)) {
            // Whoever makes a file may make the directories that it lies in.
            for dir in dirs(name).chain([""]) {
                if listed.insert((*id, dir))
                    && let Some(told) = directory(model, w, &top, *id, dir)
                {
                    return Some(told);
                }
            }
            if let Some(told) = file(model, w, &top, *id, name) {
                return Some(told);
            }
        }
        None
    }

    fn in_store(&self, model: &Model, touched: &Touched) -> Option<String> {
        for id in &touched.conversations {
            let found = self.worktrees[0].find_stored(*id);
            match (model.all.contains_key(id), found) {
                (true, None) => return Some(format!("{id} is gone")),
                (false, Some(path)) => return Some(format!("{} is there", path.display())),
                (true, Some(path)) => {
                    let archived = path.parent().is_some_and(|dir| dir.ends_with(".archive"));
                    if path.file_name().is_none_or(|name| *name != *model.name(*id))
                        || archived != model.get(*id).archived
                    {
                        return Some(format!("{} is {}", model.name(*id), path.display()));
                    }
                    if let Some(told) = stored_file(model, &path, *id, METADATA) {
                        return Some(told);
                    }
                }
                (false, None) => {}
            }
        }
        touched.files.iter().filter(|(id, _)| model.all.contains_key(id)).find_map(|(id, name)| {
            let Some(dir) = self.worktrees[0].find_stored(*id) else { return Some(format!("{id} is gone")) };
            stored_file(model, &dir, *id, name)
        })
    }

    /// How the whole of a worktree differs below `top`, which is its mount or its real files.
    pub(super) fn whole(&self, model: &Model, w: usize, top: &Path) -> Option<String> {
        let told = places(model, w, top);
        let visible = model.all.keys().copied().filter(|id| model.is_visible(w, *id));
        told.or_else(|| {
            visible.into_iter().find_map(|id| {
                let files = model.files(w, id);
                let mut listed: BTreeSet<&str> = BTreeSet::from([""]);
                for (name, _) in files.iter().filter(|(_, shown)| shown.is_certain) {
                    listed.extend(dirs(name));
                }
                let told = listed.into_iter().find_map(|dir| directory(model, w, top, id, dir));
                told.or_else(|| files.keys().find_map(|name| file(model, w, top, id, name)))
            })
        })
    }
}

/// The name of a file in the large directory.
pub(super) fn large_name(number: u64) -> String {
    format!("file-{number:03}.md")
}

/// How the directories of conversations differ: the top, `.archive`, and the children of each that is shown.
fn places(model: &Model, w: usize, top: &Path) -> Option<String> {
    let visible = model.all.keys().copied().filter(|id| model.is_visible(w, *id));
    let inner: BTreeSet<String> = visible.map(|id| model.place(id)).collect();
    inner.iter().map(String::as_str).chain([""]).find_map(|place| {
        let (expected, seen) = (model.conversations_in(w, place), list(&top.join(place)));
        match seen {
            Ok(seen) if seen == expected => None,
            Ok(seen) => Some(format!("{place:?} lists {seen:?}, expected {expected:?}")),
            Err(err) => Some(format!("{place:?} cannot be listed: {err}, expected {expected:?}")),
        }
    })
}

/// How conversations differ in whether they list a directory of children.
fn parents(model: &Model, w: usize, top: &Path) -> Option<String> {
    let mut visible = model.all.keys().copied().filter(|id| model.is_visible(w, *id));
    visible.find_map(|id| {
        let (path, name) = (model.path(id), "conversations");
        let expected = model.listing(w, id, "").certain.contains(name);
        match list(&top.join(&path)) {
            Ok(seen) if seen.contains(name) == expected => None,
            Ok(_) => Some(format!("mount {w}: whether {path:?} has children: expected {expected}")),
            Err(err) => Some(format!("mount {w}: {path:?} cannot be listed: {err}")),
        }
    })
}

fn directory(model: &Model, w: usize, top: &Path, id: u64, dir: &str) -> Option<String> {
    let path = join(&model.path(id), dir);
    let expected = model.listing(w, id, dir);
    match list(&top.join(path.trim_end_matches('/'))) {
        Ok(seen) => expected.difference(&seen).map(|told| format!("the listing of {path:?}: {told}")),
        Err(_) if expected.certain.is_empty() => None,
        Err(err) => Some(format!("{path:?} cannot be listed: {err}")),
    }
}

fn file(model: &Model, w: usize, top: &Path, id: u64, name: &str) -> Option<String> {
    let path = join(&model.path(id), name);
    let (expected, seen) = (model.shown(w, id, name), read(&top.join(&path)));
    match (expected, seen) {
        (None, Err(err)) if is_absent(&err) => None,
        (Some(shown), Err(err)) if is_absent(&err) && !shown.is_certain => None,
        (_, Err(err)) => Some(format!("{path:?} cannot be read: {err}")),
        (None, Ok(bytes)) => Some(format!("{path:?} is there: {}", told(&bytes))),
        (Some(shown), Ok(bytes)) => differs(&shown.expected, &bytes).map(|told| format!("{path:?} {told}")),
    }
}

fn stored_file(model: &Model, dir: &Path, id: u64, name: &str) -> Option<String> {
    let conversation = model.get(id);
    let expected = if name == METADATA {
        let Conversation { title, parent, metadata, .. } = conversation;
        let known = Expected::Metadata { title, parent: *parent };
        Some(metadata.as_deref().map_or(known, Expected::Bytes))
    } else {
        conversation.files.get(name).map(|bytes| Expected::Bytes(bytes))
    };
    let told = match (expected, read(&dir.join(name))) {
        (None, Err(err)) if is_absent(&err) => None,
        (_, Err(err)) => Some(format!("cannot be read: {err}")),
        (None, Ok(bytes)) => Some(format!("is there: {}", told(&bytes))),
        (Some(expected), Ok(bytes)) => differs(&expected, &bytes),
    };
    told.map(|told| format!("{name} of {id} {told}"))
}

fn whole_store(model: &Model, store: &Path) -> Option<String> {
    let mut left: BTreeMap<PathBuf, (u64, String)> = BTreeMap::new();
    for (id, conversation) in &model.all {
        let dir = PathBuf::from(if conversation.archived { ".archive" } else { "" }).join(model.name(*id));
        for name in conversation.files.keys().map(String::as_str).chain([METADATA]) {
            left.insert(dir.join(name), (*id, name.to_owned()));
        }
    }
    for (path, bytes) in contents(store) {
        // What is removed or put aside is not a conversation's any more.
        if path.starts_with(".trash") || path.starts_with(".tmp") {
            continue;
        }
        let Some((id, name)) = left.remove(&path) else {
            return Some(format!("{} is there: {}", path.display(), told(&bytes)));
        };
        let dir = store.join(&path);
        let dir = dir.ancestors().nth(name.split('/').count()).unwrap_or(store);
        if let Some(told) = stored_file(model, dir, id, &name) {
            return Some(told);
        }
    }
    left.keys().next().map(|path| format!("{} is gone", path.display()))
}

fn differs(expected: &Expected<'_>, seen: &[u8]) -> Option<String> {
    match expected {
        Expected::Bytes(bytes) if *bytes == seen => None,
        Expected::Bytes(bytes) => Some(format!("holds {}, expected {}", told(seen), told(bytes))),
        Expected::Metadata { title, parent } => {
            let value: Value = serde_json::from_slice(seen).unwrap_or_default();
            let named = value["parent_id"].as_u64();
            let is_right = value["title"].as_str() == Some(title) && named == *parent;
            (!is_right).then(|| format!("holds {}, expected title {title:?}, parent {parent:?}", told(seen)))
        }
    }
}

/// Bytes for a message: where they are many, their beginning, their end and how many.
pub(super) fn told(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= 400 {
        return format!("{text:?}");
    }
    let (begin, end): (String, String) = (chars[..200].iter().collect(), chars[chars.len() - 200..].iter().collect());
    format!("{begin:?} … {end:?} ({} bytes)", bytes.len())
}

fn list(dir: &Path) -> io::Result<BTreeSet<String>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A name may be a link to one of another directory; a file of the model never is one.
    fs::read(path)
}

fn is_absent(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The model of what was written into the store.
fn read_model(store: &Path) -> Model {
    let mut model = Model::default();
    for (path, bytes) in contents(store) {
        let (archived, inside) = match path.strip_prefix(".archive") {
            Ok(inside) => (true, inside.to_owned()),
            Err(_) => (false, path),
        };
        let text = inside.to_string_lossy().into_owned();
        let (dir, name) = text.split_once('/').expect("files lie in conversations");
        let id = dir.split('-').next().and_then(|digits| digits.parse().ok()).expect("directories have ids");
        let conversation = model.all.entry(id).or_default();
        conversation.archived = archived;
        if name == METADATA {
            let value: Value = serde_json::from_slice(&bytes).expect("metadata is JSON");
            conversation.title = value["title"].as_str().unwrap_or_default().to_owned();
            conversation.parent = value["parent_id"].as_u64();
            conversation.metadata = Some(bytes);
        } else {
            model.store(id, name, bytes);
        }
    }
    for view in &mut model.views {
        view.projected = model.all.keys().copied().filter(|id| *id != ids::L).collect();
    }
    for conversation in model.all.values() {
        assert!([EVENTS, CONFIG].iter().all(|name| conversation.files.contains_key(*name)));
    }
    model
}

/// Writes through a mapping of a file, a line for each.
const MAPPER: &str = r#"
import mmap, sys
for line in sys.stdin:
    path, offset, text = line.rstrip("\n").split("\t")
    offset, data = int(offset), text.encode()
    try:
        with open(path, "r+b") as file:
            with mmap.mmap(file.fileno(), 0) as mapped:
                mapped[offset:offset + len(data)] = data
                mapped.flush()
        print("0", flush=True)
    except OSError as err:
        print(err.errno, flush=True)
"#;

/// A process that writes to files through `mmap`.
pub(super) struct Mapper {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Mapper {
    fn new() -> Self {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", MAPPER]).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 can be run");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    /// Writes text into a mapping of a file and syncs it; the error number, or 0.
    pub(super) fn write(&mut self, path: &Path, offset: usize, text: &str) -> i32 {
        writeln!(self.stdin, "{}\t{offset}\t{text}", path.display()).expect("the mapper listens");
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("the mapper answers");
        answer.trim().parse().unwrap_or(-1)
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
