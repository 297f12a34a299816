//! `jp c ls`: what conversations there are.

use std::ffi::OsString;

use clap::ValueEnum;
use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::layout::Partition;
use jp_store::presence::StoragePresence;
use jp_store::time::Timestamp;

use super::filter::{LabelFilter, has_all};
use super::listing::{self, Row};
use super::record::{Findings, Record, expires_at, local};
use crate::ctx::{Ctx, View};
use crate::error::{Exit, Result};
use crate::target::{self, Targets, is_pinned};

/// List conversations.
///
/// The ones worked on last are at the end, the pinned ones and this terminal's active one last of all. Flags are `>`
/// active, `*` pinned, `L` locked, `!` something is wrong. Local is `Y` for what is in the store only, `N` for what this
/// worktree shows too, `ext` for what came with the worktree and is not in the store yet.
///
/// In a pipe the columns are separated by tabs, none is cut, and there is no header: id, activity, local, flags, title.
/// With `--full`: id, events, activity, local, flags, root, parent, expires, origin, labels, title. Only `--full`,
/// `--json` and `--sort events` read the events themselves.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp c ls --limit 10                  the ten worked on last
  jp c ls --tree                      children beneath their parents
  jp c ls --tree --root=last          one tree
  jp c ls --label wip --local         local ones with a label
  jp c ls | awk -F'\\t' '$3 == \"Y\" { print $1 }'
  jp c ls --json | jq -r '.[] | select(.parent == null) | .id'")]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// What to order by.
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// The other way round.
    #[arg(long)]
    descending: bool,
    /// Only the last so many; with `--tree`, so many trees.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// All columns.
    #[arg(long)]
    full: bool,
    /// Only those that are in the store alone.
    #[arg(long)]
    local: bool,
    /// The archived ones.
    #[arg(long)]
    archived: bool,
    /// Only those with this label; may be repeated.
    #[arg(long = "label", value_name = "KEY[=VALUE]")]
    labels: Vec<LabelFilter>,
    /// Draw the tree of parents and children.
    #[arg(long)]
    tree: bool,
    /// Only those without a parent; with an id, only what is beneath that one.
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    root: Option<OsString>,
}

/// What a listing is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The id.
    Id,
    /// When it was created, which is what the id says.
    Created,
    /// When it was last worked on.
    Activity,
    /// When it expires; those that never do come last.
    Expires,
    /// How many events it has.
    #[value(alias = "messages")]
    Events,
    /// Where it is.
    Local,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let mut shown = chosen(ctx, &view, &args)?;
    let mut findings = Findings::of(&view);
    if args.full || ctx.ui.json() || args.sort == Some(Sort::Events) {
        findings.count(&view, &shown);
    }
    let active = view.active();
    shown.sort_by_cached_key(|it| key(&args, &findings, active, it));
    if args.descending {
        shown.reverse();
    }
    let rows = match args.tree {
        true => listing::tree(&view, &shown, args.limit),
        false => listing::flat(&shown, args.limit),
    };
    if ctx.ui.json() {
        let depth = |row: &Row<'_>| args.tree.then_some(row.depth);
        let records: Vec<_> =
            rows.iter().map(|row| Record::of(&view, &findings, row.conversation, depth(row))).collect();
        ctx.ui.object(&records)?;
    } else {
        ctx.ui.table(&listing::table(ctx, &view, &findings, &rows, args.full))?;
        if rows.is_empty() {
            ctx.ui.note("No conversations.");
        }
    }
    match findings.total {
        0 => {}
        1 => ctx.ui.note("1 problem; see jp doctor"),
        n => ctx.ui.note(&format!("{n} problems; see jp doctor")),
    }
    Ok(Exit::DONE)
}

fn chosen<'v>(ctx: &Ctx<'_>, view: &'v View, args: &Args) -> Result<Vec<&'v Conversation>> {
    let partition = if args.archived { Partition::Archived } else { Partition::Live };
    let mut all: Vec<&Conversation> = match args.targets.words.is_empty() {
        true => view.snapshot.partition(partition).collect(),
        false => {
            let ids = args.targets.resolve(ctx, view)?;
            ids.into_iter().map(|id| view.find(id)).collect::<Result<_>>()?
        }
    };
    let tree = |it: &Conversation| view.snapshot.tree(it.partition);
    match &args.root {
        None => {}
        Some(word) if word.is_empty() => all.retain(|it| tree(it).parent(it.id).is_none()),
        Some(word) => {
            let root = view.find(target::one(ctx, view, word)?)?;
            let mut beneath = tree(root).descendants(root.id);
            // A tree is drawn with the one it grows from.
            if args.tree {
                beneath.push(root.id);
            }
            beneath.sort();
            if args.targets.words.is_empty() {
                all = view.snapshot.partition(root.partition).collect();
            }
            all.retain(|it| beneath.binary_search(&it.id).is_ok());
        }
    }
    all.retain(|it| !args.local || it.presence == StoragePresence::UserLocalOnly);
    all.retain(|it| has_all(&args.labels, it));
    Ok(all)
}

/// What a conversation is ordered by: two ranks, a number, a word, a time, and the id where all else is equal.
type Key = (bool, bool, usize, &'static str, Timestamp, ConversationId);

fn key(args: &Args, findings: &Findings, active: Option<ConversationId>, it: &Conversation) -> Key {
    let (id, at, epoch) = (it.id, it.last_activated_at(), Timestamp::UNIX_EPOCH);
    match args.sort {
        // Nobody asked for an order, so what matters most is where the eye is: at the end.
        None if !args.descending => (Some(id) == active, is_pinned(it), 0, "", at, id),
        None | Some(Sort::Activity) => (false, false, 0, "", at, id),
        Some(Sort::Id | Sort::Created) => (false, false, 0, "", epoch, id),
        Some(Sort::Expires) => (expires_at(it).is_none(), false, 0, "", expires_at(it).unwrap_or(epoch), id),
        Some(Sort::Events) => (false, false, findings.events(id).map_or(0, |count| count + 1), "", epoch, id),
        Some(Sort::Local) => (false, false, 0, local(it), at, id),
    }
}
