//! Who asks, as far as the system tells.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use jp_store::beneath::trusted;

/// A thread that made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its number; the process is looked up when it matters.
    pub pid: u32,
}

impl Caller {
    /// The process it belongs to.
    pub fn process(self) -> u32 {
        let status = trusted::read_text(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(self.pid)
    }

    /// Whether it asks for this name in order to take it, and would take another name of the same thing for an obstacle:
    /// `git` does with every name, `mv` with the last one it was given.
    pub fn claims(self, name: &OsStr) -> bool {
        match trusted::read_text(format!("/proc/{}/comm", self.pid)).unwrap_or_default().trim_end() {
            "git" => true,
            "mv" => {
                let words = trusted::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
                let last = words.split(|byte| *byte == 0).rfind(|word| !word.is_empty()).unwrap_or_default();
                Path::new(OsStr::from_bytes(last)).file_name() == Some(name)
            }
            _ => false,
        }
    }

    /// Whether it is a program that lays out trees from what it remembers of them.
    pub fn is_git(self) -> bool {
        trusted::read_text(format!("/proc/{}/comm", self.pid)).is_ok_and(|name| name.trim_end() == "git")
    }
}

/// Whether a process is there and not merely waiting to be reaped.
pub fn is_running(process: u32) -> bool {
    let stat = trusted::read_text(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process() {
        let me = std::process::id();
        assert!(is_running(me) && !is_running(u32::MAX));
        // The test runs in a thread of its own.
        let thread = nix::unistd::gettid().as_raw().unsigned_abs();
        assert_eq!(Caller { pid: thread }.process(), me);
        assert!(!Caller { pid: me }.claims(OsStr::new("x")) && !Caller { pid: me }.is_git());
    }
}
