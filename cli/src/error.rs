//! How a command ends: its exit code, and if it failed what is told, why, and what can be done.

use std::fmt;
use std::io;
use std::path::Path;

use jp_store::Error as StoreError;
use jp_store::beneath::is_wrong_kind;
use jp_store::store::DATA_DIR;

/// The result of anything a command does.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// The exit code of a command that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    /// All is done.
    pub(crate) const DONE: Self = Self(0);
    /// The answer is no: nothing matches, a check fails, a person declined.
    pub(crate) const NO: Self = Self(1);
}

/// Why a command failed. The kind is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not found, not possible, declined.
    No,
    /// The command line or a variable makes no sense.
    Usage,
    /// Somebody else holds a conversation.
    Locked,
    /// The store or the system does not do what it must.
    Damaged,
    /// Ctrl-C.
    Interrupted,
    /// Nobody reads the output any more. That is the reader's decision and no failure.
    Unread,
    /// The answer is no, and all there is to say has been said.
    Told,
}

impl Kind {
    pub(crate) fn exit(self) -> Exit {
        Exit(match self {
            Self::No | Self::Told => 1,
            Self::Usage => 2,
            Self::Locked => 3,
            Self::Damaged => 4,
            Self::Interrupted => 130,
            Self::Unread => 0,
        })
    }
}

impl From<Exit> for Kind {
    fn from(exit: Exit) -> Self {
        match exit.0 {
            2 => Self::Usage,
            3 => Self::Locked,
            4 => Self::Damaged,
            130 => Self::Interrupted,
            _ => Self::No,
        }
    }
}

/// A failure: what happened, why, and what to do next.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hints: Vec<String>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), causes: Vec::new(), hints: Vec::new() }
    }

    /// The answer is no.
    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self::new(Kind::No, message)
    }

    /// What was typed makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The system refused `verb` on `path`.
    pub(crate) fn io(verb: &str, path: &Path, error: &io::Error) -> Self {
        let told = Self::new(Kind::Damaged, format!("cannot {verb} {}", path.display())).because(error);
        if is_wrong_kind(error) { told.hint(WRONG_KIND) } else { told }
    }

    /// Ctrl-C.
    pub(crate) fn interrupted() -> Self {
        Self::new(Kind::Interrupted, "interrupted")
    }

    /// Adds something to try.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The message and the causes in one line, for a log.
    pub(crate) fn whole(&self) -> String {
        let parts: Vec<&str> = std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect();
        parts.join(": ")
    }

    /// Adds the causes, nearest first.
    pub(crate) fn because(mut self, cause: &dyn std::error::Error) -> Self {
        let chain = std::iter::successors(Some(cause), |cause| cause.source());
        self.causes.extend(chain.map(ToString::to_string));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What to do about something that is not what has to be there.
const WRONG_KIND: &str = "jp follows no links here: put the file or directory itself in its place (`rm LINK && mv TARGET LINK`), or remove it";

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Io { .. }
            | StoreError::Invalid { .. }
            | StoreError::Malformed { .. }
            | StoreError::InTheWay { .. }
            | StoreError::Unprojected { .. } => Kind::Damaged,
            StoreError::NoWorkspace { .. } | StoreError::NotFound { .. } | StoreError::Refused(_) => Kind::No,
            StoreError::Locked { .. } | StoreError::Stuck { .. } => Kind::Locked,
            StoreError::Interrupted => Kind::Interrupted,
        };
        let mut told = Self::new(kind, error.to_string());
        if let Some(source) = std::error::Error::source(&error) {
            told = told.because(source);
        }
        match &error {
            StoreError::NoWorkspace { .. } => told
                .hint("run `jp init` in the project's directory to make one")
                .hint("or name one with `--workspace PATH`"),
            StoreError::Malformed { path, .. } if path.ends_with(".jp/.id") => told
                .hint("bring the file back from version control: `git checkout .jp/.id`")
                .hint("no new id is made up for it, since that would part the project from its conversations"),
            StoreError::NotFound { .. } => {
                told.hint("`jp c ls` lists the conversations, `jp c ls --archived` those put away")
            }
            StoreError::Locked { .. } => told
                .hint("`jp lock ls` shows who holds what, and since when")
                .hint("JP_LOCK_DURATION says how long to wait: `JP_LOCK_DURATION=2m jp …`"),
            StoreError::Io { verb: DATA_DIR, path, source } if is_wrong_kind(source) => told.hint(format!(
                "if the link is yours, name the directory itself: `export JP_USER_DATA_DIR=$(readlink -f {})`",
                path.display()
            )),
            StoreError::Io { source, .. } if is_wrong_kind(source) => told.hint(WRONG_KIND),
            StoreError::InTheWay { path, kind, .. } => told.hint(how_to_remove(path, *kind)),
            StoreError::Stuck { path, holders, .. } if holders.is_empty() => {
                told.hint(format!("`fuser -v {}` names the process that holds it", path.display()))
            }
            StoreError::Stuck { holders, .. } => {
                let pids = holders.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                told.hint(format!("this lock is held for milliseconds only; `ps -f {pids}` shows who holds it"))
                    .hint(format!("if it hangs, end it: `kill {pids}`"))
            }
            StoreError::Io { source, .. } if source.raw_os_error() == Some(nix::errno::Errno::ENOTCONN as i32) => told
                .hint("the process behind this mount is gone")
                .hint("`jp mount` mounts it again, `jp unmount` clears it away"),
            StoreError::Io { .. }
            | StoreError::Invalid { .. }
            | StoreError::Malformed { .. }
            | StoreError::Interrupted
            | StoreError::Refused(_)
            | StoreError::Unprojected { .. } => told,
        }
    }
}

/// How to make way for a file or a directory that the store wants to make.
pub(crate) fn how_to_remove(path: &Path, kind: jp_store::disk::Kind) -> String {
    use jp_store::disk::Kind::{Dir, File, Link, Other};
    match kind {
        Dir => format!("move it away, or remove it if it is empty: `rmdir {}`", path.display()),
        Link => format!("remove it: `rm {}`; what it points to is not touched", path.display()),
        File | Other => format!("remove it: `rm {}`", path.display()),
    }
}

impl From<jp_fs::mount::Error> for Error {
    fn from(error: jp_fs::mount::Error) -> Self {
        match error {
            jp_fs::mount::Error::Store(error) => error.into(),
            jp_fs::mount::Error::Io { verb, path, source } => Self::io(verb, &path, &source),
            jp_fs::mount::Error::Refused(reason) => Self::no(reason),
        }
    }
}

impl From<clap::Error> for Error {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let mut parts = text.trim_end().split("\n\n");
        let mut told = Self::usage(parts.next().unwrap_or_default());
        for line in parts.flat_map(str::lines).map(str::trim) {
            if let Some(tip) = line.strip_prefix("tip: ") {
                told = told.hint(tip);
            } else if let Some(usage) = line.strip_prefix("Usage: ") {
                told = told.hint(format!("usage: {usage}"));
            }
        }
        told.hint("`--help` tells more")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn store_errors() {
        let check = |error: StoreError, code: u8, hint: &str| {
            let told = Error::from(error);
            assert_eq!(told.kind.exit(), Exit(code), "{told}");
            assert!(told.hints.join("\n").contains(hint), "{:?}", told.hints);
        };
        let id = jp_store::ConversationId::new(5).unwrap();
        let path = PathBuf::from("/p/.jp/.id");
        check(StoreError::NoWorkspace { start: "/".into() }, 1, "jp init");
        check(StoreError::Malformed { path, reason: "bad".into() }, 4, "git checkout .jp/.id");
        check(StoreError::NotFound { id }, 1, "jp c ls");
        check(StoreError::Locked { id, holder: None }, 3, "jp lock ls");
        check(StoreError::Interrupted, 130, "");
        check(StoreError::Refused("no".into()), 1, "");
        let source = io::Error::from_raw_os_error(13);
        let told = Error::from(StoreError::Io { verb: "read", path: "/x".into(), source });
        assert_eq!((told.message.as_str(), told.causes.len(), told.kind), ("cannot read /x", 1, Kind::Damaged));
    }
}
