//! `jp status`: where things are, and how they are.

mod mounts;

use jp_store::ConversationId;
use jp_store::conflict::Kept;
use jp_store::layout::Partition;
use jp_store::lock::{LockInfo, State};
use jp_store::plan::Direction;
use jp_store::presence::StoragePresence;
use jp_store::problem::{Problem, What};
use jp_store::time::rfc3339;
use jp_store::writer::problems;
use serde::Serialize;

use self::mounts::Mount;
use crate::change::count;
use crate::ctx::{Ctx, View};
use crate::drafts;
use crate::error::{Exit, Kind, Result};
use crate::ui::clean;

/// Tell where things are and how they are.
///
/// The workspace, the store, this terminal, how many conversations there are, what is mounted, whether the real files
/// followed the last mount, what was saved through a mount and is not a whole document, who holds which conversation, what is kept of old conflicts, and what is wrong.
/// Reads every conversation and changes nothing. The exit code is 4 when something cannot
/// be read; `jp doctor` says what to do about it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp status
  jp status --json | jq .problems
  jp status --json | jq -r '.drafts[] | \"\\(.path):\\(.line):\\(.column): \\(.reason)\"'")]
pub(crate) struct Args {}

/// The whole report. The keys are stable.
#[derive(Serialize)]
struct Report {
    workspace: Workspace,
    store: StoreReport,
    session: Option<Session>,
    counts: Counts,
    mounts: Vec<Mount>,
    /// How many other worktrees of the store are mounted.
    mounts_elsewhere: usize,
    /// How many conversations' real files did not follow the last mount, which has ended; `null` if that cannot be told.
    behind: Option<usize>,
    drafts: Vec<drafts::Record>,
    /// Files that are hidden in this worktree.
    hidden: Vec<Hidden>,
    conflicts: Vec<Conflict>,
    locks: Vec<Lock>,
    problems: Vec<Trouble>,
}

#[derive(Serialize)]
struct Workspace {
    root: String,
    id: String,
}

#[derive(Serialize)]
struct StoreReport {
    path: String,
    exists: bool,
    /// Whether the workspace is the only root.
    single_root: bool,
    /// Silos not merged yet.
    silos: Vec<String>,
}

#[derive(Serialize)]
struct Session {
    key: String,
    active: Option<String>,
    previous: Option<String>,
}

#[derive(Default, Serialize)]
struct Counts {
    total: usize,
    projected: usize,
    local: usize,
    external: usize,
    archived: usize,
}

/// How many conversations with hidden files are listed, and how many files of each.
const LISTED: usize = 3;

/// Files of a conversation that are hidden in this worktree.
#[derive(Serialize)]
struct Hidden {
    id: String,
    files: Vec<String>,
}

#[derive(Serialize)]
struct Conflict {
    id: Option<String>,
    path: String,
    at: Option<String>,
    files: Vec<String>,
}

#[derive(Serialize)]
struct Lock {
    id: String,
    path: String,
    held: bool,
    borrowed: bool,
    pid: Option<u32>,
    session: Option<String>,
    since: Option<String>,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Trouble {
    pub(crate) id: Option<String>,
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) what: String,
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    /// Whether content cannot be read.
    pub(crate) damage: bool,
}

pub(crate) fn run(ctx: &Ctx<'_>, Args {}: Args) -> Result<Exit> {
    let view = ctx.view()?;
    let report = Report::of(&view)?;
    if ctx.ui.json() {
        ctx.ui.object(&report)?;
    } else {
        report.print(ctx)?;
    }
    let damaged = report.problems.iter().any(|problem| problem.damage);
    Ok(if damaged { Kind::Damaged.exit() } else { Exit::DONE })
}

impl Report {
    fn of(view: &View) -> Result<Self> {
        let (layout, workspace) = (view.store.layout(), view.store.workspace());
        let mut counts = Counts::default();
        for conversation in view.snapshot.all() {
            counts.total += 1;
            let number = match (conversation.partition, conversation.presence) {
                (Partition::Archived, _) => &mut counts.archived,
                (Partition::Live, StoragePresence::Projected) => &mut counts.projected,
                (Partition::Live, StoragePresence::UserLocalOnly) => &mut counts.local,
                (Partition::Live, StoragePresence::WorkspaceOnly) => &mut counts.external,
            };
            *number += 1;
        }
        let (mounts, mounts_elsewhere) = Mount::list(view);
        let behind = match &view.store.layout().work {
            Some(_) if !mounts.iter().any(Mount::is_alive) && view.store.is_behind()? => {
                view.store.count_out_of_step(Direction::Out).ok()
            }
            _ => Some(0),
        };
        let name = |id: Option<jp_store::ConversationId>| id.map(|id| id.to_string());
        Ok(Self {
            workspace: Workspace { root: workspace.project.display().to_string(), id: workspace.id.to_string() },
            store: StoreReport {
                path: layout.store.dir.display().to_string(),
                exists: jp_store::beneath::trusted::exists(&layout.store.dir),
                single_root: layout.is_single_root(),
                silos: layout.siblings.iter().map(|silo| silo.dir.display().to_string()).collect(),
            },
            session: view.store.session().map(|session| Session {
                key: session.key(),
                active: name(view.active()),
                previous: name(view.previous()),
            }),
            counts,
            mounts,
            mounts_elsewhere,
            behind,
            drafts: drafts::Record::all(view)?,
            hidden: view.store.all_hidden_files(&view.snapshot)?.into_iter().map(Hidden::from).collect(),
            conflicts: view.store.conflicts()?.into_iter().map(Conflict::from).collect(),
            locks: view.store.locks().list()?.into_iter().map(Lock::from).collect(),
            problems: problems(&view.store, &view.snapshot).iter().map(Trouble::from).collect(),
        })
    }

    fn print(&self, ctx: &Ctx<'_>) -> Result<()> {
        let say = |head: &str, text: &str| ctx.ui.line(&format!("{head:<10} {}", clean(text)));
        say("workspace", &format!("{} ({})", self.workspace.root, self.workspace.id))?;
        say(
            "store",
            &match (self.store.single_root, self.store.exists) {
                (true, _) => format!("{} (no user-local storage)", self.store.path),
                (false, true) => self.store.path.clone(),
                (false, false) => format!("{} (made by the first command that writes)", self.store.path),
            },
        )?;
        for silo in &self.store.silos {
            say("silo", &format!("{silo} (merged by the next command that writes)"))?;
        }
        if let Some(session) = &self.session {
            let active = session.active.as_deref().unwrap_or("on no conversation");
            say("session", &format!("{} {active}", session.key))?;
        }
        let Counts { total, projected, local, external, archived } = self.counts;
        let parts = [(projected, "projected"), (local, "local"), (external, "external"), (archived, "archived")];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, word)| format!("{number} {word}"))
            .collect();
        say(
            "holds",
            &match parts.as_slice() {
                [] => count(total, "conversation"),
                parts => format!("{}: {}", count(total, "conversation"), parts.join(", ")),
            },
        )?;
        for (head, text) in self.mounts.iter().flat_map(Mount::lines) {
            say(head, &text)?;
        }
        if self.mounts_elsewhere > 0 {
            say("mount", &format!("{} mounted as well", count(self.mounts_elsewhere, "other worktree")))?;
        }
        if self.behind != Some(0) {
            let number = self.behind.map(|number| format!(": {}", count(number, "conversation")));
            let number = number.unwrap_or_default();
            say("behind", &format!("the real files did not follow the last mount{number}; `jp export` lets them"))?;
        }
        let arriving = |id: &str| self.mounts.iter().any(|mount| mount.is_arriving(id));
        // The mount has told of those that it is taking in.
        let drafts: Vec<_> = self.drafts.iter().filter(|it| it.file.is_some() || !arriving(&it.id)).collect();
        for draft in &drafts {
            say(if draft.file.is_some() { "draft" } else { "arriving" }, &format!("{}: {}", draft.path, draft.why()))?;
        }
        if !drafts.is_empty() {
            say("", "`jp draft ls` lists them; `jp draft apply | drop ID [FILE]` commits one or gives it up")?;
        }
        match &self.hidden[..] {
            [] => {}
            few if few.len() <= LISTED => {
                for hidden in few {
                    let Hidden { id, files } = hidden;
                    let them = if files.len() == 1 { "it" } else { "them" };
                    say("hidden", &format!("{} of {id}; `jp c unhide {id}` shows {them} again", some_of(files)))?;
                }
            }
            many => {
                let files = count(many.iter().map(|hidden| hidden.files.len()).sum(), "file");
                let text = format!(
                    "{files} of {}; `jp c show ID` lists them, `jp c unhide ID` shows them again",
                    count(many.len(), "conversation")
                );
                say("hidden", &text)?;
            }
        }
        for lock in &self.locks {
            let who = lock.pid.map(|pid| format!(" by process {pid}")).unwrap_or_default();
            let state = if lock.held { format!("held{who}") } else { "left behind".to_owned() };
            say("lock", &format!("{} {state}", lock.id))?;
        }
        for kept in &self.conflicts {
            say("conflict", &format!("the losing side is kept in {}", kept.path))?;
        }
        for problem in &self.problems {
            let head = match (problem.damage, problem.kind) {
                (true, _) => "damage",
                (false, "held") => "held",
                (false, _) => "oddity",
            };
            say(head, &format!("{}: {}", problem.place(), problem.what))?;
        }
        Ok(())
    }
}

impl Trouble {
    /// The path, with line and column where there are any: editors understand that.
    pub(crate) fn place(&self) -> String {
        match (self.line, self.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}", self.path),
            _ => self.path.clone(),
        }
    }
}

impl From<&Problem> for Trouble {
    fn from(problem: &Problem) -> Self {
        let (what, place) = match &problem.what {
            What::Broken { reason, .. } => {
                (reason.reason.clone(), (reason.line > 0).then_some((reason.line, reason.column)))
            }
            other => (other.to_string(), None),
        };
        Self {
            id: problem.id.map(|id| id.to_string()),
            path: problem.path.display().to_string(),
            kind: problem.what.kind(),
            what,
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            damage: problem.what.is_damage(),
        }
    }
}

/// The first of several files, and how many more there are.
pub(crate) fn some_of(files: &[String]) -> String {
    let listed = files[..files.len().min(LISTED)].join(", ");
    match files.len().saturating_sub(LISTED) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

impl From<(ConversationId, Vec<String>)> for Hidden {
    fn from((id, files): (ConversationId, Vec<String>)) -> Self {
        Self { id: id.to_string(), files }
    }
}

impl From<Kept> for Conflict {
    fn from(kept: Kept) -> Self {
        Self {
            id: kept.id.map(|id| id.to_string()),
            path: kept.path.display().to_string(),
            at: kept.at.map(rfc3339),
            files: kept.files,
        }
    }
}

impl From<LockInfo> for Lock {
    fn from(lock: LockInfo) -> Self {
        let holder = lock.holder.unwrap_or_default();
        Self {
            id: lock.id.to_string(),
            path: lock.path.display().to_string(),
            held: lock.state == State::Held,
            borrowed: lock.level > 0,
            pid: holder.pid,
            session: holder.session,
            since: holder.since.map(rfc3339),
        }
    }
}
