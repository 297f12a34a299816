//! A conversation's `metadata.json`. It keeps every key it does not know, in place, and never guesses at a broken value.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use crate::id::ConversationId;
use crate::json::{self, JsonError, Object, Scanner};
use crate::time;

/// The metadata of one conversation: the file's keys in file order, known to be well-formed.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    fields: Object,
    /// The one date that is required, read once.
    last_activated_at: Timestamp,
}

/// What the file says about the parent. Nothing here is an error: a link can always be healed later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// There is no such key; the link may be known elsewhere.
    Absent,
    /// Explicitly none.
    Root,
    /// This conversation.
    Of(ConversationId),
    /// Something that names no conversation, as compact JSON.
    Garbage(String),
}

/// The keys this crate knows, in the order in which they are written.
const ORDER: [&str; 8] =
    ["title", "last_activated_at", "pinned_at", "archived_at", "expires_at", "labels", "parent_id", "origin"];

const DATES: [&str; 3] = ["pinned_at", "archived_at", "expires_at"];

impl Meta {
    /// The metadata of a new conversation.
    pub fn new(last_activated_at: Timestamp) -> Self {
        let mut meta = Self { fields: Object::new(), last_activated_at };
        meta.set_last_activated_at(last_activated_at);
        meta
    }

    /// Reads `metadata.json`. A known key with a value it cannot have is an error that names the key.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        let fields = json::object(bytes)?;
        match check(&fields) {
            Ok(last_activated_at) => Ok(Self { fields, last_activated_at }),
            Err(fault) => Err(fault.place(bytes)),
        }
    }

    /// The bytes of `metadata.json`.
    pub fn to_bytes(&self) -> Vec<u8> {
        json::pretty(&self.fields)
    }

    /// All keys, known and unknown.
    pub fn fields(&self) -> &Object {
        &self.fields
    }

    /// The title, if there is one.
    pub fn title(&self) -> Option<&str> {
        self.text("title")
    }

    /// When the conversation was last turned to.
    pub fn last_activated_at(&self) -> Timestamp {
        self.last_activated_at
    }

    /// When it was pinned.
    pub fn pinned_at(&self) -> Option<Timestamp> {
        self.date("pinned_at")
    }

    /// When it was archived. Advisory: where the directory stands is the truth.
    pub fn archived_at(&self) -> Option<Timestamp> {
        self.date("archived_at")
    }

    /// From when on it may be collected.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.date("expires_at")
    }

    /// The labels, in file order.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.fields.get("labels").and_then(Value::as_object);
        labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// The worktree in which it was created.
    pub fn origin(&self) -> Option<&str> {
        self.text("origin")
    }

    /// The parent, as far as this file tells.
    pub fn parent(&self) -> Parent {
        let Some(value) = self.fields.get("parent_id") else {
            return Parent::Absent;
        };
        let id = match value {
            Value::Null => return Parent::Root,
            Value::Number(number) => number.as_u64().and_then(ConversationId::new),
            Value::String(text) => ConversationId::parse_loose(text),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        id.map_or_else(|| Parent::Garbage(value.to_string()), Parent::Of)
    }

    /// Sets or removes the title.
    pub fn set_title(&mut self, title: Option<&str>) {
        self.set("title", title.map(Value::from));
    }

    /// Sets when the conversation was last turned to.
    pub fn set_last_activated_at(&mut self, at: Timestamp) {
        self.last_activated_at = at;
        self.set_date("last_activated_at", Some(at));
    }

    /// Pins or unpins.
    pub fn set_pinned_at(&mut self, at: Option<Timestamp>) {
        self.set_date("pinned_at", at);
    }

    /// Sets or removes when it was archived.
    pub fn set_archived_at(&mut self, at: Option<Timestamp>) {
        self.set_date("archived_at", at);
    }

    /// Sets or removes from when on it may be collected.
    pub fn set_expires_at(&mut self, at: Option<Timestamp>) {
        self.set_date("expires_at", at);
    }

    /// Sets one label. The labels end up sorted by key.
    pub fn set_label(&mut self, key: &str, value: &str) {
        let mut labels = self.take_labels();
        labels.insert(key.to_owned(), Value::from(value));
        labels.sort_keys();
        self.set("labels", Some(Value::Object(labels)));
    }

    /// Removes one label and says whether it was there. No labels means no key.
    pub fn remove_label(&mut self, key: &str) -> bool {
        let mut labels = self.take_labels();
        let removed = labels.shift_remove(key).is_some();
        if labels.is_empty() {
            self.clear_labels();
        } else {
            self.set("labels", Some(Value::Object(labels)));
        }
        removed
    }

    /// Removes all labels.
    pub fn clear_labels(&mut self) {
        self.set("labels", None);
    }

    /// Writes the parent link: an id as an integer, a root as null, nothing as no key. Garbage changes nothing.
    pub fn set_parent(&mut self, parent: Parent) {
        match parent {
            Parent::Absent => self.set("parent_id", None),
            Parent::Root => self.set("parent_id", Some(Value::Null)),
            Parent::Of(id) => self.set("parent_id", Some(Value::from(id.deciseconds()))),
            Parent::Garbage(_) => {}
        }
    }

    /// Says where it was created. Only the first word counts: an origin that is there stays.
    pub fn set_origin(&mut self, origin: &str) {
        if self.fields.get("origin").is_none_or(Value::is_null) {
            self.set("origin", Some(Value::from(origin)));
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    fn date(&self, key: &str) -> Option<Timestamp> {
        time::parse(self.text(key)?)
    }

    fn set_date(&mut self, key: &'static str, at: Option<Timestamp>) {
        self.set(key, at.map(|at| Value::from(time::native(at))));
    }

    /// Leaves null behind, so that the key keeps its place until the labels are put back.
    fn take_labels(&mut self) -> Object {
        match self.fields.get_mut("labels").map(Value::take) {
            Some(Value::Object(labels)) => labels,
            _ => Object::new(),
        }
    }

    fn set(&mut self, key: &'static str, value: Option<Value>) {
        let Some(value) = value else {
            self.fields.shift_remove(key);
            return;
        };
        match self.fields.get_mut(key) {
            Some(present) => *present = value,
            None => {
                self.fields.shift_insert(self.place(key), key.to_owned(), value);
            }
        }
    }

    /// Where a known key that is not there belongs: right after the nearest known key that is written before it, else
    /// right before the nearest that is written after it.
    fn place(&self, key: &str) -> usize {
        let rank = ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
        let (before, after) = ORDER.split_at(rank);
        let index = |known: &&str| self.fields.keys().position(|present| present == known);
        before
            .iter()
            .rev()
            .find_map(index)
            .map(|index| index + 1)
            .or_else(|| after.iter().find_map(index))
            .unwrap_or(self.fields.len())
    }
}

/// Whether a person may give a label this name: a letter, then letters, digits, `_` and `-`, all ASCII.
pub fn valid_label_key(key: &str) -> bool {
    key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// A key whose value cannot be.
struct Fault {
    key: &'static str,
    reason: String,
}

impl Fault {
    fn new(key: &'static str, reason: impl fmt::Display) -> Self {
        Self { key, reason: format!("`{key}` {reason}") }
    }

    /// Points at the value, or at the opening brace when the key is missing.
    fn place(self, bytes: &[u8]) -> JsonError {
        let offset = find(bytes, self.key).ok().flatten().unwrap_or(0);
        JsonError::at(bytes, offset, self.reason)
    }
}

fn check(fields: &Object) -> Result<Timestamp, Fault> {
    match fields.get("title") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(_) => return Err(Fault::new("title", "must be a string")),
    }
    for key in DATES {
        match fields.get(key) {
            None | Some(Value::Null) => {}
            Some(value) => {
                date_of(key, value)?;
            }
        }
    }
    match fields.get("labels") {
        None => {}
        Some(Value::Object(labels)) if labels.values().all(Value::is_string) => {}
        Some(_) => return Err(Fault::new("labels", "must be an object of strings")),
    }
    match fields.get("last_activated_at") {
        Some(value) => date_of("last_activated_at", value),
        None => Err(Fault::new("last_activated_at", "is missing")),
    }
}

fn date_of(key: &'static str, value: &Value) -> Result<Timestamp, Fault> {
    let at = value.as_str().and_then(time::parse);
    at.ok_or_else(|| Fault::new(key, "must be a date such as \"2025-07-19 00:00:05.1\""))
}

/// Where the value of a top-level key begins.
fn find(bytes: &[u8], wanted: &str) -> Result<Option<usize>, JsonError> {
    let mut scanner = Scanner::new(bytes)?;
    scanner.open(b'{', "expected an object")?;
    let mut first = true;
    while scanner.more(b'}', first)? {
        first = false;
        if scanner.key()? == wanted {
            return Ok(Some(scanner.offset()));
        }
        scanner.value(1)?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
