//! A conversation as plain text for people, in the manner of Markdown. It is not made to be read back, and it does not
//! clean the text: whoever sends it to a terminal escapes control characters.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::Value;

use super::text::{Scope, arguments, indented, scope_of, text_of};
use super::{COMPACTION, CONFIG_DELTA, Stream, TURN_START, kind, text_at, timestamp};
use crate::clean::clean;
use crate::json::Object;
use crate::time;

/// How much a transcript tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// Requests only.
    User,
    /// Requests and answers.
    Chat,
    /// Requests, answers and one line per tool call.
    Brief,
    /// Everything, reasoning and tool results included.
    Full,
    /// Everything, as part of a document: headings leave the first level to its title, reasoning is quoted, and no block
    /// runs into the next.
    Document,
}

/// How much of a tool call's arguments goes on its one line, in characters.
const LINE: usize = 100;

impl Stream {
    /// The transcript of all turns, or of those in the range, counted from 0. A range beyond the end is cut.
    pub fn transcript(&self, style: Style, turns: Option<Range<usize>>) -> String {
        let all = self.turns();
        let chosen = turns.unwrap_or(0..all.len());
        let failed = self.failed_calls();
        let mut page = Page { style, text: String::new(), heading: String::new() };
        for (number, turn) in all.iter().enumerate().filter(|(number, _)| chosen.contains(number)) {
            let events = || self.elements[turn.clone()].iter().filter_map(Value::as_object);
            let began = events().next().and_then(timestamp).map(|at| format!(", {}", time::native(at)));
            page.heading(1, &format!("Turn {}{}", number + 1, began.unwrap_or_default()));
            for event in events() {
                page.event(event, &failed);
            }
        }
        page.text
    }

    /// The ids of tool calls that ended in an error.
    fn failed_calls(&self) -> HashSet<&str> {
        let failed = self.objects().filter(|event| event.get("is_error") == Some(&Value::Bool(true)));
        failed.filter_map(|event| text_at(event, "id")).collect()
    }
}

/// The text so far: blocks with an empty line between them.
struct Page {
    style: Style,
    text: String,
    /// The heading the next block would stand under, so that it is not repeated.
    heading: String,
}

impl Page {
    fn event(&mut self, event: &Object, failed: &HashSet<&str>) {
        let style = self.style;
        let Some(scope) = scope_of(event) else {
            if style >= Style::Full {
                self.remark(event);
            }
            return;
        };
        let Some(text) = text_of(event) else {
            return;
        };
        match scope {
            Scope::User => {
                self.heading(2, text_at(event, "author").unwrap_or("User"));
                self.block(&text);
            }
            Scope::Assistant if style >= Style::Chat => {
                self.heading(2, "Assistant");
                self.block(&text);
            }
            Scope::Structured if style >= Style::Chat => {
                self.heading(2, "Assistant");
                self.fenced("json", &text);
            }
            Scope::ToolCall if style == Style::Brief => {
                let error = text_at(event, "id").is_some_and(|id| failed.contains(id));
                self.line(&format!("- {}{}", one_line(event), if error { " (failed)" } else { "" }));
            }
            Scope::Reasoning if style >= Style::Full => {
                self.heading(3, "Reasoning");
                if style == Style::Document { self.quote(&text) } else { self.block(&text) }
            }
            Scope::ToolCall if style >= Style::Full => {
                self.heading(3, &format!("Tool call: {}", text_at(event, "name").unwrap_or_default()));
                if let Some(arguments) = arguments(event) {
                    self.fenced("json", &indented(&arguments));
                }
            }
            Scope::ToolResult if style >= Style::Full => {
                let error = event.get("is_error") == Some(&Value::Bool(true));
                self.heading(3, if error { "Tool error" } else { "Tool result" });
                self.fenced("", &text);
            }
            Scope::Inquiry if style >= Style::Full => {
                self.heading(3, if event.contains_key("question") { "Question" } else { "Answer" });
                self.block(&text);
            }
            Scope::Assistant
            | Scope::Structured
            | Scope::Reasoning
            | Scope::ToolCall
            | Scope::ToolResult
            | Scope::Inquiry => {}
        }
    }

    /// An event that has no text of its own.
    fn remark(&mut self, event: &Object) {
        match kind(event) {
            TURN_START => {}
            CONFIG_DELTA => self.block("*The configuration changes.*"),
            COMPACTION => {
                // Turns are counted from 0 in the file and from 1 in headings.
                let turn = |key| event.get(key).and_then(Value::as_u64).map_or(0, |turn| turn.saturating_add(1));
                self.block(&format!("*Turns {} to {} are compacted.*", turn("from_turn"), turn("to_turn")));
                if let Some(summary) = event.get("summary").and_then(|summary| summary.get("summary")?.as_str()) {
                    self.block(summary);
                }
            }
            kind => self.block(&format!("*An event of type `{}`.*", clean(kind))),
        }
    }

    /// A heading of this level, from 1. Names in it come from the file, and a heading is one line.
    fn heading(&mut self, level: usize, words: &str) {
        let level = level + usize::from(self.style == Style::Document);
        let heading = format!("{} {}", "#".repeat(level), clean(words));
        if self.heading != heading {
            self.block(&heading);
            self.heading = heading;
        }
    }

    fn block(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text.trim_end_matches(['\n', '\r']));
        self.text.push('\n');
        if self.style == Style::Document
            && let Some(fence) = open_fence(text)
        {
            self.text.push_str(&fence);
            self.text.push('\n');
        }
    }

    /// A block that somebody only thought. Its own fences end with it.
    fn quote(&mut self, text: &str) {
        let quoted = text.trim_end_matches(['\n', '\r']).lines().map(|line| format!("> {line}"));
        let lines: Vec<String> = quoted.map(|line| line.trim_end().to_owned()).collect();
        self.block(&lines.join("\n"));
    }

    /// A list item; it stands right under the one before it.
    fn line(&mut self, text: &str) {
        let follows =
            self.text.lines().next_back().is_some_and(|line| line.starts_with("- ")) && self.heading.is_empty();
        if follows {
            self.text.push_str(text);
            self.text.push('\n');
        } else {
            self.block(text);
            self.heading.clear();
        }
    }

    /// A code block whose fence is longer than any run of backticks inside it.
    fn fenced(&mut self, language: &str, text: &str) {
        let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        self.block(&format!("{fence}{language}\n{}\n{fence}", text.trim_end_matches('\n')));
    }
}

/// The fence that ends the code block which a text leaves open: what follows the text would be code to every reader.
fn open_fence(text: &str) -> Option<String> {
    let mut open: Option<(char, usize)> = None;
    for line in text.lines() {
        let marks = line.trim_start_matches(' ');
        if line.len() - marks.len() > 3 {
            continue;
        }
        let Some(mark) = marks.chars().next().filter(|mark| matches!(mark, '`' | '~')) else {
            continue;
        };
        let rest = marks.trim_start_matches(mark);
        let length = marks.len() - rest.len();
        open = match open {
            None if length >= 3 && (mark == '~' || !rest.contains('`')) => Some((mark, length)),
            Some((opened, least)) if mark == opened && length >= least && rest.trim().is_empty() => None,
            open => open,
        };
    }
    open.map(|(mark, length)| mark.to_string().repeat(length))
}

/// A tool call's name and compact arguments, shortened.
fn one_line(event: &Object) -> String {
    let name = text_at(event, "name").unwrap_or_default();
    let Some(arguments) = arguments(event) else {
        return name.to_owned();
    };
    let arguments = arguments.to_string();
    match arguments.char_indices().nth(LINE) {
        Some((end, _)) => format!("{name} {}…", &arguments[..end]),
        None => format!("{name} {arguments}"),
    }
}
