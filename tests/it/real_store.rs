//! A store as the real tool leaves it: shown as it is, not touched by looking, and changed only where it was asked to be.
//! What is expected is worked out here from the files, by the rules of the format, and not by asking the store.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use jp_tests::{
    LIMIT, Output, Place, Sample, Shot, TestEnv, Workspace, copy_tree, fixture_store, mtime, pretty, set_mtime,
    wait_for,
};
use serde_json::{Value, json};

/// A place to run `jp` in that looks like the home of a store.
struct Store {
    env: TestEnv,
    root: PathBuf,
    silo: PathBuf,
}

impl Store {
    /// A copy of what the real tool made, where that is at hand.
    fn fixture() -> Option<Self> {
        let from = fixture_store()?;
        let env = TestEnv::new();
        let home = env.project("copy");
        copy_tree(&from, &home).expect("copied");
        fs::remove_dir(env.data()).expect("empty");
        fs::rename(home.join("data"), env.data()).expect("moved");
        let id = fs::read_to_string(home.join("project/.jp/.id")).expect("there");
        let suffix = format!("-{}", id.lines().last().expect("an id"));
        let silos = fs::read_dir(env.data().join("workspace")).expect("listed");
        let mut silos = silos.map(|entry| entry.expect("listed").path());
        let silo = silos.find(|path| path.to_string_lossy().ends_with(&suffix)).expect("a silo");
        Some(Self { root: home.join("project"), silo, env })
    }

    /// One of every kind, made here.
    fn sample() -> Self {
        let env = TestEnv::new();
        let work = env.init_workspace("main", "ab1cd");
        let at = "2025-07-20 10:00:00.25";
        let old = 1_750_000_000_000_000_000;
        let plain = |id: u64, title: &str| Sample::new(id).title(title).mtime(old);
        plain(17_528_832_001, "Both – and «pinned»").key("pinned_at", json!(at)).events(13).write(&work, Place::Both);
        plain(17_528_842_001, "Local").key("labels", json!({ "wip": "" })).write(&work, Place::User);
        plain(17_528_852_001, "From elsewhere").events(0).file("notes/a.md", "a\n").write(&work, Place::Workspace);
        Sample::new(17_528_862_001).events(1).without("base_config.json").mtime(old).write(&work, Place::Both);
        plain(17_528_872_001, "Put away").archived().write(&work, Place::Both);
        plain(17_528_882_001, "Put away alone").archived().events(2).write(&work, Place::User);
        plain(17_528_892_001, "Older").write(&work, Place::User);
        let newer =
            plain(17_528_892_001, "Older").key("last_activated_at", json!("2026-01-02T03:04:05+01:00")).events(9);
        newer.mtime(old + 1).write(&work, Place::Workspace);
        let silo = work.silo();
        for dir in ["sessions", "locks", "conversations/.trash/17528902001-bad"] {
            fs::create_dir_all(silo.join(dir)).expect("made");
        }
        let turned = |id: u64| json!({ "id": id, "activated_at": "2025-07-19T02:46:40.100Z" });
        let session = json!({
            "history": [turned(17_528_842_001), turned(17_528_832_001)],
            "id": "a b", "source": { "type": "env", "key": "JP_SESSION" },
        });
        fs::write(silo.join("sessions/env-JP_SESSION-0123456789abcdef.json"), pretty(&session)).expect("written");
        let lock = "{\"pid\":4000000,\"session\":\"4242\",\"acquired_at\":\"2026-08-20T14:03:11.258319251+00:00\"}";
        fs::write(silo.join("locks/jp-c17528832001.lock"), lock).expect("written");
        Self { root: work.root().to_owned(), silo, env }
    }

    /// Runs a test on each store there is.
    fn each(test: impl Fn(&Self)) {
        test(&Self::sample());
        if let Some(store) = Self::fixture() {
            test(&store);
        }
    }

    fn jp(&self, args: &[&str]) -> Output {
        let output = self.env.jp(&self.root, args);
        assert!(!output.stderr.contains("panicked"), "{}", output.told());
        output
    }

    fn roots(&self) -> [PathBuf; 2] {
        [self.silo.clone(), self.root.join(".jp")]
    }

    /// The directory of an id in a root and partition.
    fn dir(&self, root: usize, partition: &str, id: u64) -> Option<PathBuf> {
        let (_, dir) =
            dirs(&self.roots()[root].join("conversations").join(partition)).into_iter().find(|one| one.0 == id)?;
        Some(dir)
    }

    /// The ids of a partition in either root.
    fn ids(&self, partition: &str) -> Vec<u64> {
        let all = self.roots().map(|root| dirs(&root.join("conversations").join(partition))).concat();
        let mut ids: Vec<u64> = all.into_iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// One conversation that is in the roots asked for and has a title.
    fn pick(&self, in_store: bool, in_work: bool) -> u64 {
        let fits = |id: &u64| {
            let [store, work] = [0, 1].map(|root| self.dir(root, "", *id));
            let title = |dir: &PathBuf| value(&dir.join("metadata.json"))["title"].is_string();
            store.is_some() == in_store && work.is_some() == in_work && store.or(work).as_ref().is_some_and(title)
        };
        self.ids("").into_iter().find(fits).expect("a store has one of each kind")
    }
}

/// What lies side by side in a directory of conversations.
fn dirs(conversations: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(conversations).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name.split('-').next()?.parse().ok()?, entry.path()))
    });
    named.collect()
}

fn value(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// The newer of two copies, the store's when they are of one age.
fn newer(dirs: [Option<PathBuf>; 2], files: &[&str]) -> PathBuf {
    let age = |dir: &PathBuf| {
        files.iter().map(|file| dir.join(file)).filter(|path| path.exists()).map(|path| mtime(&path)).max()
    };
    match dirs {
        [Some(store), Some(work)] if age(&work) > age(&store) => work,
        [Some(one), _] | [None, Some(one)] => one,
        [None, None] => panic!("an id comes from a directory"),
    }
}

fn time(value: &Value) -> Timestamp {
    let text = value.as_str().expect("a time is text");
    let text = if text.contains('T') { text.to_owned() } else { format!("{}Z", text.replace(' ', "T")) };
    text.parse().unwrap_or_else(|err| panic!("{text}: {err}"))
}

/// What `jp c ls --json` has to say of a conversation.
fn expected(store: &Store, partition: &str, id: u64) -> Value {
    let copies = || [0, 1].map(|root| store.dir(root, partition, id));
    let metadata = value(&newer(copies(), &["metadata.json"]).join("metadata.json"));
    let events = value(&newer(copies(), &["base_config.json", "events.json"]).join("events.json"));
    let (presence, path) = match copies() {
        [Some(_), Some(work)] => ("projected", work),
        [Some(store), None] => ("local", store),
        [None, Some(work)] => ("external", work),
        [None, None] => panic!("an id comes from a directory"),
    };
    json!({
        "id": format!("jp-c{id}"),
        "title": metadata["title"],
        "parent": null,
        "presence": presence,
        "archived": !partition.is_empty(),
        "pinned": metadata["pinned_at"].is_string(),
        "locked": false,
        "events": events.as_array().expect("an array").len(),
        "created_at": Timestamp::from_millisecond(i64::try_from(id).expect("small") * 100).expect("a time").to_string(),
        "last_activated_at": time(&metadata["last_activated_at"]).to_string(),
        "origin": null,
        "path": path,
        "expires_at": metadata.get("expires_at").map(|at| time(at).to_string()),
        "labels": metadata.get("labels").cloned().unwrap_or_else(|| json!({})),
        "problem": null,
    })
}

/// Times are compared as times: there is more than one spelling of each.
fn by_id(listing: &Value) -> BTreeMap<String, Value> {
    let listed = listing.as_array().expect("an array").iter().map(|one| {
        let mut one = one.clone();
        for key in ["created_at", "last_activated_at", "expires_at"] {
            if one[key].is_string() {
                one[key] = json!(time(&one[key]).to_string());
            }
        }
        (one["id"].as_str().expect("an id").to_owned(), one)
    });
    listed.collect()
}

#[test]
fn the_listing_is_what_the_files_say() {
    Store::each(|store| {
        for (partition, flag) in [("", None), (".archive", Some("--archived"))] {
            let args: Vec<&str> = ["c", "ls", "--json"].into_iter().chain(flag).collect();
            let listing = store.jp(&args).json();
            let wanted: Value = store.ids(partition).iter().map(|id| expected(store, partition, *id)).collect();
            assert_eq!(by_id(&listing), by_id(&wanted));
            let count = listing.as_array().map(Vec::len);
            assert_eq!(count, Some(store.ids(partition).len()), "each once");
            assert!(count > Some(1), "the store is worth looking at");
        }
    });
}

/// Every command that only reads, in all its forms.
pub(crate) fn readers(id: &str) -> Vec<Vec<String>> {
    let lines = format!(
        "c ls|c ls --json|c ls --full|c ls --full --json|c ls --tree|c ls --tree --json|c ls --archived|c ls --local\
         |c ls --root|c ls --root={id}|c ls --sort events --descending --limit 3|c ls --label wip|c ls {id}\
         |c show {id}|c show {id} --json|c show last|c print {id}|c print {id} -s full|c print {id} --last 1 --json\
         |c path {id}|c path {id} --events --metadata --base-config|c grep a|c grep -r . --json|c grep a --archived\
         |status|status --json|doctor|doctor --json|lock ls|lock ls --json|session show|session show --json\
         |session ls|session ls --json",
    );
    lines.split('|').map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Which file is which, by path. An equal file that was written anew has another number.
fn inodes(dir: &Path, found: &mut BTreeMap<PathBuf, u64>) {
    found.insert(dir.to_owned(), fs::symlink_metadata(dir).expect("there").ino());
    if fs::symlink_metadata(dir).expect("there").is_dir() {
        for entry in fs::read_dir(dir).expect("listed") {
            inodes(&entry.expect("listed").path(), found);
        }
    }
}

#[test]
fn looking_changes_nothing() {
    Store::each(|store| {
        let look = || {
            let mut numbers = BTreeMap::new();
            inodes(store.env.root(), &mut numbers);
            (Shot::of(store.env.root()), numbers)
        };
        let before = look();
        for [in_store, in_work] in [[true, true], [true, false], [false, true]] {
            let id = store.pick(in_store, in_work).to_string();
            for args in readers(&id) {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let output = store.jp(&args);
                assert!(output.code <= 1, "{}", output.told());
                before.0.assert_same(&Shot::of(store.env.root()));
            }
        }
        assert_eq!(before.1, look().1);
    });
}

/// Puts keys and an event that nobody knows into every copy, without a trace in the times.
fn plant(dir: &Path) {
    let edit = |file: &str, change: &dyn Fn(String) -> String| {
        let path = dir.join(file);
        let time = mtime(&path);
        fs::write(&path, change(fs::read_to_string(&path).expect("read"))).expect("written");
        set_mtime(&path, time);
    };
    edit("metadata.json", &|text| {
        let text =
            text.replacen("{\n", "{\n  \"x_first\": {\n    \"n\": 1.50,\n    \"z\": 1,\n    \"a\": 2\n  },\n", 1);
        text.trim_end().strip_suffix("\n}").expect("an object").to_owned()
            + ",\n  \"x_last\": 12345678901234567890123\n}\n"
    });
    let event =
        "[\n  {\n    \"z\": 1.0,\n    \"type\": \"x_unknown\",\n    \"timestamp\": \"2025-07-19 00:00:00.1\"\n  }";
    edit("events.json", &|text| match text.trim() {
        "[]" => format!("{event}\n]\n"),
        _ => text.replacen('[', &format!("{event},"), 1),
    });
}

/// Files and their times beneath a directory, by their place in it.
fn files(dir: &Path) -> Shot {
    // The directory itself and metadata.json are what a new title changes.
    Shot::of(dir).without(&["metadata.json"])
}

/// Retitles a conversation and looks at everything that must not have changed.
fn retitle(store: &Store, id: u64) {
    let roots = store.roots();
    let old: Vec<PathBuf> = (0..2).filter_map(|root| store.dir(root, "", id)).collect();
    old.iter().for_each(|dir| plant(dir));
    let text = fs::read_to_string(old[0].join("metadata.json")).expect("read");
    let title = value(&old[0].join("metadata.json"))["title"].clone();
    let contents = files(&old[0]);
    let numbers: Vec<u64> = old.iter().map(|dir| fs::metadata(dir).expect("there").ino()).collect();
    let name = |dir: &Path| dir.file_name().and_then(OsStr::to_str).expect("UTF-8").to_owned();
    let others = |root: &Path| {
        let mine: Vec<String> = dirs(root).into_iter().filter(|one| one.0 == id).map(|one| name(&one.1)).collect();
        // What comes and goes shows in the time of the root as well, also where there is nothing yet to leave out.
        Shot::of(root).without(&mine.iter().map(String::as_str).collect::<Vec<_>>()).without(&["none"])
    };
    let conversations = roots.clone().map(|root| root.join("conversations"));
    let before = conversations.clone().map(|root| others(&root));
    // What lies beside the conversations in the workspace.
    let beside = Shot::of(&roots[1]).without(&["conversations"]);

    store.jp(&["c", "edit", "--title", "New \"title\" – ü", &id.to_string()]).ok();

    for (root, before) in conversations.iter().zip(&before) {
        before.assert_same(&others(root));
    }
    beside.assert_same(&Shot::of(&roots[1]).without(&["conversations"]));
    let new: Vec<PathBuf> = (0..2).filter_map(|root| store.dir(root, "", id)).collect();
    let wanted = text.replacen(&title.to_string(), "\"New \\\"title\\\" – ü\"", 1);
    for dir in &new {
        assert_eq!(name(dir), format!("{id}-new--title----ü"));
        assert_eq!(fs::read_to_string(dir.join("metadata.json")).expect("read"), wanted);
        let bytes = |shot: Shot| shot.without_mtimes().without_modes();
        bytes(contents.clone()).assert_same(&bytes(files(dir)));
    }
    let kept: Vec<u64> = new.iter().map(|dir| fs::metadata(dir).expect("there").ino()).collect();
    assert!(numbers.iter().all(|number| kept.contains(number)), "the directories are the same ones");
    assert!(wanted.contains("\"n\": 1.50,\n    \"z\": 1,\n") && wanted.contains(": 12345678901234567890123\n"));
}

#[test]
fn a_new_title_changes_one_file_and_one_name() {
    Store::each(|store| {
        for [in_store, in_work] in [[true, true], [true, false]] {
            let id = store.pick(in_store, in_work);
            retitle(store, id);
            let here = [0, 1].map(|root| store.dir(root, "", id).is_some());
            assert_eq!(here, [in_store, in_work], "it stays where it was");
        }
    });
}

#[test]
fn what_came_from_elsewhere_is_imported_by_its_own_first_write() {
    Store::each(|store| {
        let id = store.pick(false, true);
        let other = store.pick(true, true).to_string();
        store.jp(&["c", "edit", "--title", "Another", &other]).ok();
        assert_eq!(store.dir(0, "", id), None, "a write to another is none to it");
        retitle(store, id);
        let [copy, real] = [0, 1].map(|root| store.dir(root, "", id).expect("in both"));
        let bytes = |dir: &Path| Shot::of(dir).without_mtimes().without_modes();
        bytes(&copy).assert_same(&bytes(&real));
        let listing = store.jp(&["c", "ls", "--json"]).json();
        assert_eq!(by_id(&listing)[&format!("jp-c{id}")]["presence"], "projected");
    });
}

#[test]
fn sessions_are_understood() {
    Store::each(|store| {
        let listing = store.jp(&["session", "ls", "--json"]).json();
        let listing = listing.as_array().expect("an array");
        let paths: Vec<PathBuf> =
            fs::read_dir(store.silo.join("sessions")).expect("listed").map(|one| one.expect("listed").path()).collect();
        assert_eq!(listing.len(), paths.len());
        assert!(!paths.is_empty(), "the store has sessions");
        for path in paths {
            let file = value(&path);
            let one = listing.iter().find(|one| one["path"] == json!(path)).expect("listed");
            let first = file["history"][0]["id"].as_u64().expect("an integer");
            assert_eq!(one["value"], file["id"]);
            assert_eq!(one["active"], json!(format!("jp-c{first}")));
            assert_eq!(one["conversations"], json!(file["history"].as_array().map(Vec::len)));
            assert_eq!(time(&one["last_used_at"]), time(&file["history"][0]["activated_at"]));
            let source = file["source"]["key"].as_str().or(file["source"]["type"].as_str());
            assert_eq!(one["source"].as_str(), source);
        }
    });
}

#[test]
fn locks_are_understood_and_respected() {
    Store::each(|store| {
        let only = |output: Output| output.json().as_array().expect("an array")[0].clone();
        let path = fs::read_dir(store.silo.join("locks")).expect("listed").next().expect("one").expect("listed").path();
        let file = value(&path);
        let left = only(store.jp(&["lock", "ls", "--json"]));
        assert_eq!((&left["pid"], &left["session"]), (&file["pid"], &file["session"]));
        assert_eq!((&left["state"], &left["path"]), (&json!("orphan"), &json!(path)));
        assert_eq!(time(&left["since"]), time(&file["acquired_at"]));

        // By another process: whatever a holder starts is let through.
        let mut holder = Command::new("flock").arg(&path).arg("cat").stdin(Stdio::piped()).spawn().expect("started");
        wait_for("the lock", LIMIT, || only(store.jp(&["lock", "ls", "--json"]))["state"] == "held");
        let id = left["id"].as_str().expect("an id").to_owned();
        let listing = store.jp(&["c", "ls", "--json"]).json();
        let locked: Vec<String> =
            by_id(&listing).into_iter().filter(|one| one.1["locked"] == true).map(|one| one.0).collect();
        assert_eq!(locked, std::slice::from_ref(&id));
        let before = store.roots().map(|root| Shot::of(&root.join("conversations")));
        let call = store.env.call(&store.root, &["c", "edit", "--title", "No", &id]).var("JP_LOCK_DURATION", "0");
        call.run().fails_with(3).says("is locked");
        for (root, before) in store.roots().iter().zip(&before) {
            before.assert_same(&Shot::of(&root.join("conversations")));
        }
        drop(holder.stdin.take());
        assert!(holder.wait().expect("ended").success());
        store.jp(&["c", "edit", "--title", "Yes", &id]).ok();
        assert!(!path.exists(), "nobody needs it any more");
    });
}

#[test]
fn the_sample_has_one_of_every_kind() {
    let store = Store::sample();
    assert_eq!((store.ids("").len(), store.ids(".archive").len()), (5, 2));
    let work: Workspace = store.env.init_workspace("main", "ab1cd");
    assert_eq!(work.silo(), store.silo);
}
