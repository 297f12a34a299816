//! Something happens at the worst moment: between a look and a lock, between a decision and the write that follows it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use jp_store::beneath::AllowedDirs;
use jp_store::disk::{Contents, DirEntry, Disk, RealDisk, Stat};
use jp_store::layout::Partition;
use jp_store::lock::Wait;
use jp_store::session::{Session, Source};
use jp_store::store::{Store, Surroundings};
use jp_store::writer::Strategy;
use jp_store::{ConversationId, Error};
use jp_tests::{Place, Sample, Workspace, set_mtime};

use crate::story::{in_store, in_work, jp, kept, new, number, presence, store_file, work_file, workspace};

type Event = Box<dyn FnOnce() + Send>;

/// The real disk, on which something happens just before a lock is opened or a file is renamed into place.
#[derive(Default)]
struct Eventful {
    events: Mutex<Vec<(&'static str, PathBuf, Event)>>,
    gone: Mutex<Option<PathBuf>>,
    real: RealDisk,
}

impl std::fmt::Debug for Eventful {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Eventful")
    }
}

impl Eventful {
    /// `event` happens just before the first `call` on a path that ends like this.
    fn before(call: &'static str, path: &str, event: impl FnOnce() + Send + 'static) -> Arc<Self> {
        let disk = Self::default();
        disk.events.lock().expect("sound").push((call, path.into(), Box::new(event)));
        Arc::new(disk)
    }

    fn happens(&self, call: &str, path: &Path) {
        let mut events = self.events.lock().expect("sound");
        if let Some(at) = events.iter().position(|(name, end, _)| *name == call && path.ends_with(end)) {
            let (.., event) = events.remove(at);
            drop(events);
            event();
        }
    }
}

impl Disk for Eventful {
    fn allowed(&self) -> &AllowedDirs {
        self.real.allowed()
    }
    fn filesystem(&self, path: &Path) -> io::Result<Option<u64>> {
        self.real.filesystem(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.real.stat(path)
    }
    fn read(&self, path: &Path) -> io::Result<Contents> {
        self.real.read(path)
    }
    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Contents> {
        self.real.read_from(path, offset)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.real.list(path)
    }
    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.real.read_link(path)
    }
    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.real.create_dir(path, mode)
    }
    fn write_new(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.real.write_new(path, bytes, mode)
    }
    fn write_one_of_many(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        self.real.write_one_of_many(path, bytes, mode)
    }
    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        self.real.sync_all(dir)
    }
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.happens("rename", b);
        self.real.exchange(a, b)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.happens("rename", to);
        self.real.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if self.gone.lock().expect("sound").as_ref().is_some_and(|gone| path.starts_with(gone)) {
            // Another process was faster.
            self.real.remove_file(path)?;
        }
        self.happens("remove", path);
        self.real.remove_file(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.real.remove_dir(path)
    }
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.real.set_mode(path, mode)
    }
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        self.real.symlink(target, link)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.real.sync_dir(path)
    }
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.real.append(path, bytes)
    }
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.real.sync_file(path)
    }
    fn open_lock(&self, path: &Path) -> io::Result<File> {
        self.happens("lock", path);
        self.real.open_lock(path)
    }
    fn open_existing_lock(&self, path: &Path) -> io::Result<File> {
        self.real.open_existing_lock(path)
    }
}

fn store_on(main: &Workspace, disk: Arc<Eventful>) -> Store {
    let around = Surroundings {
        disk,
        data_dir: Some(main.env().data()),
        pid: std::process::id(),
        session: None,
        clock: Arc::new(|| "2099-01-01T00:00:00Z".parse().expect("a time")),
        covered: Arc::new(|_| false),
    };
    Store::open(around, main.root()).expect("opened")
}

fn id(text: &str) -> ConversationId {
    ConversationId::new(number(text)).expect("an id")
}

/// What a child is called that is made beneath `parent` behind our back.
fn child_behind_our_back(main: &Workspace, parent: &str) -> impl FnOnce() + Send + use<> {
    let (main, parent) = (main.clone(), parent.to_owned());
    move || {
        new(&main, "Latecomer", &["--parent", &parent]);
    }
}

fn latecomer(main: &Workspace) -> String {
    let all = main.jp(&["c", "ls", "--json"]).json();
    let rows = all.as_array().cloned().unwrap_or_default();
    let archived = main.jp(&["c", "ls", "--archived", "--json"]).json();
    let rows = rows.into_iter().chain(archived.as_array().cloned().unwrap_or_default());
    let mut found = rows.filter(|row| row["title"] == "Latecomer");
    found.next().expect("it is still there")["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_child_made_meanwhile_is_archived_along() {
    let main = workspace();
    let a = new(&main, "Parent", &[]);
    let disk = Eventful::before("lock", "projection.lock", child_behind_our_back(&main, &a));
    let (writer, _) = store_on(&main, disk).writer().expect("ready");
    let told = writer.archive(id(&a), &Wait::none()).expect("archived");
    let late = latecomer(&main);
    assert!(told.contains(&id(&late)));
    let now = writer.store().snapshot().expect("a snapshot");
    assert_eq!(now.get(id(&late)).map(|found| found.partition), Some(Partition::Archived));
}

#[test]
fn a_child_made_meanwhile_is_hidden_with_its_parent() {
    let main = workspace();
    let a = new(&main, "Parent", &[]);
    let disk = Eventful::before("lock", "projection.lock", child_behind_our_back(&main, &a));
    let (writer, _) = store_on(&main, disk).writer().expect("ready");
    writer.toggle(id(&a), jp_store::presence::Projection::LocalOnly, &Wait::none()).expect("hidden");
    let late = latecomer(&main);
    assert_eq!(presence(&main, &late), "local");
    jp(&main, &["c", "edit", &a, "--local=false"]);
    assert_eq!(presence(&main, &late), "projected", "it was hidden with its parent only");
}

#[test]
fn a_child_made_meanwhile_and_held_is_not_removed() {
    let main = workspace();
    let a = new(&main, "Parent", &[]);
    let held = Arc::new(Mutex::new(None));
    let (elsewhere, keep, parent) = (main.clone(), held.clone(), a.clone());
    let disk = Eventful::before("lock", "projection.lock", move || {
        let late = new(&elsewhere, "Latecomer", &["--parent", &parent]);
        // Another descriptor is another holder.
        let path = elsewhere.silo().join("locks").join(format!("{late}.lock"));
        let file = File::create(path).expect("made");
        file.lock().expect("locked");
        *keep.lock().expect("sound") = Some(file);
    });
    let (writer, _) = store_on(&main, disk).writer().expect("ready");
    let told = writer.remove(id(&a), Strategy::Cascade, &Wait::none());
    assert!(matches!(told, Err(Error::Locked { .. })), "{told:?}");
    assert_eq!(presence(&main, &latecomer(&main)), "projected");
}

#[test]
fn an_edit_made_while_the_store_is_written_is_kept() {
    let main = workspace();
    let a = new(&main, "Upload", &[]);
    let path = work_file(&main, &a, "metadata.json");
    let edited = fs::read_to_string(&path).expect("there").replace("Upload", "Edited meanwhile");
    let store_side = in_store(&main, &a).expect("there").join("metadata.json");
    let (there, text) = (path.clone(), edited.clone());
    let end = format!("main-otvo8/conversations/{}/metadata.json", {
        let dir = store_side.parent().and_then(Path::file_name).expect("a name");
        dir.to_str().expect("UTF-8").to_owned()
    });
    let disk = Eventful::before("rename", &end, move || fs::write(&there, &text).expect("written"));
    let (writer, _) = store_on(&main, disk).writer().expect("ready");
    let guard = writer.lock(id(&a), &Wait::none()).expect("free");
    writer.edit(&guard, |meta| meta.set_title(Some("Retitled"))).expect("edited");
    drop(guard);
    let shown = fs::read_to_string(work_file(&main, &a, "metadata.json")).expect("there");
    assert!(shown == edited || kept(&main, &a, "metadata.json").contains(&edited), "lost: {shown}");
}

#[test]
fn what_no_longer_expires_is_not_collected() {
    let main = workspace();
    let a = new(&main, "Upload", &["--local"]);
    let path = in_store(&main, &a).expect("there").join("metadata.json");
    let eternal = fs::read_to_string(&path).expect("there");
    let expired = eternal.replacen('{', "{\n  \"expires_at\": \"2026-01-01T00:00:00Z\",", 1);
    fs::write(&path, &expired).expect("written");
    let disk =
        Eventful::before("lock", &format!("locks/{a}.lock"), move || fs::write(&path, &eternal).expect("written"));
    let (writer, _) = store_on(&main, disk).writer().expect("ready");
    let collected = writer.collect(&Default::default()).expect("collected");
    assert_eq!(collected.removed, []);
    assert_eq!(presence(&main, &a), "local");
}

#[test]
fn a_conversation_made_while_sessions_are_cleaned_stays_active() {
    let main = workspace();
    new(&main, "First", &[]);
    let elsewhere = main.clone();
    let disk = Eventful::before("lock", "vfs/sessions.lock", move || {
        let late = new(&elsewhere, "Latecomer", &[]);
        jp(&elsewhere, &["c", "use", &late]);
    });
    let (writer, _) = store_on(&main, disk).writer().expect("ready");
    writer.clean_sessions().expect("cleaned");
    let session = Session { source: Source::Env("JP_SESSION".into()), value: "test".into() };
    let mapping = writer.store().sessions().load(&session).expect("read");
    let late = id(&latecomer(&main));
    assert!(
        mapping.is_some_and(|mapping| format!("{mapping:?}").contains(&late.deciseconds().to_string())),
        "forgotten"
    );
}

#[test]
fn two_processes_sweep_at_once() {
    let main = workspace();
    new(&main, "Upload", &[]);
    let tmp = main.silo().join("vfs/tmp");
    let leftover = tmp.join("jp-tmp-0123456789abcdef-0");
    fs::create_dir_all(&leftover).expect("made");
    fs::write(tmp.join("owner-store-0123456789abcdef"), "").expect("written");
    fs::write(leftover.join("events.json"), "[]").expect("written");
    let disk = Arc::new(Eventful::default());
    *disk.gone.lock().expect("sound") = Some(leftover.clone());
    store_on(&main, disk).writer().expect("nothing is wrong");
    assert!(!leftover.exists());
}

#[test]
fn a_merge_cut_short_does_not_prefer_what_is_left() {
    let main = workspace();
    let put = |silo: &str, at: i64| {
        let dir = main.env().data().join("workspace").join(silo).join("conversations");
        Sample::new(17_528_832_001).title("Twin").mtime(at).write_below(&dir)
    };
    let ours = put("main-otvo8", 1_750_000_000_000_000_000);
    let theirs = put("other-otvo8", 1_760_000_000_000_000_000);
    for name in crate::story::MANAGED {
        fs::copy(ours.join(name), theirs.join(name)).expect("copied");
        set_mtime(&theirs.join(name), 1_760_000_000_000_000_000);
    }
    // Every number of files may be gone when the process dies.
    let died = std::panic::catch_unwind(|| {
        let name = if fs::read_dir(&theirs)
            .expect("listed")
            .flatten()
            .next()
            .is_some_and(|e| e.file_name() == "metadata.json")
        {
            "events.json"
        } else {
            "metadata.json"
        };
        let disk = Eventful::before("remove", name, || panic!("the process dies"));
        store_on(&main, disk).writer().map(drop)
    });
    assert!(died.is_err());
    jp(&main, &["c", "edit", "jp-c17528832001", "--pin"]);
    assert_eq!(crate::story::says(&main, "jp-c17528832001", "title"), "Twin");
    assert!(in_store(&main, "jp-c17528832001").expect("there").join("events.json").exists());
    assert_eq!(in_work(&main, "jp-c17528832001"), None);
}

#[test]
fn an_edit_made_while_a_tree_is_hidden_is_kept() {
    let main = workspace();
    let parent = new(&main, "Parent", &[]);
    let child = new(&main, "Child", &["--parent", &parent]);
    let events = in_work(&main, &child).expect("shown").join("events.json");
    // The ledger is written after everything was taken into the store, and before the files go.
    let edit = move || fs::write(&events, "[ ]\n").expect("written");
    let store = store_on(&main, Eventful::before("rename", "projection.json", edit));
    let (writer, _) = store.writer().expect("a writer");
    let hidden =
        writer.toggle(parent.parse().expect("an id"), jp_store::presence::Projection::LocalOnly, &Wait::none());
    assert_eq!(hidden.expect("hidden").descendants.len(), 1);
    assert_eq!(in_work(&main, &child), None);
    assert_eq!(kept(&main, &child, "events.json"), ["[ ]\n"]);
}

#[test]
fn an_edit_made_while_a_file_is_written_out_is_kept() {
    let main = workspace();
    let talk = new(&main, "Talk", &[]);
    let note = crate::story::store_file(&main, &talk, "note.md");
    fs::write(&note, "one").expect("written");
    jp(&main, &["export"]);
    fs::write(crate::story::store_file(&main, &talk, "events.json"), "[  ]\n").expect("written");
    fs::write(&note, "two").expect("written");
    for (name, edit) in [("events.json", "[ ]\n"), ("note.md", "by hand")] {
        let real = work_file(&main, &talk, name);
        // The real file has been looked at by then, and is about to be replaced.
        let end = format!("{}/{name}", in_work(&main, &talk).expect("shown").file_name().unwrap_or_default().display());
        let disk = Eventful::before("rename", &end, move || fs::write(&real, edit).expect("written"));
        let (writer, _) = store_on(&main, disk).writer().expect("a writer");
        let wanted = jp_store::plan::Wanted::all(jp_store::plan::Direction::Out);
        writer.reconcile(&wanted, &Wait::none(), &mut |_| true).expect("in step");
        assert_eq!(kept(&main, &talk, name), [edit], "{name}");
        fs::write(&note, "three").expect("written");
    }
    assert_eq!(fs::read_to_string(work_file(&main, &talk, "events.json")).expect("there"), "[  ]\n");
}

/// Brings both roots in step, on a disk where something may happen.
#[track_caller]
fn bring_in_step(main: &Workspace, disk: Arc<Eventful>) {
    let (writer, _) = store_on(main, disk).writer().expect("a writer");
    let wanted = jp_store::plan::Wanted::all(jp_store::plan::Direction::Both);
    let done = writer.reconcile(&wanted, &Wait::none(), &mut |_| true).expect("in step");
    assert_eq!((done.held, done.busy), (Vec::new(), Vec::new()));
}

/// What a path is called from the root it is in.
fn end_of(path: &Path) -> String {
    let parts: Vec<_> = path.iter().rev().take(3).collect();
    parts.into_iter().rev().collect::<PathBuf>().to_str().expect("UTF-8").to_owned()
}

/// A shell makes a file empty and writes to it afterwards. Whoever looks in between has half of it, and that half is
/// copied after the other one was written: it is the younger file, and nobody's word.
#[test]
fn a_file_that_is_still_being_written_is_no_conflict() {
    let longer = |path: &Path| {
        fs::write(path, "whole").expect("written");
        set_mtime(path, 1_750_000_000_000_000_000);
    };
    for known in [false, true] {
        for from_store in [false, true] {
            let main = workspace();
            let talk = new(&main, "Talk", &[]);
            let sides = [store_file, work_file].map(|file| file(&main, &talk, "note.md"));
            let [other, writing] = if from_store { [1, 0] } else { [0, 1] }.map(|at: usize| sides[at].clone());
            if known {
                fs::write(&writing, "before").expect("written");
                bring_in_step(&main, Arc::default());
            }
            fs::write(&writing, "").expect("written");
            let source = writing.clone();
            let disk = Eventful::before("rename", &end_of(&other), move || longer(&source));
            bring_in_step(&main, disk);
            assert_eq!(fs::read_to_string(&other).expect("copied"), "", "what was there when it was looked at");
            bring_in_step(&main, Arc::default());
            for side in &sides {
                let text = fs::read_to_string(side).expect("there");
                assert_eq!(text, "whole", "known before: {known}, from the store: {from_store}");
            }
            assert_eq!(kept(&main, &talk, "note.md"), [] as [&str; 0], "nobody else was there");
        }
    }
}

/// The same for a whole directory, on its way in and on its way out.
#[test]
fn a_conversation_that_is_still_being_written_is_no_conflict() {
    let texts = [("note.md", "whole"), ("events.json", "[ ]\n")];
    for (place, dir) in [(Place::Workspace, "main-otvo8/conversations"), (Place::User, ".jp/conversations")] {
        let main = workspace();
        let talk = "jp-c17528832001";
        let source = Sample::new(number(talk)).title("Talk").file("note.md", "").write(&main, place);
        let end = Path::new(dir).join(source.file_name().expect("a name"));
        let longer = move || {
            for (name, text) in texts {
                fs::write(source.join(name), text).expect("written");
                set_mtime(&source.join(name), 1_750_000_000_000_000_000);
            }
        };
        let disk = Eventful::before("rename", end.to_str().expect("UTF-8"), longer);
        match place {
            Place::User => {
                let (writer, _) = store_on(&main, disk).writer().expect("ready");
                writer.toggle(id(talk), jp_store::presence::Projection::Projected, &Wait::none()).expect("shown");
            }
            _ => bring_in_step(&main, disk),
        }
        bring_in_step(&main, Arc::default());
        for (name, text) in texts {
            for side in [store_file, work_file].map(|file| file(&main, talk, name)) {
                assert_eq!(fs::read_to_string(side).expect("there"), text, "{name}, in {end:?}");
            }
            assert_eq!(kept(&main, talk, name), [] as [&str; 0], "nobody else was there");
        }
    }
}
