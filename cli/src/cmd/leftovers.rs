//! What dead processes and closed terminals leave behind, as values. Looking changes nothing.

use std::collections::BTreeSet;
use std::path::PathBuf;

use jp_store::beneath::trusted;
use jp_store::lock::{LockInfo, State};
use jp_store::session::{Mapping, stale};
use jp_store::store::Store;
use jp_store::{ConversationId, Error as StoreError};

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
    stale(
        &session.source,
        session.is_there(),
        any(&|id| view.snapshot.get(id).is_some()),
        any(&|id| view.is_locked(id)),
    )
}

/// Lock files that nobody holds.
pub(crate) fn orphans(store: &Store) -> Result<Vec<LockInfo>> {
    let mut locks = store.locks().list()?;
    locks.retain(|lock| lock.state == State::Orphan);
    Ok(locks)
}

/// Why the link from the store to the project is not one; `None` when it is.
pub(crate) fn broken_link(store: &Store) -> Option<(PathBuf, String)> {
    let layout = store.layout();
    let link = layout.store.storage_link();
    if layout.is_single_root() || !trusted::exists(&layout.store.dir) {
        return None;
    }
    let why = match store.disk().read_link(&link) {
        Ok(target) if trusted::is_dir(&target) => return None,
        Ok(target) => format!("points to {}, which is not there", target.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is missing".to_owned(),
        Err(_) => "is not a link".to_owned(),
    };
    Some((link, why))
}
