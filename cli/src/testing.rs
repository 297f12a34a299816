//! A small workspace on disk for tests, and a terminal that remembers what it was told.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use jp_store::session::{Session, Source};
use jp_store::time::Timestamp;

use crate::env::{Env, Terminals};
use crate::ui::Ui;

/// A workspace whose store is in place.
pub(crate) struct Project {
    dir: tempfile::TempDir,
    env: Env,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: ExitCode,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Project {
    /// An empty one, seen from a session of its own at noon of 2025-07-20.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now: Timestamp = "2025-07-20T12:00:00Z".parse().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root.join("project/.jp/.id"), "preamble\notvo8\n");
        let env = Env {
            cwd: Some(root.join("project")),
            data_dir: Some(root.join("data")),
            session: Some(Session { source: Source::Env("JP_SESSION".into()), value: "test".into() }),
            lock_duration: None,
            editor: None,
            temp_dir: root.join("tmp"),
            color: false,
            columns: None,
            notify_socket: None,
            terminals: Terminals::default(),
            pid: std::process::id(),
            clock: Arc::new(move || now),
        };
        Self { dir, env }
    }

    pub(crate) fn silo(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("data/workspace/main-otvo8")
    }

    /// A conversation in the store alone; `more` are further keys of its metadata.
    pub(crate) fn conversation(&self, name: &str, title: &str, at: &str, more: &str) -> &Self {
        let dir = self.silo().join("conversations").join(name);
        let meta = format!("{{\"title\": {title:?}, \"last_activated_at\": \"2025-07-{at}:00.0\"{more}}}");
        write(&dir.join("metadata.json"), &meta);
        write(&dir.join("events.json"), "[]\n");
        self
    }

    /// Replaces the events of a conversation.
    pub(crate) fn events(&self, name: &str, text: &str) -> &Self {
        write(&self.silo().join("conversations").join(name).join("events.json"), text);
        self
    }

    /// The session's history, latest first.
    pub(crate) fn history(&self, ids: &[u64]) -> &Self {
        let entry = |id| format!("{{\"id\": {id}, \"activated_at\": \"2025-07-19T00:00:00Z\"}}");
        let list: Vec<String> = ids.iter().map(entry).collect();
        let text = format!(
            "{{\"history\": [{}], \"id\": \"test\", \"source\": {{\"type\": \"env\", \"key\": \"JP_SESSION\"}}}}",
            list.join(",")
        );
        let key = self.env.session.as_ref().unwrap().key();
        write(&self.silo().join("sessions").join(format!("{key}.json")), &text);
        self
    }

    /// Runs a command line, split at spaces.
    pub(crate) fn jp(&self, line: &str) -> Answer {
        let (out, err) = (Tape::default(), Tape::default());
        let ui = Ui::new(Box::new(out.clone()), Box::new(err.clone()), &self.env);
        let args = std::iter::once("jp").chain(line.split(' ')).map(Into::into);
        let code = crate::run(args, self.env.clone(), ui);
        Answer { code, out: out.text(), err: err.text() }
    }
}

#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Tape {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
