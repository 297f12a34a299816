//! `jp c grep`: finds words in conversations, decoded.

pub(crate) mod scope;
mod search;
mod sieve;

use std::ffi::OsString;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use jp_store::conversation::Conversation;
use jp_store::events;
use jp_store::layout::Partition;
use jp_store::time::rfc3339;
use regex::Regex;
use serde::Serialize;

use self::scope::{ScopeArg, word};
use self::search::{Case, Hit, expression, lines};
use self::sieve::Sieve;
use super::filter::{LabelFilter, has_all};
use crate::ctx::{Ctx, View};
use crate::error::{Error, Exit, Result};
use crate::target::Targets;
use crate::ui::clean;

/// Search in conversations.
///
/// Titles and everything that was said and done is searched, line by line, the way a person would read it: tool calls
/// and results, which the files keep encoded, are decoded. Case counts only if a pattern has a capital letter. Hits are
/// printed as `ID:TURN:SCOPE:TEXT`, the turn of a title being `..`; conversations worked on last come last. Lines of
/// context have `-` for `:`.
///
/// The exit code is 1 when nothing matches.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c grep deadlock                  anywhere
  jp c grep -s user -s title retry    in what I asked, and in titles
  jp c grep -r 'fn \\w+_test' -m 3     a regular expression, three hits each
  jp c grep -i last panic             in one conversation
  jp c print $(jp c grep --output ids --limit 1 flaky)")]
pub(crate) struct Args {
    /// What to look for; any of several.
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Search this conversation; may be repeated.
    #[arg(short, long = "id", value_name = "ID")]
    ids: Vec<OsString>,
    /// Case never counts.
    #[arg(long, conflicts_with = "case_sensitive")]
    ignore_case: bool,
    /// Case always counts.
    #[arg(long)]
    case_sensitive: bool,
    /// Show this many lines around each hit.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    context: usize,
    /// Patterns are regular expressions.
    #[arg(short, long)]
    regex: bool,
    /// What to print.
    #[arg(long, value_enum, default_value = "hits")]
    output: Output,
    /// At most this many hits in each conversation.
    #[arg(short, long, value_name = "N")]
    max_matches: Option<usize>,
    /// At most this many conversations, those worked on last.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Only conversations with this label; may be repeated.
    #[arg(long = "label", value_name = "KEY[=VALUE]")]
    labels: Vec<LabelFilter>,
    /// Whose words to search; may be repeated.
    #[arg(short, long, value_enum, value_name = "SCOPE")]
    scope: Vec<ScopeArg>,
    /// Search the archived conversations.
    #[arg(long)]
    archived: bool,
}

/// What a search prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// `ID:TURN:SCOPE:TEXT`.
    Hits,
    /// The ids of conversations with hits.
    Ids,
    /// `ID:NUMBER`.
    Count,
    /// The matching lines alone.
    Text,
}

#[derive(Serialize)]
struct HitRecord<'a> {
    id: String,
    title: Option<&'a str>,
    turn: Option<usize>,
    scope: &'static str,
    at: Option<String>,
    line: usize,
    text: &'a str,
    matches: bool,
}

#[derive(Serialize)]
struct CountRecord {
    id: String,
    count: usize,
}

/// Where to look in a conversation, and for how much.
#[derive(Clone, Copy)]
struct Look<'a> {
    scope: &'a [ScopeArg],
    max_matches: Option<usize>,
    context: usize,
    /// What a file must pass to be decoded.
    sieve: Option<&'a Sieve<'a>>,
}

/// A conversation with hits.
struct Found<'v> {
    conversation: &'v Conversation,
    hits: Vec<Hit>,
}

impl Found<'_> {
    fn count(&self) -> usize {
        self.hits.iter().filter(|hit| hit.matches).count()
    }
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let case = match (args.ignore_case, args.case_sensitive) {
        (true, _) => Case::Ignore,
        (false, true) => Case::Respect,
        (false, false) => Case::Smart,
    };
    let pattern = pattern(&args.patterns, args.regex, case)?;
    let view = ctx.view()?;
    let searched = chosen(ctx, &view, &args)?;
    let sieve = Sieve::new(&args.patterns, args.regex, case, &pattern);
    let sieve = sieve.as_ref();
    let look = Look { scope: &args.scope, max_matches: args.max_matches, context: args.context, sieve };
    let mut found = search_all(ctx, &view, &searched, &pattern, look);
    found.drain(..found.len().saturating_sub(args.limit.unwrap_or(usize::MAX)));
    if ctx.ui.json() {
        print_json(ctx, args.output, &found)?;
    } else {
        print(ctx, &args, &found, &pattern)?;
    }
    Ok(if found.is_empty() { Exit::NO } else { Exit::DONE })
}

fn chosen<'v>(ctx: &Ctx<'_>, view: &'v View, args: &Args) -> Result<Vec<&'v Conversation>> {
    let partition = if args.archived { Partition::Archived } else { Partition::Live };
    let mut all: Vec<&Conversation> = match args.ids.is_empty() {
        true => view.snapshot.partition(partition).collect(),
        false => {
            let ids = Targets { words: args.ids.clone() }.resolve(ctx, view)?;
            ids.into_iter().map(|id| view.find(id)).collect::<Result<_>>()?
        }
    };
    all.retain(|it| has_all(&args.labels, it));
    all.sort_by_key(|it| (it.last_activated_at(), it.id));
    Ok(all)
}

/// The conversations with this text in them, in the order given; case counts only if it has a capital letter.
pub(super) fn mentioning<'v>(
    ctx: &Ctx<'_>,
    view: &View,
    among: Vec<&'v Conversation>,
    text: String,
) -> Result<Vec<&'v Conversation>> {
    let text = [text];
    let pattern = pattern(&text, false, Case::Smart)?;
    let sieve = Sieve::new(&text, false, Case::Smart, &pattern);
    let look = Look { scope: &[], max_matches: Some(1), context: 0, sieve: sieve.as_ref() };
    let found = search_all(ctx, view, &among, &pattern, look);
    Ok(found.into_iter().map(|it| it.conversation).collect())
}

fn pattern(patterns: &[String], regex: bool, case: Case) -> Result<Regex> {
    expression(patterns, regex, case)
        .map_err(|error| Error::usage("the pattern is no regular expression").because(&error))
}

/// The conversations with hits. What cannot be searched is told of.
fn search_all<'v>(
    ctx: &Ctx<'_>,
    view: &View,
    searched: &[&'v Conversation],
    pattern: &Regex,
    look: Look<'_>,
) -> Vec<Found<'v>> {
    let results = jp_store::parallel::map(searched, |conversation| search(view, conversation, pattern, look));
    let mut found = Vec::new();
    for (&conversation, (hits, trouble)) in searched.iter().zip(results) {
        if let Some(trouble) = trouble {
            ctx.ui.warn(&format!("{} is not searched to its end: {}", conversation.id, clean(&trouble)));
        }
        if !hits.is_empty() {
            found.push(Found { conversation, hits });
        }
    }
    found
}

/// The hits in one conversation, and what kept us from looking at all of it.
fn search(view: &View, it: &Conversation, pattern: &Regex, look: Look<'_>) -> (Vec<Hit>, Option<String>) {
    let wanted = |scope| look.scope.is_empty() || look.scope.iter().any(|it| it.covers(scope));
    let mut hits = Vec::new();
    let mut left = look.max_matches.unwrap_or(usize::MAX);
    if let Some(title) = it.title().filter(|title| wanted(None) && left > 0 && pattern.is_match(title)) {
        left -= 1;
        let text = title.to_owned();
        hits.push(Hit { turn: None, scope: None, at: None, line: 1, text_index: 0, text, matches: true });
    }
    // Titles are in metadata: who wants nothing else need not wait for the events.
    if left == 0 || look.scope.iter().all(|scope| *scope == ScopeArg::Title) && !look.scope.is_empty() {
        return (hits, None);
    }
    if let Some(sieve) = look.sieve
        && let Ok(Some(file)) = view.store.raw_events(&view.snapshot, it)
        && !sieve.lets_through(&file)
    {
        return (hits, None);
    }
    let bytes = match view.store.stream(&view.snapshot, it) {
        Ok(stream) => match stream.events {
            Some(bytes) => bytes,
            None => return (hits, stream.problems.first().map(ToString::to_string)),
        },
        Err(error) => return (hits, Some(error.to_string())),
    };
    for (index, text) in events::texts(&bytes, |scope| wanted(Some(scope))).enumerate() {
        match text {
            Ok(text) => lines(&text, index + 1, pattern, look.context, &mut left, &mut hits),
            Err(error) => return (hits, Some(error.to_string())),
        }
        if left == 0 {
            break;
        }
    }
    (hits, None)
}

fn print(ctx: &Ctx<'_>, args: &Args, found: &[Found<'_>], pattern: &Regex) -> Result<()> {
    let mut before: Option<(usize, usize, usize)> = None;
    for (index, it) in found.iter().enumerate() {
        let id = it.conversation.id;
        match args.output {
            Output::Ids => ctx.ui.line(&id.to_string())?,
            Output::Count => ctx.ui.line(&format!("{id}:{}", it.count()))?,
            Output::Hits | Output::Text => {
                for hit in &it.hits {
                    let here = (index, hit.text_index, hit.line);
                    let follows = before.is_some_and(|(a, b, line)| (a, b, line + 1) == here);
                    if args.context > 0 && before.is_some() && !follows {
                        ctx.ui.line("--")?;
                    }
                    before = Some(here);
                    let text = painted(ctx, &hit.text, pattern, hit.matches);
                    let line = if args.output == Output::Text { text } else { prefixed(ctx, it, hit, &text) };
                    ctx.ui.line(&line)?;
                }
            }
        }
    }
    Ok(())
}

fn prefixed(ctx: &Ctx<'_>, found: &Found<'_>, hit: &Hit, text: &str) -> String {
    let turn = hit.turn.map_or_else(|| "..".to_owned(), |turn| turn.to_string());
    let scope = hit.scope.map_or("title", word);
    let mark = if hit.matches { ':' } else { '-' };
    let id = ctx.ui.paint(&found.conversation.id.to_string(), Style::new().fg_color(Some(AnsiColor::Cyan.into())));
    format!("{id}{mark}{turn}{mark}{scope}{mark}{text}")
}

/// The text with its matches set off. It is cleaned piece by piece, since cleaning moves everything.
fn painted(ctx: &Ctx<'_>, text: &str, pattern: &Regex, matches: bool) -> String {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let mut out = String::new();
    let mut end = 0;
    for found in pattern.find_iter(text).filter(|found| matches && !found.is_empty()) {
        out.push_str(&clean(&text[end..found.start()]));
        out.push_str(&ctx.ui.paint(&clean(found.as_str()), style));
        end = found.end();
    }
    out.push_str(&clean(&text[end..]));
    out
}

fn print_json(ctx: &Ctx<'_>, output: Output, found: &[Found<'_>]) -> Result<()> {
    let ids = || found.iter().map(|it| it.conversation.id.to_string());
    let hits = || found.iter().flat_map(|it| it.hits.iter().map(move |hit| (it.conversation, hit)));
    match output {
        Output::Ids => ctx.ui.object(&ids().collect::<Vec<_>>()),
        Output::Count => {
            let counts = ids().zip(found).map(|(id, it)| CountRecord { id, count: it.count() });
            ctx.ui.object(&counts.collect::<Vec<_>>())
        }
        Output::Text => ctx.ui.object(&hits().map(|(_, hit)| &*hit.text).collect::<Vec<_>>()),
        Output::Hits => {
            let records = hits().map(|(it, hit)| HitRecord {
                id: it.id.to_string(),
                title: it.title(),
                turn: hit.turn,
                scope: hit.scope.map_or("title", word),
                at: hit.at.map(rfc3339),
                line: hit.line,
                text: &hit.text,
                matches: hit.matches,
            });
            ctx.ui.object(&records.collect::<Vec<_>>())
        }
    }
}
