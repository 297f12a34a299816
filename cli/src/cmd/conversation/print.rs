//! `jp c print`: what was said.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use clap::ValueEnum;
use jp_store::conversation::Conversation;
use jp_store::events::{Scope, Stream, Style};
use jp_store::time::{Timestamp, rfc3339};
use serde::Serialize;

use super::grep::scope::word;
use crate::ctx::{Ctx, View};
use crate::error::{Error, Exit, Kind, Result};
use crate::target::Targets;
use crate::time_arg::TimeArg;
use crate::ui::clean_block;

/// Print what was said.
///
/// Turns are counted from 1. Control characters are shown, not sent; the files themselves have them as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c print --last                  the last turn of the active conversation
  jp c print prev --turn 2..4        three turns of the previous one
  jp c print last -s full | less     with reasoning and tools
  jp c print last -s user --json     the questions, for scripts")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// This many turns from the front; without a number the first.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    first: Option<usize>,
    /// This many turns from the end; without a number the last.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    last: Option<usize>,
    /// One turn, or a range of turns; both ends are in it, and either may be left out.
    #[arg(long, value_name = "N|A..B", conflicts_with_all = ["first", "last"])]
    turn: Option<Turns>,
    /// Turns that began at this time or later: an id, `2h`, a date, or RFC 3339.
    #[arg(long, value_name = "TIME")]
    from: Option<TimeArg>,
    /// Turns that began before this time.
    #[arg(long, visible_alias = "to", value_name = "TIME")]
    until: Option<TimeArg>,
    /// How much to tell.
    #[arg(short, long, value_enum, default_value = "chat")]
    style: StyleArg,
}

/// How much a transcript tells.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StyleArg {
    /// Requests only.
    User,
    /// Requests and answers.
    Chat,
    /// And one line for each tool call.
    Brief,
    /// Everything.
    Full,
}

/// Turns as typed: from 1, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turns(Range<usize>);

#[derive(Serialize)]
struct Printed {
    id: String,
    title: Option<String>,
    turns: Vec<Turn>,
}

#[derive(Serialize)]
struct Turn {
    turn: usize,
    texts: Vec<Said>,
}

#[derive(Serialize)]
struct Said {
    scope: &'static str,
    at: Option<String>,
    text: String,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let style = Style::from(args.style);
    let mut printed = Vec::new();
    let mut any = false;
    for (index, id) in args.targets.resolve(ctx, &view)?.into_iter().enumerate() {
        let it = view.find(id)?;
        let stream = read(ctx, &view, it)?;
        let turns = args.choose(&stream, ctx.env.now());
        if turns.is_empty() && args.is_choosy() {
            ctx.ui.note(&format!("No such turn in {id}, which has {}.", stream.turns().len()));
        }
        any |= !turns.is_empty() || !args.is_choosy();
        if ctx.ui.json() {
            printed.push(Printed {
                id: id.to_string(),
                title: it.title().map(ToOwned::to_owned),
                turns: said(&stream, style, &turns),
            });
            continue;
        }
        for (part, range) in turns.into_iter().enumerate() {
            if index + part > 0 {
                ctx.ui.line("")?;
            }
            ctx.ui.bytes(clean_block(&stream.transcript(style, Some(range))).as_bytes())?;
        }
    }
    if ctx.ui.json() {
        ctx.ui.object(&printed)?;
    }
    Ok(if any { Exit::DONE } else { Exit::NO })
}

/// The events, or the error that says what is wrong with them.
fn read(ctx: &Ctx<'_>, view: &View, it: &Conversation) -> Result<Stream> {
    let stream = view.store.stream(&view.snapshot, it)?;
    if stream.events.is_some() {
        for problem in &stream.problems {
            ctx.ui.warn(&format!("another copy is shown: {problem}"));
        }
        return Ok(stream.parse());
    }
    let told = Error::new(Kind::Damaged, format!("the events of {} cannot be read", it.id));
    let told = stream.problems.iter().fold(told, |mut told, problem| {
        told.causes.push(problem.to_string());
        told
    });
    Err(told.hint("`jp doctor` says what is wrong, `jp c edit --events` opens the file"))
}

impl Args {
    /// Whether certain turns are wanted, so that finding none is an answer of its own.
    fn is_choosy(&self) -> bool {
        self.turn.is_some() || self.from.is_some() || self.until.is_some()
    }

    /// The turns that are wanted, from 0, as ranges without gaps.
    fn choose(&self, stream: &Stream, now: Timestamp) -> Vec<Range<usize>> {
        let turns = stream.turns();
        let (from, until) = (self.from.map(|at| at.at(now)), self.until.map(|at| at.at(now)));
        let began = |turn: usize| {
            let text = stream.elements().get(turns[turn].start)?.get("timestamp")?.as_str()?;
            jp_store::time::parse(text)
        };
        let in_time = |&turn: &usize| match (from, until) {
            (None, None) => true,
            _ => {
                began(turn).is_some_and(|at| from.is_none_or(|from| at >= from) && until.is_none_or(|until| at < until))
            }
        };
        let left: Vec<usize> = (0..turns.len()).filter(in_time).collect();
        let tail = left.len().saturating_sub(self.last.unwrap_or(0));
        let wanted = |(place, turn): &(usize, usize)| match (&self.turn, self.first, self.last) {
            (Some(Turns(range)), ..) => range.contains(turn),
            (None, None, None) => true,
            (None, first, _) => *place < first.unwrap_or(0) || *place >= tail,
        };
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (_, turn) in left.into_iter().enumerate().filter(wanted) {
            match ranges.last_mut() {
                Some(range) if range.end == turn => range.end += 1,
                _ => ranges.push(turn..turn + 1),
            }
        }
        ranges
    }
}

/// The turns in these ranges. The stream is decoded once for all of them: conversations have thousands of turns.
fn said(stream: &Stream, style: Style, ranges: &[Range<usize>]) -> Vec<Turn> {
    let wanted = |scope: Scope| match scope {
        Scope::User => true,
        Scope::Assistant | Scope::Structured => style >= Style::Chat,
        Scope::ToolCall => style >= Style::Brief,
        Scope::Reasoning | Scope::ToolResult | Scope::Inquiry => style >= Style::Full,
    };
    let mut turns: BTreeMap<usize, Vec<Said>> =
        ranges.iter().cloned().flatten().map(|turn| (turn, Vec::new())).collect();
    for text in stream.texts().into_iter().filter(|text| wanted(text.scope)) {
        if let Some(texts) = turns.get_mut(&text.turn) {
            texts.push(Said { scope: word(text.scope), at: text.at.map(rfc3339), text: text.text });
        }
    }
    turns.into_iter().map(|(turn, texts)| Turn { turn: turn + 1, texts }).collect()
}

impl From<StyleArg> for Style {
    fn from(style: StyleArg) -> Self {
        match style {
            StyleArg::User => Self::User,
            StyleArg::Chat => Self::Chat,
            StyleArg::Brief => Self::Brief,
            StyleArg::Full => Self::Full,
        }
    }
}

impl FromStr for Turns {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "a turn is a number from 1, a range is `2..4`, `2..` or `..4`".to_owned();
        let number = |text: &str| text.parse().ok().filter(|&turn: &usize| turn > 0).ok_or_else(bad);
        let (from, to) = match text.split_once("..") {
            None => (number(text)?, number(text)?),
            Some(("", "")) => return Err(bad()),
            Some(("", to)) => (1, number(to)?),
            Some((from, "")) => (number(from)?, usize::MAX),
            Some((from, to)) => (number(from)?, number(to)?),
        };
        if from > to { Err(bad()) } else { Ok(Self(from - 1..to)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns() {
        let check = |text: &str, expected: Option<Range<usize>>| {
            assert_eq!(text.parse::<Turns>().ok().map(|turns| turns.0), expected, "{text}");
        };
        check("1", Some(0..1));
        check("2..4", Some(1..4));
        check("2..", Some(1..usize::MAX));
        check("..4", Some(0..4));
        for bad in ["0", "", "..", "4..2", "a", "1..b", "-1", "0..3"] {
            check(bad, None);
        }
    }
}
