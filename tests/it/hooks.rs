//! Git's hooks: putting ours in place without touching anybody else's, and what it does before a commit of the real git.

// With the real `jp` behind it.
mod real;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use jp_tests::{Output, Shot, TestEnv, Workspace, copy_program, jp_binary, repository, skip};
use nix::unistd::Uid;
use serde_json::json;

/// A repository that is a workspace, and a directory that comes first on `PATH`.
struct Repository {
    env: TestEnv,
    work: Workspace,
}

impl Repository {
    #[track_caller]
    fn new() -> Self {
        Self::named("main")
    }

    #[track_caller]
    fn named(name: &str) -> Self {
        let env = TestEnv::new();
        let work = env.init_workspace(name, "ab1cd");
        fs::create_dir(env.root().join("bin")).expect("made");
        let it = Self { env, work };
        it.git(&["init", "--quiet", "--initial-branch=main"]).ok();
        it
    }

    fn root(&self) -> &Path {
        self.work.root()
    }

    fn hook(&self) -> PathBuf {
        self.root().join(".git/hooks/pre-commit")
    }

    #[track_caller]
    fn jp(&self, args: &[&str]) -> Output {
        self.work.jp(args)
    }

    #[track_caller]
    fn git(&self, args: &[&str]) -> Output {
        self.git_in(self.root(), args)
    }

    /// Runs git with our directory first on `PATH`, and no other `jp` behind it.
    #[track_caller]
    fn git_in(&self, cwd: &Path, args: &[&str]) -> Output {
        let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let dirs = system.into_iter().filter(|dir| !dir.join("jp").exists());
        let path = std::env::join_paths([self.env.root().join("bin")].into_iter().chain(dirs)).expect("no colons");
        let mut command = self.env.command(OsStr::new("git"), cwd);
        command
            .env("PATH", path)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            // What some shells have set, and scripts stumble over.
            .env("CDPATH", "/tmp:.")
            .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "core.quotePath=false"])
            .args(args);
        Output::of(command, b"")
    }

    /// Puts a `jp` on `PATH` that tells where and how it was called, does something, and ends with a code.
    #[track_caller]
    fn fake_jp(&self, does: &str, code: u8) {
        let (draft, calls) = (self.env.root().join("draft"), self.env.root().join("calls"));
        let log = calls.display();
        let text = format!("#!/bin/sh\nprintf '%s|%s\\n' \"$PWD\" \"$*\" >> '{log}'\n{does}\nexit {code}\n");
        fs::write(&draft, text).expect("written");
        copy_program(&draft, &self.env.root().join("bin/jp"));
    }

    /// The calls of that `jp` so far.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.env.root().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Installs the hook and commits everything without it.
    #[track_caller]
    fn prepared(files: &[(&str, &str)]) -> Self {
        let it = Self::new();
        it.jp(&["hooks", "install"]).ok();
        for (path, text) in files {
            it.put(path, text);
        }
        it.git(&["add", "--all"]).ok();
        it.git(&["commit", "--quiet", "--no-verify", "--message=before"]).ok();
        it
    }

    #[track_caller]
    fn put(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// What the last commit holds of a file.
    #[track_caller]
    fn committed(&self, path: &str) -> Option<String> {
        let output = self.git(&["show", &format!("HEAD:{path}")]);
        (output.code == 0).then_some(output.stdout)
    }

    /// Every path in the last commit below the conversations.
    #[track_caller]
    fn tree(&self) -> Vec<String> {
        let output = self.git(&["ls-tree", "-r", "--name-only", "HEAD", ".jp/conversations/"]).ok();
        output.stdout.lines().map(|line| line.replace(".jp/conversations/", "")).collect()
    }
}

/// The text that is installed.
fn text() -> String {
    fs::read_to_string(repository().join("scripts/git-hooks/pre-commit")).expect("the hook is there")
}

#[track_caller]
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()))
}

#[test]
fn installs_and_uninstalls() {
    let it = Repository::new();
    let hook = it.hook();
    let state = |output: &Output| output.stdout.split('\t').next().unwrap_or_default().to_owned();
    assert_eq!(state(&it.jp(&["hooks", "status"]).fails_with(1).says("jp hooks install")), "absent");

    it.jp(&["hooks", "install"]).ok().says(&format!("Installed {}", hook.display()));
    assert_eq!(read(&hook), text());
    assert_eq!(fs::metadata(&hook).expect("there").permissions().mode() & 0o7777, 0o755);
    let status = it.jp(&["hooks", "status"]).ok();
    assert_eq!(status.stdout, format!("installed\t{}\n", hook.display()));

    let before = Shot::of(&it.root().join(".git"));
    it.jp(&["hooks", "install"]).ok().says("is there already");
    it.jp(&["hooks", "install", "--force"]).ok().says("is there already");
    before.assert_same(&Shot::of(&it.root().join(".git")));

    // Git passes over what it may not run.
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o644)).expect("changed");
    it.jp(&["hooks", "status"]).fails_with(1).says("not executable");
    it.jp(&["hooks", "install"]).ok().says("executable");
    it.jp(&["hooks", "status"]).ok();

    it.jp(&["hooks", "uninstall"]).ok().says(&format!("Removed {}", hook.display()));
    assert!(!hook.exists());
    it.jp(&["hooks", "uninstall"]).ok().says("There is no");
}

#[test]
fn tells_machines() {
    let it = Repository::new();
    let path = it.hook().display().to_string();
    let record = |state: &str, executable: bool, changed: bool| json!({ "hook": "pre-commit", "path": path, "state": state, "executable": executable, "changed": changed });
    assert_eq!(it.jp(&["hooks", "install", "--json"]).json(), record("installed", true, true));
    assert_eq!(it.jp(&["hooks", "install", "--json"]).json(), record("installed", true, false));
    assert_eq!(it.jp(&["hooks", "status", "--json"]).json(), record("installed", true, false));
    assert_eq!(it.jp(&["hooks", "uninstall", "--json"]).json(), record("absent", false, true));
    assert_eq!(it.jp(&["hooks", "uninstall", "--json"]).json(), record("absent", false, false));
    fs::write(it.hook(), "#!/bin/sh\n").expect("written");
    let told = it.jp(&["hooks", "install", "--json"]).fails_with(1);
    let told: serde_json::Value = serde_json::from_str(&told.stderr).expect("JSON");
    assert_eq!(told["code"], 1, "{told}");
    assert!(told["hints"].to_string().contains("jp export --for-commit || exit"), "{told}");
}

#[test]
fn what_is_not_ours_stays() {
    type Make = fn(&Repository);
    let kinds: [(&str, Make); 5] = [
        ("another hook", |it| fs::write(it.hook(), "#!/bin/sh\nexec make lint\n").expect("written")),
        ("another hook", |it| fs::write(it.hook(), "").expect("written")),
        ("a directory", |it| fs::create_dir(it.hook()).expect("made")),
        ("a link", |it| symlink("nowhere", it.hook()).expect("linked")),
        // Even if it leads to our own text: it is somebody's arrangement.
        ("a link", |it| {
            fs::write(it.root().join("mine"), text()).expect("written");
            symlink("../../mine", it.hook()).expect("linked");
        }),
    ];
    for (what, make) in kinds {
        let it = Repository::new();
        fs::create_dir_all(it.root().join(".git/hooks")).expect("made");
        make(&it);
        let before = Shot::of(it.root());
        let path = it.hook().display().to_string();
        for args in [&["hooks", "install"][..], &["hooks", "install", "--force"], &["hooks", "uninstall"]] {
            it.jp(args).fails_with(1).says(&path).says(what).says("jp export --for-commit || exit");
        }
        let status = it.jp(&["hooks", "status"]).fails_with(1);
        assert_eq!(status.stdout, format!("foreign\t{path}\n"));
        before.assert_same(&Shot::of(it.root()));
    }
}

#[test]
fn what_was_edited_stays_unless_forced() {
    let it = Repository::new();
    it.jp(&["hooks", "install"]).ok();
    let edited = text() + "make lint\n";
    fs::write(it.hook(), &edited).expect("written");
    it.jp(&["hooks", "install"]).fails_with(1).says("edited").says("--force");
    it.jp(&["hooks", "uninstall"]).fails_with(1).says("edited");
    assert!(it.jp(&["hooks", "status"]).fails_with(1).stdout.starts_with("edited\t"));
    assert_eq!(read(&it.hook()), edited);
    it.jp(&["hooks", "install", "--force"]).ok().says("Replaced");
    assert_eq!(read(&it.hook()), text());
    it.jp(&["hooks", "uninstall"]).ok();
}

/// The hooks are where git looks for them.
#[test]
fn configured_places() {
    let shared = TestEnv::new();
    let absolute = shared.root().join("my höoks").display().to_string();
    for (value, place) in [("tools/git hooks", None), (&absolute, Some(absolute.as_str()))] {
        let it = Repository::new();
        it.git(&["config", "core.hooksPath", value]).ok();
        let place = place.map_or_else(|| it.root().join(value), PathBuf::from);
        fs::create_dir_all(it.root().join("deep/er")).expect("made");
        it.env.jp(&it.root().join("deep/er"), &["hooks", "install"]).ok().says(&place.display().to_string());
        assert_eq!(read(&place.join("pre-commit")), text());
        assert!(!it.hook().exists());
        it.fake_jp("", 0);
        it.put("deep/er/file", "x");
        it.git(&["add", "--all"]).ok();
        it.git_in(&it.root().join("deep/er"), &["commit", "--quiet", "--message=x"]).ok();
        assert_eq!(it.calls(), [format!("{}|export --quiet --for-commit", it.root().display())]);
        it.jp(&["hooks", "uninstall"]).ok();
        assert!(!place.join("pre-commit").exists());
    }
}

#[test]
fn a_linked_worktree_has_the_hooks_of_its_repository() {
    let it = Repository::new();
    it.git(&["add", "--all"]).ok();
    it.git(&["commit", "--quiet", "--message=one"]).ok();
    let linked = it.env.root().join("a linked — tree");
    it.git(&["worktree", "add", "--quiet", "-b", "linked", linked.to_str().expect("UTF-8")]).ok();
    it.env.jp(&linked, &["hooks", "install"]).ok();
    assert_eq!(read(&it.hook()), text());
    it.jp(&["hooks", "install"]).ok().says("is there already");

    // The commit of a worktree is made with what that worktree shows.
    let file = ".jp/conversations/17528832001-a/events.json";
    it.fake_jp("echo new > .jp/conversations/17528832001-a/events.json", 0);
    let conversation = linked.join(file);
    fs::create_dir_all(conversation.parent().expect("a parent")).expect("made");
    fs::write(&conversation, "old\n").expect("written");
    it.git_in(&linked, &["add", "--all"]).ok();
    it.git_in(&linked, &["commit", "--quiet", "--message=two"]).ok();
    assert_eq!(it.calls(), [format!("{}|export --quiet --for-commit", linked.display())]);
    assert_eq!(it.git_in(&linked, &["show", &format!("HEAD:{file}")]).ok().stdout, "new\n");
    assert_eq!(it.git_in(&linked, &["status", "--porcelain"]).ok().stdout, "");
}

#[test]
fn what_the_system_refuses_is_told() {
    // A directory that cannot be made.
    let it = Repository::new();
    fs::write(it.root().join("file"), "").expect("written");
    it.git(&["config", "core.hooksPath", "file/hooks"]).ok();
    it.jp(&["hooks", "install"]).fails_with(4).says("file/hooks");
    it.jp(&["hooks", "status"]).fails_with(1);

    // One that may not be written to.
    let it = Repository::new();
    fs::create_dir_all(it.root().join(".git/hooks")).expect("made");
    let before = Shot::of(&it.root().join(".git"));
    let readonly = |mode| fs::set_permissions(it.root().join(".git/hooks"), fs::Permissions::from_mode(mode));
    let mut command = it.env.command(jp_binary().as_os_str(), it.root());
    command.args(["hooks", "install"]);
    if Uid::effective().is_root() {
        fs::set_permissions(it.env.root(), fs::Permissions::from_mode(0o755)).expect("changed");
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
        command.uid(65534).gid(65534);
    } else {
        readonly(0o555).expect("changed");
    }
    if command.output().is_err() {
        skip("others may not run the jp that was built");
        return;
    }
    let told = Output::of(command, b"").fails_with(4).says("Permission denied");
    assert!(told.stderr.contains(&it.hook().display().to_string()), "{}", told.told());
    readonly(0o755).expect("changed");
    before.assert_same(&Shot::of(&it.root().join(".git")));
}

#[test]
fn without_a_repository_there_is_advice() {
    let env = TestEnv::new();
    let work = env.init_workspace("plain", "ab1cd");
    for command in ["install", "uninstall", "status"] {
        work.jp(&["hooks", command]).fails_with(1).says("is in no git worktree").says("git init");
    }
    let empty = env.project("empty");
    work.call(&["hooks", "install"]).var("PATH", &empty).run().fails_with(1).says("git is not on PATH");
    work.env().jp(&empty, &["hooks", "install"]).fails_with(1).says("jp init");

    // The hook would look at the top and find nothing.
    let it = Repository::new();
    fs::create_dir(it.root().join("part")).expect("made");
    let part = it.env.init_workspace("main/part", "zz999");
    part.jp(&["hooks", "install"])
        .fails_with(1)
        .says("part of the worktree")
        .says("jp export --for-commit --workspace");
    assert!(!it.hook().exists());
}

const A: &str = "17528832001-a";

#[test]
fn a_commit_holds_what_was_exported() {
    for (args, whole) in [
        (&["commit", "--quiet", "--message=x"][..], true),
        (&["commit", "--quiet", "--message=x", "--all"], true),
        (&["commit", "--quiet", "--message=x", "--amend"], true),
        (&["commit", "--quiet", "--message=x", "--include", "--", "code"], true),
        (&["commit", "--quiet", "--message=x", "--", "code"], false),
    ] {
        let file = format!(".jp/conversations/{A}/events.json");
        let it = Repository::prepared(&[(&file, "old\n"), ("code", "1\n")]);
        it.put("code", "2\n");
        it.git(&["add", "code"]).ok();
        it.fake_jp(&format!("echo new > {file}; echo mine > .jp/conversations/untracked"), 0);
        let told = it.git(args).ok();
        assert_eq!((told.stdout.as_str(), told.stderr.as_str()), ("", ""), "{args:?}");
        assert_eq!(it.calls(), [format!("{}|export --quiet --for-commit", it.root().display())], "{args:?}");
        assert_eq!(it.committed("code").as_deref(), Some("2\n"), "{args:?}");
        let expected = if whole { "new\n" } else { "old\n" };
        assert_eq!(it.committed(&file).as_deref(), Some(expected), "{args:?}");
        let left = it.git(&["status", "--porcelain"]).ok().stdout;
        let changed = format!(" M {file}\n");
        let changed = if whole { "" } else { &changed };
        assert_eq!(left, format!("{changed}?? .jp/conversations/untracked\n"), "{args:?}");
    }
}

/// What git tracks of a conversation it goes on tracking when the conversation moves; what it does not, it does not.
#[test]
fn a_commit_follows_what_moved() {
    let it = Repository::prepared(&[
        (".jp/conversations/17528832001-old/events.json", "[{\"a\": 1}]\n"),
        (".jp/conversations/17528832001-old/notes/x — y.md", "n\n"),
        (".jp/conversations/17528832001-old/conversations/17528842001-größe/events.json", "[{\"b\": 1}]\n"),
        (".jp/conversations/.archive/17528852001/events.json", "[]\n"),
        (".jp/conversations/.archive/17528852001/untold.md", "of a conversation without events\n"),
        (".jp/conversations/17528862001-hidden/events.json", "d\n"),
        (".jp/conversations/17528862001-hidden/gone.md", "e\n"),
    ]);
    it.put(".jp/conversations/17528832001-old/mine.md", "not tracked\n");
    it.put(".jp/conversations/17528872001-untracked/events.json", "not tracked\n");
    it.fake_jp(
        "cd .jp/conversations
         mv 17528832001-old '17528832001-the new'
         mv '17528832001-the new'/conversations/17528842001-größe 17528842001
         mv .archive/17528852001 17528852001-back
         rm -r 17528862001-hidden
         echo '[{\"b\": 1}, {\"b\": 2}]' > 17528842001/events.json",
        0,
    );
    it.put("code", "1\n");
    it.git(&["add", "code"]).ok();
    it.git(&["commit", "--quiet", "--message=x"]).ok();
    assert_eq!(
        it.tree(),
        [
            "17528832001-the new/events.json",
            "17528832001-the new/notes/x — y.md",
            "17528842001/events.json",
            "17528852001-back/events.json",
        ]
    );
    let grown = "[{\"b\": 1}, {\"b\": 2}]\n";
    assert_eq!(it.committed(".jp/conversations/17528842001/events.json").as_deref(), Some(grown));
    let left = it.git(&["status", "--porcelain", "--untracked-files=all"]).ok().stdout;
    let expected = [
        "?? \".jp/conversations/17528832001-the new/mine.md\"\n",
        "?? .jp/conversations/17528852001-back/untold.md\n",
        "?? .jp/conversations/17528872001-untracked/events.json\n",
    ];
    assert_eq!(left, expected.concat());
}

/// What `jp export` names as held stays in the index as it is: changed, removed, moved, or a link by now. What lies in it
/// and is not held is staged as ever.
#[test]
fn what_is_held_is_not_staged() {
    let held = "17528832001-it's \"odd\"\n$(touch oops) :(top)*";
    let path = |inner: &str| format!(".jp/conversations/{held}/{inner}");
    let child = path("conversations/17528842001-child/events.json");
    let archived = ".jp/conversations/.archive/17528852001/events.json".to_owned();
    let other = ".jp/conversations/17528862001-other/events.json".to_owned();
    let files = ["events.json", "metadata.json", "gone.md", "notes/[a].md"].map(path);
    let mut all: Vec<_> = files.iter().map(|file| (file.as_str(), "old\n")).collect();
    all.extend([(child.as_str(), "old\n"), (&archived, "old\n"), (&other, "old\n"), ("code", "1\n")]);
    let it = Repository::prepared(&all);
    it.put(".jp/conversations/17528832001-elsewhere/gone.md", "planted\n");
    it.put("planted.sh", &format!("cd '.jp/conversations/{}'\n", held.replace('\'', "'\\''")));
    it.fake_jp(
        ". ./planted.sh
         ln -sf /etc/hostname events.json; echo new > metadata.json; rm gone.md; echo new > 'notes/[a].md'
         echo new > conversations/17528842001-child/events.json
         cd ..; echo new > .archive/17528852001/events.json; echo new > 17528862001-other/events.json
         printf 'copy 1-x\\nhold jp-c17528832001\\nhold jp-c17528852001\\nwrite hold jp-c17528862001\\n'",
        0,
    );
    it.put("code", "2\n");
    it.git(&["add", "code"]).ok();
    it.git(&["commit", "--quiet", "--message=x"]).ok();
    for file in files.iter().chain([&archived]) {
        assert_eq!(it.committed(file).as_deref(), Some("old\n"), "{file}");
    }
    for file in [&child, &other] {
        assert_eq!(it.committed(file).as_deref(), Some("new\n"), "{file}");
    }
    assert_eq!(it.tree().iter().filter(|path| path.contains("elsewhere")).count(), 0);
    assert!(!it.root().join("oops").exists());
    // What the user stages is the user's.
    it.git(&["commit", "--quiet", "--all", "--message=x"]).ok();
    assert_eq!(it.committed(&files[0]).as_deref(), Some("/etc/hostname"));
    assert_eq!(it.tree().iter().filter(|path| path.contains("gone.md")).count(), 0);
}

#[test]
fn the_exit_code_decides() {
    for (code, goes_on, said) in [
        (0, true, ""),
        (1, false, "--no-verify"),
        (2, true, "ended with 2"),
        (3, true, "in use right now"),
        (4, true, "committed as they are"),
        (130, true, "committed as they are"),
    ] {
        let file = format!(".jp/conversations/{A}/events.json");
        let it = Repository::prepared(&[(&file, "old\n"), ("code", "1\n")]);
        it.put("code", "2\n");
        it.git(&["add", "code"]).ok();
        it.fake_jp(&format!("echo new > {file}; echo data; echo the reason >&2"), code);
        let told = it.git(&["commit", "--quiet", "--message=x"]);
        assert_eq!(told.code == 0, goes_on, "{}", told.told());
        assert!(told.stderr.contains("the reason") && told.stderr.contains(said), "{}", told.told());
        assert!(!told.stderr.contains("data") && told.stdout.is_empty(), "{}", told.told());
        assert_eq!(it.committed("code").as_deref(), Some(if goes_on { "2\n" } else { "1\n" }));
        // An export that failed says nothing of what may be staged.
        let staged = if matches!(code, 0 | 3) { "new\n" } else { "old\n" };
        assert_eq!(it.committed(&file).as_deref(), Some(staged), "{code}");
        it.git(&["commit", "--quiet", "--no-verify", "--allow-empty", "--message=x"]).ok();
        assert_eq!(it.committed("code").as_deref(), Some("2\n"));
    }
}

#[test]
fn where_there_is_nothing_to_do_it_does_nothing() {
    // No `jp` to call.
    let it = Repository::prepared(&[("code", "1\n")]);
    it.put("code", "2\n");
    let told = it.git(&["commit", "--quiet", "--all", "--message=x"]).ok();
    assert_eq!(told.stderr, "jp: jp is not on PATH, so the conversations are committed as they are\n");

    // No conversation that git tracks.
    it.fake_jp("echo mine > .jp/conversations/untracked", 0);
    fs::create_dir_all(it.root().join(".jp/conversations")).expect("made");
    it.put("code", "3\n");
    let told = it.git(&["commit", "--quiet", "--all", "--message=x"]).ok();
    assert_eq!((told.stderr.as_str(), it.calls().len()), ("", 1));
    assert_eq!(it.tree(), [] as [&str; 0]);

    // No workspace.
    fs::remove_dir_all(it.root().join(".jp")).expect("removed");
    it.put("code", "4\n");
    let told = it.git(&["commit", "--quiet", "--all", "--message=x"]).ok();
    assert_eq!((told.stderr.as_str(), it.calls().len()), ("", 1));
}

/// It is run with whatever shell the system has, and where names are odd.
#[test]
fn odd_names() {
    let file = ".jp/conversations/17528832001-a/it's \"odd\"\n$(touch oops) — ö.md";
    let it = Repository::named("a project's — \"ö\" $dir");
    it.jp(&["hooks", "install"]).ok();
    it.put(file, "old\n");
    it.put(".jp/conversations/17528832001-a/events.json", "[{\"a\": 1}]\n");
    it.git(&["add", "--all"]).ok();
    it.git(&["commit", "--quiet", "--no-verify", "--message=before"]).ok();
    it.fake_jp("mv .jp/conversations/17528832001-a '.jp/conversations/17528832001-b c'", 0);
    fs::create_dir(it.root().join("sub dir")).expect("made");
    it.git_in(&it.root().join("sub dir"), &["commit", "--quiet", "--allow-empty", "--message=x"]).ok();
    assert_eq!(it.calls(), [format!("{}|export --quiet --for-commit", it.root().display())]);
    assert_eq!(it.committed(&file.replace("-a/", "-b c/")).as_deref(), Some("old\n"));
    assert_eq!(it.git(&["status", "--porcelain"]).ok().stdout, "");
    assert!(!it.root().join("oops").exists());
}
