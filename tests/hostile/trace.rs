//! Parses the output of `strace -ff -y`: which paths a program names in system calls. Nothing here runs a program.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::outside::contains;

/// The traced system calls: all that take a path, and directory listings.
pub(super) const CALLS: &str = "trace=%file,getdents64,bind,connect";

/// A path in a system call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Touch {
    /// Absolute.
    pub(super) path: PathBuf,
    /// The call treats it as a directory: lists, creates, removes or opens it as one.
    pub(super) listed: bool,
}

/// All paths that `program` names. `files` are the per-process outputs of strace. Calls of other programs that it
/// executes are ignored, and so are calls that fail with `ENOTDIR`.
pub(super) fn touches(files: &[Vec<u8>], program: &str) -> BTreeSet<Touch> {
    let descriptors = descriptors(files);
    let mut found = BTreeSet::new();
    for file in files {
        // The file of a thread or a fork has no execve at its beginning.
        let mut ours = true;
        for line in file.split(|byte| *byte == b'\n') {
            let Some(call) = Call::parse(line) else { continue };
            if call.name == "execve" {
                if call.failed.is_none() {
                    ours = call.paths.first().is_some_and(|path| path.file_name().is_some_and(|name| name == program));
                }
                continue;
            }
            if !ours || call.failed.as_deref() == Some("ENOTDIR") {
                continue;
            }
            let listed = call.on_directory || ["getdents64", "mkdir", "mkdirat", "rmdir"].contains(&call.name.as_str());
            for path in &call.paths {
                for path in through_descriptor(path, &descriptors) {
                    found.insert(Touch { path, listed });
                }
            }
        }
    }
    found
}

/// The number of system calls.
pub(super) fn count(files: &[Vec<u8>]) -> usize {
    files.iter().flat_map(|file| file.split(|byte| *byte == b'\n')).filter(|line| Call::parse(line).is_some()).count()
}

/// A system call.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    name: String,
    /// Relative paths are joined to the path of the directory descriptor before them.
    paths: Vec<PathBuf>,
    /// It has the flag `O_DIRECTORY` or `AT_REMOVEDIR`.
    on_directory: bool,
    /// The name of the error, such as `ENOENT`.
    failed: Option<String>,
}

impl Call {
    fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|byte| *byte == b'(')?;
        let name = std::str::from_utf8(&line[..open]).ok()?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return None;
        }
        let mut words = Words { rest: &line[open + 1..], depth: 0 };
        let (mut paths, mut dir, mut texts) = (Vec::new(), None, 0);
        while let Some(word) = words.next_word() {
            match word {
                Word::Dir(path) => {
                    if name == "getdents64" {
                        paths.push(path.clone());
                    }
                    dir = Some(path);
                }
                Word::Text(text) => {
                    texts += 1;
                    let is_path = match name {
                        // The other string is the link target.
                        "readlink" | "readlinkat" => texts == 1,
                        "symlink" | "symlinkat" => texts == 2,
                        "mount" => texts == 2,
                        _ => true,
                    };
                    if is_path && !text.is_empty() {
                        let path = PathBuf::from(OsString::from_vec(text));
                        paths.push(clean(&dir.take().map_or_else(|| path.clone(), |dir| dir.join(&path))));
                    }
                }
            }
        }
        let on_directory = contains(line, b"O_DIRECTORY") || contains(line, b"AT_REMOVEDIR");
        Some(Self { name: name.to_owned(), paths, on_directory, failed: words.failure() })
    }
}

enum Word {
    /// The path of a descriptor, from `3</path>`.
    Dir(PathBuf),
    /// A string argument, or the path in a socket address.
    Text(Vec<u8>),
}

struct Words<'a> {
    rest: &'a [u8],
    /// Nesting depth of arrays and structures; strings inside them are not paths.
    depth: usize,
}

impl Words<'_> {
    /// Returns `None` after the closing parenthesis of the call.
    fn next_word(&mut self) -> Option<Word> {
        let mut sun_path = false;
        loop {
            let (&first, rest) = self.rest.split_first()?;
            match first {
                b'"' => {
                    let end = quoted(rest);
                    let text = unescape(&rest[..end]);
                    self.rest = rest.get(end + 1..).unwrap_or_default();
                    if self.depth == 0 || sun_path {
                        return Some(Word::Text(text));
                    }
                }
                b'<' => {
                    let end = rest.iter().position(|byte| *byte == b'>').unwrap_or(rest.len());
                    let path = unescape(&rest[..end]);
                    self.rest = rest.get(end + 1..).unwrap_or_default();
                    if path.starts_with(b"/") && self.depth == 0 {
                        return Some(Word::Dir(PathBuf::from(OsString::from_vec(path))));
                    }
                }
                b')' if self.depth == 0 => {
                    self.rest = rest;
                    return None;
                }
                _ => {
                    sun_path = self.rest.starts_with(b"sun_path=") || sun_path && first != b',';
                    match first {
                        b'{' | b'[' | b'(' => self.depth += 1,
                        b'}' | b']' | b')' => self.depth = self.depth.saturating_sub(1),
                        _ => {}
                    }
                    self.rest = rest;
                }
            }
        }
    }

    /// The name of the error in ` = -1 ENOENT (…)`.
    fn failure(&self) -> Option<String> {
        let text = String::from_utf8_lossy(self.rest);
        let error = text.split("= -1 ").nth(1)?;
        error.split_whitespace().next().map(str::to_owned)
    }
}

/// The length of a quoted string up to its closing quote.
fn quoted(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at.min(text.len())
}

/// Decodes C escapes.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' || at + 1 == text.len() {
            plain.push(text[at]);
            at += 1;
            continue;
        }
        let digits = text[at + 1..].iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
        if digits > 0 {
            let value = text[at + 1..=at + digits].iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
            plain.push(u8::try_from(value & 0xff).unwrap_or_default());
            at += 1 + digits;
            continue;
        }
        plain.push(match text[at + 1] {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            other => other,
        });
        at += 2;
    }
    plain
}

/// Removes `.` and empty components; keeps `..`.
fn clean(path: &Path) -> PathBuf {
    path.components().collect()
}

/// All paths that each descriptor number referred to during the trace.
fn descriptors(files: &[Vec<u8>]) -> BTreeMap<u32, BTreeSet<PathBuf>> {
    let mut found: BTreeMap<u32, BTreeSet<PathBuf>> = BTreeMap::new();
    for line in files.iter().flat_map(|file| file.split(|byte| *byte == b'\n')) {
        for (at, _) in line.iter().enumerate().filter(|(_, byte)| **byte == b'<') {
            let digits = line[..at].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            let end = line[at..].iter().position(|byte| *byte == b'>').map_or(line.len(), |end| at + end);
            let number = std::str::from_utf8(&line[at - digits..at]).ok().and_then(|text| text.parse().ok());
            if let Some(number) = number
                && line.get(at + 1) == Some(&b'/')
            {
                let path = PathBuf::from(OsString::from_vec(unescape(&line[at + 1..end])));
                found.entry(number).or_default().insert(path);
            }
        }
    }
    found
}

/// Resolves `/proc/self/fd/N/…` to paths below what the descriptor referred to. Returns other paths unchanged.
fn through_descriptor(path: &Path, descriptors: &BTreeMap<u32, BTreeSet<PathBuf>>) -> Vec<PathBuf> {
    let mut parts = path.iter();
    let mut next = || parts.next().and_then(|part| std::str::from_utf8(part.as_bytes()).ok());
    let (root, proc, _, fd, number) = (next(), next(), next(), next(), next());
    let number = number.and_then(|number| number.parse::<u32>().ok());
    match (root, proc, fd, number) {
        (Some("/"), Some("proc"), Some("fd"), Some(number)) => {
            let rest: PathBuf = parts.collect();
            descriptors.get(&number).into_iter().flatten().map(|dir| clean(&dir.join(&rest))).collect()
        }
        _ => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, name: &str, paths: &[&str], failed: Option<&str>) {
        let expected = Call {
            name: name.to_owned(),
            paths: paths.iter().map(PathBuf::from).collect(),
            on_directory: line.contains("O_DIRECTORY"),
            failed: failed.map(str::to_owned),
        };
        assert_eq!(Call::parse(line.as_bytes()), Some(expected), "{line}");
    }

    #[test]
    fn parses_calls() {
        check(
            r#"openat(AT_FDCWD</w/main>, "/w/main/.jp/.id", O_RDONLY|O_CLOEXEC) = 3</w/main/.jp/.id>"#,
            "openat",
            &["/w/main/.jp/.id"],
            None,
        );
        check(
            r#"openat(7</w/a>, "b/c", O_RDONLY) = -1 ENOENT (No such file or directory)"#,
            "openat",
            &["/w/a/b/c"],
            Some("ENOENT"),
        );
        check(r#"openat(AT_FDCWD</w>, "/w/d", O_RDONLY|O_DIRECTORY) = 3</w/d>"#, "openat", &["/w/d"], None);
        check(r#"mkdir("/w/a/.tmp", 0777)           = 0"#, "mkdir", &["/w/a/.tmp"], None);
        check(r#"renameat2(4</w>, "a", 5</v>, "b", RENAME_NOREPLACE) = 0"#, "renameat2", &["/w/a", "/v/b"], None);
        check(r#"statx(3</w/f>, "", AT_EMPTY_PATH, STATX_ALL, {stx_mode=S_IFREG|0644, ...}) = 0"#, "statx", &[], None);
        check(r#"readlink("/w/l", "/elsewhere", 1023) = 10"#, "readlink", &["/w/l"], None);
        check(r#"symlinkat("target", 3</w>, "l") = 0"#, "symlinkat", &["/w/l"], None);
        check(r#"getdents64(3</w/d>, 0x5555 /* 3 entries */, 32768) = 80"#, "getdents64", &["/w/d"], None);
        check(
            r#"openat2(3</w>, "x", {flags=O_RDONLY, resolve=RESOLVE_NO_SYMLINKS}, 24) = -1 ELOOP (Too many)"#,
            "openat2",
            &["/w/x"],
            Some("ELOOP"),
        );
        check(
            r#"bind(5<UNIX:[12]>, {sa_family=AF_UNIX, sun_path="/w/control.sock"}, 110) = 0"#,
            "bind",
            &["/w/control.sock"],
            None,
        );
        check(r#"unlink("/w/a\nb\"c\33[0m\303\244") = 0"#, "unlink", &["/w/a\nb\"c\x1b[0mä"], None);
        assert_eq!(Call::parse(b"+++ exited with 0 +++"), None);
        assert_eq!(Call::parse(b"--- SIGCHLD {si_signo=SIGCHLD} ---"), None);
    }

    #[test]
    fn ignores_other_programs() {
        let own = "execve(\"/bin/jp\", [\"jp\", \"/w/no\"], 0x7ffc) = 0\n\
                   openat(AT_FDCWD</w>, \"/w/yes\", O_RDONLY) = 3</w/yes>\n\
                   openat(AT_FDCWD</w>, \"/w/file/below\", O_RDONLY) = -1 ENOTDIR (Not a directory)\n\
                   getdents64(3</w/yes>, 0x1 /* 0 entries */, 10) = 0\n\
                   stat(\"/proc/self/fd/9/deep\", 0x1) = -1 ENOENT (No such file)\n\
                   fchdir(9</w/held>) = 0\n";
        let git = "openat(AT_FDCWD</w>, \"/w/forked\", O_RDONLY) = 3</w/forked>\n\
                   execve(\"/usr/bin/git\", [\"git\"], 0x1) = 0\n\
                   openat(AT_FDCWD</w>, \"/w/of-git\", O_RDONLY) = 3</w/of-git>\n";
        let found = touches(&[own.into(), git.into()], "jp");
        let shown: Vec<String> =
            found.iter().map(|touch| format!("{} {}", touch.path.display(), touch.listed)).collect();
        assert_eq!(shown, ["/w/forked false", "/w/held/deep false", "/w/yes false", "/w/yes true"]);
        assert_eq!(count(&[own.into(), git.into()]), 9);
    }
}
