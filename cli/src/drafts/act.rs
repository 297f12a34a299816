//! Gives up and commits drafts: by the process behind the mount that shows them, or here if there is none.

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

use jp_fs::Live;
use jp_fs::refusal::Refusal;
use jp_fs::vfs::Handled;
use jp_store::ConversationId;
use jp_store::disk::RealDisk;
use jp_store::lock::Guard;
use jp_store::reconcile::ManagedFile;
use jp_store::store::Store;
use jp_store::writer::Writer;

use super::{Record, files_of};
use crate::control::{self, Act, Answer, Request};
use crate::error::{Error, Exit, Kind, Result};
use crate::mounts::{self, Known, StateDir};

/// How long the process behind a mount may take to commit a draft.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a mount may take to begin or to end.
const TURN: Duration = Duration::from_secs(10);
/// How often is looked whether it has.
const RETRY: Duration = Duration::from_millis(50);

/// Who has the drafts of a worktree.
pub(crate) enum Owner {
    /// The process behind a mount.
    Daemon(Known),
    /// Nobody else: no mount can begin while this is held. A mirror has none either, and holds the lock itself.
    Here { _lock: Option<File> },
}

impl Owner {
    /// Finds out who has them. A mount that begins or ends is waited for.
    pub(crate) fn of(store: &Store) -> Result<Self> {
        let state = StateDir::of(store.layout());
        let path = state.lock();
        let disk = RealDisk::new(state.files().clone());
        let file = jp_store::lock::open_or_make(&disk, &path)?;
        let until = Instant::now() + TURN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self::Here { _lock: Some(file) }),
                Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path, &error)),
                Err(TryLockError::WouldBlock) => {}
            }
            match state.known().filter(Known::is_there) {
                Some(known) if known.record.kind == mounts::Kind::Mirror => return Ok(Self::Here { _lock: None }),
                Some(known) if known.status().is_some() => return Ok(Self::Daemon(known)),
                known if Instant::now() > until => {
                    let point = known.map(|known| known.record.point.display().to_string());
                    let told = match point {
                        Some(point) => format!("the process behind the mount at {point} does not answer"),
                        None => "the process behind this worktree's last mount has not ended".to_owned(),
                    };
                    return Err(Error::new(Kind::Damaged, told)
                        .hint("`jp status` names the process; `jp unmount --lazy` ends its mount")
                        .hint(format!("its log is {}", state.log().display())));
                }
                _ => std::thread::sleep(RETRY),
            }
        }
    }

    /// Gives a draft up. Returns where its bytes are kept; `None` if there were none.
    pub(crate) fn give_up(&self, writer: &Writer, record: &Record) -> Result<Option<String>> {
        let handled = match self {
            Self::Daemon(known) => return ask(known, record, Act::Drop, false),
            Self::Here { .. } => {
                let files = files_of(&StateDir::of(writer.store().layout()));
                match record.managed {
                    Some(file) => files.give_up(writer, record.of, file)?,
                    None => files.give_up_arrival(writer, record.of)?,
                }
            }
        };
        outcome(record, handled.map(|kept| kept.map(|path| path.display().to_string())))
    }

    /// Commits a draft for whoever holds this lock. Returns where the store's bytes are kept; `None` if none were lost.
    pub(crate) fn apply(&self, writer: &Writer, record: &Record, guard: Guard, force: bool) -> Result<Option<String>> {
        let handled = match self {
            // The lock is ours, and it lets the other process through on our behalf.
            Self::Daemon(known) => return ask(known, record, Act::Apply, force),
            Self::Here { .. } => {
                let files = files_of(&StateDir::of(writer.store().layout()));
                match record.managed {
                    Some(file) => files.apply(writer, &guard, file, force)?,
                    None => files.apply_arrival(writer, guard)?,
                }
            }
        };
        outcome(record, handled.map(|kept| kept.map(|path| path.display().to_string())))
    }
}

fn ask(known: &Known, record: &Record, act: Act, force: bool) -> Result<Option<String>> {
    let request = Request::Draft { id: record.id.clone(), file: record.file.clone(), act, force };
    let socket = known.state.socket();
    let mute = |error: io::Error| Error::io("speak with the daemon at", &socket.path, &error);
    let answer = control::ask(&socket, &request, ANSWER).map_err(mute)?;
    match answer {
        Answer { refused: Some(refusal), .. } => outcome(record, Err(refusal)),
        Answer { ok: true, kept, .. } => Ok(kept),
        Answer { error, code, .. } => {
            let kind = code.map_or(Kind::Damaged, |code| Exit(code).into());
            let told = error.unwrap_or_else(|| "the process behind the mount did not say".to_owned());
            Err(Error::new(kind, told).hint(format!("its log is {}", known.state.log().display())))
        }
    }
}

/// Answers for the process behind a mount.
pub(crate) fn answer(session: &dyn Live, id: &str, file: Option<&str>, act: Act, force: bool, caller: u32) -> Answer {
    let Ok(id) = id.parse::<ConversationId>() else {
        return Answer { code: Some(2), ..Answer::failed(format!("not an id: {id}")) };
    };
    let managed = match file.map(|name| ManagedFile::from_name(name).ok_or(name)).transpose() {
        Ok(managed) => managed,
        Err(name) => return Answer { code: Some(2), ..Answer::failed(format!("not a managed file: {name}")) },
    };
    let handled: Result<Handled, _> = match act {
        Act::Drop => session.give_up(id, managed),
        Act::Apply => session.apply(id, managed, force, caller),
    };
    match handled {
        Ok(Ok(kept)) => Answer { kept: kept.map(|path| path.display().to_string()), ..Answer::done() },
        Ok(Err(refusal)) => Answer { refused: Some(refusal), ..Answer::default() },
        Err(error) => {
            let error = Error::from(error);
            Answer { code: Some(error.kind.exit().0), ..Answer::failed(error.whole()) }
        }
    }
}

/// What a refusal is to a person.
fn outcome(record: &Record, handled: Result<Option<String>, Refusal>) -> Result<Option<String>> {
    let name = record.name();
    let drop = format!("`jp draft drop {name}` gives it up, and its bytes are kept");
    Err(match handled {
        Ok(kept) => return Ok(kept),
        Err(Refusal::Absent) => Error::no(format!("there is no draft of {name} any more"))
            .hint("it was committed or given up meanwhile; `jp draft ls` lists what is left"),
        Err(Refusal::Gone) => Error::no(format!("{} is not in the store, so its draft cannot be committed", record.id))
            .hint(format!("`jp draft show {name} > FILE` saves it elsewhere"))
            .hint(drop),
        Err(Refusal::Invalid { line: 0, reason, .. }) => {
            Error::no(format!("{}: {reason}", record.path)).hint("save a good version through the mount").hint(drop)
        }
        Err(Refusal::Invalid { line, column, reason }) => {
            Error::no(format!("{}:{line}:{column}: {reason}", record.path))
                .hint("save a good version through the mount")
                .hint(drop)
        }
        Err(Refusal::MovedOn { store, draft }) => {
            let since = record.since.as_ref().map(|since| format!(", saved {since}")).unwrap_or_default();
            let store = store.map_or("has no such file any more".to_owned(), |bytes| format!("has {bytes} bytes"));
            Error::no(format!("{}: the store's file was changed since this draft began", record.path))
                .hint(format!("the store {store}; the draft has {draft} bytes{since}"))
                .hint(format!("`jp draft show {name} --diff` compares them"))
                .hint(format!("`jp draft apply {name} --force` commits the draft; the store's bytes are kept"))
                .hint(drop)
        }
        Err(Refusal::Refused { reason }) => Error::no(format!("{}: {reason}", record.path)).hint(drop),
        Err(Refusal::Needs { needs }) => Error::no(format!("{} is not whole: it needs {needs}", record.id)).hint(drop),
    })
}
