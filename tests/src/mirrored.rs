//! A project whose real files are kept in step with its store by the real command. Needs nothing that could be mounted.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use crate::env::TestEnv;
use crate::mounted::{LIMIT, Mounted, User, is_alive};
use crate::procs::Output;
use crate::wait::{until, wait_for};

/// How long a change may take to be seen on the other side, on a machine that has much else to do.
const SOON: Duration = Duration::from_secs(20);

/// A project with the sample in its store and its worktree. Its mirror ends when this is dropped, also by a panic.
#[derive(Debug)]
pub struct Mirrored(Mounted);

impl Deref for Mirrored {
    type Target = Mounted;

    fn deref(&self) -> &Mounted {
        &self.0
    }
}

impl Default for Mirrored {
    fn default() -> Self {
        Self::new()
    }
}

impl Mirrored {
    /// The sample, mirrored, in memory.
    #[track_caller]
    pub fn new() -> Self {
        let mirrored = Self::not_yet();
        mirrored.begin(&[]);
        mirrored
    }

    /// The sample, not mirrored yet.
    #[track_caller]
    pub fn not_yet() -> Self {
        Self(Mounted::unmounted(User::Own, TestEnv::in_memory()))
    }

    /// Any project, not mirrored yet.
    pub fn of(project: Mounted) -> Self {
        Self(project)
    }

    /// Another worktree of the same store, made by git from what is committed in this one, not mirrored yet.
    #[track_caller]
    pub fn worktree(&self, name: &str) -> Self {
        Self(self.0.worktree(name))
    }

    /// Begins, and asserts that there is a mirror and no mount afterwards.
    #[track_caller]
    pub fn begin(&self, flags: &[&str]) -> Output {
        let output = self.mount(&[&["--mirror"], flags].concat()).ok();
        assert!(self.is_mirrored() && !self.is_mounted(), "jp mount says it is done\n{}", output.told());
        output
    }

    /// Ends, and asserts that the process has ended.
    #[track_caller]
    pub fn end(&self, flags: &[&str]) -> Output {
        let pid = self.daemon();
        let output = self.jp(&[&["unmount"], flags].concat()).ok();
        assert!(pid.is_none_or(|pid| !is_alive(pid)), "jp unmount says it is done\n{}", output.told());
        output
    }

    /// Whether there is a process that keeps things in step.
    pub fn is_mirrored(&self) -> bool {
        self.daemon().is_some_and(is_alive)
    }

    /// Runs a script among the real files and asserts that it works.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Output {
        self.script(&format!("cd \"$M\"\n{script}")).ok()
    }

    /// The same, and waits until both sides are in step.
    #[track_caller]
    pub fn sh_in_step(&self, script: &str) -> Output {
        let output = self.sh(script);
        self.refresh();
        output
    }

    /// Says a line to the control socket and gives its answer.
    #[track_caller]
    pub fn ask(&self, request: &str) -> Value {
        let path = self.state().join("control.sock");
        let mut stream = UnixStream::connect(&path).unwrap_or_else(|err| panic!("cannot reach {path:?}: {err}"));
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        writeln!(stream, "{request}").expect("a socket takes a line");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap_or_else(|err| panic!("no answer: {err}\n{}", self.log()));
        serde_json::from_str(&line).unwrap_or_else(|err| panic!("no answer: {err}: {line:?}"))
    }

    /// Has both sides brought in step, and asserts that they are.
    #[track_caller]
    pub fn refresh(&self) {
        let answer = self.ask(r#"{"do":"refresh"}"#);
        assert_eq!(answer["ok"], true, "{answer}\n{}", self.log());
    }

    /// How the two sides stand.
    #[track_caller]
    pub fn in_step(&self) -> Value {
        self.ask(r#"{"do":"status"}"#)["status"]["mirror"].clone()
    }

    /// Waits until there is nothing to do, and says how many reconciles there have been by then.
    #[track_caller]
    pub fn rest(&self) -> u64 {
        wait_for("rest", SOON, || self.in_step()["resting"] == true);
        self.in_step()["reconciles"].as_u64().expect("a number")
    }

    /// Asserts that something holds in a while, without asking for it.
    #[track_caller]
    pub fn soon(&self, what: &str, cond: impl FnMut() -> bool) {
        assert!(until(SOON, cond), "{what}: never seen\n{}\n{}", self.in_step(), self.log());
    }
}
