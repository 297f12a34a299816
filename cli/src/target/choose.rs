//! From words to conversations, asking the user or stdin where the words say so.

use std::ffi::OsString;
use std::io::BufRead as _;

use jp_store::ConversationId;
use jp_store::conversation::Conversation;

use super::{Found, Group, HELP, Target, no_active, parse_all};
use crate::ctx::{Ctx, View};
use crate::error::{Error, Kind, Result};
use crate::ui::{ago, clean};

/// How many matches an error lists.
const LISTED: usize = 10;

/// The conversations a command works on.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Targets {
    /// Ids, directories, or words such as `last`; `help` lists the words.
    #[arg(value_name = "ID")]
    pub(crate) words: Vec<OsString>,
}

impl Targets {
    /// The conversations, each once, in the order they are named. Without any words: the active one, or whichever the
    /// user chooses.
    pub(crate) fn resolve(&self, ctx: &Ctx<'_>, view: &View) -> Result<Vec<ConversationId>> {
        let mut targets = parse_all(&self.words)?;
        if targets.is_empty() {
            targets.push(match (view.active(), ctx.ui.interactive()) {
                (Some(_), _) => Target::Active,
                (None, true) => Target::Pick(Group::Live),
                (None, false) => return Err(no_active()),
            });
        }
        let mut ids = Vec::new();
        for target in &targets {
            for id in find(ctx, view, target)? {
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }
}

/// One word from a flag, such as `--root=last`.
pub(crate) fn one(ctx: &Ctx<'_>, view: &View, word: &OsString) -> Result<ConversationId> {
    match find(ctx, view, &Target::parse(word))?.as_slice() {
        [id] => Ok(*id),
        _ => Err(Error::usage(format!("`{}` is not one conversation", word.to_string_lossy()))),
    }
}

fn find(ctx: &Ctx<'_>, view: &View, target: &Target) -> Result<Vec<ConversationId>> {
    match target.resolve(view)? {
        Found::Ids(ids) => Ok(ids),
        Found::Stdin => from_stdin(view),
        Found::Choice(ids, filter) => ask(ctx, view, &ids, &filter).map(|id| vec![id]),
        Found::Help => {
            if ctx.ui.json() {
                ctx.ui.object(&HELP)?;
            } else {
                ctx.ui.bytes(HELP.as_bytes())?;
            }
            Err(Error::new(Kind::Told, "the words are explained"))
        }
    }
}

fn from_stdin(view: &View) -> Result<Vec<ConversationId>> {
    let mut ids = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Error::new(Kind::Damaged, "cannot read standard input").because(&error))?;
        // A line of `jp c ls` begins with its id, and a tab ends that.
        let word = line.split('\t').next().unwrap_or_default().trim();
        if word.is_empty() {
            continue;
        }
        let id = ConversationId::parse_loose(word)
            .ok_or_else(|| Error::usage(format!("not a conversation id on standard input: {}", clean(word))))?;
        ids.push(view.find(id)?.id);
    }
    Ok(ids)
}

fn ask(ctx: &Ctx<'_>, view: &View, ids: &[ConversationId], filter: &str) -> Result<ConversationId> {
    if !ctx.ui.interactive() {
        return Err(unasked(view, ids, filter));
    }
    // What does not match a title may still match an id or be a typing error: the list shows everything.
    let all = if ids.is_empty() && !filter.is_empty() { Group::Live.members(view) } else { ids.to_vec() };
    if all.is_empty() {
        return Err(Error::no("there is no conversation to choose from"));
    }
    let rows = rows(ctx, view, &all);
    let filter = if ids.is_empty() { "" } else { filter };
    match ctx.ui.pick("Which conversation?", rows, filter)? {
        Some(index) => Ok(all[index]),
        None => Err(Error::no("no conversation was chosen")),
    }
}

/// One of several that answer a description: the only one, or whichever the user chooses.
pub(crate) fn among(ctx: &Ctx<'_>, view: &View, ids: &[ConversationId]) -> Result<ConversationId> {
    match ids {
        [] => Err(Error::no("no conversation is like that").hint("`jp c ls` lists the conversations")),
        [id] => Ok(*id),
        ids if ctx.ui.interactive() => ask(ctx, view, ids, ""),
        ids => {
            let told =
                Error::no(format!("{} conversations are like that, and there is no terminal to ask at", ids.len()));
            Err(listed(told, view, ids))
        }
    }
}

/// Scripts are not guessed for: what might be meant is listed.
fn unasked(view: &View, ids: &[ConversationId], filter: &str) -> Error {
    if filter.is_empty() {
        return Error::no("there is no terminal at which to choose a conversation")
            .hint("give an id, or a word such as `last`; `jp c show help` lists the words");
    }
    let told = Error::no(format!("`{}` is not a conversation", clean(filter)));
    if ids.is_empty() {
        return told.hint("no title contains it either; `jp c ls` lists the conversations");
    }
    listed(told, view, ids)
}

/// The error with what might be meant.
fn listed(told: Error, view: &View, ids: &[ConversationId]) -> Error {
    let rest = ids.len().saturating_sub(LISTED);
    let listed = ids.iter().take(LISTED).filter_map(|&id| view.snapshot.get(id));
    let told = listed.fold(told, |told, it| told.hint(format!("did you mean {}  {}", it.id, title(it))));
    if rest > 0 { told.hint(format!("or one of {rest} more; `jp c ls` lists them")) } else { told }
}

fn rows(ctx: &Ctx<'_>, view: &View, ids: &[ConversationId]) -> Vec<String> {
    let now = ctx.env.now();
    let row = |it: &Conversation| format!("{}  {:>8}  {}", it.id, ago(now, it.last_activated_at()), title(it));
    ids.iter().filter_map(|&id| view.snapshot.get(id)).map(row).collect()
}

fn title(conversation: &Conversation) -> String {
    conversation.title().map_or_else(|| "(untitled)".to_owned(), |title| clean(title).into_owned())
}
