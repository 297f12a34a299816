//! A draft as people and machines are told of it, and how one is named on the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::layout::{ARCHIVE, CONVERSATIONS, Partition, managed};
use jp_store::observe::read_file;
use jp_store::reconcile::{Digest, ManagedFile};
use jp_store::time::rfc3339;
use serde::Serialize;

use super::{Arrival, Draft, Header, files_of, list, list_arrivals};
use crate::ctx::{Ctx, View};
use crate::error::{Error, Result};
use crate::mounts::StateDir;
use crate::target::{self, Target};

/// A save that is not in the store.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// The conversation, as `jp-c…`.
    pub(crate) id: String,
    pub(crate) title: Option<String>,
    pub(crate) kind: Kind,
    /// The managed file; `None` for a new conversation.
    pub(crate) file: Option<String>,
    /// The files of a new conversation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<String>,
    /// Where the mount shows it.
    pub(crate) path: String,
    /// Why it is not in the store.
    pub(crate) state: State,
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) reason: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) since: Option<String>,
    /// What it waits for.
    pub(crate) waiting: Option<String>,
    /// Who holds the lock that it waits for.
    pub(crate) holder: Option<Holder>,
    /// Whether the store's file was changed since the draft began.
    pub(crate) moved_on: bool,
    #[serde(skip)]
    pub(crate) of: ConversationId,
    #[serde(skip)]
    pub(crate) managed: Option<ManagedFile>,
}

/// What was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A managed file.
    Draft,
    /// A new conversation.
    New,
}

/// Why a save is not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It is not a document of its kind.
    Invalid,
    /// The store does not take it.
    Refused,
    /// The store's file was changed since it began.
    Conflict,
    /// Another process holds the conversation.
    Locked,
    /// It can be committed now.
    Waiting,
    /// The store does not have its conversation any more.
    Gone,
    /// It is not whole yet.
    Arriving,
}

/// Who holds a lock.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Holder {
    pid: Option<u32>,
    session: Option<String>,
    since: Option<String>,
}

impl Record {
    /// Every draft of this worktree, and every conversation that is arriving. The process behind a mount brings them to disk
    /// first.
    pub(crate) fn all(view: &View) -> Result<Vec<Self>> {
        let state = StateDir::of(view.store.layout());
        let known = state.known();
        if let Some(known) = known.as_ref().filter(|known| known.alive())
            && known.status().is_none()
        {
            tracing::warn!("the process behind the mount at {} does not answer", known.record.point.display());
        }
        let point = known.map_or_else(|| view.store.layout().storage.join(CONVERSATIONS), |known| known.record.point);
        let files = files_of(&state);
        let mut all: Vec<Self> = list(&files)?.into_iter().map(|draft| Self::of_draft(view, &point, draft)).collect();
        for arrival in list_arrivals(&files)? {
            let needs = files.arrival_needs(arrival.id)?;
            all.push(Self::of_arrival(view, &point, arrival, needs));
        }
        Ok(all)
    }

    fn of_draft(view: &View, point: &Path, draft: Draft) -> Self {
        let Draft { id, file, header, bytes } = draft;
        let found = view.snapshot.get(id);
        let Header { base, reason, since, waiting } = header;
        let moved_on = found.is_some_and(|found| has_moved_on(view, found, file, base));
        let holder = if view.is_locked(id) { Some(view.store.locks().holder(id).unwrap_or_default()) } else { None };
        let state = match (found, &reason) {
            (None, _) => State::Gone,
            (Some(_), Some(reason)) if reason.line > 0 => State::Invalid,
            (Some(_), Some(_)) => State::Refused,
            (Some(_), None) if moved_on => State::Conflict,
            (Some(_), None) if holder.is_some() => State::Locked,
            (Some(_), None) => State::Waiting,
        };
        let place = reason.as_ref().filter(|reason| reason.line > 0);
        Self {
            id: id.to_string(),
            title: found.and_then(Conversation::title).map(ToOwned::to_owned),
            kind: Kind::Draft,
            file: Some(file.name().to_owned()),
            files: Vec::new(),
            path: point.join(shown(view, id)).join(file.name()).display().to_string(),
            state,
            line: place.map(|reason| reason.line),
            column: place.map(|reason| reason.column),
            reason: reason.map(|reason| reason.reason),
            bytes,
            since,
            waiting,
            holder: holder.filter(|_| state == State::Locked).map(|holder| Holder {
                pid: holder.pid,
                session: holder.session,
                since: holder.since.map(rfc3339),
            }),
            moved_on,
            of: id,
            managed: Some(file),
        }
    }

    fn of_arrival(view: &View, point: &Path, arrival: Arrival, needs: Option<String>) -> Self {
        let Arrival { id, files, bytes, since } = arrival;
        let (state, reason) = match (view.snapshot.get(id), needs) {
            (Some(_), _) => {
                let reason =
                    format!("the store has a conversation with this id already; `jp c unhide {id}` shows that");
                (State::Refused, Some(reason))
            }
            (None, Some(needs)) => (State::Arriving, Some(format!("it needs {needs}"))),
            (None, None) => (State::Waiting, None),
        };
        Self {
            id: id.to_string(),
            title: None,
            kind: Kind::New,
            file: None,
            files: files.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
            path: point.join(id.deciseconds().to_string()).display().to_string(),
            state,
            line: None,
            column: None,
            reason,
            bytes,
            since: since.map(rfc3339),
            waiting: None,
            holder: None,
            moved_on: false,
            of: id,
            managed: None,
        }
    }

    /// The id, and the file if it is a draft of one: what names it to `jp draft`.
    pub(crate) fn name(&self) -> String {
        match &self.file {
            Some(file) => format!("{} {file}", self.id),
            None => self.id.clone(),
        }
    }

    /// Why it is not in the store, in one line, with line and column.
    pub(crate) fn why(&self) -> String {
        match (self.state, self.line, self.column) {
            (State::Invalid, Some(line), Some(column)) => format!("line {line}, column {column}: {}", self.cause()),
            _ => self.cause(),
        }
    }

    /// The same without line and column.
    pub(crate) fn cause(&self) -> String {
        let mut why = match self.state {
            State::Invalid | State::Refused | State::Arriving => {
                self.reason.clone().unwrap_or_else(|| "it is not whole".to_owned())
            }
            State::Conflict => "the store's file was changed since".to_owned(),
            State::Locked => {
                let holder = self.holder.as_ref();
                let pid = holder.and_then(|it| it.pid).map(|pid| format!(", held by process {pid}"));
                let since = holder.and_then(|it| it.since.as_ref()).map(|since| format!(" since {since}"));
                format!("waiting for the lock{}{}", pid.unwrap_or_default(), since.unwrap_or_default())
            }
            State::Waiting => "it can be committed now".to_owned(),
            State::Gone => "its conversation is not in the store".to_owned(),
        };
        if self.moved_on && self.state != State::Conflict {
            why.push_str("; the store's file was changed since");
        }
        why
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> String {
        let name = self.name();
        match self.state {
            State::Locked => format!("it is committed when the lock is free; `jp draft drop {name}` gives it up"),
            State::Waiting => format!("`jp draft apply {name}` commits it, `jp draft drop {name}` gives it up"),
            State::Conflict => format!(
                "`jp draft show {name} --diff` compares, `jp draft apply {name} --force` takes the draft, `jp draft drop {name}` the store's"
            ),
            State::Invalid | State::Refused => {
                format!("save a good version, or `jp draft drop {name}` gives it up; `jp draft show {name}` prints it")
            }
            State::Gone => format!("`jp draft show {name}` prints it, `jp draft drop {name}` gives it up"),
            State::Arriving => format!("add what it needs, or `jp draft drop {name}` gives it up"),
        }
    }
}

/// Whether the store's file is not the one that a draft began with.
fn has_moved_on(view: &View, found: &Conversation, file: ManagedFile, base: Option<Digest>) -> bool {
    let Some(dir) = found.dirs().store else { return false };
    let current = read_file(view.store.disk(), &managed(dir, file));
    // What cannot be read is told of elsewhere.
    current.is_ok_and(|current| current.map(|contents| Digest::of(&contents.bytes)) != base)
}

/// The conversation's directory below the mount point. One that is not in the store has no place among the others.
fn shown(view: &View, id: ConversationId) -> PathBuf {
    let Some(found) = view.snapshot.get(id) else {
        return id.deciseconds().to_string().into();
    };
    let tree = view.snapshot.tree(found.partition);
    let mut lineage: Vec<_> = std::iter::once(found.id).chain(tree.ancestors(found.id)).collect();
    lineage.reverse();
    let mut path = match found.partition {
        Partition::Live => PathBuf::new(),
        Partition::Archived => PathBuf::from(ARCHIVE),
    };
    for (depth, id) in lineage.into_iter().enumerate() {
        if depth > 0 {
            path.push(CONVERSATIONS);
        }
        path.push(view.snapshot.get(id).map_or_else(|| id.deciseconds().to_string().into(), Conversation::name));
    }
    path
}

/// The drafts that a command is about: all of a conversation, or that of a file. A conversation that the store does not have
/// can be named by its id.
pub(crate) fn chosen(ctx: &Ctx<'_>, view: &View, word: &OsString, file: Option<&str>) -> Result<Vec<Record>> {
    let all = Record::all(view)?;
    let id = match Target::parse(word) {
        Target::Id(id) | Target::Loose(id, _) if all.iter().any(|record| record.of == id) => id,
        _ => target::one(ctx, view, word)?,
    };
    let mut of_id: Vec<Record> = all.into_iter().filter(|record| record.of == id).collect();
    let told = |message: String| Error::no(message).hint("`jp draft ls` lists the drafts of this worktree");
    if of_id.is_empty() {
        return Err(told(format!("{id} has no draft in this worktree")));
    }
    if let Some(file) = file {
        of_id.retain(|record| match &record.file {
            Some(name) => name == file,
            None => record.files.iter().any(|name| name == file),
        });
        if of_id.is_empty() {
            return Err(told(format!("{id} has no draft of {file} in this worktree")));
        }
    }
    Ok(of_id)
}
