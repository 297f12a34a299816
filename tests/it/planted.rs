//! Copies that arrive in a worktree with the id of a conversation that the store has: by clones and checkouts of the real
//! git, and planted by somebody who knows the id.

// What lies beneath a private conversation does not show it.
mod above;
// Ordinary clones and worktrees: file times do not decide, and nothing is asked.
mod clones;
// What is held stays out of the store, and the store stays out of it.
mod held;
// Files of the wrong kind, and paths that are too long.
mod irregular;
// The first command of a worktree is cut short.
mod killed;
// Held copies beneath a mount and beside a mirror.
mod mounts;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use jp_tests::{Output, TestEnv, Workspace};
use serde_json::{Value, json};

use crate::story::{digits, in_store, new};

/// A repository that is a workspace, with a conversation that is committed and one that is local.
struct Project {
    env: TestEnv,
    main: Workspace,
    /// Projected in `main` and committed, with three events.
    shared: String,
    /// Local in `main`, with three events of its own.
    private: String,
}

#[track_caller]
fn git(env: &TestEnv, cwd: &Path, args: &[&str]) -> Output {
    let mut command = env.command(OsStr::new("git"), cwd);
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
        .args(args);
    Output::of(command, b"").ok()
}

/// `count` events of a conversation; the texts tell one conversation from another.
fn events(text: &str, count: usize) -> Value {
    let event = |at: usize| json!({"timestamp": format!("2025-07-19T00:00:{at:02}Z"), "type": "chat_request", "content": format!("{text} {at}")});
    (0..count).map(event).collect()
}

fn put(path: &Path, value: &Value) {
    fs::write(path, serde_json::to_vec_pretty(value).expect("JSON")).expect("written");
}

impl Project {
    #[track_caller]
    fn new() -> Self {
        let env = TestEnv::in_memory();
        let root = env.project("main");
        git(&env, &root, &["init", "--quiet", "--initial-branch=main"]);
        env.jp(&root, &["init"]).ok();
        let main = env.workspace("main");
        let (shared, private) = (new(&main, "Shared", &[]), new(&main, "Secret title", &["--local"]));
        let it = Self { env, main, shared, private };
        it.write_store(&it.shared, "shared", 3);
        it.write_store(&it.private, "secret", 3);
        it.main.jp(&["export"]).ok();
        it.commit("one");
        it
    }

    /// Gives a conversation's copy in the store these events.
    #[track_caller]
    fn write_store(&self, id: &str, text: &str, count: usize) {
        put(&in_store(&self.main, id).expect("stored").join("events.json"), &events(text, count));
    }

    #[track_caller]
    fn commit(&self, message: &str) {
        git(&self.env, self.main.root(), &["add", "--all"]);
        git(&self.env, self.main.root(), &["commit", "--quiet", "--message", message]);
    }

    /// A clone of a commit, with the same store.
    #[track_caller]
    fn clone_at(&self, name: &str, commit: &str) -> Workspace {
        let path = self.env.root().join(name);
        let (from, to) = (self.main.root().to_str().expect("UTF-8"), path.to_str().expect("UTF-8"));
        git(&self.env, self.env.root(), &["clone", "--quiet", from, to]);
        git(&self.env, &path, &["checkout", "--quiet", "--detach", commit]);
        self.env.workspace(name)
    }

    #[track_caller]
    fn clone(&self, name: &str) -> Workspace {
        self.clone_at(name, "HEAD")
    }

    /// The managed files of a conversation in the store.
    #[track_caller]
    fn stored(&self, id: &str) -> Vec<Option<Vec<u8>>> {
        crate::story::bytes(&in_store(&self.main, id).expect("stored"))
    }
}

/// Writes a copy of a conversation into a directory, as a commit would bring it.
#[track_caller]
fn plant(conversations: &Path, id: &str, events: &Value) -> PathBuf {
    let dir = conversations.join(format!("{}-planted", digits(id)));
    fs::create_dir_all(&dir).expect("made");
    put(&dir.join("metadata.json"), &json!({"last_activated_at": "2025-07-19T00:00:00Z", "title": "Planted"}));
    put(&dir.join("base_config.json"), &json!({}));
    put(&dir.join("events.json"), events);
    dir
}

/// What a command's JSON names as held: the ids and kinds.
#[track_caller]
fn held(output: &Output) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parsed = serde_json::from_str(&output.stdout);
    let report: Value = parsed.unwrap_or_else(|error| panic!("not JSON: {error}\n{}", output.told()));
    let all = report["held"].as_array().expect("an array");
    all.iter().map(|held| (text(&held["id"]), text(&held["kind"]))).collect()
}

/// Asserts that a command's standard output has this text.
#[track_caller]
fn prints(output: Output, text: &str) {
    assert!(output.stdout.contains(text), "expected {text:?} on stdout\n{}", output.told());
}

/// The conversations that `jp status` names as held.
#[track_caller]
fn named_by_status(workspace: &Workspace) -> Vec<String> {
    let status = workspace.jp(&["status", "--json"]).ok().json();
    let problems = status["problems"].as_array().expect("an array");
    let held = problems.iter().filter(|problem| problem["kind"] == "held");
    held.map(|problem| problem["id"].as_str().unwrap_or_default().to_owned()).collect()
}

fn conversations(workspace: &Workspace) -> PathBuf {
    workspace.storage().join("conversations")
}

fn unjoined(id: &str) -> (String, String) {
    (id.to_owned(), "unjoined".to_owned())
}
