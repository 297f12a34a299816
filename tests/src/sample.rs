//! One conversation, written as the real tool leaves it on disk: three managed files, pretty JSON, a newline at the end.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::{TimeSpec, TimeValLike as _};
use serde_json::{Map, Value, json};

use crate::env::Workspace;

/// Which root gets the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The durable store, U.
    User,
    /// The project's `.jp`, W.
    Workspace,
    /// U and W alike.
    Both,
}

/// A conversation to be written.
#[derive(Clone, Debug)]
pub struct Sample {
    id: u64,
    title: Option<String>,
    parent: Option<u64>,
    events: usize,
    keys: Vec<(String, Value)>,
    files: Vec<(String, Option<Vec<u8>>)>,
    mtime: Option<i64>,
    archived: bool,
}

impl Sample {
    /// A conversation with this id (tenths of a second since the epoch), no title, no parent and three events.
    pub fn new(id: u64) -> Self {
        Self {
            id,
            title: None,
            parent: None,
            events: 3,
            keys: Vec::new(),
            files: Vec::new(),
            mtime: None,
            archived: false,
        }
    }

    /// Gives it a title, and its directory the slug of it.
    pub fn title(mut self, title: &str) -> Self {
        self.title = Some(title.to_owned());
        self
    }

    /// Gives it a parent, as an integer in `metadata.json`.
    pub fn parent(mut self, id: u64) -> Self {
        self.parent = Some(id);
        self
    }

    /// Sets the length of the array in `events.json`.
    pub fn events(mut self, count: usize) -> Self {
        self.events = count;
        self
    }

    /// Adds a key to `metadata.json` or replaces one of those that are there anyway.
    pub fn key(mut self, name: &str, value: Value) -> Self {
        self.keys.push((name.to_owned(), value));
        self
    }

    /// Adds a file, or puts these bytes in place of a managed one. The name may have directories in it.
    pub fn file(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), Some(bytes.into())));
        self
    }

    /// Leaves a managed file out.
    pub fn without(mut self, name: &str) -> Self {
        self.files.push((name.to_owned(), None));
        self
    }

    /// Sets the modification time of every file and of the directory, in nanoseconds since the epoch.
    pub fn mtime(mut self, nanoseconds: i64) -> Self {
        self.mtime = Some(nanoseconds);
        self
    }

    /// Puts it into `.archive`, with the key that goes with it.
    pub fn archived(mut self) -> Self {
        self.archived = true;
        let at = native_time(self.id + 100);
        self.key("archived_at", Value::from(at))
    }

    /// The name of its directory.
    pub fn dirname(&self) -> String {
        dirname(self.id, self.title.as_deref())
    }

    /// The value of `metadata.json`.
    pub fn metadata(&self) -> Value {
        let mut map = Map::new();
        if let Some(title) = &self.title {
            map.insert("title".into(), Value::from(title.as_str()));
        }
        map.insert("last_activated_at".into(), Value::from(native_time(self.id)));
        if let Some(parent) = self.parent {
            map.insert("parent_id".into(), Value::from(parent));
        }
        for (name, value) in &self.keys {
            map.insert(name.clone(), value.clone());
        }
        Value::Object(map)
    }

    /// The value of `events.json`.
    pub fn event_list(&self) -> Value {
        (0..self.events).map(|index| event(self.id, index)).collect()
    }

    /// Every file with its bytes, in the order the real tool writes them.
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let mut all = vec![
            ("metadata.json".to_owned(), pretty(&self.metadata())),
            ("base_config.json".to_owned(), pretty(&base_config())),
            ("events.json".to_owned(), pretty(&self.event_list())),
        ];
        for (name, bytes) in &self.files {
            all.retain(|(other, _)| other != name);
            if let Some(bytes) = bytes {
                all.push((name.clone(), bytes.clone()));
            }
        }
        all
    }

    /// Writes it into the flat `conversations` of one root or of both. Returns its directory, the one in U when there are
    /// two.
    #[track_caller]
    pub fn write(&self, workspace: &Workspace, place: Place) -> PathBuf {
        let (user, project) = (workspace.silo(), workspace.storage());
        let write_user = || {
            let dir = self.write_below(&user.join("conversations"));
            // A store is its owner's alone; what others can reach is a finding.
            fs::set_permissions(&user, fs::Permissions::from_mode(0o700)).expect("the silo is ours");
            dir
        };
        match place {
            Place::User => write_user(),
            Place::Workspace => self.write_below(&project.join("conversations")),
            Place::Both => {
                self.write_below(&project.join("conversations"));
                write_user()
            }
        }
    }

    /// Writes it into any directory of conversations and returns its own.
    #[track_caller]
    pub fn write_below(&self, conversations: &Path) -> PathBuf {
        let parent = if self.archived { conversations.join(".archive") } else { conversations.to_owned() };
        let dir = parent.join(self.dirname());
        fs::create_dir_all(&dir).unwrap_or_else(|err| panic!("cannot make {}: {err}", dir.display()));
        for (name, bytes) in self.contents() {
            let path = dir.join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).unwrap_or_else(|err| panic!("cannot make {}: {err}", parent.display()));
            }
            fs::write(&path, bytes).unwrap_or_else(|err| panic!("cannot write {}: {err}", path.display()));
            if let Some(mtime) = self.mtime {
                set_mtime(&path, mtime);
            }
        }
        if let Some(mtime) = self.mtime {
            set_mtime(&dir, mtime);
        }
        dir
    }
}

/// The directory name for an id and a title.
pub fn dirname(id: u64, title: Option<&str>) -> String {
    let title = title.unwrap_or_default();
    let slug: String = title.trim().chars().take(60).map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let slug = slug.trim_end_matches('-').to_lowercase();
    let mut name = if slug.is_empty() { id.to_string() } else { format!("{id}-{slug}") };
    // The cut goes by bytes where the slug goes by characters, and takes the last word in any case.
    if title.len() > 60
        && let Some(end) = name.rfind('-')
    {
        name.truncate(end);
    }
    name
}

/// A time in tenths of a second since the epoch, as `metadata.json` and `events.json` write it.
pub fn native_time(deciseconds: u64) -> String {
    let seconds = i64::try_from(deciseconds / 10).expect("ids are within the calendar");
    let time = Timestamp::from_second(seconds).expect("ids are within the calendar");
    format!("{}.{}", time.strftime("%Y-%m-%d %H:%M:%S"), deciseconds % 10)
}

/// JSON as it lies on disk: two spaces, one newline at the end.
pub fn pretty(value: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("a value is always JSON");
    bytes.push(b'\n');
    bytes
}

/// The modification time of a path in nanoseconds since the epoch. Links are not followed.
#[track_caller]
pub fn mtime(path: &Path) -> i64 {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|err| panic!("cannot stat {}: {err}", path.display()));
    meta.mtime() * 1_000_000_000 + meta.mtime_nsec()
}

/// Sets the modification time of a path, and its access time with it. Links are not followed.
#[track_caller]
pub fn set_mtime(path: &Path, nanoseconds: i64) {
    let time = TimeSpec::nanoseconds(nanoseconds);
    utimensat(AT_FDCWD, path, &time, &time, UtimensatFlags::NoFollowSymlink)
        .unwrap_or_else(|err| panic!("cannot set the time of {}: {err}", path.display()));
}

/// The smallest configuration that the real tool loads.
pub(crate) fn base_config() -> Value {
    json!({
        "assistant": { "model": { "id": { "provider": "anthropic", "name": "test" } } },
        "conversation": { "tools": { "*": { "run": "ask" } } },
    })
}

/// The event at an index: turns of six, each with a question, a tool call and an answer. Strings in `arguments` and tool
/// results are base64, as on disk.
fn event(id: u64, index: usize) -> Value {
    let timestamp = native_time(id + index as u64);
    let turn = index / 6;
    match index % 6 {
        0 => json!({ "timestamp": timestamp, "type": "turn_start" }),
        1 => json!({
            "timestamp": timestamp, "type": "chat_request",
            "content": format!("Question {turn} of jp-c{id}: what is in Cargo.toml?"), "author": "Ada",
        }),
        2 => {
            json!({ "timestamp": timestamp, "type": "chat_response", "reasoning": "The file has to be read." })
        }
        3 => json!({
            "timestamp": timestamp, "type": "tool_call_request",
            "id": format!("call_{turn}"), "name": "fs_read_file",
            "arguments": { "path": "Q2FyZ28udG9tbA==", "limit": 40 },
        }),
        4 => json!({
            "timestamp": timestamp, "type": "tool_call_response",
            "id": format!("call_{turn}"), "content": "W3BhY2thZ2VdCg==", "is_error": false,
        }),
        _ => json!({
            "timestamp": timestamp, "type": "chat_response",
            "message": format!("Answer {turn}: it declares one package – «jp».\n"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::TestEnv;

    #[test]
    fn directory_names() {
        let seventy = "A".repeat(70);
        let table = [
            ("Hello World", "-hello-world"),
            ("(foo) bar", "--foo--bar"),
            ("a_b.c/d\\e", "-a-b-c-d-e"),
            ("../../etc/passwd", "-------etc-passwd"),
            ("emoji 🎉 party", "-emoji---party"),
            (seventy.as_str(), ""),
            ("日本語日本語日本語日本語日本語日本語日本語日本語", ""),
            ("日本語 日本語 日本語 日本語 日本語 日本語 日本語", "-日本語-日本語-日本語-日本語-日本語-日本語"),
            ("!!!", ""),
            ("", ""),
            ("İstanbul", "-i\u{307}stanbul"),
        ];
        for (title, slug) in table {
            assert_eq!(dirname(17_528_832_001, Some(title)), format!("17528832001{slug}"), "{title:?}");
        }
        assert_eq!(dirname(17_528_832_001, None), "17528832001");
    }

    #[test]
    fn times_are_in_the_native_form() {
        assert_eq!(native_time(17_528_832_001), "2025-07-19 00:00:00.1");
        assert_eq!(native_time(17_528_832_050), "2025-07-19 00:00:05.0");
    }

    #[test]
    fn the_files_are_where_the_real_tool_puts_them() {
        let env = TestEnv::new();
        let work = env.init_workspace("main", "ab1cd");
        let dir = Sample::new(17_528_832_001)
            .title("Hello World")
            .parent(17_528_832_000)
            .key("origin", json!("main"))
            .events(7)
            .file("notes/a.md", "a")
            .without("base_config.json")
            .mtime(1_500_000_000_123_456_789)
            .write(&work, Place::Both);
        assert_eq!(dir, env.data().join("workspace/main-ab1cd/conversations/17528832001-hello-world"));
        let copy = work.storage().join("conversations/17528832001-hello-world");
        let read = |name| fs::read_to_string(copy.join(name)).expect("written to both");
        assert_eq!(
            read("metadata.json"),
            "{\n  \"title\": \"Hello World\",\n  \"last_activated_at\": \"2025-07-19 00:00:00.1\",\n  \
             \"parent_id\": 17528832000,\n  \"origin\": \"main\"\n}\n",
        );
        let events: Value = serde_json::from_str(&read("events.json")).expect("JSON");
        assert_eq!(events.as_array().map(Vec::len), Some(7));
        assert_eq!(read("notes/a.md"), "a");
        assert!(!copy.join("base_config.json").exists());
        for path in [copy.join("events.json"), copy, dir] {
            assert_eq!(mtime(&path), 1_500_000_000_123_456_789, "{}", path.display());
        }
    }

    #[test]
    fn an_archived_one_lies_in_the_archive() {
        let env = TestEnv::new();
        let work = env.init_workspace("main", "ab1cd");
        let dir = Sample::new(17_528_832_001).archived().write(&work, Place::User);
        assert_eq!(dir, work.silo().join("conversations/.archive/17528832001"));
    }
}
