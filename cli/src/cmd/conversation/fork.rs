//! `jp c fork`: makes conversations out of others.

use std::ffi::OsString;

use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::events::{Selection, Stream};
use jp_store::json::pretty;
use jp_store::meta::{Meta, Parent};
use jp_store::presence::{Projection, StoragePresence};
use jp_store::writer::Seed;
use serde::Serialize;

use super::edit::title;
use super::label::Label;
use super::new::tell_hidden;
use crate::change::{can_be_local, change, session};
use crate::ctx::{Ctx, View};
use crate::error::{Error, Exit, Kind, Result};
use crate::target::{Targets, one};
use crate::time_arg::TimeArg;

/// Make conversations out of others.
///
/// The new one is a child of the one it comes from and has its events, or the chosen turns of them, its configuration,
/// title, labels and pin; an expiry is not copied. Prints the new ids, one per line. The source is only read, so it need
/// not be free. `--first` and `--last` count among the turns that the times leave; with both, the middle goes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c fork -a                    try something else in this terminal
  jp c fork 17528832001 -l 2      only the last two turns
  jp c fork last -N --root        the same setting, nothing said yet, not a child
  jp c fork . --until 2h          as it was two hours ago")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Make the new one this terminal's active conversation; of several the last.
    #[arg(short, long)]
    activate: bool,
    /// Keep turns that began at this time or later: `2h` ago, a date, a conversation's id.
    #[arg(long, value_name = "TIME")]
    from: Option<TimeArg>,
    /// Keep turns that began before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<TimeArg>,
    /// Keep this many turns from the front; without a number the first.
    #[arg(short, long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    first: Option<usize>,
    /// Keep this many turns from the back; without a number the last.
    #[arg(short, long, value_name = "N", num_args = 0..=1, default_missing_value = "1")]
    last: Option<usize>,
    /// Keep no turns.
    #[arg(short = 'N', long, conflicts_with_all = ["from", "until", "first", "last"])]
    no_turns: bool,
    /// The title of the new one.
    #[arg(short, long, value_parser = title)]
    title: Option<String>,
    /// A label to add; may be repeated.
    #[arg(long = "label", value_name = "KEY[=VALUE]")]
    labels: Vec<Label>,
    /// Leave the source's labels behind.
    #[arg(long)]
    reset_labels: bool,
    /// Whether to keep it out of this worktree [default: as the source].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    local: Option<bool>,
    /// The conversation it goes beneath, in place of the source.
    #[arg(long, value_name = "ID", conflicts_with = "root")]
    parent: Option<OsString>,
    /// Beneath none.
    #[arg(long)]
    root: bool,
}

#[derive(Serialize)]
struct Forked {
    id: String,
    source: String,
    parent: Option<String>,
}

#[derive(Serialize)]
struct Report {
    forked: Vec<Forked>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let session = if args.activate { Some(session(ctx)?) } else { None };
    if args.local == Some(true) {
        can_be_local(&view.store)?;
    }
    let ids = args.targets.resolve(ctx, &view)?;
    let parent = args.parent.as_ref().map(|word| one(ctx, &view, word)).transpose()?;
    let (forked, exit) = change(ctx, &view.store, |change| {
        // Looked at again: a migration may just have moved the files.
        let snapshot = change.writer.store().snapshot()?;
        change.each(&ids, |source| {
            let found = snapshot.find(source)?;
            let parent = if args.root { None } else { parent.or(Some(source)) };
            let stream = change.writer.store().stream(&snapshot, found)?;
            let Some(events) = stream.events else {
                return Err(unreadable(source, &stream.problems));
            };
            let seed = Seed {
                meta: metadata(found, &args)?,
                events: selected(&view, &args, events, source)?,
                base_config: stream.base_config,
                parent,
                projection: projection(found, args.local),
            };
            let local = seed.projection == Projection::LocalOnly;
            let guard = change.writer.create(seed).map_err(|error| advised(error.into(), source, parent))?;
            if let Some(session) = session {
                change.writer.activate(session, guard.id())?;
            }
            if !local {
                tell_hidden(ctx, &snapshot, parent);
            }
            if !ctx.ui.json() {
                ctx.ui.line(&guard.id().to_string())?;
            }
            Ok(Forked {
                id: guard.id().to_string(),
                source: source.to_string(),
                parent: parent.map(|parent| parent.to_string()),
            })
        })
    })?;
    if ctx.ui.json() {
        ctx.ui.object(&Report { forked })?;
    }
    Ok(exit)
}

/// What is copied: all but what belongs to the source alone. Keys nobody here knows are copied too.
fn metadata(source: &Conversation, args: &Args) -> Result<Meta> {
    let Some(meta) = &source.meta else {
        return Err(unreadable(source.id, &[]));
    };
    let mut fields = meta.fields().clone();
    // An origin that is there would stay; the new one's is this worktree.
    fields.shift_remove("origin");
    let mut meta = Meta::parse(&pretty(&fields))
        .map_err(|error| Error::new(Kind::Damaged, format!("{}: {error}", source.path().display())))?;
    meta.set_parent(Parent::Absent);
    meta.set_archived_at(None);
    meta.set_expires_at(None);
    if let Some(title) = &args.title {
        meta.set_title(Some(title));
    }
    if args.reset_labels {
        meta.clear_labels();
    }
    for label in &args.labels {
        meta.set_label(&label.key, &label.value);
    }
    Ok(meta)
}

/// The chosen turns; the very bytes when all are chosen.
fn selected(view: &View, args: &Args, events: Vec<u8>, source: ConversationId) -> Result<Vec<u8>> {
    let now = view.store.now();
    let selection = Selection {
        first: args.first,
        last: args.last,
        none: args.no_turns,
        from: args.from.map(|from| from.at(now)),
        until: args.until.map(|until| until.at(now)),
    };
    if selection == Selection::default() {
        return Ok(events);
    }
    let stream = Stream::parse(&events)
        .map_err(|error| Error::new(Kind::Damaged, format!("the events of {source}: {error}")))?;
    let kept = stream.select(&selection);
    Ok(if kept == stream { events } else { kept.to_bytes() })
}

fn projection(source: &Conversation, local: Option<bool>) -> Projection {
    match local {
        Some(true) => Projection::LocalOnly,
        Some(false) => Projection::Projected,
        None if source.presence == StoragePresence::UserLocalOnly => source.intent,
        None => Projection::Projected,
    }
}

fn unreadable(id: ConversationId, problems: &[jp_store::problem::Problem]) -> Error {
    let told = Error::new(Kind::Damaged, format!("no copy of {id} can be read"));
    let mut told = problems.iter().fold(told, |mut told, problem| {
        told.causes.push(problem.to_string());
        told
    });
    told.hints.push("`jp doctor` says what is wrong with it".to_owned());
    told
}

/// A child of an archived conversation cannot be; a fork of it can.
fn advised(error: Error, source: ConversationId, parent: Option<ConversationId>) -> Error {
    match error.kind {
        Kind::No if parent == Some(source) => error.hint("`--root` or `--parent ID` puts the new one elsewhere"),
        _ => error,
    }
}
