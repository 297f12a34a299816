//! Saves through a mount that are not whole documents: kept on disk beside the store until a good version comes.
//! A file is a line of JSON that says why, then the bytes as they were saved.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::beneath::{AllowedDirs, is_wrong_kind};
use serde::Deserialize;

/// No header is longer; what is longer is not one.
const LONGEST: u64 = 1 << 16;

/// A draft as it lies on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) id: ConversationId,
    pub(crate) file: String,
    pub(crate) header: Header,
    /// How much was saved.
    pub(crate) bytes: u64,
}

/// Why something is a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Header {
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

/// Every draft below a directory, by conversation and name. One whose header makes no sense is a draft all the same.
pub(crate) fn list(files: &AllowedDirs, dir: &Path) -> io::Result<Vec<Draft>> {
    let mut found = Vec::new();
    for (path, name) in entries(files, dir)? {
        let Some(id) = name.parse().ok().and_then(ConversationId::new) else { continue };
        for (path, file) in entries(files, &path)? {
            if let Some((header, bytes)) = read(files, &path)? {
                found.push(Draft { id, file, header, bytes });
            }
        }
    }
    found.sort_by(|a, b| (a.id, &a.file).cmp(&(b.id, &b.file)));
    Ok(found)
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
fn entries(files: &AllowedDirs, dir: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let Some(entries) = there(files.list(dir))? else { return Ok(Vec::new()) };
    let names = entries.into_iter().filter_map(|(name, _)| name.into_string().ok());
    Ok(names.filter(|name| !name.starts_with('.')).map(|name| (dir.join(&name), name)).collect())
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

    use super::*;

    #[test]
    fn headers() {
        let reason = |line, column, reason: &str| Some(Reason { line, column, reason: reason.to_owned() });
        let check = |text: &str, expected: Header| assert_eq!(parse(text.as_bytes()), expected, "{text}");
        check(
            r#"{"base":"x","reason":{"line":3,"column":5,"reason":"trailing comma"},"since":"2025-07-20T12:00:00Z","waiting":null}"#,
            Header {
                reason: reason(3, 5, "trailing comma"),
                since: Some("2025-07-20T12:00:00Z".into()),
                waiting: None,
            },
        );
        check(r#"{"reason":null,"waiting":"lock"}"#, Header { waiting: Some("lock".into()), ..Header::default() });
        check("{}", Header::default());
        assert!(parse(b"nonsense").reason.is_some_and(|reason| reason.reason.starts_with("its header makes no sense")));
    }

    #[test]
    fn lists() {
        let dir = tempfile::tempdir().unwrap();
        let files = AllowedDirs::default();
        files.allow(dir.path()).unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(list(&files, &dir.path().join("none")).unwrap(), []);
        write("17528842001/metadata.json", "{\"waiting\":\"lock\"}\n{\"title\":");
        write("17528832001/events.json", "{}\n");
        write("17528832001/base_config.json", "{}\n1\n2\n");
        write("17528832001/.events.json.tmp", "{}\n");
        write("17528832001/dir/file", "");
        write("not-an-id/events.json", "{}\n");
        write("17528852001", "a file");
        let found = list(&files, dir.path()).unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.id.deciseconds(), &*one.file, one.bytes)).collect();
        let expected =
            [(17528832001, "base_config.json", 4), (17528832001, "events.json", 0), (17528842001, "metadata.json", 9)];
        assert_eq!(found, expected);
    }
}
