//! Other processes, as `/proc` shows them: whether one is still the one we knew, and which of them are in a directory.
//! Links are read and never followed, so a filesystem that hangs hangs nobody here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use jp_store::beneath::trusted;

/// A process that has something open below a point.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Occupant {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) path: String,
}

/// When a process began, in ticks since the system did; `None` when it is gone. With its number this names a process for
/// good, where the number alone is used again.
pub(crate) fn started(pid: u32) -> Option<u64> {
    parse_stat(&trusted::read_text(format!("/proc/{pid}/stat")).ok()?)
}

/// Who is in a mount: working in it, running from it, or with a file of it open or mapped. We are not: what we have open is
/// the shell's that we come from. Neither is the process behind it, which has only the directory beneath it open.
pub(crate) fn occupants(point: &Path, daemon: u32) -> Vec<Occupant> {
    let names = trusted::names("/proc");
    let pids = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    let others = pids.filter(|&pid| pid != std::process::id() && pid != daemon);
    let mut found: Vec<Occupant> = others.filter_map(|pid| occupant(pid, point)).collect();
    found.sort_by_key(|occupant| occupant.pid);
    found
}

fn occupant(pid: u32, point: &Path) -> Option<Occupant> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let links = ["cwd", "root", "exe"].map(|name| dir.join(name));
    let fds = dir.join("fd");
    let files = trusted::names(&fds).into_iter().map(|name| fds.join(name));
    let linked = links.into_iter().chain(files).filter_map(|link| trusted::read_link(&link).ok());
    let path = linked.into_iter().find(|target| is_below(point, target)).or_else(|| {
        let maps = trusted::read(dir.join("maps")).unwrap_or_default();
        let mapped = maps.split(|&byte| byte == b'\n').filter_map(mapped_path);
        mapped.into_iter().find(|path| is_below(point, path)).map(Path::to_owned)
    })?;
    let name = trusted::read_text(dir.join("comm")).unwrap_or_default();
    Some(Occupant { pid, name: name.trim_end().to_owned(), path: path.display().to_string() })
}

fn is_below(point: &Path, target: &Path) -> bool {
    // A removed file is shown with a mark behind its name.
    let bytes = target.as_os_str().as_bytes();
    let plain = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Path::new(OsStr::from_bytes(plain)).starts_with(point)
}

/// The file in a line of `/proc/PID/maps`, which may have blanks in it.
fn mapped_path(line: &[u8]) -> Option<&Path> {
    let start = line.iter().position(|&byte| byte == b'/')?;
    // Five fields come before the name, and the last of them is followed by blanks.
    let before = line[..start].split(|&byte| byte == b' ').filter(|field| !field.is_empty()).count();
    (before == 5).then(|| Path::new(OsStr::from_bytes(&line[start..])))
}

fn parse_stat(text: &str) -> Option<u64> {
    // The name is in parentheses and may hold anything, parentheses too.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    // One that has ended and was not waited for does nothing any more.
    let state = fields.next()?;
    (!matches!(state, "Z" | "X" | "x")).then(|| fields.nth(18)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats() {
        let check = |text: &str, expected| assert_eq!(parse_stat(text), expected, "{text}");
        let rest = "1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 3006464 0";
        check(&format!("7 (jp) S {rest}"), Some(4711));
        check(&format!("7 (a) b) (c) R {rest}"), Some(4711));
        check(&format!("7 (jp) Z {rest}"), None);
        check("7 (jp) S 1 2", None);
        check("", None);
    }

    #[test]
    fn this_process_is_there() {
        assert_eq!(started(std::process::id()), started(std::process::id()));
        assert!(started(std::process::id()).is_some() && started(u32::MAX).is_none());
    }

    #[test]
    fn what_is_below() {
        let check = |target: &str, expected| {
            assert_eq!(is_below(Path::new("/p/mnt"), Path::new(target)), expected, "{target}");
        };
        check("/p/mnt", true);
        check("/p/mnt/a/b", true);
        check("/p/mnt/a (deleted)", true);
        check("/p/mnt (deleted)", true);
        check("/p/mnt2", false);
        check("/p", false);
        check("socket:[1]", false);
        check("anon_inode:[eventpoll]", false);
    }

    #[test]
    fn maps() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(mapped_path(line.as_bytes()), expected.map(Path::new), "{line}");
        };
        check(
            "7f0a-7f0b r--p 00000000 08:01 123                        /usr/lib/libc.so.6",
            Some("/usr/lib/libc.so.6"),
        );
        check("7f0a-7f0b r--p 00000000 00:32 17     /p/a b.json (deleted)", Some("/p/a b.json (deleted)"));
        check("7f0a-7f0b rw-p 00000000 00:00 0 ", None);
        check("7f0a-7f0b rw-p 00000000 00:00 0   [heap]", None);
        check("", None);
    }

    #[test]
    fn an_open_file_has_an_occupant() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let me = std::process::id();
        assert_eq!(occupant(me, &point), None);
        let _file = std::fs::File::create(point.join("file")).unwrap();
        assert!(occupant(me, &point).is_some_and(|found| found.path.ends_with("/file")));
        assert_eq!(occupants(&point, 0), []);
    }
}
