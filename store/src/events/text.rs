//! What was said and done, as text to search and to show. It decodes what is stored encoded and changes nothing else.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::skim::{Element, elements};
use super::turns::TurnCounter;
use super::{
    CHAT_REQUEST, CHAT_RESPONSE, INQUIRY_REQUEST, INQUIRY_RESPONSE, Stream, TOOL_CALL_REQUEST, TOOL_CALL_RESPONSE,
    kind, text_at, timestamp,
};
use crate::json::{JsonError, Object};

/// Whose words a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A request of the user.
    User,
    /// An answer in prose.
    Assistant,
    /// What the assistant thought.
    Reasoning,
    /// An answer as data.
    Structured,
    /// A tool's name and arguments.
    ToolCall,
    /// What a tool gave back.
    ToolResult,
    /// A question asked on the way, or its answer.
    Inquiry,
}

/// One text of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Which turn it belongs to, from 0.
    pub turn: usize,
    /// Which element of the array it is, from 0.
    pub element: usize,
    /// Whose words these are.
    pub scope: Scope,
    /// When, if the element tells.
    pub at: Option<Timestamp>,
    /// The words. Lines are separated by newlines.
    pub text: String,
}

/// Reads the texts in the wanted scopes straight off `events.json`. Everything else is skipped, checked but not decoded.
///
/// After an error there are no more texts; those before it are good.
pub fn texts<'a>(
    bytes: &'a [u8],
    wanted: impl Fn(Scope) -> bool + 'a,
) -> impl Iterator<Item = Result<Text, JsonError>> + 'a {
    let mut turns = TurnCounter::default();
    elements(bytes).enumerate().filter_map(move |(index, element)| {
        let element = match element {
            Ok(element) => element,
            Err(error) => return Some(Err(error)),
        };
        let turn = turns.step(element.kind.as_deref().unwrap_or_default());
        let scope = element.scope.filter(|scope| wanted(*scope))?;
        let text = element.text()?;
        Some(Ok(Text { turn: turn?, element: index, scope, at: element.at(), text }))
    })
}

impl Stream {
    /// All texts, in order.
    pub fn texts(&self) -> Vec<Text> {
        let mut turns = TurnCounter::default();
        let text = |(element, event): (usize, &Object)| {
            let turn = turns.step(kind(event));
            let scope = scope_of(event)?;
            let text = text_of(event)?;
            Some(Text { turn: turn?, element, scope, at: timestamp(event), text })
        };
        self.objects().enumerate().filter_map(text).collect()
    }
}

impl Scope {
    /// The scope of an event of this type; an answer's depends on which of its three keys it has.
    pub(super) fn of(kind: &str, message: bool, reasoning: bool, data: bool) -> Option<Self> {
        match kind {
            CHAT_REQUEST => Some(Self::User),
            CHAT_RESPONSE if message => Some(Self::Assistant),
            CHAT_RESPONSE if reasoning => Some(Self::Reasoning),
            CHAT_RESPONSE if data => Some(Self::Structured),
            TOOL_CALL_REQUEST => Some(Self::ToolCall),
            TOOL_CALL_RESPONSE => Some(Self::ToolResult),
            INQUIRY_REQUEST | INQUIRY_RESPONSE => Some(Self::Inquiry),
            _ => None,
        }
    }
}

impl Element<'_> {
    /// The element's text, decoded; nothing if it has none.
    pub fn text(&self) -> Option<String> {
        self.scope?;
        let event: Object = serde_json::from_str(self.raw).ok()?;
        text_of(&event)
    }
}

pub(super) fn scope_of(event: &Object) -> Option<Scope> {
    let has_text = |key| text_at(event, key).is_some();
    Scope::of(kind(event), has_text("message"), has_text("reasoning"), event.contains_key("data"))
}

/// The text of an event; nothing if the key that should hold it is missing or of the wrong kind.
pub(super) fn text_of(event: &Object) -> Option<String> {
    let plain = |key| text_at(event, key).map(str::to_owned);
    match scope_of(event)? {
        Scope::User => plain("content"),
        Scope::Assistant => plain("message"),
        Scope::Reasoning => plain("reasoning"),
        Scope::Structured => event.get("data").map(indented),
        Scope::ToolCall => {
            let name = plain("name")?;
            Some(match arguments(event) {
                Some(arguments) => format!("{name}\n{}", indented(&arguments)),
                None => name,
            })
        }
        Scope::ToolResult => text_at(event, "content").map(|content| decode(content).into_owned()),
        Scope::Inquiry => match event.get("question") {
            Some(question) => question.get("text")?.as_str().map(str::to_owned),
            None => event.get("answer").map(|answer| answer.as_str().map_or_else(|| answer.to_string(), str::to_owned)),
        },
    }
}

/// A tool call's arguments, decoded; nothing if there are none.
pub(super) fn arguments(event: &Object) -> Option<Value> {
    let mut arguments = event.get("arguments").cloned()?;
    decode_all(&mut arguments);
    let empty = arguments.is_null() || arguments.as_object().is_some_and(Object::is_empty);
    (!empty).then_some(arguments)
}

pub(super) fn indented(value: &Value) -> String {
    format!("{value:#}")
}

/// Decodes what is base64 of UTF-8 text and leaves anything else as it is, since people also write plain text.
fn decode(text: &str) -> Cow<'_, str> {
    match BASE64_STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(decoded) => Cow::Owned(decoded),
        None => Cow::Borrowed(text),
    }
}

/// Decodes every string value, at any depth; keys are plain.
fn decode_all(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(decoded) = decode(text) {
                *text = decoded;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(decode_all),
        Value::Object(members) => members.values_mut().for_each(decode_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
