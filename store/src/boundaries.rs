//! Checks that the directories a command is about to use are directories, and that the store, the worktree and the target
//! of an export or a mount do not lie in each other. A command that finds otherwise stops before it changes anything.

use std::path::{Path, PathBuf};

use crate::beneath::{WrongKind, trusted};
use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Error, Result};
use crate::files::kind;
use crate::layout::{ARCHIVE, Layout, StoreRoot, TRASH, WorkRoot};

/// Every directory with a fixed name must be one or be missing, and the two roots must be apart.
pub(crate) fn check(disk: &dyn Disk, layout: &Layout, data_dir: Option<&Path>) -> Result<()> {
    let workspaces = data_dir.map(|dir| dir.join("workspace"));
    let stores = std::iter::once(&layout.store).chain(&layout.siblings).flat_map(of_store);
    let work = layout.work.iter().flat_map(of_work);
    for dir in workspaces.into_iter().chain(stores).chain([layout.worktree_state()]).chain(work) {
        check_dir(disk, &dir)?;
    }
    match &layout.work {
        Some(work) => check_apart(&layout.store.dir, &work.conversations, "the workspace's conversations"),
        None => Ok(()),
    }
}

/// A mount may cover the worktree's own conversations, or any directory that has nothing of this workspace in it.
pub fn check_mount_point(layout: &Layout, point: &Path) -> Result<()> {
    check_apart(&layout.store.dir, point, "the mount point")?;
    let within = |inner: &Path, outer: &Path| trusted::is_within(inner, outer).context("look at", inner);
    let home = layout.shown().conversations;
    let is_home = within(point, &home)? && within(&home, point)?;
    if !is_home && within(&layout.storage, point)? {
        return Err(refuse("the mount point", point, "contains the workspace", &layout.storage));
    }
    if !is_home && within(point, &home)? {
        return Err(refuse("the mount point", point, "lies in the workspace's conversations", &home));
    }
    Ok(())
}

/// An export may go anywhere but into the store or the worktree's own conversations.
pub(crate) fn check_target(layout: &Layout, target: &Path) -> Result<()> {
    for taken in [&layout.store.dir, &layout.shown().conversations] {
        if trusted::is_within(target, taken).context("look at", target)? {
            return Err(refuse("the export's directory", target, "lies in", taken));
        }
    }
    Ok(())
}

fn check_apart(store: &Path, other: &Path, name: &str) -> Result<()> {
    if trusted::is_within(other, store).context("look at", other)? {
        return Err(refuse(name, other, "lies in the store", store));
    }
    if trusted::is_within(store, other).context("look at", store)? {
        return Err(refuse(name, other, "contains the store", store));
    }
    Ok(())
}

fn refuse(name: &str, dir: &Path, relation: &str, other: &Path) -> Error {
    Error::Refused(format!("{name}, {}, {relation} {}; nothing was changed", dir.display(), other.display()))
}

fn of_store(root: &StoreRoot) -> Vec<PathBuf> {
    let conversations = root.conversations();
    vec![
        root.dir.clone(),
        conversations.clone(),
        conversations.join(ARCHIVE),
        conversations.join(TRASH),
        root.locks(),
        root.sessions(),
        root.vfs(),
        root.tmp(),
        root.borrowed(),
        root.conflicts(),
    ]
}

fn of_work(root: &WorkRoot) -> Vec<PathBuf> {
    let top = &root.conversations;
    vec![top.clone(), top.join(ARCHIVE), top.join(TRASH), root.tmp()]
}

fn check_dir(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let wrong = match kind(disk, dir)? {
        Some(Kind::Dir) | None => return Ok(()),
        Some(Kind::Link) => WrongKind::LINK,
        Some(Kind::File) => WrongKind::NOT_DIR,
        Some(Kind::Other) => "a pipe, a socket or a device, not a directory",
    };
    Err(WrongKind::error(dir, wrong)).context("use", dir)
}
