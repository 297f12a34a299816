//! A conversation as one Markdown document for people, made from its events and never read back. It shows what would move a
//! cursor rather than sending it, and says of itself that it is made.

use crate::clean::{clean, clean_block};
use crate::events::{Stream, Style};
use crate::id::ConversationId;
use crate::meta::Meta;

/// What the file is called, beside the managed ones.
pub const NAME: &str = "transcript.md";

/// The first line of every one of them.
const MARKER: &str = "<!-- jp: made from events.json; edits here are not kept -->";

/// The document. The same conversation always makes the same bytes; events that cannot be read make none.
pub fn render(id: ConversationId, meta: Option<&Meta>, events: &[u8]) -> Option<Vec<u8>> {
    let stream = Stream::parse(events).ok()?;
    let title = meta.and_then(Meta::title).map(str::trim).filter(|title| !title.is_empty());
    let head = match title {
        Some(title) => format!("# {}\n\n`{id}`\n", clean(title)),
        None => format!("# {id}\n"),
    };
    let body = stream.transcript(Style::Document, None);
    let gap = if body.is_empty() { "" } else { "\n" };
    // Some systems end lines with two characters. They mean one line's end, and none of them is worth showing.
    let body = body.replace("\r\n", "\n");
    Some(format!("{MARKER}\n\n{head}{gap}{}", clean_block(&body)).into_bytes())
}

/// Whether these bytes are such a document, whatever became of the rest: the first line tells, however it ends.
pub fn is_made(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line) == MARKER.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u64 = 17_528_832_001;

    fn id() -> ConversationId {
        ConversationId::new(ID).expect("an id")
    }

    fn titled(title: &str) -> Meta {
        let text = serde_json::json!({ "title": title, "last_activated_at": "2025-07-19 00:00:00.0" });
        Meta::parse(text.to_string().as_bytes()).expect("metadata")
    }

    /// What follows the heading.
    #[track_caller]
    fn body(events: &str) -> String {
        let made = render(id(), None, events.as_bytes()).unwrap_or_else(|| panic!("{events} makes a document"));
        assert!(is_made(&made));
        let text = String::from_utf8(made).expect("UTF-8");
        let head = format!("{MARKER}\n\n# jp-c{ID}\n");
        text.strip_prefix(&head).unwrap_or_else(|| panic!("{text:?} begins with its head")).to_owned()
    }

    /// One event with one text, and the block it makes beneath its turn and its speaker.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let said = serde_json::json!([{ "type": "chat_request", "content": text }]).to_string();
        assert_eq!(body(&said), format!("\n## Turn 1\n\n### User\n\n{expected}\n"), "{text:?}");
    }

    #[test]
    fn heads() {
        let check = |meta: Option<&Meta>, expected: &str| {
            let made = render(id(), meta, b"[]").expect("a document");
            assert_eq!(String::from_utf8_lossy(&made), format!("{MARKER}\n\n{expected}\n"), "{meta:?}");
        };
        check(None, "# jp-c17528832001");
        check(Some(&titled("")), "# jp-c17528832001");
        check(Some(&titled(" \n")), "# jp-c17528832001");
        check(Some(&titled("Überprüfung der 日本語")), "# Überprüfung der 日本語\n\n`jp-c17528832001`");
        check(Some(&titled("two\nlines \u{1b}[1m")), "# two\\nlines \\x1b[1m\n\n`jp-c17528832001`");
    }

    #[test]
    fn a_whole_turn() {
        let events = r#"[
          {"timestamp": "2025-07-19 00:00:00.0", "type": "turn_start"},
          {"timestamp": "2025-07-19 00:00:00.1", "type": "chat_request", "content": "Where is it?\nShow me.", "author": "Ada"},
          {"timestamp": "2025-07-19 00:00:00.2", "type": "chat_response", "reasoning": "Hm.\n\nPerhaps there.\n"},
          {"timestamp": "2025-07-19 00:00:00.3", "type": "tool_call_request", "id": "a", "name": "read",
           "arguments": {"path": "c3JjL21haW4ucnM="}},
          {"timestamp": "2025-07-19 00:00:00.4", "type": "tool_call_response", "id": "a", "content": "Zm4gbWFpbigpIHt9Cg==", "is_error": false},
          {"timestamp": "2025-07-19 00:00:00.5", "type": "tool_call_response", "id": "b", "content": "no ``` such", "is_error": true},
          {"timestamp": "2025-07-19 00:00:00.6", "type": "chat_response", "message": "Here."},
          {"timestamp": "2025-07-19 00:01:00.0", "type": "turn_start"},
          {"timestamp": "2025-07-19 00:01:00.1", "type": "chat_response", "data": {"ok": 1.50}}
        ]"#;
        let expected = "
## Turn 1, 2025-07-19 00:00:00.0

### Ada

Where is it?
Show me.

#### Reasoning

> Hm.
>
> Perhaps there.

#### Tool call: read

```json
{
  \"path\": \"src/main.rs\"
}
```

#### Tool result

```
fn main() {}
```

#### Tool error

````
no ``` such
````

### Assistant

Here.

## Turn 2, 2025-07-19 00:01:00.0

### Assistant

```json
{
  \"ok\": 1.50
}
```
";
        assert_eq!(body(events), expected);
    }

    #[test]
    fn texts() {
        check("Grüße, 日本語 👩‍💻", "Grüße, 日本語 👩‍💻");
        check("one\r\ntwo\r\n", "one\ntwo");
        check("one\rtwo\n\tthree", "one\\rtwo\n\tthree");
        check("\u{1b}[31mred\u{7}\u{202e}", "\\x1b[31mred\\x07\\u{202e}");
        check("a `b` and ``` c", "a `b` and ``` c");
        check("```\ncode\n```", "```\ncode\n```");
        let long = "word ".repeat(200_000);
        check(&long, &long);
    }

    /// A block that is never closed would swallow everything after it.
    #[test]
    fn code_that_is_left_open_is_closed() {
        check("look:\n```rust\nfn main() {}", "look:\n```rust\nfn main() {}\n```");
        check("~~~~\n~~~\n", "~~~~\n~~~\n~~~~");
        check("```\n```\n````\r\nx\r\n", "```\n```\n````\nx\n````");
        check("    ```\nindented", "    ```\nindented");
        check("```a`b", "```a`b");
        let thought = r#"[{"type": "chat_response", "reasoning": "so:\n```\nx"}]"#;
        assert_eq!(body(thought), "\n## Turn 1\n\n#### Reasoning\n\n> so:\n> ```\n> x\n");
    }

    #[test]
    fn names_do_not_break_headings() {
        let events = r#"[
          {"type": "chat_request", "content": "hi", "author": "Ada\n# Root"},
          {"type": "tool_call_request", "id": "a", "name": "rm\u0007\n"},
          {"type": "odd\nkind"}
        ]"#;
        let expected =
            "\n## Turn 1\n\n### Ada\\n# Root\n\nhi\n\n#### Tool call: rm\\x07\\n\n\n*An event of type `odd\\nkind`.*\n";
        assert_eq!(body(events), expected);
    }

    #[test]
    fn what_cannot_be_read_makes_none() {
        for events in ["", "{}", "[", "[1]", "[{}]\n<<<<<<< HEAD\n", "[\n<<<<<<< HEAD\n{}]", "\u{feff}[]"] {
            assert_eq!(render(id(), None, events.as_bytes()), None, "{events:?}");
        }
        assert_eq!(render(id(), None, b"[{\"a\":\"\xff\"}]"), None);
    }

    #[test]
    fn the_first_line_tells() {
        let check = |text: &str, expected| assert_eq!(is_made(text.as_bytes()), expected, "{text:?}");
        check(MARKER, true);
        check(&format!("{MARKER}\nedited"), true);
        check(&format!("{MARKER}\r\nedited"), true);
        check("", false);
        check("# My own transcript\n", false);
        check(&format!("\n{MARKER}\n"), false);
        check(&format!("{MARKER} mine\n"), false);
    }
}
