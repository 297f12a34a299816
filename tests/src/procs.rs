//! What a finished process said, and a process that still runs. Neither knows what `jp` is.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::wait::until;

/// What a finished command said and how it ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// The command, as a person would type it.
    pub command: String,
    /// The exit code; 128 plus the signal for a killed process, as shells count.
    pub code: i32,
    /// Standard output, with U+FFFD for what is not UTF-8.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Standard output, byte for byte.
    pub raw: Vec<u8>,
}

impl Output {
    /// Runs a command to its end, feeding it `stdin`.
    #[track_caller]
    pub fn of(mut command: Command, stdin: &[u8]) -> Self {
        let shown = show(&command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|err| panic!("cannot run {shown}: {err}"));
        finish(child, shown, stdin)
    }

    /// Asserts exit code 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.fails_with(0)
    }

    /// Asserts this exit code.
    #[track_caller]
    pub fn fails_with(self, code: i32) -> Self {
        assert!(self.code == code, "expected exit code {code}\n{}", self.told());
        self
    }

    /// Asserts success and parses standard output as one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert!(self.code == 0, "expected exit code 0\n{}", self.told());
        serde_json::from_slice(&self.raw).unwrap_or_else(|err| panic!("stdout is not JSON: {err}\n{}", self.told()))
    }

    /// Asserts success and that standard output is exactly one line, which it returns.
    #[track_caller]
    pub fn line(&self) -> &str {
        assert!(self.code == 0, "expected exit code 0\n{}", self.told());
        match self.stdout.strip_suffix('\n') {
            Some(line) if !line.contains('\n') => line,
            _ => panic!("expected one line on stdout\n{}", self.told()),
        }
    }

    /// Asserts that standard error holds this text.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "expected {text:?} on stderr\n{}", self.told());
        self
    }

    /// Command, code, stdout and stderr, for a failure message.
    pub fn told(&self) -> String {
        let Self { command, code, stdout, stderr, .. } = self;
        format!("$ {command}\n[exit code {code}]\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n---")
    }
}

/// A process that runs beside the test and does not outlive it.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
    shown: String,
}

impl Running {
    /// Starts a command with its output captured. Its standard input stays open and empty.
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        let shown = show(&command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap_or_else(|err| panic!("cannot run {shown}: {err}"));
        Self { child: Some(child), shown }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Whether the process has not ended yet.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Sends a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("process ids fit");
        kill(Pid::from_raw(pid), signal).unwrap_or_else(|err| panic!("cannot send {signal} to {}: {err}", self.shown));
    }

    /// Closes standard input and waits for the end.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        let child = self.child.take().expect("the child is taken only here");
        finish(child, self.shown.clone(), b"")
    }

    /// As [`Running::finish`]; one that takes longer hangs, and is killed.
    #[track_caller]
    pub fn finish_within(mut self, limit: Duration) -> Output {
        if !until(limit, || !self.is_alive()) {
            panic!("hangs: {}", self.crash().told());
        }
        self.finish()
    }

    /// Kills the process outright, as a crash would, and reports what it had said.
    #[track_caller]
    pub fn crash(self) -> Output {
        self.signal(Signal::SIGKILL);
        self.finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A failing test must not leave processes behind; one that has ended already is no error.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn finish(mut child: Child, command: String, stdin: &[u8]) -> Output {
    let mut pipe = child.stdin.take().expect("stdin is piped");
    let output = thread::scope(|scope| {
        // A child may fill its stdout before it reads its stdin, so both happen at once. It may also not read at all.
        scope.spawn(move || drop(pipe.write_all(stdin)));
        child.wait_with_output()
    });
    let output = output.unwrap_or_else(|err| panic!("cannot wait for {command}: {err}"));
    Output {
        command,
        code: code_of(output.status),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        raw: output.stdout,
    }
}

pub(crate) fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

pub(crate) fn show(command: &Command) -> String {
    let mut shown = String::new();
    if let Some(dir) = command.get_current_dir() {
        let _ = write!(shown, "cd {} && ", dir.display());
    }
    shown.push_str(&command.get_program().to_string_lossy());
    for arg in command.get_args() {
        let arg = arg.to_string_lossy();
        let plain = !arg.is_empty() && arg.chars().all(|c| c.is_alphanumeric() || "-_=./:+,@".contains(c));
        if plain {
            let _ = write!(shown, " {arg}");
        } else {
            let _ = write!(shown, " {arg:?}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_carries_code_and_both_streams() {
        let output = Output::of(sh("cat; echo talk >&2; exit 3"), b"data").fails_with(3).says("talk");
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("data", "talk\n"));
    }

    #[test]
    fn a_failure_message_shows_everything() {
        let output = Output::of(sh("echo data; echo talk >&2; exit 1"), b"");
        let told = std::panic::catch_unwind(|| output.ok()).expect_err("exit code 1 is not ok");
        let told = told.downcast_ref::<String>().expect("a formatted message");
        for part in ["exit 1", "code 1", "data", "talk"] {
            assert!(told.contains(part), "{part:?} is missing from:\n{told}");
        }
    }

    #[test]
    fn a_large_input_and_a_large_output_do_not_block_each_other() {
        let input = vec![b'x'; 1 << 20];
        assert_eq!(Output::of(sh("cat"), &input).ok().raw.len(), input.len());
    }

    #[test]
    fn json_and_line_read_stdout() {
        assert_eq!(Output::of(sh("echo '[1]'"), b"").json(), serde_json::json!([1]));
        assert_eq!(Output::of(sh("echo jp-c1"), b"").line(), "jp-c1");
    }

    #[test]
    fn a_crash_is_counted_as_shells_do() {
        let mut running = Running::start(sh("read line"));
        assert!(running.is_alive());
        assert_eq!(running.crash().code, 137);
        assert_eq!(Running::start(sh("cat; exit 4")).finish().code, 4);
    }
}
