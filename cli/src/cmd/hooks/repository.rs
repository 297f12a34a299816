//! A git repository as far as hooks go: where they are, and which of them is ours.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jp_store::beneath::{self, AllowedDirs, Over, trusted};

use crate::error::{Error, Result};

/// Which hook there is.
pub(super) const NAME: &str = "pre-commit";

/// The hook as it is installed.
pub(super) const TEXT: &str = include_str!("../../../../scripts/git-hooks/pre-commit");

/// How the second line of every version begins.
const MARKER: &str = "# jp hook: pre-commit, version ";

/// No hook is longer.
const LONGEST_HOOK: u64 = 1 << 20;

/// Every text that was installed before this one. A new version adds the one it replaces.
const FORMER: &[&str] = &[include_str!("former/pre-commit-1"), include_str!("former/pre-commit-2")];

/// The repository that a project is in.
pub(super) struct Repository {
    /// The project.
    pub(super) project: PathBuf,
    /// Where the worktree begins.
    pub(super) top: PathBuf,
    /// Where git looks for hooks.
    hooks: PathBuf,
    files: AllowedDirs,
}

/// What is in the hook's place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// What this version installs. Git passes it over if it is not executable.
    Current { executable: bool },
    /// What an earlier version installed, byte for byte.
    Former { executable: bool },
    /// Something that was ours until it was edited, or that a later version installed.
    Edited { executable: bool },
    /// Something else, in a few words.
    Other(&'static str),
}

impl Repository {
    /// Asks git about a project.
    pub(super) fn of(project: &Path) -> Result<Self> {
        let top = git(project, &["rev-parse", "--show-toplevel"])?;
        // A relative `core.hooksPath` is meant from the top, which is where git runs hooks.
        let hooks = git(&top, &["rev-parse", "--git-path", "hooks"])?;
        let files = AllowedDirs::default();
        let hooks = top.join(hooks);
        // Where git looks for hooks is the user's affair, links and all.
        let hooks = trusted::canonical(&hooks).unwrap_or(hooks);
        files.allow(&hooks).map_err(|error| Error::io("use", &hooks, &error))?;
        Ok(Self { project: project.to_owned(), hooks, top, files })
    }

    /// The path of the hook.
    pub(super) fn hook(&self) -> PathBuf {
        self.hooks.join(NAME)
    }

    /// Looks at what is there.
    pub(super) fn look(&self) -> Result<Found> {
        let path = self.hook();
        let stat = match self.files.stat(&path) {
            Ok(stat) => stat,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Found::Nothing);
            }
            Err(error) => return Err(Error::io("look at", &path, &error)),
        };
        match stat.kind() {
            beneath::Kind::File => {}
            beneath::Kind::Link => return Ok(Found::Other("a link")),
            beneath::Kind::Dir => return Ok(Found::Other("a directory")),
            beneath::Kind::Other => return Ok(Found::Other("no ordinary file")),
        }
        let bytes = self.files.read_within(&path, LONGEST_HOOK).map_err(|error| Error::io("read", &path, &error))?;
        Ok(judge(&bytes, stat.permissions() & 0o100 != 0, FORMER))
    }

    /// Puts the hook in place, whole or not at all. Where there was nothing, what somebody else puts there first stays.
    pub(super) fn install(&self, over: &Found) -> Result<()> {
        let path = self.hook();
        trusted::create_dirs(&self.hooks).map_err(|error| Error::io("make", &self.hooks, &error))?;
        let over = match over {
            Found::Nothing => Over::Nothing,
            Found::Current { .. } | Found::Former { .. } | Found::Edited { .. } | Found::Other(_) => Over::Anything,
        };
        self.files.put(&path, TEXT.as_bytes(), 0o755, over).map_err(|error| Error::io("write", &path, &error))
    }

    /// Takes the hook away.
    pub(super) fn uninstall(&self) -> Result<()> {
        let path = self.hook();
        self.files.remove_file(&path).map_err(|error| Error::io("remove", &path, &error))
    }
}

impl Found {
    /// In one word.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "absent",
            Self::Current { .. } => "installed",
            Self::Former { .. } => "outdated",
            Self::Edited { .. } => "edited",
            Self::Other(_) => "foreign",
        }
    }

    /// Whether git runs it, as far as it is ours.
    pub(super) fn executable(&self) -> bool {
        match self {
            Self::Current { executable } | Self::Former { executable } | Self::Edited { executable } => *executable,
            Self::Nothing | Self::Other(_) => false,
        }
    }
}

fn judge(bytes: &[u8], executable: bool, former: &[&str]) -> Found {
    let marked = |line: &[u8]| line.starts_with(MARKER.as_bytes());
    if bytes == TEXT.as_bytes() {
        Found::Current { executable }
    } else if former.iter().any(|text| bytes == text.as_bytes()) {
        Found::Former { executable }
    } else if bytes.split(|&byte| byte == b'\n').any(marked) {
        Found::Edited { executable }
    } else {
        Found::Other("another hook")
    }
}

/// A path that git answers with.
fn git(dir: &Path, args: &[&str]) -> Result<PathBuf> {
    let output = Command::new("git").arg("-C").arg(dir).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::no("git is not on PATH").hint("hooks are git's; install it first"),
        _ => Error::no("cannot run git").because(&error),
    })?;
    let path = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    if output.status.success() && !path.is_empty() {
        return Ok(PathBuf::from(OsStr::from_bytes(path)));
    }
    let mut told = Error::no(format!("{} is in no git worktree", dir.display()));
    told.causes.extend(String::from_utf8_lossy(&output.stderr).trim().lines().map(str::to_owned));
    Err(told.hint("`git init` makes a repository of the project"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_and_others() {
        let check =
            |text: &str, expected: Found| assert_eq!(judge(text.as_bytes(), true, &["old\n"]), expected, "{text}");
        check(TEXT, Found::Current { executable: true });
        check("old\n", Found::Former { executable: true });
        check(&format!("{TEXT}\n"), Found::Edited { executable: true });
        check(&TEXT.replace(MARKER, &format!("{MARKER}1")), Found::Edited { executable: true });
        check(&TEXT.replace('\n', "\r\n"), Found::Edited { executable: true });
        check("old", Found::Other("another hook"));
        check("", Found::Other("another hook"));
        check("#!/bin/sh\necho '# jp hook: pre-commit, version 1'\n", Found::Other("another hook"));
    }

    /// Without the marker an edit could not be told from a stranger's hook.
    #[test]
    fn every_text_is_marked() {
        for text in FORMER.iter().chain([&TEXT]) {
            assert!(text.lines().nth(1).is_some_and(|line| line.starts_with(MARKER)), "{text}");
        }
    }
}
