//! What whoever runs the tests has said and provides: settings, and programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::skip;

/// Whether all of these programs are on the system, for any user. Says so when one is not.
#[track_caller]
pub fn have(programs: &[&str]) -> bool {
    let dirs = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let missing = programs.iter().find(|name| !dirs.iter().any(|dir| Path::new(dir).join(name).exists()));
    let Some(missing) = missing else { return true };
    assert!(setting("JP_REQUIRE_MOUNT").is_none(), "mounts have to be tested: there is no {missing}");
    skip(&format!("there is no {missing}"));
    false
}

/// What the caller of the tests says about them.
pub fn setting(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says how much of them there is to be")]
    let said = std::env::var_os(name)?;
    said.to_str()?.parse().ok().filter(|value| *value != 0)
}

/// Words that the caller of the tests gives, with commas between them.
pub fn words(name: &str) -> Vec<String> {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says which of them there are to be")]
    let said = std::env::var(name).unwrap_or_default();
    said.split(',').map(str::trim).filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
}

/// A program that the caller of the tests names, where it is there.
pub fn named_program(name: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where their programs are")]
    let said = std::env::var_os(name)?;
    Some(PathBuf::from(said)).filter(|path| path.exists())
}

/// Copies a program so that it can be run at once. A process of its own does it: had we the copy open for writing, so had,
/// for a moment, whatever another test is just starting, and a program that is being written cannot be run.
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "cannot copy {}", from.display());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("a copy is ours");
}
