//! The commands on git's hooks. Nothing else here knows that git exists.

mod install;
mod repository;
mod status;
mod uninstall;

use serde::Serialize;

use self::repository::{Found, Repository};
use crate::ctx::Ctx;
use crate::error::{Error, Result};

group! {
    /// Let git commits hold what is current.
    ///
    /// A hook is a script that git runs at a certain moment. Ours runs before each commit: it brings `.jp/conversations` in
    /// step with the store and stages what git tracks of it. Where there is no `.jp`, it does nothing.
}

commands! {
    /// What can be done with hooks.
    Commands {
        Install => install,
        Uninstall => uninstall,
        Status => status,
    }
}

/// The line that does the essential part of it, for hooks that people have already.
const LINE: &str = "jp export --for-commit || exit";

/// What is told of the hook.
#[derive(Serialize)]
struct Record {
    hook: &'static str,
    path: String,
    state: &'static str,
    executable: bool,
    changed: bool,
}

impl Record {
    fn of(repository: &Repository, found: &Found, changed: bool) -> Self {
        Self {
            hook: repository::NAME,
            path: repository.hook().display().to_string(),
            state: found.word(),
            executable: found.executable(),
            changed,
        }
    }
}

/// The repository that the workspace is in, and what its hook is now.
fn look(ctx: &Ctx<'_>) -> Result<(Repository, Found)> {
    let repository = Repository::of(&ctx.store()?.layout().project)?;
    let found = repository.look()?;
    Ok((repository, found))
}

/// Why a hook is left alone, and what can be done about it.
fn left_alone(repository: &Repository, found: &Found) -> Error {
    let path = repository.hook().display().to_string();
    match found {
        Found::Edited { .. } => Error::no(format!("{path} is left alone: it is ours, but was edited")),
        Found::Other(what) => Error::no(format!("{path} is left alone: it is {what}"))
            .hint(format!("to have the same from your own hook, add this line to it: {LINE}")),
        Found::Nothing | Found::Former { .. } | Found::Current { .. } => Error::no(format!("{path} is left alone")),
    }
}
