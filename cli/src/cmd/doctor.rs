//! `jp doctor`: says what is wrong and what to do, and does it if asked to.

use jp_store::problem::What;
use jp_store::writer::problems;
use serde::Serialize;

use super::leftovers::{Sessions, broken_link, orphans};
use super::status::Trouble;
use crate::change::{change, count, whole};
use crate::ctx::{Ctx, View};
use crate::drafts::{Record, State};
use crate::error::{Exit, Kind, Result, how_to_remove};
use crate::mounts;
use crate::ui::clean;

/// What is wrong with a mount that its process has left behind.
const DEAD: &str = "the process behind this mount is gone";

/// What is wrong with a mount whose process does not answer.
const MUTE: &str = "the process behind this mount does not answer";

/// What is wrong with a store that others can read.
const EXPOSED: &str = "other users can reach files of this store";

/// Say what is wrong, and mend it.
///
/// Reads every conversation and looks for what other programs, crashes and merges leave behind, and for drafts that are not
/// in the store. Each finding comes with its place and with advice. `--fix` mends what can be mended without losing anything: what cannot be read goes to the
/// trash, never away. The exit code is 0 when all is well, 1 for oddities, 4 when something cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jp doctor
  jp doctor --fix
  jp doctor --json | jq -r '.findings[].path'")]
pub(crate) struct Args {
    /// Mend what can be mended.
    #[arg(long)]
    fix: bool,
}

#[derive(Serialize)]
struct Finding {
    #[serde(flatten)]
    trouble: Trouble,
    advice: String,
}

#[derive(Serialize)]
struct Mended {
    path: String,
    what: String,
    how: String,
}

#[derive(Serialize)]
struct Report {
    healthy: bool,
    fixed: Vec<Mended>,
    findings: Vec<Finding>,
}

pub(crate) fn run(ctx: &Ctx<'_>, args: Args) -> Result<Exit> {
    let mut fixed = Vec::new();
    if args.fix {
        // First of all: what lies beneath a dead mount cannot be looked at.
        for (point, known) in mounts::stale(ctx.store()?.layout()) {
            mounts::clear(&point, known.as_ref())?;
            let path = point.display().to_string();
            fixed.push(Mended { path, what: DEAD.to_owned(), how: "cleared away".to_owned() });
        }
    }
    let view = ctx.view()?;
    let findings = if args.fix {
        let before = look(&view)?;
        change(ctx, &view.store, |change| {
            let narrowed = change.writer.narrow()?;
            if narrowed > 0 {
                let path = change.writer.store().layout().store.dir.display().to_string();
                let how = format!("{} narrowed: files to 0600, directories to 0700", count(narrowed, "mode"));
                fixed.push(Mended { path, what: EXPOSED.to_owned(), how });
            }
            let outcome = change.writer.fix()?;
            for (problem, error) in outcome.failed {
                ctx.ui.warn(&format!(
                    "not mended: {}: {}",
                    clean(&problem.path.to_string_lossy()),
                    clean(&whole(&error))
                ));
            }
            for (problem, how) in outcome.fixed {
                let trouble = Trouble::from(&problem);
                fixed.push(Mended { path: trouble.place(), what: trouble.what, how });
            }
            Ok(())
        })?;
        let left = look(&ctx.view()?)?;
        // What is still there is not mended, whatever was done about it.
        fixed.retain(|mended: &Mended| !left.iter().any(|finding| finding.trouble.place() == mended.path));
        // What is gone and was not mended by name went with getting ready or with tidying up.
        for gone in before.iter().map(|finding| &finding.trouble) {
            let is = |path: &str| path == gone.path || path == gone.place();
            if !left.iter().any(|finding| is(&finding.trouble.path)) && !fixed.iter().any(|mended| is(&mended.path)) {
                fixed.push(Mended { path: gone.place(), what: gone.what.clone(), how: "tidied up".to_owned() });
            }
        }
        left
    } else {
        look(&view)?
    };
    tell(ctx, args.fix, fixed, findings)
}

fn tell(ctx: &Ctx<'_>, fix: bool, fixed: Vec<Mended>, findings: Vec<Finding>) -> Result<Exit> {
    let exit = match (findings.is_empty(), findings.iter().any(|finding| finding.trouble.damage)) {
        (true, _) => Exit::DONE,
        (false, false) => Exit::NO,
        (false, true) => Kind::Damaged.exit(),
    };
    if ctx.ui.json() {
        ctx.ui.object(&Report { healthy: findings.is_empty(), fixed, findings })?;
        return Ok(exit);
    }
    for mended in &fixed {
        ctx.ui.line(&format!("mended  {}: {}", clean(&mended.path), clean(&mended.what)))?;
        ctx.ui.line(&format!("        {}", clean(&mended.how)))?;
    }
    for Finding { trouble, advice } in &findings {
        let head = match (trouble.damage, trouble.kind) {
            (true, _) => "damage",
            (false, "draft") => "draft",
            (false, _) => "oddity",
        };
        ctx.ui.line(&format!("{head:<6}  {}: {}", clean(&trouble.place()), clean(&trouble.what)))?;
        ctx.ui.line(&format!("        {}", clean(advice)))?;
    }
    ctx.ui.note(&match (findings.len(), fixed.len()) {
        (0, 0) => "All is well.".to_owned(),
        (0, mended) => format!("All is well now; {} mended.", count(mended, "thing")),
        (left, _) if fix => format!("{} left, for a person to decide.", count(left, "finding")),
        (found, _) => format!("{}. `jp doctor --fix` mends what can be mended.", count(found, "finding")),
    });
    Ok(exit)
}

/// Everything that is wrong, with advice.
fn look(view: &View) -> Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = problems(&view.store, &view.snapshot)
        .iter()
        .map(|problem| Finding { trouble: problem.into(), advice: advice(&problem.what) })
        .collect();
    let exposed = view.store.count_exposed();
    if exposed > 0 {
        let path = view.store.layout().store.dir.display().to_string();
        let what = format!("{EXPOSED}: {exposed} files and directories");
        let advice = "`jp doctor --fix` makes files 0600 and directories 0700";
        findings.push(oddity(None, path, "exposed", &what, advice));
    }
    for error in view.store.in_the_way()? {
        let jp_store::Error::InTheWay { path, kind, .. } = &error else { continue };
        let (text, advice) = (error.to_string(), how_to_remove(path, *kind));
        let path = path.display().to_string();
        let what = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text).to_owned();
        findings.push(oddity(None, path, "in-the-way", &what, &advice));
    }
    for draft in Record::all(view)? {
        let (what, advice) = (format!("a draft: {}", draft.cause()), draft.advice());
        let mut finding = oddity(Some(draft.id), draft.path, "draft", &what, &advice);
        if draft.state == State::Invalid {
            (finding.trouble.line, finding.trouble.column) = (draft.line, draft.column);
        }
        findings.push(finding);
    }
    for lock in orphans(&view.store)? {
        let path = lock.path.display().to_string();
        findings.push(oddity(
            Some(lock.id.to_string()),
            path,
            "orphaned-lock",
            "nobody holds this lock",
            "the next command that writes removes it",
        ));
    }
    for (point, pid) in mounts::mute(view.store.layout()) {
        let path = point.display().to_string();
        let end = pid.map_or("`jp unmount --lazy` takes it away".to_owned(), |pid| {
            format!("`kill {pid}` ends the process; then `jp mount` or `jp unmount`")
        });
        findings.push(oddity(None, path, "mute-mount", MUTE, &end));
    }
    for (point, _) in mounts::stale(view.store.layout()) {
        let path = point.display().to_string();
        let advice = "`jp mount` mounts it again; `jp unmount` or `jp doctor --fix` clears it away";
        findings.push(oddity(None, path, "stale-mount", DEAD, advice));
    }
    let sessions = Sessions::of(view)?;
    for path in sessions.stale {
        let path = path.display().to_string();
        findings.push(oddity(
            None,
            path,
            "stale-session",
            "its terminal is gone",
            "the next command that writes removes it",
        ));
    }
    for (path, error) in sessions.unreadable {
        let path = path.display().to_string();
        let error = whole(&error);
        let why = error.strip_prefix(&format!("{path}: ")).unwrap_or(&error);
        findings.push(oddity(None, path, "broken-session", why, "remove it; the terminal then forgets what it was on"));
    }
    if let Some((path, why)) = broken_link(&view.store) {
        let path = path.display().to_string();
        findings.push(oddity(
            None,
            path,
            "storage-link",
            &why,
            "the next command that writes sets it, unless something else is in its place",
        ));
    }
    let leftovers = view.store.leftovers()?;
    for path in leftovers.denied {
        let path = path.display().to_string();
        findings.push(oddity(
            None,
            path,
            "denied-record",
            "this record of temporaries may not be opened",
            "`chmod u+rw` it; until then what its process left behind stays",
        ));
    }
    for path in leftovers.temporaries {
        let path = path.display().to_string();
        findings.push(oddity(
            None,
            path,
            "leftover",
            "left behind by a process that is gone",
            "the next command that writes removes it",
        ));
    }
    Ok(findings)
}

fn oddity(id: Option<String>, path: String, kind: &'static str, what: &str, advice: &str) -> Finding {
    let trouble = Trouble { id, path, kind, what: what.to_owned(), line: None, column: None, damage: false };
    Finding { trouble, advice: advice.to_owned() }
}

fn advice(what: &What) -> String {
    use jp_store::reconcile::Root;
    match what {
        What::Broken { reason, .. } if reason.reason.contains("merge conflict") => {
            "resolve the conflict in this file; until then the store's copy is used".to_owned()
        }
        What::Broken { root: Root::Work, .. } | What::Missing { root: Root::Work } => {
            "mend the file, or bring it back with `git checkout`; until then the store's copy is used".to_owned()
        }
        What::Broken { root: Root::Store, .. } | What::Missing { root: Root::Store } => {
            "`jp doctor --fix` restores it from the workspace's copy, or moves the conversation to the trash".to_owned()
        }
        What::Unreadable { .. } | What::Irregular { .. } | What::Unlisted { .. } => {
            "see to its permissions, or to what lies in its place; it is not written to as long as it cannot be read"
                .to_owned()
        }
        What::Duplicate => "`jp doctor --fix` puts it with the kept losers of conflicts".to_owned(),
        What::Stranger => "`jp doctor --fix` moves it to the trash; or move it elsewhere yourself".to_owned(),
        What::GarbageParent { .. } => "`jp c mv ID --parent ID` or `--root` says where it belongs".to_owned(),
        What::MissingParent { .. } => {
            "fine if the parent was never pulled; else `jp c mv ID --root` makes it a root for good".to_owned()
        }
        What::Cycle { .. } => "`jp c mv ID --root` breaks the circle for good".to_owned(),
        What::Mirror { .. } => "the next change of a parent keeps it aside and begins a new one".to_owned(),
        What::UnmergedSilo => "`jp migrate` merges it now".to_owned(),
        What::Lost { .. } => "do one of the two; nothing else touches the copy, and `jp mount` takes it in".to_owned(),
        What::NotSynced { .. } => {
            "both copies stay as they are; mend what is named, then `jp export` or `jp import` again".to_owned()
        }
        What::Held { .. } => {
            "join it as named, or remove the directory; until then the store's copy is used".to_owned()
        }
    }
}
