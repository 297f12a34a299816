//! A conversation's `events.json`: an array of objects, most with a `type` and a `timestamp`. Nothing here decides
//! whether an event makes sense to a model; what it does not know it keeps.
//!
//! Three depths of reading, each only as dear as it must be: [`skim`] and [`validate`] scan the bytes, [`texts`] decodes
//! the elements somebody wants to search, [`Stream`] holds the whole file.

mod skim;
mod text;
mod transcript;
mod turns;

use jiff::Timestamp;
use serde_json::Value;

use crate::json::{self, JsonError, Object};
use crate::time;

pub use skim::{Element, Elements, Skim, elements, skim, validate};
pub use text::{Scope, Text, texts};
pub use transcript::Style;
pub use turns::Selection;

/// The events of one conversation, in file order. Every element is an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    elements: Vec<Value>,
}

impl Stream {
    /// Reads `events.json`.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        // The scan knows where an element stands that is no object; the parser would not say.
        skim(bytes)?;
        Ok(Self { elements: json::array(bytes)? })
    }

    /// The bytes of `events.json`.
    pub fn to_bytes(&self) -> Vec<u8> {
        json::pretty(&self.elements)
    }

    /// The elements, every one an object.
    pub fn elements(&self) -> &[Value] {
        &self.elements
    }

    /// Whether the first element holds the base configuration, as it did before there was a `base_config.json`.
    pub fn is_legacy(&self, has_base_config: bool) -> bool {
        !has_base_config && self.objects().next().is_some_and(|first| kind(first) == CONFIG_DELTA)
    }

    fn objects(&self) -> impl ExactSizeIterator<Item = &Object> {
        // `parse` lets only objects in, so nothing is lost here; the empty object keeps the indices right.
        static EMPTY: std::sync::LazyLock<Object> = std::sync::LazyLock::new(Object::new);
        self.elements.iter().map(|element| element.as_object().unwrap_or(&EMPTY))
    }
}

const TURN_START: &str = "turn_start";
pub(crate) const CONFIG_DELTA: &str = "config_delta";
const COMPACTION: &str = "compaction";
const CHAT_REQUEST: &str = "chat_request";
const CHAT_RESPONSE: &str = "chat_response";
const TOOL_CALL_REQUEST: &str = "tool_call_request";
const TOOL_CALL_RESPONSE: &str = "tool_call_response";
const INQUIRY_REQUEST: &str = "inquiry_request";
const INQUIRY_RESPONSE: &str = "inquiry_response";

/// Whether events of this type are part of what was said and done, and so part of a turn even before the first
/// `turn_start`.
fn is_message(kind: &str) -> bool {
    matches!(
        kind,
        CHAT_REQUEST | CHAT_RESPONSE | TOOL_CALL_REQUEST | TOOL_CALL_RESPONSE | INQUIRY_REQUEST | INQUIRY_RESPONSE
    )
}

fn kind(event: &Object) -> &str {
    text_at(event, "type").unwrap_or_default()
}

fn timestamp(event: &Object) -> Option<Timestamp> {
    time::parse(text_at(event, "timestamp")?)
}

fn text_at<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str()
}

#[cfg(test)]
mod tests;
