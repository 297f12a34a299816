//! The losing side of a conflict, kept whole under `vfs/conflicts/<id>/<time>/` until somebody throws it away.

use std::path::{Path, PathBuf};

use crate::disk::{Disk, Kind};
use crate::error::Result;
use crate::files;
use crate::id::ConversationId;
use crate::time::Timestamp;

/// One kept loser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The conversation it belonged to; `None` for what belonged to a silo as a whole.
    pub id: Option<ConversationId>,
    /// Its directory.
    pub path: PathBuf,
    /// When it was put there.
    pub at: Option<Timestamp>,
    /// What is in it.
    pub files: Vec<String>,
}

/// Everything that is kept, oldest first.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for owner in dirs(disk, dir)? {
        let owner_dir = dir.join(&owner);
        for time in dirs(disk, &owner_dir)? {
            let path = owner_dir.join(&time);
            let names = files::entries(disk, &path)?.into_iter().map(|file| file.name.to_string_lossy().into_owned());
            let mut files: Vec<_> = names.collect();
            files.sort();
            let at = time.split('_').next().and_then(from_dirname);
            kept.push(Kept { id: ConversationId::parse_loose(&owner), path, at, files });
        }
    }
    kept.sort_by(|a, b| (a.at, &a.path).cmp(&(b.at, &b.path)));
    Ok(kept)
}

/// The name of a kept loser: its time, which sorts and is a legal file name everywhere.
pub(crate) fn dirname(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%S.%9fZ").to_string()
}

fn from_dirname(name: &str) -> Option<Timestamp> {
    jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S%.fZ", name)
        .ok()
        .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok())
        .map(|zoned| zoned.timestamp())
}

fn dirs(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    let found = files::entries(disk, dir)?.into_iter().filter(|entry| entry.kind == Kind::Dir);
    Ok(found.map(|entry| entry.name.to_string_lossy().into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_times() {
        let at: Timestamp = "2025-07-19T00:00:05.123456789Z".parse().unwrap();
        assert_eq!(dirname(at), "20250719T000005.123456789Z");
        assert_eq!(from_dirname(&dirname(at)), Some(at));
        assert_eq!(from_dirname("notes"), None);
    }
}
