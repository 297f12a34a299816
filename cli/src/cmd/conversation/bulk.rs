//! Which conversations a command that puts away or removes is about, and whether the user means it.

use jp_store::ConversationId;
use jp_store::conversation::Conversation;
use jp_store::layout::Partition;

use crate::ctx::{Ctx, View};
use crate::error::{Error, Kind, Result};
use crate::target::Targets;
use crate::time_arg::TimeArg;
use crate::ui::clean;

/// How many conversations a question lists by name.
const LISTED: usize = 8;

/// Conversations by when they were created.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Range {
    /// Only those created at this time or later: `2h` ago, a date, a conversation's id.
    #[arg(long, value_name = "TIME")]
    from: Option<TimeArg>,
    /// Only those created before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<TimeArg>,
}

/// Whether to ask first.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Consent {
    /// Ask first, even where it would go without saying.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) confirm: bool,
    /// Do not ask.
    #[arg(short, long, visible_alias = "no-confirm")]
    yes: bool,
}

impl Range {
    /// Whether it says anything.
    pub(crate) fn is_given(&self) -> bool {
        self.from.is_some() || self.until.is_some()
    }

    /// Whether a conversation is in it.
    pub(crate) fn contains(&self, ctx: &Ctx<'_>, conversation: &Conversation) -> bool {
        let (now, created) = (ctx.env.now(), conversation.id.timestamp());
        self.from.is_none_or(|from| created >= from.at(now)) && self.until.is_none_or(|until| created < until.at(now))
    }
}

/// The conversations that are named, or without names all live ones, as far as they are in the range and pass a filter
/// of the command's own. Where neither is given it is the active conversation.
pub(crate) fn chosen(
    ctx: &Ctx<'_>,
    view: &View,
    targets: &Targets,
    range: &Range,
    filter: Option<&dyn Fn(&Conversation) -> bool>,
) -> Result<Vec<ConversationId>> {
    let narrowed = range.is_given() || filter.is_some();
    let named = if targets.words.is_empty() && narrowed {
        view.snapshot.partition(Partition::Live).map(|it| it.id).collect()
    } else {
        targets.resolve(ctx, view)?
    };
    let mut ids = Vec::new();
    for id in named {
        let found = view.find(id)?;
        if range.contains(ctx, found) && filter.is_none_or(|filter| filter(found)) {
            ids.push(id);
        }
    }
    if ids.is_empty() {
        return Err(Error::no("no conversation is meant by that").hint("`jp c ls` lists the conversations"));
    }
    Ok(ids)
}

impl Consent {
    /// Asks whether to `verb` the conversations. In a pipe there is nobody to ask, so the answer is no.
    pub(crate) fn ask(
        self,
        ctx: &Ctx<'_>,
        view: &View,
        verb: &str,
        ids: &[ConversationId],
        remark: &str,
    ) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        let what = match ids {
            [id] => format!("{verb} {}", named(view, *id)),
            ids => format!("{verb} {} conversations", ids.len()),
        };
        if !ctx.ui.interactive() {
            return Err(Error::no(format!("not told whether to {what}{remark}"))
                .hint("nobody is there to be asked; say `--yes` to go ahead"));
        }
        if ids.len() > 1 {
            for &id in ids.iter().take(LISTED) {
                ctx.ui.note(&format!("  {}", named(view, id)));
            }
            if ids.len() > LISTED {
                ctx.ui.note(&format!("  and {} more", ids.len() - LISTED));
            }
        }
        let mut question = format!("{what}{remark}?");
        if let Some(first) = question.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        if ctx.ui.confirm(&question)? {
            return Ok(());
        }
        ctx.ui.note("Nothing was changed.");
        Err(Error::new(Kind::Told, "declined"))
    }
}

/// The id and the title.
pub(crate) fn named(view: &View, id: ConversationId) -> String {
    match view.snapshot.get(id).and_then(Conversation::title) {
        Some(title) => format!("{id} “{}”", clean(title)),
        None => id.to_string(),
    }
}

/// A conversation by name, with how many others went the same way because they are beneath it.
pub(crate) fn with_others(view: &View, id: ConversationId, all: &[ConversationId]) -> String {
    match all.len().saturating_sub(1) {
        0 => named(view, id),
        others => format!("{} and {others} beneath it", named(view, id)),
    }
}
