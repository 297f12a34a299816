//! `jp c edit`: changes a conversation's properties, or its files by hand.

mod files;

use std::time::Duration;

use jp_store::ConversationId;
use jp_store::meta::Meta;
use jp_store::presence::Projection;
use jp_store::reconcile::ManagedFile;
use jp_store::time::Timestamp;
use jp_store::writer::Toggled;
use serde::Serialize;

use crate::change::{Change, can_be_local, change, count};
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Result};
use crate::target::Targets;

/// Change the properties or the files of conversations.
///
/// The flags for properties can be combined and go for several conversations at once. The flags for files open an
/// editor on a copy (JP_EDITOR, VISUAL, EDITOR, else vi) and take what was written if it is sound; nobody else can write
/// to the conversation meanwhile. Without any flags the editor opens a directory with all three files. What the editor
/// leaves behind is never lost: text that is not sound can be mended, or is kept and its place told.
///
/// `--local` hides a conversation from this worktree with everything beneath it, or shows it again with everything above
/// it; the store has it either way. What is private above it has to be named too.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c edit --title 'Flaky upload test' --pin
  jp c edit 17528832001 --local        hide it here, or show it again
  jp c edit last --tmp=7d              let it expire in a week
  jp c edit --events                   edit what was said
  JP_EDITOR='sed -i s/foo/bar/' jp c edit -e")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    properties: Properties,
    /// Edit events.json.
    #[arg(short, long, conflicts_with = "Properties")]
    events: bool,
    /// Edit metadata.json.
    #[arg(short, long, conflicts_with = "Properties")]
    metadata: bool,
    /// Edit base_config.json.
    #[arg(short, long, conflicts_with = "Properties")]
    base_config: bool,
}

#[derive(Debug, clap::Args)]
#[group(multiple = true)]
struct Properties {
    /// Keep it out of this worktree, or not; without a value the opposite of what is.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    local: Option<Option<bool>>,
    /// Pin it, or not.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pin: Option<bool>,
    /// Let it expire: after this long, or `now`, as soon as no terminal is on it. `jp gc` removes it then.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "now", value_parser = expiry)]
    tmp: Option<Duration>,
    /// Do not let it expire.
    #[arg(long, conflicts_with = "tmp")]
    no_tmp: bool,
    /// The title.
    #[arg(long, value_parser = title)]
    title: Option<String>,
    /// Remove the title.
    #[arg(long, conflicts_with = "title")]
    no_title: bool,
}

/// What became of one conversation.
#[derive(Serialize)]
struct Edited {
    id: String,
    /// Whether anything is different now.
    changed: bool,
    /// Which files are.
    files: Vec<&'static str>,
    /// With `--local`: how it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<Local>,
}

#[derive(Serialize)]
struct Local {
    local: bool,
    ancestors: Vec<String>,
    descendants: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    edited: Vec<Edited>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let wanted: Vec<ManagedFile> = [
        (args.metadata, ManagedFile::Metadata),
        (args.events, ManagedFile::Events),
        (args.base_config, ManagedFile::BaseConfig),
    ]
    .into_iter()
    .filter_map(|(wanted, file)| wanted.then_some(file))
    .collect();
    let by_hand = !args.properties.any();
    if by_hand && wanted.is_empty() && !ctx.ui.interactive() {
        return Err(Error::usage("nothing is said about what to change")
            .hint("such as `--title TEXT`, `--pin`, `--local`, or `--events` to edit that file; `jp c edit --help` has them all"));
    }
    let view = ctx.view()?;
    if args.properties.local.is_some() {
        can_be_local(&view.store)?;
    }
    let ids = args.targets.resolve(ctx, &view)?;
    let (edited, exit) = change(ctx, &view.store, |change| {
        change.each(&ids, |id| {
            if !by_hand {
                return args.properties.apply(ctx, change, id, &ids);
            }
            let files = files::edit(ctx, change, id, &wanted)?;
            ctx.ui.note(&match files.as_slice() {
                [] => format!("{id} is unchanged."),
                files => format!("{id}: {} changed.", files.join(" and ")),
            });
            Ok(Edited { id: id.to_string(), changed: !files.is_empty(), files, local: None })
        })
    })?;
    if ctx.ui.json() {
        ctx.ui.object(&Report { edited })?;
    }
    Ok(exit)
}

impl Properties {
    fn any(&self) -> bool {
        self.local.is_some() || self.changes_metadata()
    }

    fn changes_metadata(&self) -> bool {
        self.pin.is_some() || self.tmp.is_some() || self.no_tmp || self.title.is_some() || self.no_title
    }

    /// `named` are all conversations that the user named.
    fn apply(
        &self,
        ctx: &Ctx<'_>,
        change: &Change<'_>,
        id: ConversationId,
        named: &[ConversationId],
    ) -> Result<Edited> {
        let mut files = Vec::new();
        if self.changes_metadata() {
            let now = ctx.env.now();
            let guard = change.lock(id)?;
            let mut changed = false;
            change.writer.edit(&guard, |meta| {
                let before = meta.clone();
                self.set(meta, now);
                changed = *meta != before;
            })?;
            ctx.ui.note(&format!("{id} is {}.", if changed { "changed" } else { "like that already" }));
            files.extend(changed.then_some(ManagedFile::Metadata.name()));
        }
        let mut edited = Edited { id: id.to_string(), changed: !files.is_empty(), files, local: None };
        if let Some(local) = self.local {
            // Its locks are its own, on this one and on all that come along; ours is let go of by now.
            let (local, toggled) = toggle(change, id, local, named)?;
            tell(ctx, id, local, &toggled);
            let names = |ids: &[ConversationId]| ids.iter().map(ToString::to_string).collect();
            edited.changed |= toggled.changed;
            edited.local =
                Some(Local { local, ancestors: names(&toggled.ancestors), descendants: names(&toggled.descendants) });
        }
        Ok(edited)
    }

    fn set(&self, meta: &mut Meta, now: Timestamp) {
        match self.pin {
            Some(true) if meta.pinned_at().is_none() => meta.set_pinned_at(Some(now)),
            Some(false) => meta.set_pinned_at(None),
            Some(true) | None => {}
        }
        if let Some(after) = self.tmp {
            meta.set_expires_at(Some(now.checked_add(after).unwrap_or(Timestamp::MAX)));
        }
        if self.no_tmp {
            meta.set_expires_at(None);
        }
        if let Some(title) = &self.title {
            meta.set_title(Some(title));
        }
        if self.no_title {
            meta.set_title(None);
        }
    }
}

fn toggle(
    change: &Change<'_>,
    id: ConversationId,
    local: Option<bool>,
    named: &[ConversationId],
) -> Result<(bool, Toggled)> {
    let (local, named) = match local {
        Some(local) => (local, named),
        // The others that are named become the opposite of what they are.
        None => (change.writer.store().snapshot()?.is_shown(id), &[][..]),
    };
    let projection = if local { Projection::LocalOnly } else { Projection::Projected };
    let toggled = change.patiently(|writer, wait| writer.toggle_with(id, projection, named, wait))?;
    Ok((local, toggled))
}

fn tell(ctx: &Ctx<'_>, id: ConversationId, local: bool, toggled: &Toggled) {
    let state = match (local, toggled.changed) {
        (true, true) => "is local now",
        (true, false) => "is local already",
        (false, true) => "is shown here now",
        (false, false) => "is shown here already",
    };
    let verb = match (local, toggled.ancestors.len() + toggled.descendants.len()) {
        (true, 1) => "is hidden",
        (true, _) => "are hidden",
        (false, 1) => "is shown",
        (false, _) => "are shown",
    };
    let others: Vec<String> = [(&toggled.ancestors, "above it"), (&toggled.descendants, "beneath it")]
        .into_iter()
        .filter(|(ids, _)| !ids.is_empty())
        .map(|(ids, place)| format!("{} {place}", count(ids.len(), "conversation")))
        .collect();
    ctx.ui.note(&match others.as_slice() {
        [] => format!("{id} {state}."),
        others => format!("{id} {state}; {} {verb} with it.", others.join(" and ")),
    });
}

/// A title somebody typed.
pub(crate) fn title(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(
            "a title is not empty; leave the flag out, or remove a title with `jp c edit --no-title`".to_owned()
        );
    }
    Ok(text.to_owned())
}

/// How long until something expires.
pub(crate) fn expiry(text: &str) -> Result<Duration, String> {
    if text == "now" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|_| "not a duration; try `2h`, `7d` or `now`".to_owned())
}
