//! Checks that the directories a command is about to use are directories, and that the store, the worktree and the target
//! of an export or a mount do not lie in each other. A command that finds otherwise stops before it changes anything.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::beneath::{WrongKind, trusted};
use crate::disk::{Disk, Kind};
use crate::error::{Context as _, Error, Result};
use crate::files::kind;
use crate::layout::{ARCHIVE, Layout, STORAGE, StoreRoot, TRASH, WorkRoot};
use crate::mountinfo::{self, Location, Mount};
use crate::scan::is_absent;

/// Every directory with a fixed name must be one or be missing, and the two roots must be apart.
pub(crate) fn check(disk: &dyn Disk, layout: &Layout, data_dir: Option<&Path>) -> Result<()> {
    let workspaces = data_dir.map(|dir| dir.join("workspace"));
    let stores = std::iter::once(&layout.store).chain(&layout.siblings).flat_map(of_store);
    let work = layout.work.iter().flat_map(of_work);
    for dir in workspaces.into_iter().chain(stores).chain([layout.worktree_state()]).chain(work) {
        check_dir(disk, &dir)?;
    }
    let Some(work) = &layout.work else { return Ok(()) };
    let ground = Ground::read();
    let used = ground.used(&work.conversations, of_work(work))?;
    for store in std::iter::once(&layout.store).chain(&layout.siblings) {
        ground.check_apart(store, &used, "the workspace's conversations")?;
    }
    Ok(())
}

/// A mount may cover the worktree's own conversations, or any directory that has nothing of this workspace in it.
pub fn check_mount_point(layout: &Layout, point: &Path) -> Result<()> {
    let ground = Ground::read();
    let used = ground.used(point, vec![point.to_owned()])?;
    ground.check_apart(&layout.store, &used, "the mount point")?;
    let within = |inner: &Path, outer: &Path| ground.is_within(inner, outer).context("look at", inner);
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

/// An export may go anywhere but to where directories have a meaning: into the data directory, which has the stores, into the
/// worktree's own conversations, and into any directory that a project keeps for `jp` or for git.
pub(crate) fn check_target(layout: &Layout, data_dir: Option<&Path>, target: &Path) -> Result<()> {
    let ground = Ground::read();
    let name = "the export's directory";
    if let Some(data_dir) = data_dir
        && ground.is_within(target, data_dir).context("look at", target)?
    {
        return Err(refuse(name, target, "lies in the data directory", data_dir));
    }
    let spot = ground.spot(target).context("look at", target)?;
    if let Some(kept) =
        spot.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == STORAGE || name == ".git"))
    {
        return Err(refuse(name, target, "lies in a directory that a project keeps for itself,", kept));
    }
    let shown = layout.shown();
    let stores = std::iter::once(&layout.store).chain(&layout.siblings).map(|root| (&root.dir, of_store(root)));
    let ours = ground.used(target, vec![target.to_owned()])?;
    for (top, dirs) in stores.chain([(&shown.conversations, of_work(&shown))]) {
        let taken = ground.used(top, dirs)?;
        let inside = ours.iter().any(|target| taken.iter().any(|taken| target.is_within(taken)));
        if inside || ground.is_within(target, top).context("look at", target)? {
            return Err(refuse(name, target, "lies in", top));
        }
    }
    Ok(())
}

/// What is mounted where, by which one directory is found to lie in another although no path leads from one to the other.
struct Ground {
    mounts: Vec<Mount>,
}

/// A directory and all that can be told of where it lies.
struct Used {
    path: PathBuf,
    /// Its path without links.
    spot: PathBuf,
    inode: Option<(u64, u64)>,
    locations: Vec<Location>,
}

impl Used {
    fn is_within(&self, outer: &Self) -> bool {
        let by_inode = self.inode.is_some() && self.inode == outer.inode;
        by_inode
            || self.spot.starts_with(&outer.spot)
            || self.locations.iter().any(|inner| outer.locations.iter().any(|outer| inner.is_within(outer)))
    }
}

impl Ground {
    fn read() -> Self {
        Self { mounts: mountinfo::read() }
    }

    /// The path without links. A mount point of ours is not looked at, because its process may not answer.
    fn spot(&self, path: &Path) -> io::Result<PathBuf> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return trusted::canonical_or_new(path);
        };
        if !self.mounts.iter().any(Mount::is_ours) {
            return trusted::canonical_or_new(path);
        }
        let spot = trusted::canonical_or_new(parent)?.join(name);
        if self.is_ours(&spot) { Ok(spot) } else { trusted::canonical_or_new(&spot) }
    }

    fn is_ours(&self, spot: &Path) -> bool {
        mountinfo::at(&self.mounts, spot).is_some_and(Mount::is_ours)
    }

    /// Where a path without links lies. A directory that a mount of ours covers lies beneath it too.
    fn locations(&self, spot: &Path) -> Vec<Location> {
        let covered = || Some(mountinfo::locate(&self.mounts, spot.parent()?)?.join(spot.file_name()?));
        let beneath = if self.is_ours(spot) { covered() } else { None };
        mountinfo::locate(&self.mounts, spot).into_iter().chain(beneath).collect()
    }

    /// What is known of the directories with fixed names in this one, none of which is a link.
    fn used(&self, top: &Path, dirs: Vec<PathBuf>) -> Result<Vec<Used>> {
        let spot = self.spot(top).context("look at", top)?;
        let used = |path: PathBuf| {
            let at = match path.strip_prefix(top) {
                Ok(rest) if !rest.as_os_str().is_empty() => spot.join(rest),
                _ => spot.clone(),
            };
            let behind_ours = self.is_ours(&spot) || self.is_ours(&at);
            let inode = if behind_ours { None } else { inode(&path).context("look at", &path)? };
            Ok(Used { inode, locations: self.locations(&at), spot: at, path })
        };
        dirs.into_iter().map(used).collect()
    }

    /// Whether a directory is another one or lies in it.
    fn is_within(&self, inner: &Path, outer: &Path) -> io::Result<bool> {
        let (from, to) = (self.spot(inner)?, self.spot(outer)?);
        let (inside, outside) = (self.locations(&from), self.locations(&to));
        if from.starts_with(&to) || inside.iter().any(|inner| outside.iter().any(|outer| inner.is_within(outer))) {
            return Ok(true);
        }
        if self.is_ours(&from) || self.is_ours(&to) {
            return Ok(false);
        }
        trusted::is_within(inner, outer)
    }

    fn check_apart(&self, store: &StoreRoot, others: &[Used], name: &str) -> Result<()> {
        let Some(top) = others.first() else { return Ok(()) };
        let own = self.used(&store.dir, of_store(store))?;
        let any =
            |test: &dyn Fn(&Used, &Used) -> bool| own.iter().any(|own| others.iter().any(|other| test(own, other)));
        // Without a table only the inodes on the way tell.
        let within = |inner: &Path, outer: &Path| {
            if self.mounts.is_empty() { trusted::is_within(inner, outer).context("look at", inner) } else { Ok(false) }
        };
        if any(&|own, other| other.is_within(own)) || within(&top.path, &store.dir)? {
            return Err(refuse(name, &top.path, "lies in the store", &store.dir));
        }
        if any(&|own, other| own.is_within(other)) || within(&store.dir, &top.path)? {
            return Err(refuse(name, &top.path, "contains the store", &store.dir));
        }
        Ok(())
    }
}

/// The numbers of a directory; `None` if it is missing.
fn inode(dir: &Path) -> io::Result<Option<(u64, u64)>> {
    match trusted::follow(dir) {
        Ok(meta) => Ok(Some((meta.dev(), meta.ino()))),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
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
