//! What is outside is never touched: links, pipes and odd things in the place of directories and files decide neither
//! where something is written or removed nor what is read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jp_tests::{LIMIT, Shot, Workspace, wait_for};

use crate::story::{family, in_store, in_work, jp, new, number, presence, store_file, work_file, workspace};

const SECRET: &str = "swordfish-4711";

/// A directory of the user's own, with files of all the names that temporaries ever had.
fn victim(w: &Workspace) -> PathBuf {
    let dir = w.env().root().join("documents");
    fs::create_dir_all(dir.join("777-0")).expect("made");
    for name in ["777", "1-1", "4194303-7", "letter.txt", "jp-tmp-0123456789abcdef-0", "777-0/x"] {
        fs::write(dir.join(name), SECRET).expect("written");
    }
    dir
}

/// Commands that write, each of which once cleaned up behind others.
const WRITING: [&[&str]; 8] = [
    &["c", "new", "--title", "X"],
    &["c", "edit", "--title", "Y", "newest"],
    &["export"],
    &["import"],
    &["doctor", "--fix"],
    &["gc"],
    &["gc", "--trash=0"],
    &["migrate"],
];

/// Plants a link, runs every command that writes, and asserts that what it points to is as it was.
#[track_caller]
fn never_through(plant: impl Fn(&Workspace, &Path)) {
    let w = workspace();
    family(&w);
    let documents = victim(&w);
    plant(&w, &documents);
    let before = Shot::of(&documents);
    for args in WRITING {
        let told = w.jp(args);
        before.assert_same(&Shot::of(&documents));
        assert_ne!(told.code, 101, "{}", told.told());
        assert!(told.code == 0 || told.stderr.contains("symbolic link"), "{}", told.told());
    }
}

fn replace_by_link(at: &Path, target: &Path) {
    match fs::symlink_metadata(at) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(at).expect("removed"),
        Ok(_) => fs::remove_file(at).expect("removed"),
        Err(_) => fs::create_dir_all(at.parent().expect("a parent")).expect("made"),
    }
    symlink(target, at).expect("linked");
}

/// Waits for a command with a limit; one that hangs is ended and fails the test.
#[track_caller]
fn ends(mut command: Command) -> i32 {
    let mut child = command.spawn().expect("started");
    let mut status = None;
    wait_for("the command's end", Duration::from_secs(20).min(LIMIT), || {
        status = child.try_wait().expect("a child can be waited for");
        status.is_some()
    });
    status.and_then(|status| status.code()).unwrap_or(-1)
}

#[test]
fn temporaries_behind_a_link() {
    never_through(|w, documents| replace_by_link(&w.storage().join("conversations/.tmp"), documents));
    never_through(|w, documents| replace_by_link(&w.silo().join("vfs/tmp"), documents));
}

#[test]
fn trash_and_archive_behind_a_link() {
    for name in [".trash", ".archive"] {
        never_through(|w, documents| replace_by_link(&w.storage().join("conversations").join(name), documents));
        never_through(|w, documents| replace_by_link(&w.silo().join("conversations").join(name), documents));
    }
}

#[test]
fn conversations_behind_a_link() {
    never_through(|w, documents| replace_by_link(&w.storage().join("conversations"), documents));
    never_through(|w, documents| replace_by_link(&w.storage(), documents));
    for name in ["conversations", "vfs", "vfs/conflicts", "locks", "sessions"] {
        never_through(|w, documents| replace_by_link(&w.silo().join(name), documents));
    }
    never_through(|w, documents| replace_by_link(&w.silo(), documents));
}

/// Names that begin with a number were once taken for temporaries of a dead process.
#[test]
fn the_users_own_files_among_ours() {
    let w = workspace();
    family(&w);
    let target = w.env().root().join("backup");
    let dirs =
        [w.storage().join("conversations/.tmp"), w.silo().join("vfs/tmp"), target.join(".tmp"), target.join(".jp-tmp")];
    for dir in &dirs {
        fs::create_dir_all(dir).expect("made");
        for name in ["777", "1-1", "4194303-7", "jp-tmp-0123456789abcdef-0"] {
            fs::write(dir.join(name), "mine").expect("written");
        }
    }
    jp(&w, &["export", "--to", target.to_str().expect("UTF-8")]);
    for args in WRITING {
        w.jp(args);
    }
    for dir in &dirs {
        for name in ["777", "1-1", "4194303-7", "jp-tmp-0123456789abcdef-0"] {
            assert_eq!(fs::read(dir.join(name)).expect("it is there"), b"mine", "{}", dir.join(name).display());
        }
    }
}

#[test]
fn conversations_linked_upwards() {
    let w = workspace();
    family(&w);
    let before = Shot::of(w.root()).without(&[".jp/conversations"]);
    let victims = victim(&w);
    let documents = Shot::of(&victims);
    replace_by_link(&w.storage().join("conversations"), Path::new("../.."));
    for args in WRITING.into_iter().chain([
        &["c", "ls"] as &[&str],
        &["mount"],
        &["mount", "--mirror"],
        &["c", "rm", "-y", "newest"],
    ]) {
        let told = w.jp(args).fails_with(4);
        assert!(told.stderr.contains("symbolic link") && told.stderr.contains("conversations"), "{}", told.told());
        documents.assert_same(&Shot::of(&victims));
        before.assert_same(&Shot::of(w.root()).without(&[".jp/conversations"]));
    }
}

#[test]
fn a_worktree_that_is_the_store() {
    let w = workspace();
    let [a, ..] = family(&w);
    let store = w.silo().join("conversations");
    replace_by_link(&w.storage().join("conversations"), &store);
    let before = Shot::of(&store);
    jp_fails(&w, &["c", "edit", "--local=true", &a]);
    jp_fails(&w, &["mount"]);
    before.assert_same(&Shot::of(&store));
}

#[track_caller]
fn jp_fails(w: &Workspace, args: &[&str]) {
    let told = w.jp(args);
    assert!(told.code != 0 && !told.stderr.is_empty(), "{}", told.told());
}

/// A mount over the store would wait for itself, in a way that nobody can end.
#[test]
fn a_mount_point_that_has_to_do_with_the_store() {
    let w = workspace();
    family(&w);
    let conversations = w.silo().join("conversations");
    let inside = w.storage().join("conversations").join("inside");
    let points = [
        w.silo(),
        conversations.clone(),
        w.env().data(),
        w.env().root().to_owned(),
        w.silo().join("new"),
        w.root().to_owned(),
        w.storage(),
        inside,
    ];
    for point in &points {
        let before = Shot::of(&w.silo()).without(&["vfs"]);
        let mut command = w.call(&["mount", point.to_str().expect("UTF-8")]).into_command();
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        assert_eq!(ends(command), 1, "{}", point.display());
        before.assert_same(&Shot::of(&w.silo()).without(&["vfs"]));
    }
}

#[test]
fn secrets_behind_the_configuration() {
    let w = workspace();
    let secrets = w.env().home().join("credentials.toml");
    fs::write(&secrets, format!("key = '{SECRET}'\n")).expect("written");
    let config = w.storage().join("config.toml");
    symlink(&secrets, &config).expect("linked");
    let told = w.jp(&["c", "new", "--title", "X"]).fails_with(4).says("symbolic link");
    assert!(!told.stderr.contains(SECRET));
    assert!(!says_anywhere(w.root(), SECRET) && !says_anywhere(&w.env().data(), SECRET));
    for plant in [
        |path: &Path| symlink("/dev/zero", path).expect("linked"),
        |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("made"),
        |path: &Path| fs::create_dir(path).expect("made"),
        |path: &Path| fs::File::create(path).and_then(|file| file.set_len(1 << 40)).expect("made"),
    ] {
        fs::remove_file(&config).or_else(|_| fs::remove_dir(&config)).expect("removed");
        plant(&config);
        let mut command = w.call(&["c", "new", "--title", "X"]).into_command();
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        assert_eq!(ends(command), 4);
    }
}

/// Whether any file below a directory, or any link's target, has these words.
fn says_anywhere(dir: &Path, words: &str) -> bool {
    fs::read_dir(dir).expect("listed").map(|entry| entry.expect("listed")).any(|entry| {
        let path = entry.path();
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => says_anywhere(&path, words),
            kind if kind.is_file() => String::from_utf8_lossy(&fs::read(&path).expect("read")).contains(words),
            _ => false,
        }
    })
}

#[test]
fn secrets_behind_managed_files() {
    for name in ["events.json", "base_config.json", "metadata.json"] {
        let w = workspace();
        let [a, _, _] = family(&w);
        let secrets = w.env().home().join("credentials.json");
        let text = if name == "events.json" {
            format!("[{{\"k\": \"{SECRET}\"}}]")
        } else {
            format!("{{\"k\": \"{SECRET}\"}}")
        };
        fs::write(&secrets, text).expect("written");
        replace_by_link(&work_file(&w, &a, name), &secrets);
        // A new conversation that came by git, too.
        let arrived = w.storage().join("conversations/17000000001-arrived");
        fs::create_dir_all(&arrived).expect("made");
        for file in ["events.json", "base_config.json", "metadata.json"] {
            fs::copy(store_file(&w, &a, file), arrived.join(file)).expect("copied");
        }
        replace_by_link(&arrived.join(name), &secrets);
        let target = w.env().root().join("backup");
        for args in [
            &["import"] as &[&str],
            &["export"],
            &["export", "--to", target.to_str().expect("UTF-8")],
            &["c", "fork", &a],
            &["c", "fork", "jp-c17000000001"],
            &["c", "edit", "--pin", &a],
            &["c", "print", &a],
            &["c", "grep", SECRET],
            &["doctor", "--fix"],
        ] {
            let told = w.jp(args);
            assert!(!told.stdout.contains(SECRET) && !told.stderr.contains(SECRET), "{}", told.told());
        }
        assert!(!says_anywhere(w.root(), SECRET), "{name} leads into the worktree");
        assert!(!says_anywhere(&w.env().data(), SECRET), "{name} leads into the store");
        assert!(!target.exists() || !says_anywhere(&target, SECRET), "{name} leads into the export");
    }
}

#[test]
fn children_behind_a_link() {
    let w = workspace();
    let [a, b, c] = family(&w);
    let documents = victim(&w);
    let children = in_work(&w, &b).expect("shown").join("conversations");
    replace_by_link(&children, &documents);
    let before = Shot::of(&documents);
    for args in [
        &["export"] as &[&str],
        &["import"],
        &["c", "new", "--title", "X", "--parent", &b],
        &["c", "edit", "--title", "Other", &c],
        &["c", "edit", "--title", "Other", &a],
        &["c", "mv", &c, "--root"],
        &["c", "archive", &b],
        &["c", "rm", "-y", "--cascade", &a],
    ] {
        let told = w.jp(args);
        assert_ne!(told.code, 101, "{}", told.told());
        before.assert_same(&Shot::of(&documents));
    }
}

#[test]
fn links_in_the_target_of_an_export() {
    for plant in ["a", "a/conversations", "a/events.json", ".archive", ".jp-tmp", ".tmp"] {
        let w = workspace();
        let [a, ..] = family(&w);
        let documents = victim(&w);
        let target = w.env().root().join("backup");
        let home = in_work(&w, &a).expect("shown");
        let name = home.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let at = target.join(plant.replacen('a', if plant.starts_with('a') { name } else { "a" }, 1));
        replace_by_link(&at, &documents);
        let before = Shot::of(&documents);
        for _ in 0..2 {
            let told = w.jp(&["export", "--to", target.to_str().expect("UTF-8")]);
            assert_ne!(told.code, 101, "{}", told.told());
            before.assert_same(&Shot::of(&documents));
        }
        jp(&w, &["c", "rm", "-y", "--cascade", &a]);
        w.jp(&["export", "--to", target.to_str().expect("UTF-8")]);
        before.assert_same(&Shot::of(&documents));
    }
}

/// Each way up was once walked again, and each of those twice.
#[test]
fn links_upwards_are_not_walked() {
    let w = workspace();
    let (a, b) = (new(&w, "A", &[]), new(&w, "B", &[]));
    for id in [&a, &b] {
        symlink("..", in_work(&w, id).expect("shown").join("conversations")).expect("linked");
    }
    let mut command = w.call(&["c", "ls", "--json"]).into_command();
    command.stdout(std::process::Stdio::null());
    assert_eq!(ends(command), 0);
    assert_eq!(w.jp(&["c", "ls", "--json"]).json().as_array().map(Vec::len), Some(2));
    assert!(number(&a) < number(&b) && in_store(&w, &a).is_some());
}

/// Writes a conversation that somebody guessed the id of.
fn plant(conversations: &Path, id: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = conversations.join(format!("{}-guessed", id.trim_start_matches("jp-c")));
    fs::create_dir_all(&dir).expect("made");
    for (name, text) in files {
        fs::write(dir.join(name), text).expect("written");
    }
    dir
}

const GUESSED: [(&str, &str); 3] = [
    ("metadata.json", "{\"title\": \"guessed\", \"last_activated_at\": \"2025-07-19T00:00:00.0Z\"}"),
    (
        "events.json",
        "[{\"timestamp\": \"2025-07-19T00:00:00Z\", \"type\": \"chat_request\", \"content\": \"guessed\"}]",
    ),
    ("base_config.json", "{}"),
];

/// A local conversation with a secret in it.
fn private(w: &Workspace) -> String {
    let id = new(w, "Private", &["--local"]);
    let text =
        format!("[{{\"timestamp\": \"2025-07-18T00:00:00Z\", \"type\": \"chat_request\", \"content\": \"{SECRET}\"}}]");
    fs::write(store_file(w, &id, "events.json"), text).expect("written");
    id
}

/// Git removes and makes `.jp` again when it goes to a commit without one and back; what was private stays so.
#[test]
fn private_after_the_workspace_was_made_again() {
    let w = workspace();
    family(&w);
    let id = private(&w);
    let aside = w.root().join("aside");
    fs::rename(w.storage(), &aside).expect("moved");
    fs::create_dir_all(w.storage().join("conversations")).expect("made");
    fs::copy(aside.join(".id"), w.storage().join(".id")).expect("copied");
    fs::remove_dir_all(&aside).expect("removed");
    plant(&w.storage().join("conversations"), &id, &GUESSED);
    for args in [&["export"] as &[&str], &["import"], &["c", "edit", "--pin", &id], &["export"]] {
        w.jp(args);
        assert!(!says_anywhere(w.root(), SECRET), "{args:?}");
    }
    assert!(fs::read_to_string(store_file(&w, &id, "events.json")).expect("read").contains(SECRET));
    assert!(w.jp(&["status"]).stdout.contains("not taken in"));
}

/// Other programs make conversations that no worktree has a word about.
#[test]
fn private_although_no_worktree_knows_it() {
    let w = workspace();
    family(&w);
    let dir = w.silo().join("conversations/17000000001-made-by-another-program");
    fs::create_dir_all(&dir).expect("made");
    for (name, text) in GUESSED {
        fs::write(dir.join(name), text.replace("guessed", SECRET)).expect("written");
    }
    let planted = plant(&w.storage().join("conversations"), "jp-c17000000001", &GUESSED[..1]);
    for args in [&["export"] as &[&str], &["import"], &["export"]] {
        w.jp(args);
        assert!(!says_anywhere(w.root(), SECRET), "{args:?}");
    }
    assert!(planted.join("metadata.json").exists());
    // What begins alike is the same conversation: the real `jp` writes it to both.
    for conversations in [w.silo().join("conversations"), w.storage().join("conversations")] {
        plant(&conversations, "jp-c17000000002", &GUESSED);
    }
    w.jp(&["export"]);
    assert_eq!(presence(&w, "jp-c17000000002"), "projected");
}

/// Whoever has one worktree can have another, and can move a project.
#[test]
fn a_second_worktree_is_used_as_the_first() {
    let w = workspace();
    let [a, ..] = family(&w);
    let second = w.env().init_workspace("second", "otvo8");
    jp(&second, &["c", "edit", "--local=false", &a]);
    for args in [&["c", "ls"] as &[&str], &["status"], &["export"], &["import"], &["doctor"]] {
        jp(&second, args);
        jp(&w, args);
    }
    let moved = w.root().with_file_name("moved");
    fs::rename(w.root(), &moved).expect("moved");
    w.env().jp(&moved, &["c", "ls"]).ok();
    w.env().jp(&moved, &["export"]).ok();
    jp(&second, &["export"]);
}
