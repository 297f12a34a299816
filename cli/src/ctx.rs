//! What a command works with: the world, the terminal, Ctrl-C, and the store once it is asked for.

use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jp_store::ConversationId;
use jp_store::beneath::trusted;
use jp_store::conversation::Conversation;
use jp_store::layout::Partition;
use jp_store::lock::{Guard, State};
use jp_store::session::{Entry, Mapping, Standing};
use jp_store::snapshot::Snapshot;
use jp_store::store::Store;
use jp_store::workspace::WorkspaceId;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::signal::{self, Hold, Patience, Signals};
use crate::ui::Ui;

/// What a command is given.
pub(crate) struct Ctx<'a> {
    pub(crate) env: &'a Env,
    pub(crate) ui: &'a Ui,
    pub(crate) signals: &'a Signals,
    workspace: Option<OsString>,
}

/// The store at one moment, and this terminal's place in it.
pub(crate) struct View {
    pub(crate) store: Store,
    /// Never dropped: the process is about to end, and the system takes memory back quicker than we do.
    pub(crate) snapshot: ManuallyDrop<Snapshot>,
    pub(crate) mapping: Option<Mapping>,
    locked: OnceLock<Vec<ConversationId>>,
}

/// A lock, and with it a Ctrl-C that waits until the lock is let go of.
pub(crate) struct Locked<'a> {
    pub(crate) guard: Guard,
    // After the guard: fields are dropped in order, and Ctrl-C must not end the process before the file is removed.
    _hold: Hold<'a>,
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(env: &'a Env, ui: &'a Ui, signals: &'a Signals, workspace: Option<OsString>) -> Self {
        Self { env, ui, signals, workspace }
    }

    /// Opens the workspace that is meant.
    pub(crate) fn store(&self) -> Result<Store> {
        let around = self.env.surroundings();
        let Some(named) = &self.workspace else {
            return Ok(Store::open(around, &self.cwd()?)?);
        };
        match trusted::canonical(Path::new(named)) {
            Ok(path) => Ok(Store::open(around, &path)?),
            Err(error) => match named.to_str().and_then(WorkspaceId::parse) {
                Some(id) => Store::open_by_id(around, &id).map_err(|error| {
                    Error::from(error).hint("give the project's directory instead, as in `--workspace PATH`")
                }),
                None => Err(Error::no(format!("no workspace {}", named.to_string_lossy()))
                    .because(&error)
                    .hint("`--workspace` takes a directory or a five-character workspace id")),
            },
        }
    }

    /// Opens the workspace and looks at everything in it. Changes nothing.
    pub(crate) fn view(&self) -> Result<View> {
        let store = self.store()?;
        let snapshot = store.snapshot()?;
        let mapping = match store.session() {
            Some(session) => store.sessions().load(session).unwrap_or_else(|error| {
                // A terminal without a memory can still be worked in.
                self.ui.warn(&format!("this terminal's session is not used: {error}"));
                None
            }),
            None => None,
        };
        Ok(View { store, snapshot: ManuallyDrop::new(snapshot), mapping, locked: OnceLock::new() })
    }

    /// The working directory.
    pub(crate) fn cwd(&self) -> Result<PathBuf> {
        self.env.cwd.clone().ok_or_else(|| {
            Error::no("the working directory is gone").hint("change to one that exists, or use `--workspace`")
        })
    }

    /// How to wait for locks.
    pub(crate) fn patience(&self) -> Result<Patience<'a>> {
        signal::wait(self.env, self.ui, self.signals)
    }

    /// Takes the lock on a conversation, waiting as long as the user wants to.
    pub(crate) fn lock(&self, store: &Store, id: ConversationId) -> Result<Locked<'a>> {
        let patience = self.patience()?;
        let hold = self.signals.hold();
        let guard = store.locks().acquire(id, &store.holder(), &patience.wait())?;
        Ok(Locked { guard, _hold: hold })
    }
}

impl View {
    /// The conversation, or the error that says there is none.
    pub(crate) fn find(&self, id: ConversationId) -> Result<&Conversation> {
        Ok(self.snapshot.find(id)?)
    }

    /// Where a conversation is to be looked at and edited.
    pub(crate) fn path(&self, conversation: &Conversation) -> PathBuf {
        self.workspace_path(conversation).unwrap_or_else(|| conversation.path().to_owned())
    }

    /// Where the project shows a conversation: its copy in the workspace, or what a mount has in its place.
    pub(crate) fn workspace_path(&self, conversation: &Conversation) -> Option<PathBuf> {
        match &conversation.work {
            Some(place) => Some(place.dir.clone()),
            None if self.store.layout().covered => self.snapshot.shown_dir(self.store.layout(), conversation.id),
            None => None,
        }
    }

    /// The terminal's active conversation.
    pub(crate) fn active(&self) -> Option<ConversationId> {
        self.mapping.as_ref()?.active(&|id| self.standing(id))
    }

    /// The one that was active before it.
    pub(crate) fn previous(&self) -> Option<ConversationId> {
        self.mapping.as_ref()?.previous(&|id| self.standing(id))
    }

    /// Every live conversation this terminal has been on, latest first.
    pub(crate) fn session_ids(&self) -> Vec<ConversationId> {
        let history = self.mapping.iter().flat_map(Mapping::history).map(Entry::id);
        history.filter(|&id| self.standing(id) == Standing::Live).collect()
    }

    /// Whether a conversation is there, and where.
    pub(crate) fn standing(&self, id: ConversationId) -> Standing {
        match self.snapshot.get(id).map(|conversation| conversation.partition) {
            Some(Partition::Live) => Standing::Live,
            Some(Partition::Archived) => Standing::Archived,
            None => Standing::Gone,
        }
    }

    /// Whether somebody holds the conversation now. All locks are looked at once.
    pub(crate) fn is_locked(&self, id: ConversationId) -> bool {
        let held = || {
            let locks = self.store.locks().list().unwrap_or_default();
            let mut ids: Vec<_> = locks.iter().filter(|lock| lock.state == State::Held).map(|lock| lock.id).collect();
            ids.sort();
            ids
        };
        self.locked.get_or_init(held).binary_search(&id).is_ok()
    }
}
