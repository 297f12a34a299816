//! Rows of a listing, flat or as a tree, and their table.

use std::collections::HashMap;

use anstyle::{AnsiColor, Style};
use jp_store::ConversationId;
use jp_store::conversation::Conversation;

use super::record::{Findings, expires_at, labels, local};
use crate::ctx::{Ctx, View};
use crate::target::is_pinned;
use crate::ui::{Cell, Column, Table, ago, clean};

/// One line of a listing.
pub(crate) struct Row<'v> {
    pub(crate) conversation: &'v Conversation,
    /// How many ancestors are in the listing.
    pub(crate) depth: usize,
    /// What is drawn before the title.
    branch: String,
}

/// One row each, at most `limit` from the end.
pub(crate) fn flat<'v>(shown: &[&'v Conversation], limit: Option<usize>) -> Vec<Row<'v>> {
    tail(shown, limit).iter().map(|&conversation| Row { conversation, depth: 0, branch: String::new() }).collect()
}

/// Children beneath their nearest ancestor in the listing, siblings in the order given, at most `limit` trees from the
/// end. No recursion: chains of conversations get long.
pub(crate) fn tree<'v>(view: &View, shown: &[&'v Conversation], limit: Option<usize>) -> Vec<Row<'v>> {
    let by_id: HashMap<ConversationId, &Conversation> = shown.iter().map(|it| (it.id, *it)).collect();
    let mut roots = Vec::new();
    let mut children: HashMap<ConversationId, Vec<&'v Conversation>> = HashMap::new();
    for &it in shown {
        let above = view.snapshot.tree(it.partition).ancestors(it.id).find(|id| by_id.contains_key(id));
        match above {
            Some(above) => children.entry(above).or_default().push(it),
            None => roots.push(it),
        }
    }
    let mut rows = Vec::new();
    // Each entry carries what its descendants begin their lines with.
    let mut open: Vec<(Row<'v>, String)> = Vec::new();
    for &conversation in tail(&roots, limit).iter().rev() {
        open.push((Row { conversation, depth: 0, branch: String::new() }, String::new()));
    }
    while let Some((row, indent)) = open.pop() {
        let beneath = children.remove(&row.conversation.id).unwrap_or_default();
        for (index, &conversation) in beneath.iter().enumerate().rev() {
            let last = index + 1 == beneath.len();
            let (elbow, line) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let below = Row { conversation, depth: row.depth + 1, branch: format!("{indent}{elbow}") };
            open.push((below, format!("{indent}{line}")));
        }
        rows.push(row);
    }
    rows
}

/// The table of a listing.
pub(crate) fn table(ctx: &Ctx<'_>, view: &View, findings: &Findings, rows: &[Row<'_>], full: bool) -> Table {
    let title = Column::soft("Title");
    let mut table = Table::new(match full {
        false => {
            vec![Column::left("ID"), Column::right("Activity"), Column::left("Local"), Column::left("Flags"), title]
        }
        true => vec![
            Column::left("ID"),
            Column::right("#"),
            Column::right("Activity"),
            Column::left("Local"),
            Column::left("Flags"),
            Column::left("Root"),
            Column::left("Parent"),
            Column::right("Expires"),
            Column::soft("Origin"),
            Column::soft("Labels"),
            title,
        ],
    });
    let now = ctx.env.now();
    let active = view.active();
    let dim = Style::new().dimmed();
    for row in rows {
        let it = row.conversation;
        let is_active = active == Some(it.id);
        let strong = if is_active { Style::new().bold() } else { Style::new() };
        let problem = !findings.problems(it.id).is_empty();
        let flags = flags(is_active, is_pinned(it), view.is_locked(it.id), problem);
        let warning = if problem { Style::new().fg_color(Some(AnsiColor::Yellow.into())) } else { Style::new() };
        let id = Cell::styled(it.id.to_string(), strong.fg_color(Some(AnsiColor::Cyan.into())));
        let activity = Cell::styled(ago(now, it.last_activated_at()), dim);
        let title = Cell::styled(format!("{}{}", row.branch, clean(it.title().unwrap_or_default())), strong);
        let flags = Cell::styled(flags, warning);
        if !full {
            table.row([id, activity, local(it).into(), flags, title]);
            continue;
        }
        let parent = view.snapshot.tree(it.partition).parent(it.id);
        let count = findings.events(it.id).map(|count| count.to_string());
        table.row([
            id,
            count.unwrap_or_default().into(),
            activity,
            local(it).into(),
            flags,
            if parent.is_none() { "Y" } else { "N" }.into(),
            parent.map(|parent| parent.to_string()).unwrap_or_default().into(),
            expires_at(it).map(|at| ago(now, at)).unwrap_or_default().into(),
            clean(it.origin.as_deref().unwrap_or_default()).into(),
            clean(&labels(it)).into(),
            title,
        ]);
    }
    table
}

fn flags(active: bool, pinned: bool, locked: bool, problem: bool) -> String {
    let all = [(active, '>'), (pinned, '*'), (locked, 'L'), (problem, '!')];
    all.into_iter().filter_map(|(set, flag)| set.then_some(flag)).collect()
}

fn tail<T>(items: &[T], limit: Option<usize>) -> &[T] {
    &items[items.len().saturating_sub(limit.unwrap_or(items.len()))..]
}
