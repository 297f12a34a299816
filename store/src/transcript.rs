//! A conversation as a text to read, made from its events.

/// The file's name in a conversation's directory.
pub const NAME: &str = "transcript.md";

const MARK: &str = "<!-- jp: made from events.json; edits here are not kept -->";

/// Whether these bytes were made, and are nobody's own.
pub fn is_made(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK.as_bytes())
}
