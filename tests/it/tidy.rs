//! Rules about the source that no compiler checks. Each rule is a function of text, tried on a bad example as well, so
//! that a rule that catches nothing is noticed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jp_tests::repository;

/// The modules of the store that compute and do nothing else.
const PURE: [&str; 22] = [
    "clean",
    "document",
    "events",
    "id",
    "index",
    "join",
    "journal",
    "json",
    "layout",
    "lines",
    "meta",
    "mirror",
    "modes",
    "moved",
    "path",
    "plan",
    "presence",
    "reconcile",
    "removed",
    "time",
    "transcript",
    "tree",
];

const LONGEST: usize = 700;

/// The modules of the filesystem that do the same.
const PURE_FS: [&str; 6] = ["node", "catalog", "inodes", "draft", "error", "refusal"];

#[test]
fn pure_modules_touch_nothing() {
    let pure = |path: &str| {
        if let Some(below) = path.strip_prefix("fs/src/") {
            let module = below.split(['/', '.']).next().unwrap_or_default();
            return PURE_FS.contains(&module) || below == "mirror/rhythm.rs";
        }
        let below = path.strip_prefix("store/src/").unwrap_or_default();
        let module = below.split(['/', '.']).next().unwrap_or_default();
        PURE.contains(&module) || below.starts_with("events")
    };
    check(pure, impure);
    assert!(impure("use std::fs;").is_some() && impure("// std::fs").is_none());
    assert!(impure("let now = Timestamp::now();").is_some());
}

#[test]
fn only_its_host_names_the_library_of_the_kernel() {
    let library = |text: &str| {
        let code = |line: &&str| !line.trim_start().starts_with("//");
        let named = text.lines().filter(code).find(|line| line.contains(concat!("fu", "ser::")));
        named.map(|line| format!("the library is named outside its host: {}", line.trim()))
    };
    check(|path| path.ends_with(".rs") && path != "fs/src/host/fuse.rs", library);
    assert!(library(concat!("use fu", "ser::Session;")).is_some());
}

#[test]
fn platforms_are_named_at_the_edge_only() {
    let edges = ["store/src/lock", "store/src/disk", "cli/src/env.rs", "fs/src/host"];
    let inside = |path: &str| path.ends_with(".rs") && !edges.iter().any(|edge| path.starts_with(edge));
    check(inside, platform);
    for text in ["#[cfg@(unix)]", "cfg!@(windows)", "#[cfg_attr@(not(target_os = \"linux\"), x)]"] {
        assert!(platform(&text.replace('@', "")).is_some(), "{text}");
    }
    assert!(platform("#[cfg(test)] use std::os::unix::fs::symlink;").is_none());
}

/// A path from a repository, a store or a conversation must not decide where the program acts.
#[test]
fn only_one_module_opens_lists_moves_or_removes_by_path() {
    let inside = |path: &str| {
        let is_source = ["store/src/", "fs/src/", "cli/src/"].iter().any(|dir| path.starts_with(dir));
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs") || path == "cli/src/testing.rs";
        is_source && !is_test && !path.starts_with("store/src/beneath") && path.ends_with(".rs")
    };
    check(inside, reaching);
    for text in [
        "fs::read(&path)",
        "std::fs::remove_file(path)",
        "let all = fs::read_dir(dir)?;",
        "File::open(path)",
        "OpenOptions::new()",
        "renameat(a, b, c, d)",
        "nix::fcntl::open(path, flags, mode)",
        "path.canonicalize()",
        "if path.exists() {",
        "target.is_dir()",
        "use std::os::unix::fs::symlink;",
        "NamedTempFile::new_in(dir)",
    ] {
        assert!(reaching(text).is_some(), "{text}");
    }
    for text in
        ["use std::fs::{File, Metadata};", "// fs::read", "files.open(&path)", "#[cfg(test)]\nmod tests {\nfs::read(p)"]
    {
        assert!(reaching(text).is_none(), "{text}");
    }
}

#[test]
fn the_tree_stands_on_its_own() {
    let needle = concat!("..", "/shared");
    let found: Vec<String> = files()
        .iter()
        .filter(|path| !path.ends_with("Cargo.lock"))
        .flat_map(|path| {
            let text = String::from_utf8_lossy(&fs::read(path).expect("a listed file can be read")).into_owned();
            let lines = text.lines().enumerate().filter(|(_, line)| line.contains(needle));
            lines.map(|(at, _)| format!("{}:{}", relative(path), at + 1)).collect::<Vec<_>>()
        })
        .collect();
    assert!(
        matches!(&found[..], [one] if one.starts_with("tests/src/fixture.rs:")),
        "only the path of the fixtures may lead out of the repository: {found:#?}",
    );
}

#[test]
fn every_source_file_says_what_it_is() {
    check(|path| path.ends_with(".rs"), unintroduced);
    assert!(unintroduced("use std::io;").is_some() && unintroduced("//! A noun.").is_none());
}

#[test]
fn tests_wait_for_conditions_not_for_time() {
    check(|path| path.starts_with("tests/") && path.ends_with(".rs") && path != "tests/src/wait.rs", sleeping);
    assert!(sleeping(concat!("thread::sl", "eep(second)")).is_some());
}

#[test]
fn no_source_file_is_a_drawer() {
    check(|path| path.ends_with(".rs"), overlong);
    assert!(overlong(&"x\n".repeat(LONGEST + 1)).is_some() && overlong(&"x\n".repeat(LONGEST)).is_none());
}

#[test]
fn scripts_stop_at_the_first_failure() {
    let script = |path: &str| path.starts_with("scripts/") || path.starts_with(".ci/");
    check(script, careless);
    for path in files().iter().filter(|path| script(&relative(path))) {
        let mode = fs::metadata(path).expect("a listed file is there").permissions().mode();
        assert!(mode & 0o111 == 0o111, "{} is not executable", relative(path));
    }
    assert!(careless("#!/usr/bin/env bash\n# Why.\n\nset -euo pipefail\ntrue\n").is_none());
    assert!(careless("#!/usr/bin/env bash\ntrue\nset -euo pipefail\n").is_some());
    assert!(careless("set -euo pipefail\n").is_some());
    assert!(careless("#!/bin/sh\n# Why.\nset -eu\n").is_none() && careless("#!/bin/sh\ntrue\n").is_some());
}

/// Applies a rule to every file it is for and fails with all that it finds.
#[track_caller]
fn check(applies: impl Fn(&str) -> bool, rule: impl Fn(&str) -> Option<String>) {
    let broken: Vec<String> = files()
        .iter()
        .filter(|path| applies(&relative(path)))
        .filter_map(|path| {
            let text = fs::read_to_string(path).expect("source is UTF-8");
            rule(&text).map(|reason| format!("{}: {reason}", relative(path)))
        })
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

fn impure(text: &str) -> Option<String> {
    let worlds = ["std::fs", "std::env", "SystemTime", "Timestamp::now"];
    // A comment may speak of the world.
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.find_map(|line| {
        let world = worlds.iter().find(|world| line.contains(**world))?;
        Some(format!("a pure module names {world}: {}", line.trim()))
    })
}

fn reaching(text: &str) -> Option<String> {
    let calls = [
        "fs::read",
        "fs::write",
        "fs::copy",
        "fs::rename",
        "fs::remove",
        "fs::create",
        "fs::metadata",
        "fs::exists",
        "fs::hard_link",
        "fs::symlink",
        "fs::canonicalize",
        "fs::set_permissions",
        "fs::OpenOptions",
        "File::open",
        "File::create",
        "File::options",
        "OpenOptions",
        "DirBuilder",
        "NamedTempFile",
        "tempfile_in",
        "read_dir(",
        ".canonicalize()",
        ".symlink_metadata()",
        ".metadata(path)",
        ".read_link()",
        ".exists()",
        ".try_exists()",
        ".is_dir()",
        ".is_file()",
        ".is_symlink()",
        "fcntl::open",
        "openat",
        "renameat",
        "unlinkat",
        "mkdirat",
        "linkat",
        "fstatat",
        "unistd::unlink",
        "unistd::mkdir",
        "unistd::mkfifo",
        "stat::lstat",
        "statvfs(",
    ];
    // What tests do to their own directories is their affair.
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.find_map(|line| {
        let call = calls.iter().find(|call| line.contains(**call))?;
        Some(format!("reaches a path without `beneath`, by {call}: {}", line.trim()))
    })
}

fn platform(text: &str) -> Option<String> {
    let platforms = ["unix", "windows", "target_os", "target_family"];
    ["cfg", "cfg!", "cfg_attr"].iter().find_map(|name| {
        let opening = format!("{name}(");
        text.match_indices(&opening).find_map(|(at, _)| {
            let condition = balanced(&text[at + opening.len()..]);
            let mut words = condition.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.any(|word| platforms.contains(&word)).then(|| format!("{opening}{condition})"))
        })
    })
}

/// The text up to the parenthesis that closes one opened before it.
fn balanced(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

fn unintroduced(text: &str) -> Option<String> {
    (!text.starts_with("//! ")).then(|| "does not begin with a `//!` line".to_owned())
}

fn sleeping(text: &str) -> Option<String> {
    let needle = concat!("sleep", "(");
    text.lines().find(|line| line.contains(needle)).map(|line| format!("sleeps: {}", line.trim()))
}

fn overlong(text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LONGEST).then(|| format!("{lines} lines, and {LONGEST} are the most"))
}

fn careless(text: &str) -> Option<String> {
    let mut lines = text.lines();
    // Where bash may be missing, a shell is all there is, and it has no `pipefail`.
    let strict = match lines.next() {
        Some("#!/usr/bin/env bash") => "set -euo pipefail",
        Some("#!/bin/sh") => "set -eu",
        _ => return Some("does not begin with `#!/usr/bin/env bash` or `#!/bin/sh`".to_owned()),
    };
    let first = lines.map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    (first != Some(strict)).then(|| format!("does not begin with `{strict}`"))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).to_string_lossy().into_owned()
}

fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![repository()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a directory of the repository can be listed") {
            let entry = entry.expect("a directory of the repository can be listed");
            let kind = entry.file_type().expect("an entry has a type");
            let (path, name) = (entry.path(), entry.file_name());
            if kind.is_dir() && name != "target" && name != ".git" {
                dirs.push(path);
            } else if kind.is_file() && name != ".git" {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 10, "the repository is not at {}", repository().display());
    found
}
