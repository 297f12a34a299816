//! The tests of a mount that work on it from inside the test itself, once more by a user without rights: the same
//! executable runs them as that user, who mounts by way of `fusermount3`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use jp_tests::{copy_program, jp_binary, skip};
use nix::unistd::geteuid;

/// The user without rights.
const NOBODY: u32 = 65_534;

/// What is run again. The rest of the mount's tests runs as both users by itself.
const AGAIN: [&str; 6] = [
    "mount::coherence::",
    "mount::crash::",
    "mount::promises::a_slow_writer_is_never_seen_half",
    "mount::stress::",
    "mount::watches::",
    "vfs::suite::",
];

#[test]
fn everything_else_without_rights() {
    if !geteuid().is_root() {
        skip("whoever runs this has no rights to give up");
        return;
    }
    // The directory of the build may be closed to others.
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let deps = dir.path().join("deps");
    fs::create_dir(&deps).expect("an empty directory takes a new name");
    let tests = deps.join("it");
    for (from, to) in [(std::env::current_exe().expect("we run"), &tests), (jp_binary(), &dir.path().join("jp"))] {
        copy_program(&from, to);
    }
    let mut command = Command::new(&tests);
    command
        .args(AGAIN)
        .args(["--test-threads", "4"])
        .env("JP_CRASH_ROUNDS", "20")
        .env("JP_STRESS_SECONDS", "8")
        .env("HOME", dir.path())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY);
    let output = command.output().expect("the executable runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = told.rsplit_once("test result: ok. ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    assert!(passed.is_some_and(|passed: u32| passed > 90), "too few were run:\n{told}");
}
