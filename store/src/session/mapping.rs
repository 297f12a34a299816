//! Which conversations a session was on, newest first: the contents of one session file as a value. Nothing here reads
//! a file or knows which conversations there are.

#[cfg(test)]
mod tests;

use std::path::Path;

use serde_json::Value;

use super::{Session, Source};
use crate::error::{Error, Result};
use crate::id::ConversationId;
use crate::json::{self, Object};
use crate::time::{self, Timestamp};

/// What a session was on. Keys that we do not know survive a rewrite, where they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    session: Session,
    history: Vec<Entry>,
    legacy: bool,
    /// The file as it was read. Its `history` is out of date as soon as something changes.
    object: Object,
}

/// One conversation that a session was on.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    id: ConversationId,
    activated_at: Timestamp,
    object: Object,
}

/// Where a conversation of the history is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It can be used.
    Live,
    /// It was put away.
    Archived,
    /// There is none.
    Gone,
}

impl Mapping {
    /// A session that was on nothing yet.
    pub fn new(session: Session) -> Self {
        let mut object = Object::new();
        object.insert("history".to_owned(), Value::Array(Vec::new()));
        object.insert("id".to_owned(), session.value.clone().into());
        object.insert("source".to_owned(), session.source.to_value());
        Self { session, history: Vec::new(), legacy: false, object }
    }

    /// Reads a session file. The path is for errors, and for the files of old, which say whose they are by their name.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let mut object = json::object(bytes).map_err(|reason| Error::Invalid { path: path.to_owned(), reason })?;
        let malformed = |reason: &str| Error::Malformed { path: path.to_owned(), reason: reason.to_owned() };
        let history = match object.get("history") {
            Some(Value::Array(entries)) => {
                let entries = entries.iter().map(Entry::from_value).collect::<Option<_>>();
                entries.ok_or_else(|| malformed("history has an entry without a usable id and activated_at"))?
            }
            _ => return Err(malformed("history is not a list")),
        };
        let source = object.get("source").and_then(Source::from_value);
        let source = source.ok_or_else(|| malformed("source is of no known type"))?;
        let (value, legacy) = match object.get("id") {
            Some(Value::String(value)) => (value.clone(), false),
            None => {
                let stem = path.file_stem().and_then(|stem| stem.to_str());
                (stem.ok_or_else(|| malformed("id is missing"))?.to_owned(), true)
            }
            Some(_) => return Err(malformed("id is not a string")),
        };
        if legacy {
            let after = object.keys().position(|key| key == "history").map_or(0, |at| at + 1);
            object.shift_insert(after, "id".to_owned(), value.clone().into());
        }
        Ok(Self { session: Session { source, value }, history, legacy, object })
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut object = self.object.clone();
        let entries = self.history.iter().map(|entry| Value::Object(entry.object.clone()));
        // The key is there, so it keeps its place.
        object.insert("history".to_owned(), entries.collect());
        let mut bytes = json::pretty(&object);
        if bytes.last() != Some(&b'\n') {
            bytes.push(b'\n');
        }
        bytes
    }

    /// Whose it is.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether it is this session's. The file's name does not tell, because two sessions may share one.
    pub fn matches(&self, session: &Session) -> bool {
        self.session == *session
    }

    /// Whether the file said whose it is by its name only.
    pub fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// What the session was on, newest first.
    pub fn history(&self) -> &[Entry] {
        &self.history
    }

    /// Puts a conversation in front, from wherever in the history it was.
    pub fn activate(&mut self, id: ConversationId, at: Timestamp) {
        self.history.retain(|entry| entry.id != id);
        self.history.insert(0, Entry::new(id, at));
    }

    /// Takes over another history of the same terminal; of two entries for one conversation the later one stays.
    pub fn merge(&mut self, other: &Self) {
        for theirs in &other.history {
            match self.history.iter_mut().find(|entry| entry.id == theirs.id) {
                Some(ours) if ours.activated_at < theirs.activated_at => *ours = theirs.clone(),
                Some(_) => {}
                None => self.history.push(theirs.clone()),
            }
        }
        self.history.sort_by_key(|entry| std::cmp::Reverse(entry.activated_at));
    }

    /// Forgets the conversations that are not to be kept; says how many they were.
    pub fn prune(&mut self, keep: &dyn Fn(ConversationId) -> bool) -> usize {
        let before = self.history.len();
        self.history.retain(|entry| keep(entry.id));
        before - self.history.len()
    }

    /// The conversation the session is on.
    pub fn active(&self, standing: &dyn Fn(ConversationId) -> Standing) -> Option<ConversationId> {
        self.walk(standing).next()
    }

    /// The conversation the session was on before the active one.
    pub fn previous(&self, standing: &dyn Fn(ConversationId) -> Standing) -> Option<ConversationId> {
        self.walk(standing).nth(1)
    }

    /// Live conversations, newest first, down to the first archived one: somebody who has just archived a conversation
    /// is on none, rather than silently on an older one.
    fn walk(&self, standing: &dyn Fn(ConversationId) -> Standing) -> impl Iterator<Item = ConversationId> {
        let mut live = Vec::new();
        for entry in &self.history {
            match standing(entry.id) {
                Standing::Live => live.push(entry.id),
                Standing::Gone => {}
                Standing::Archived => break,
            }
        }
        live.into_iter()
    }
}

impl Entry {
    /// The conversation.
    pub fn id(&self) -> ConversationId {
        self.id
    }

    /// When the session went there.
    pub fn activated_at(&self) -> Timestamp {
        self.activated_at
    }

    fn new(id: ConversationId, activated_at: Timestamp) -> Self {
        let mut object = Object::new();
        object.insert("id".to_owned(), id.deciseconds().into());
        object.insert("activated_at".to_owned(), time::rfc3339(activated_at).into());
        Self { id, activated_at, object }
    }

    fn from_value(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        // JP writes a number; its documents show the printed form.
        let id = match object.get("id")? {
            Value::String(text) => text.parse().ok()?,
            number => ConversationId::new(number.as_u64()?)?,
        };
        let activated_at = time::parse(object.get("activated_at")?.as_str()?)?;
        Some(Self { id, activated_at, object: object.clone() })
    }
}
