//! The places that commands access, found by running each command under `strace` in a world with nothing planted.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jp_tests::{User, ids};

use super::commands::{COMMANDS, Ended, run_with};
use super::sandbox::Site;
use super::trace::{CALLS, Touch, touches};
use super::world::{ELSEWHERE, EXTERNAL, SECOND, TRASHED, World};

/// Time limit of a traced command.
const LIMIT: Duration = Duration::from_secs(60);

/// A path at which something can be planted. Paths that differ only in a conversation id are one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The path with its varying parts replaced; see [`pattern`].
    pub(super) pattern: String,
    /// The path that stands for the pattern, relative to the world.
    pub(super) path: PathBuf,
    /// Commands treat it as a directory.
    pub(super) listed: bool,
    /// Indexes of the commands that access it.
    pub(super) commands: BTreeSet<usize>,
}

/// The paths that a command accessed, relative to the world, and whether they are treated as directories.
pub(super) type Opened = BTreeMap<PathBuf, bool>;

/// Runs a command under `strace` in a fresh world. If `known`, the worktree has been exported before; otherwise it has no
/// state, like a fresh clone.
pub(super) fn trace_command(number: usize, known: bool) -> io::Result<Opened> {
    let site = Site::enter()?;
    let world = World::build(site, User::Own, format!("trace-{number}-{known}"))?;
    if known {
        run_with(&world, &["sh", "-c"], "jp export", LIMIT)?;
    }
    let (files, ended) = strace(&world, COMMANDS[number].script, LIMIT)?;
    if ended.hung {
        return Err(io::Error::other(format!("it hangs with nothing planted: {}", ended.text)));
    }
    let root = world.root();
    let mut found = in_world(&touches(&files, "jp"), &root);
    found.retain(|path, _| can_be_there(&root, path));
    world.site.clear(&world.tag);
    Ok(found)
}

/// Runs a script under `strace` and returns the output files, one per process. If the script exceeds the limit, it is killed
/// and the files so far are returned.
pub(super) fn strace(world: &World, script: &str, limit: Duration) -> io::Result<(Vec<Vec<u8>>, Ended)> {
    let dir = world.site.capture().join("trace");
    fs::create_dir(&dir)?;
    let file = dir.join("t").to_string_lossy().into_owned();
    let before =
        ["strace", "-ff", "-qq", "-y", "-s", "4096", "-e", "signal=none", "-e", CALLS, "-o", &file, "sh", "-c"];
    let ended = run_with(world, &before, script, limit)?;
    if ended.text.contains("strace:") {
        return Err(io::Error::other(format!("strace does not work: {}", ended.text)));
    }
    let files: io::Result<Vec<Vec<u8>>> = fs::read_dir(&dir)?.map(|entry| fs::read(entry?.path())).collect();
    Ok((files?, ended))
}

/// Whether something can be planted at a path. The trace does not say which of several directories a descriptor referred to
/// when a path led through it, so that some paths lie beneath files, and the socket beside conversations.
fn can_be_there(root: &Path, path: &Path) -> bool {
    let beneath_file = path
        .ancestors()
        .skip(1)
        .any(|above| fs::symlink_metadata(root.join(above)).is_ok_and(|meta| !meta.is_dir() && !meta.is_symlink()));
    let is_key = |name: &OsStr| name.len() == 16 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit);
    let misplaced = path.file_name() == Some(OsStr::new("control.sock"))
        && !path.parent().and_then(Path::file_name).is_some_and(is_key);
    !beneath_file && !misplaced
}

fn in_world(touches: &BTreeSet<Touch>, root: &Path) -> Opened {
    let mut opened = Opened::new();
    for touch in touches {
        if let Ok(path) = touch.path.strip_prefix(root) {
            *opened.entry(path.to_owned()).or_default() |= touch.listed;
        }
    }
    opened
}

/// Merges the traces of all commands into places. Also returns the patterns at which nothing can be planted, because their
/// names are unpredictable.
pub(super) fn gather(opened: &[(usize, Opened)]) -> (Vec<Place>, BTreeSet<String>) {
    let mut by_pattern: BTreeMap<String, BTreeMap<PathBuf, (bool, BTreeSet<usize>)>> = BTreeMap::new();
    for (number, paths) in opened {
        for (path, listed) in paths.iter().filter(|(path, _)| is_inside(path)) {
            let paths = by_pattern.entry(pattern(path)).or_default();
            let seen = paths.entry(path.clone()).or_default();
            seen.0 |= listed;
            seen.1.insert(*number);
        }
    }
    let volatile = |pattern: &String| ["<new>", "<pid>", "<n>"].iter().any(|part| pattern.contains(part));
    let unknown = by_pattern.keys().filter(|pattern| volatile(pattern)).cloned().collect();
    by_pattern.retain(|pattern, _| !volatile(pattern) && pattern.matches("<conv>").count() < 3);
    let places = by_pattern.into_iter().filter_map(|(pattern, paths)| {
        let listed = paths.values().any(|(listed, _)| *listed);
        // The path that most commands access stands for the pattern.
        let path =
            paths.iter().max_by_key(|(path, (_, commands))| (commands.len(), std::cmp::Reverse(*path)))?.0.clone();
        let commands = paths.into_values().flat_map(|(_, commands)| commands).collect();
        Some(Place { pattern, path, listed, commands })
    });
    (places.collect(), unknown)
}

/// Whether a path is in the worktree, the data directory or the export target.
fn is_inside(path: &Path) -> bool {
    let below = |dir: &str| path.starts_with(dir);
    let elsewhere = path.iter().any(|part| part == "..");
    let area = below("main") && path != Path::new("main") || below("data") || below("target");
    // Commands must not touch these at all; the comparison reports it if they do.
    // What is in `.git` is git's own, and no clone brings it.
    let strange =
        below("main/.git") || below("data/workspace/other-zz999") || path.iter().any(|part| part == "stranger");
    area && !strange && !elsewhere
}

/// Replaces the varying parts of a path: `<conv>` is a conversation of the template, `<key>` a worktree key; `<new>` (a new
/// conversation), `<pid>` and `<n>` (a random part) are unpredictable.
pub(super) fn pattern(path: &Path) -> String {
    let parts: Vec<String> = path.iter().map(|part| pattern_of(&part.to_string_lossy())).collect();
    parts.join("/")
}

fn pattern_of(name: &str) -> String {
    let known = [ids::A, ids::B, ids::C, ids::D, ids::L, ids::O, EXTERNAL, TRASHED, ELSEWHERE, SECOND];
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (first, rest) = name.split_once('-').unwrap_or((name, ""));
    if digits(first) {
        return match first.parse::<u64>() {
            Ok(id) if known.contains(&id) => "<conv>".to_owned(),
            Ok(_) if first.len() >= 11 => "<new>".to_owned(),
            _ if digits(rest) => "<pid>-<n>".to_owned(),
            _ if rest.is_empty() => "<pid>".to_owned(),
            _ => "<n>".to_owned(),
        };
    }
    if name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return "<key>".to_owned();
    }
    // Names from the tempfile crate end in six random characters.
    let tail = name.get(name.len().saturating_sub(6)..).unwrap_or_default();
    let random = tail.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && tail.bytes().any(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if name.starts_with('.') && name.len() > 7 && random {
        return format!("{}<n>", &name[..name.len() - 6]);
    }
    // Numbers inside a name.
    let mut out = String::new();
    let mut number = String::new();
    for c in name.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        match number.parse::<u64>() {
            Ok(id) if known.contains(&id) => out.push_str("<conv>"),
            Ok(_) if number.len() >= 11 => out.push_str("<new>"),
            Ok(_) if number.len() >= 4 => out.push_str("<n>"),
            _ => out.push_str(&number),
        }
        number.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_varying_parts() {
        let check = |path: &str, expected: &str| assert_eq!(pattern(Path::new(path)), expected);
        check("main/.jp/conversations/.tmp/27128-4/events.json", "main/.jp/conversations/.tmp/<pid>-<n>/events.json");
        check("data/17528832001-refactor/metadata.json", "data/<conv>/metadata.json");
        check("data/17949587160-tt", "data/<new>");
        check("data/locks/jp-c17528832001.lock", "data/locks/jp-c<conv>.lock");
        check("data/vfs/29701abea6986af8/journal", "data/vfs/<key>/journal");
        check("target/777", "target/<pid>");
        check("main/.git/hooks/.pre-commit.QqY1mi", "main/.git/hooks/.pre-commit.<n>");
        check("main/.jp/conversations/.gitignore", "main/.jp/conversations/.gitignore");
        check("data/workspace/main-otvo8", "data/workspace/main-otvo8");
    }

    #[test]
    fn merges_paths_of_one_pattern() {
        let opened = |paths: &[&str]| paths.iter().map(|path| (PathBuf::from(path), path.ends_with("d"))).collect();
        let (a, b) = ("data/17528832001-a", "data/17528842001-b");
        let all = [(0, opened(&[a, "data/d", "elsewhere/x"])), (1, opened(&[b, "data/.tmp/1-1"])), (2, opened(&[b]))];
        let (places, unknown) = gather(&all);
        let shown: Vec<(&str, &str, bool, usize)> = places
            .iter()
            .map(|place| {
                let path = place.path.to_str().unwrap_or_default();
                (place.pattern.as_str(), path, place.listed, place.commands.len())
            })
            .collect();
        assert_eq!(shown, [("data/<conv>", b, false, 3), ("data/d", "data/d", true, 1)]);
        assert_eq!(unknown.into_iter().collect::<Vec<_>>(), ["data/.tmp/<pid>-<n>"]);
    }
}
