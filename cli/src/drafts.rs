//! Saves through a mount that are not in the store: drafts of managed files, and new conversations that are not whole. They
//! are on disk beside the store. A draft's file is a line of JSON that says why, then the bytes as they were saved.

mod act;
mod record;

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use jp_fs::draft::whole;
use jp_fs::unmounted::DraftFiles;
use jp_store::ConversationId;
use jp_store::beneath::{AllowedDirs, LARGEST, is_wrong_kind};
use jp_store::disk::Kind;
use jp_store::reconcile::{Digest, ManagedFile};
use jp_store::time::Timestamp;
use serde::Deserialize;

pub(crate) use self::act::{Owner, answer};
pub(crate) use self::record::{Record, State, chosen};
use crate::error::{Error, Result};
use crate::mounts::StateDir;

/// No header is longer; what is longer is not one.
const LONGEST: u64 = 1 << 16;

/// A draft as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) id: ConversationId,
    pub(crate) file: ManagedFile,
    pub(crate) header: Header,
    /// How much was saved.
    pub(crate) bytes: u64,
}

/// A new conversation that is not in the store yet, as it is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) id: ConversationId,
    /// The paths of its files in its directory.
    pub(crate) files: Vec<PathBuf>,
    /// How much was saved.
    pub(crate) bytes: u64,
    /// When one of its files was last changed.
    pub(crate) since: Option<Timestamp>,
}

/// Why something is a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Header {
    /// What the store had when the draft began; `None` if it had nothing.
    #[serde(default)]
    pub(crate) base: Option<Digest>,
    /// What is wrong; `None` when nothing is, and it only waits.
    #[serde(default)]
    pub(crate) reason: Option<Reason>,
    /// When it was saved, as RFC 3339.
    #[serde(default)]
    pub(crate) since: Option<String>,
    /// What it waits for.
    #[serde(default)]
    pub(crate) waiting: Option<String>,
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Reason {
    /// 0 where it is the whole document.
    #[serde(default)]
    pub(crate) line: usize,
    #[serde(default)]
    pub(crate) column: usize,
    pub(crate) reason: String,
}

/// How the drafts of a worktree are reached.
pub(crate) fn files_of(state: &StateDir) -> DraftFiles {
    DraftFiles { files: state.files().clone(), dir: state.drafts() }
}

/// Every draft below a directory, by conversation and name. One whose header makes no sense is a draft all the same.
pub(crate) fn list(drafts: &DraftFiles) -> Result<Vec<Draft>> {
    let DraftFiles { files, dir } = drafts;
    let listed = || {
        let mut found = Vec::new();
        for (path, name, _) in entries(files, dir)? {
            let Some(id) = name.parse().ok().and_then(ConversationId::new) else { continue };
            for (path, name, _) in entries(files, &path)? {
                if let Some(file) = ManagedFile::from_name(&name)
                    && let Some((mut header, bytes)) = read(files, &path)?
                {
                    header.explain(files, &path, file)?;
                    found.push(Draft { id, file, header, bytes });
                }
            }
        }
        found.sort_by_key(|draft| (draft.id, draft.file.name()));
        Ok(found)
    };
    listed().map_err(|error: io::Error| Error::io("read", dir, &error))
}

/// Every conversation below a directory that is not in the store yet, by id.
pub(crate) fn list_arrivals(drafts: &DraftFiles) -> Result<Vec<Arrival>> {
    let files = &drafts.files;
    let dir = drafts.dir.join("new");
    let listed = || {
        let mut found = Vec::new();
        for (path, name, kind) in entries(files, &dir)? {
            let id = name.parse().ok().and_then(ConversationId::new).filter(|_| kind == Kind::Dir);
            let Some(id) = id else { continue };
            let mut arrival = Arrival { id, files: Vec::new(), bytes: 0, since: None };
            arrival.add(files, &path, Path::new(""))?;
            found.push(arrival);
        }
        found.sort_by_key(|arrival| arrival.id);
        Ok(found)
    };
    listed().map_err(|error: io::Error| Error::io("read", &dir, &error))
}

impl Arrival {
    /// Adds the files in a directory of it.
    fn add(&mut self, files: &AllowedDirs, dir: &Path, inner: &Path) -> io::Result<()> {
        let Some(listed) = there(files.list(dir))? else { return Ok(()) };
        for (name, kind) in listed {
            let (path, inner) = (dir.join(&name), inner.join(&name));
            if kind == Kind::Dir {
                self.add(files, &path, &inner)?;
                continue;
            }
            let Some(stat) = there(files.stat(&path))? else { continue };
            self.bytes += stat.size;
            let changed = Timestamp::from_nanosecond(i128::from(stat.mtime)).ok();
            self.since = self.since.max(changed);
            self.files.push(inner);
        }
        self.files.sort();
        Ok(())
    }
}

impl Header {
    /// Finds out what is wrong with a draft that was written a moment before its process died: its header does not tell.
    fn explain(&mut self, files: &AllowedDirs, path: &Path, file: ManagedFile) -> io::Result<()> {
        if self.reason.is_some() || self.waiting.is_some() {
            return Ok(());
        }
        let Some(text) = there(files.read_within(path, LARGEST))? else { return Ok(()) };
        let body = text.iter().position(|&byte| byte == b'\n').map_or(&[][..], |end| &text[end + 1..]);
        self.reason = whole(file, body).err().map(|error| Reason {
            line: error.line,
            column: error.column,
            reason: error.reason,
        });
        Ok(())
    }
}

fn parse(line: &[u8]) -> Header {
    serde_json::from_slice(line).unwrap_or_else(|error| Header {
        reason: Some(Reason { line: 0, column: 0, reason: format!("its header makes no sense: {error}") }),
        ..Header::default()
    })
}

/// The header and the size of the rest; `None` when the file is gone or no file.
fn read(files: &AllowedDirs, path: &Path) -> io::Result<Option<(Header, u64)>> {
    let Some((file, stat)) = there(files.open(path))? else { return Ok(None) };
    let mut line = Vec::new();
    BufReader::new(file.take(LONGEST)).read_until(b'\n', &mut line)?;
    let bytes = stat.len().saturating_sub(line.len() as u64);
    Ok(Some((parse(&line), bytes)))
}

/// What is in a directory, temporaries left out.
fn entries(files: &AllowedDirs, dir: &Path) -> io::Result<Vec<(PathBuf, String, Kind)>> {
    let Some(entries) = there(files.list(dir))? else { return Ok(Vec::new()) };
    let named = entries.into_iter().filter_map(|(name, kind)| Some((name.into_string().ok()?, kind)));
    Ok(named.filter(|(name, _)| !name.starts_with('.')).map(|(name, kind)| (dir.join(&name), name, kind)).collect())
}

/// A draft that becomes good meanwhile is not there any more.
fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        // Nobody saves such a thing.
        Err(error) if is_wrong_kind(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn headers() {
        let reason = |line, column, reason: &str| Some(Reason { line, column, reason: reason.to_owned() });
        let check = |text: &str, expected: Header| assert_eq!(parse(text.as_bytes()), expected, "{text}");
        check(
            r#"{"base":null,"reason":{"line":3,"column":5,"reason":"trailing comma"},"since":"2025-07-20T12:00:00Z","waiting":null}"#,
            Header {
                reason: reason(3, 5, "trailing comma"),
                since: Some("2025-07-20T12:00:00Z".into()),
                ..Header::default()
            },
        );
        check(r#"{"reason":null,"waiting":"lock"}"#, Header { waiting: Some("lock".into()), ..Header::default() });
        check("{}", Header::default());
        assert!(parse(b"nonsense").reason.is_some_and(|reason| reason.reason.starts_with("its header makes no sense")));
    }

    fn world(dir: &Path) -> (DraftFiles, impl Fn(&str, &str)) {
        let files = AllowedDirs::default();
        files.allow(dir).unwrap();
        let root = dir.to_owned();
        let write = move |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        (DraftFiles { files, dir: dir.to_owned() }, write)
    }

    #[test]
    fn lists() {
        let dir = tempfile::tempdir().unwrap();
        let (drafts, write) = world(dir.path());
        assert_eq!(list(&DraftFiles { dir: dir.path().join("none"), ..drafts.clone() }).unwrap(), []);
        write("17528842001/metadata.json", "{\"waiting\":\"lock\"}\n{\"title\":");
        write("17528832001/events.json", "{}\n");
        write("17528832001/base_config.json", "{}\n1\n2\n");
        write("17528832001/.events.json.tmp", "{}\n");
        write("17528832001/dir/file", "");
        write("not-an-id/events.json", "{}\n");
        write("17528852001", "a file");
        symlink(dir.path().join("17528832001"), dir.path().join("17528862001")).unwrap();
        symlink("events.json", dir.path().join("17528842001/events.json")).unwrap();
        let found = list(&drafts).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.id.deciseconds(), one.file.name(), one.bytes)).collect();
        let expected =
            [(17528832001, "base_config.json", 4), (17528832001, "events.json", 0), (17528842001, "metadata.json", 9)];
        assert_eq!(found, expected, "what is behind a link is not a draft");
    }

    #[test]
    fn lists_what_is_arriving() {
        let dir = tempfile::tempdir().unwrap();
        let (drafts, write) = world(dir.path());
        write("new/17528842001/metadata.json", "{}");
        write("new/17528842001/notes/a.md", "hello");
        write("new/17528842001.json", "{}");
        write("new/x/metadata.json", "{}");
        symlink("17528842001", dir.path().join("new/17528852001")).unwrap();
        let found = list_arrivals(&drafts).unwrap();
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.id.deciseconds(), one.bytes), (17528842001, 7));
        assert_eq!(one.files, [PathBuf::from("metadata.json"), PathBuf::from("notes/a.md")]);
        assert!(one.since.is_some());
    }
}
