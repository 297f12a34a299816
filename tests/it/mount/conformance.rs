//! A suite for filesystems at large, inside a conversation's directory. What fails there is listed in `docs/SEMANTICS.md`
//! with its reason, and that list is exact: a failure that is not on it, and an entry that does not fail, are both noticed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use jp_tests::{Mounted, User, named_program, repository, setting, skip};
use nix::unistd::geteuid;

/// The groups that concern what a conversation's directory can hold.
const GROUPS: [&str; 8] = ["open", "mkdir", "rmdir", "rename", "unlink", "truncate", "utimensat", "chmod"];

/// Switches users by names that every system has.
const SETTINGS: &str = r#"
[features]
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

#[test]
fn fails_only_where_it_says_so() {
    let Some(suite) = suite() else { return };
    let Some(mounted) = Mounted::new(User::Own, &["--allow-other"]) else { return };
    let settings = mounted.root().join("pjdfstest.toml");
    fs::write(&settings, SETTINGS).expect("the project can be written to");
    let script = format!(
        "chmod 777 \"$D\"; '{}' -c '{}' -p \"$PWD/$D\" {} || true",
        suite.display(),
        settings.display(),
        GROUPS.join(" ")
    );
    let output = mounted.sh(&script);
    let output = output.stdout;
    let outcome = |word: &str| -> BTreeSet<String> {
        let lines = output.lines().filter(|line| line.split_whitespace().nth(1) == Some(word));
        lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    let (passed, failed, expected) = (outcome("ok"), outcome("FAILED"), expected());
    assert!(passed.len() > 90, "only {} passed: {output}", passed.len());
    let surprises: Vec<_> = failed.difference(&expected).collect();
    assert!(surprises.is_empty(), "these fail and are not in docs/SEMANTICS.md: {surprises:#?}");
    let better: Vec<_> = expected.difference(&failed).collect();
    assert!(better.is_empty(), "these do not fail and are in docs/SEMANTICS.md: {better:#?}");
}

/// The suite's program, where `scripts/test` has put it.
fn suite() -> Option<PathBuf> {
    let program = named_program("JP_PJDFSTEST").filter(|_| geteuid().is_root());
    let required = setting("JP_REQUIRE_MOUNT").is_some();
    assert!(program.is_some() || !required, "the suite for filesystems is missing; scripts/test installs it");
    if program.is_none() {
        skip("the suite for filesystems needs root, and its program in JP_PJDFSTEST");
    }
    program
}

/// The names in the table of the document, with `{a,b}` written out.
fn expected() -> BTreeSet<String> {
    let text = fs::read_to_string(repository().join("docs/SEMANTICS.md")).expect("the document is there");
    let table = text.split("### Where it is not like a disk").nth(1).unwrap_or_default();
    let rows = table.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = rows.skip(2).filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.flat_map(written_out).collect()
}

fn written_out(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap_or((rest, ""));
    choices.split(',').flat_map(|choice| written_out(&format!("{before}{choice}{after}"))).collect()
}

#[test]
fn braces() {
    assert_eq!(written_out("a::b"), ["a::b"]);
    assert_eq!(written_out("{a,b}::{c,d}"), ["a::c", "a::d", "b::c", "b::d"]);
}
