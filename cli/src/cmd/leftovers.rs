//! What dead processes and closed terminals leave behind, as values. Looking changes nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use jp_store::lock::{LockInfo, State, alive};
use jp_store::session::{Mapping, stale};
use jp_store::store::Store;
use jp_store::{ConversationId, Error as StoreError};

use super::session::is_there;
use crate::ctx::View;
use crate::error::Result;

/// The session files, sorted by what is to be done about them.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Their terminals are gone.
    pub(crate) stale: Vec<PathBuf>,
    /// They cannot be read.
    pub(crate) unreadable: Vec<(PathBuf, StoreError)>,
    /// What the terminals are on, stale ones not counted.
    pub(crate) active: BTreeSet<ConversationId>,
}

impl Sessions {
    pub(crate) fn of(view: &View) -> Result<Self> {
        let mut found = Self::default();
        for (path, mapping) in view.store.sessions().list()? {
            match mapping {
                Ok(mapping) if is_stale(view, &mapping) => found.stale.push(path),
                Ok(mapping) => found.active.extend(mapping.active(&|id| view.standing(id))),
                Err(error) => found.unreadable.push((path, error)),
            }
        }
        Ok(found)
    }
}

fn is_stale(view: &View, mapping: &Mapping) -> bool {
    let any = |is: &dyn Fn(ConversationId) -> bool| mapping.history().iter().any(|entry| is(entry.id()));
    let session = mapping.session();
    stale(&session.source, is_there(session), any(&|id| view.snapshot.get(id).is_some()), any(&|id| view.is_locked(id)))
}

/// Lock files that nobody holds.
pub(crate) fn orphans(store: &Store) -> Result<Vec<LockInfo>> {
    let mut locks = store.locks().list()?;
    locks.retain(|lock| lock.state == State::Orphan);
    Ok(locks)
}

/// Half-written files of processes that are gone: what the next command that writes removes, and nothing else.
pub(crate) fn scratch(store: &Store) -> Vec<PathBuf> {
    let layout = store.layout();
    let dirs = std::iter::once(layout.store.tmp()).chain(layout.work.as_ref().map(jp_store::layout::WorkRoot::tmp));
    let names = dirs.flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let mut left: Vec<_> = names.map(|entry| entry.path()).filter(|path| is_left(path)).collect();
    left.sort();
    left
}

/// Why the link from the store to the project is not one; `None` when it is.
pub(crate) fn broken_link(store: &Store) -> Option<(PathBuf, String)> {
    let layout = store.layout();
    let link = layout.store.storage_link();
    if layout.is_single_root() || !layout.store.dir.exists() {
        return None;
    }
    let why = match fs::read_link(&link) {
        Ok(target) if target.is_dir() => return None,
        Ok(target) => format!("points to {}, which is not there", target.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is missing".to_owned(),
        Err(_) => "is not a link".to_owned(),
    };
    Some((link, why))
}

/// Scratch names begin with the number of the process they belong to. A name without one is nobody's to remove.
fn is_left(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let pid = name.split('-').next().and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| alive(pid) == Some(false))
}
