//! One try at a conversation's lock: which file it is, whether somebody has it, and whether that somebody lets us
//! through. Nothing here waits for a holder.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::file::{self, Missing, Taken};
use super::unix::{Inode, Opened};
use super::{Guard, Holder, LockDir, is_missing, lets_through};
use crate::error::{Context as _, Result};
use crate::id::ConversationId;

/// How long JP's late removal of a file gets to happen.
const SETTLE: Duration = Duration::from_millis(5);

/// What came of one try.
pub(super) enum Attempt {
    Got(Guard),
    Busy(Option<Holder>),
    /// The files changed meanwhile.
    Again,
}

impl LockDir {
    /// Tries once. `refused` remembers the file that was last found busy.
    pub(super) fn attempt(&self, id: ConversationId, refused: &mut Option<Opened>) -> Result<Attempt> {
        let mut level = 0;
        let mut lender = None;
        loop {
            let (path, missing) = self.place(id, level)?;
            let (lock, opened) = match self.take(&path, missing)? {
                Taken::Absent | Taken::Deleted => return Ok(Attempt::Again),
                Taken::Busy(opened) => {
                    *refused = Some(opened);
                    let holder = self.holder_in(&path);
                    if !self.is_lender(holder.as_ref(), opened.inode) {
                        return Ok(Attempt::Busy(holder));
                    }
                    (lender, level) = (Some(path), level + 1);
                    continue;
                }
                Taken::Free(lock, opened) => (lock, opened),
            };
            // We remove our files while holding them, so one with a text, or one that was busy before, was another
            // program's, which may be about to remove it.
            if opened.size > 0 || refused.is_some_and(|before| before.is_same_file(&opened)) {
                thread::sleep(SETTLE);
                if !lock.is_current() {
                    return Ok(Attempt::Again);
                }
            }
            if level == 0 {
                match self.elsewhere(id, &path)? {
                    Elsewhere::Nowhere => {}
                    Elsewhere::Moved => return Ok(Attempt::Again),
                    Elsewhere::Held(holder) => return Ok(Attempt::Busy(holder)),
                }
            }
            if let Some((deeper, path)) = self.deepest_held(id, level)? {
                let holder = self.holder_in(&path);
                let lends = self.disk.stat(&path).is_ok_and(|stat| self.is_lender(holder.as_ref(), stat.into()));
                if !lends {
                    return Ok(Attempt::Busy(holder));
                }
                (lender, level) = (Some(path), deeper + 1);
                continue;
            }
            return Ok(match lender {
                Some(path) if !self.still_lends(&path)? => Attempt::Again,
                _ => Attempt::Got(Guard { id, level, lock }),
            });
        }
    }

    /// Where the lock of a conversation is now. The fallback is only ever used, never filled.
    pub(super) fn place(&self, id: ConversationId, level: u32) -> Result<(PathBuf, Missing)> {
        if level > 0 {
            return Ok((self.borrowed.join(format!("{id}.{level}.lock")), Missing::Make));
        }
        let name = format!("{id}.lock");
        let primary = self.primary.join(&name);
        if let Some(fallback) = self.fallback.as_ref().map(|dir| dir.join(&name))
            // Hardly anybody uses the fallback, so it is asked first.
            && self.exists(&fallback)?
            && !self.exists(&primary)?
        {
            return Ok((fallback, Missing::Leave));
        }
        Ok((primary, Missing::Make))
    }

    /// Whether the lock just taken at `path` is the one that others look at. Two processes may have chosen different
    /// directories; whoever took the second lock sees the first.
    fn elsewhere(&self, id: ConversationId, path: &Path) -> Result<Elsewhere> {
        let Some(fallback) = self.fallback.as_ref().map(|dir| dir.join(format!("{id}.lock"))) else {
            return Ok(Elsewhere::Nowhere);
        };
        // Where there is a file in the first place, which is ours just now, nobody looks at another.
        if path == fallback && self.place(id, 0)?.0 != path {
            return Ok(Elsewhere::Moved);
        }
        if path != fallback && file::is_locked(&*self.disk, &*self.processes, &fallback)? == Some(true) {
            return Ok(Elsewhere::Held(self.holder_in(&fallback)));
        }
        Ok(Elsewhere::Nowhere)
    }

    /// The deepest level above `level` that somebody holds.
    pub(super) fn deepest_held(&self, id: ConversationId, level: u32) -> Result<Option<(u32, PathBuf)>> {
        let mut deeper = self.files_in(&self.borrowed)?;
        deeper.retain(|(of, at, _)| *of == id && *at > level);
        deeper.sort_by_key(|(_, at, _)| std::cmp::Reverse(*at));
        for (_, at, path) in deeper {
            if file::is_locked(&*self.disk, &*self.processes, &path)? == Some(true) {
                return Ok(Some((at, path)));
            }
        }
        Ok(None)
    }

    /// Whether the holder of a lock lets us through. Who holds it is for the system to say: the number in the file may be
    /// that of another process in another pid namespace, or of one that is gone. Where the system does not tell, the
    /// file's word counts only if that process is seen to have the lock.
    fn is_lender(&self, holder: Option<&Holder>, inode: Inode) -> bool {
        if !self.processes.is_comparable() {
            return false;
        }
        let lets = |pid: u32| lets_through(&*self.processes, pid, self.actor, self.caller);
        let owners = self.processes.owners(inode.dev, inode.ino);
        if !owners.is_empty() {
            return owners.into_iter().any(lets);
        }
        let named = holder.and_then(|holder| holder.pid);
        named.is_some_and(|pid| lets(pid) && self.processes.has_lock(pid, inode.dev, inode.ino))
    }

    fn still_lends(&self, path: &Path) -> Result<bool> {
        let holder = self.holder_in(path);
        let lends = self.disk.stat(path).is_ok_and(|stat| self.is_lender(holder.as_ref(), stat.into()));
        Ok(lends && file::is_locked(&*self.disk, &*self.processes, path)? == Some(true))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match self.disk.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(error).context("stat", path),
        }
    }
}

enum Elsewhere {
    /// Nobody uses another file.
    Nowhere,
    /// Others look at another file now.
    Moved,
    /// Another file is held.
    Held(Option<Holder>),
}
