//! `jp init`: makes a workspace.

use std::io;
use std::path::{Path, PathBuf};

use jp_store::Error as StoreError;
use jp_store::beneath::{AllowedDirs, Over, trusted};
use jp_store::disk::{Disk as _, RealDisk};
use jp_store::layout::{CONVERSATIONS, STORAGE};
use jp_store::mountinfo;
use jp_store::workspace::{Workspace, WorkspaceId};
use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Exit, Result};

/// Make a workspace of a directory.
///
/// Gives the directory a `.jp` with an id of its own and a place for conversations. Asks nothing, and changes nothing
/// where there is a workspace already: inside of one it says which, and `jp init .` makes another one within it. An id
/// that is there is never replaced, because it is what ties the project to its conversations.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp init                here
  jp init ~/src/tool     there; the directory is made if need be
  jp init --json | jq -r .id")]
pub(crate) struct Args {
    /// The directory [default: the current one].
    path: Option<PathBuf>,
    /// Give a new id to a project whose conversations are there but whose id is lost. Their store is not found by it.
    #[arg(long)]
    new_id: bool,
}

#[derive(Serialize)]
struct Made {
    root: String,
    id: String,
    created: bool,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let cwd = ctx.cwd()?;
    if args.path.is_none() {
        match Workspace::find(&RealDisk::default(), &cwd) {
            Ok(found) if found.project != cwd => {
                ctx.ui.note("hint: `jp init .` makes a workspace of this very directory");
                return tell(ctx, &found, false);
            }
            // What is wrong with a workspace above is no reason not to have one here.
            Ok(_) | Err(_) => {}
        }
    }
    let root = cwd.join(args.path.unwrap_or_default());
    trusted::create_dirs(&root).map_err(|error| Error::io("make", &root, &error))?;
    let root = trusted::canonical(&root).map_err(|error| Error::io("look at", &root, &error))?;
    let storage = root.join(STORAGE);
    let conversations = storage.join(CONVERSATIONS);
    let disk = RealDisk::default();
    let files = disk.allowed();
    files.allow(&storage).map_err(|error| Error::io("use", &storage, &error))?;
    for dir in [&storage, &conversations] {
        match files.create_dir(dir, 0o777) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| Error::io("make", dir, &error))?,
        }
    }
    if !args.new_id {
        refuse_lost_id(files, &storage, &conversations)?;
    }
    let created = write_id(files, &storage, &WorkspaceId::mint(ctx.env.now()))?;
    let found = Workspace::find(&disk, &root).map_err(|error| match error {
        error @ StoreError::Malformed { .. } => {
            Error::from(error).hint("if this project never had any conversations, remove the file and try again")
        }
        error => error.into(),
    })?;
    tell(ctx, &found, created)
}

/// Conversations without an id had one. A new one would cut them off from their store, so nobody gets it by accident.
fn refuse_lost_id(files: &AllowedDirs, storage: &Path, conversations: &Path) -> Result<()> {
    let path = storage.join(".id");
    if files.stat(&path).is_ok() {
        return Ok(());
    }
    // What is mounted there has conversations, and its process may not answer.
    if !mountinfo::is_ours_mounted(conversations) {
        let found = files.list(conversations).map_err(|error| Error::io("list", conversations, &error))?;
        if found.is_empty() {
            return Ok(());
        }
    }
    Err(Error::no(format!("{} is missing, and there are conversations beside it", path.display()))
        .hint("`git checkout .jp/.id` brings it back, if it was committed")
        .hint("`jp init --new-id` gives the project a new id; what is in the old one's store stays there"))
}

/// Writes the id where there is none. `false` when there is one.
fn write_id(files: &AllowedDirs, storage: &Path, id: &WorkspaceId) -> Result<bool> {
    let path = storage.join(".id");
    // Looked at first, so that an existing workspace need not be writable.
    if files.stat(&path).is_ok() {
        return Ok(false);
    }
    match files.put(&path, id.to_file().as_bytes(), 0o666, Over::Nothing) {
        Ok(()) => Ok(true),
        // Somebody else was quicker; then theirs is the id.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::io("write", &path, &error)),
    }
}

fn tell(ctx: &Ctx<'_>, workspace: &Workspace, created: bool) -> Result<Exit> {
    let root = workspace.project.display().to_string();
    let id = workspace.id.to_string();
    ctx.ui.note(&if created {
        format!("Made a workspace in {root}, with the id {id}.")
    } else {
        format!("{root} is a workspace already, with the id {id}.")
    });
    if ctx.ui.json() {
        ctx.ui.object(&Made { root, id, created })?;
    }
    Ok(Exit::DONE)
}
