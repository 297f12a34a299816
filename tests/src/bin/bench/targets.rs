//! The places where the same tree is looked at.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A tree, by what is behind it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) root: PathBuf,
}

/// The names of all targets there can be, in the order of the tables.
pub(crate) const REAL: &str = "real";
pub(crate) const MOUNT: &str = "mount";
pub(crate) const BINDFS: &str = "bindfs";

/// Fails unless every target shows the same names and sizes as the first. What it is good for is measured afterwards.
pub(crate) fn compare(targets: &[Target]) -> Result<usize, Box<dyn Error>> {
    let [first, others @ ..] = targets else { return Ok(0) };
    let names = names(&first.root)?;
    for other in others {
        let theirs = self::names(&other.root)?;
        let differ = names.iter().zip(&theirs).find(|(one, other)| one != other);
        if let Some((one, another)) = differ {
            return Err(format!("{} has {one:?} where {} has {another:?}", first.name, other.name).into());
        }
        if names.len() != theirs.len() {
            return Err(format!("{} has {} names, {} {}", first.name, names.len(), other.name, theirs.len()).into());
        }
    }
    Ok(names.len())
}

/// Every path beneath a root with the size of the file; directories have none.
fn names(root: &Path) -> io::Result<Vec<(PathBuf, Option<u64>)>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let dir = root.join(&below);
        let told = |err: io::Error| io::Error::new(err.kind(), format!("cannot list {}: {err}", dir.display()));
        for entry in fs::read_dir(&dir).map_err(told)? {
            let entry = entry.map_err(told)?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path.clone());
                found.push((path, None));
            } else {
                found.push((path, Some(entry.metadata()?.len())));
            }
        }
    }
    found.sort();
    Ok(found)
}
