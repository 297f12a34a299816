//! What `jp export` and `jp import` have in common: they are done here, or by the process behind the mount that covers
//! the real files, and told the same way.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jp_fs::Live;
use jp_store::ConversationId;
use jp_store::lock::Wait;
use jp_store::mountinfo;
use jp_store::plan::{Direction, Form, HeldKind, Wanted};
use jp_store::store::Store;
use jp_store::writer::Progress;
use serde::Serialize;

use crate::change::change;
use crate::control::{Answer, Asked, Part, Request, What};
use crate::ctx::Ctx;
use crate::error::{Error, Exit, Kind, Result};
use crate::mounts::{self, Known, Standing, StateDir};
use crate::steps::{Left, Outcome, Told};
use crate::ui::clean;

/// How long the process behind a mount may take: an export of everything, behind others who hold locks.
const ANSWER: Duration = Duration::from_secs(3600);

/// After this long it is said what is waited for.
const NOTICEABLE: Duration = Duration::from_secs(2);

/// Something to be brought in step.
pub(crate) struct Job {
    pub(crate) wanted: Wanted,
    /// Another directory, in place of the real files.
    pub(crate) to: Option<PathBuf>,
    pub(crate) what: What,
    /// Whether the exit code says if there is something to do.
    pub(crate) check: bool,
    /// Whether only merge markers make the exit code 1, and stdout names what is held too.
    pub(crate) for_commit: bool,
}

/// What machines are told.
#[derive(Serialize)]
struct Report<'a> {
    steps: &'a [Told],
    held: &'a [Left],
    busy: &'a [Left],
    changed: bool,
}

impl Job {
    /// Does it, or tells what would be done.
    pub(crate) fn run(&self, ctx: &Ctx<'_>, store: &Store) -> Result<Exit> {
        let outcome = match &self.to {
            Some(dir) => self.here(ctx, store, Some(dir))?,
            // The real files are reached only by whoever held them open before they were covered.
            None if store.layout().covered => self.beneath(ctx, store)?,
            None => self.here(ctx, store, None)?,
        };
        self.tell(ctx, &outcome)
    }

    fn here(&self, ctx: &Ctx<'_>, store: &Store, to: Option<&Path>) -> Result<Outcome> {
        match self.what {
            What::Plan => Ok(match to {
                Some(dir) => store.plan_elsewhere(dir, &self.wanted)?.into(),
                None => store.plan(&self.wanted)?.into(),
            }),
            What::Run => change(ctx, store, |change| {
                let mut bar = ctx.ui.bar(self.verb());
                let mut progress = |so_far: Progress| {
                    bar.show(so_far.done, so_far.of);
                    !ctx.signals.interrupted()
                };
                let done = change.patiently(|writer, wait| match to {
                    Some(dir) => writer.export_elsewhere(dir, &self.wanted, &mut progress),
                    None => writer.reconcile(&self.wanted, wait, &mut progress),
                })?;
                Ok(Outcome::from(done))
            }),
        }
    }

    fn beneath(&self, ctx: &Ctx<'_>, store: &Store) -> Result<Outcome> {
        let known = behind(store)?;
        let patience = ctx.patience()?;
        let part = Part {
            only: self.wanted.only.as_ref().map(|only| only.iter().map(ToString::to_string).collect()),
            what: self.what,
            wait: Some(humantime::format_duration(patience.wait().timeout).to_string()),
        };
        let request = match self.wanted.direction {
            Direction::In => Request::Import { part },
            Direction::Out | Direction::Both => Request::Export { form: self.wanted.form, part },
        };
        let socket = known.state.socket();
        let mute = |error: io::Error| Error::io("speak with the daemon at", &socket.path, &error);
        let asked = Asked::begin(&socket, &request, ANSWER).map_err(mute)?;
        if !asked.begins(NOTICEABLE) {
            ctx.ui.note("The process behind the mount is at work on it; it goes on when you stop waiting.");
        }
        let answer = asked.end().map_err(mute)?;
        match (answer.outcome, answer.error) {
            (Some(outcome), _) => Ok(outcome),
            (None, error) => {
                let kind = answer.code.map_or(Kind::Damaged, |code| Exit(code).into());
                let told = Error::new(kind, error.unwrap_or_else(|| "the process behind the mount did not say".into()));
                Err(told.hint(format!("its log is {}", known.state.log().display())))
            }
        }
    }

    fn verb(&self) -> &'static str {
        match self.wanted.direction {
            Direction::In => "import",
            Direction::Out | Direction::Both => "export",
        }
    }

    fn tell(&self, ctx: &Ctx<'_>, outcome: &Outcome) -> Result<Exit> {
        let (verb, done) = (self.verb(), self.what == What::Run);
        if ctx.ui.json() {
            let Outcome { steps, held, busy, .. } = outcome;
            ctx.ui.object(&Report { steps, held, busy, changed: done && !steps.is_empty() })?;
        } else {
            for step in &outcome.steps {
                ctx.ui.line(&step.line())?;
            }
            if self.for_commit {
                let held: BTreeSet<_> = outcome.held.iter().filter_map(|left| left.id.as_deref()).collect();
                held.into_iter().try_for_each(|id| ctx.ui.line(&format!("hold {}", clean(id))))?;
            }
        }
        ctx.ui.note(&outcome.summary(done));
        for left in &outcome.held {
            ctx.ui.warn(&format!("not {verb}ed: {}", clean(&left.reason)));
        }
        if outcome.held.iter().any(|left| left.kind != HeldKind::Unjoined) {
            ctx.ui.note(&format!("hint: both copies stay as they are; mend what is named, then `jp {verb}` again"));
        }
        for left in &outcome.busy {
            ctx.ui.warn(&format!("in use, and not {verb}ed: {}", clean(&left.reason)));
        }
        if !outcome.busy.is_empty() {
            ctx.ui.note(&format!("hint: `jp lock ls` shows who holds what; `jp {verb}` again once it is free"));
        }
        Ok(match () {
            () if self.check && !outcome.is_in_step() => Exit::NO,
            () if !done => Exit::DONE,
            // A person has to do something; what is in use comes by itself.
            () if self.for_commit && outcome.has_merge_markers() => Exit::NO,
            () if !self.for_commit && !outcome.held.is_empty() => Exit::NO,
            () if !outcome.busy.is_empty() => Kind::Locked.exit(),
            () => Exit::DONE,
        })
    }
}

/// The process behind the mount that covers this worktree's real files.
fn behind(store: &Store) -> Result<Known> {
    let point = mountinfo::place(&store.layout().shown().conversations);
    let known = StateDir::of(store.layout()).known();
    match (mounts::standing(&point, known.as_ref()), known) {
        (Standing::Live, Some(known)) if known.alive() && known.record.point == point => Ok(known),
        (Standing::Mute, known) => {
            let told = format!("the process behind the mount at {} does not answer", point.display());
            Err(Error::new(Kind::Damaged, told).hint(match known {
                Some(known) => format!("`kill {}` ends it; then `jp mount` or `jp unmount`", known.record.pid),
                None => "`jp unmount --lazy` takes it away".to_owned(),
            }))
        }
        (Standing::Dead, _) => {
            let gone = format!("the process behind the mount at {} is gone", point.display());
            Err(Error::new(Kind::Damaged, gone)
                .hint("`jp mount` mounts it again, `jp unmount` clears it away and lets the real files follow"))
        }
        _ => Err(Error::no(format!(
            "the real files lie beneath a mount at {} that is not this store's",
            point.display()
        ))
        .hint("`jp status` shows what is mounted; `jp unmount` ends it")),
    }
}

/// The ids to bring in step, as the store wants them.
pub(crate) fn only(ids: Vec<ConversationId>) -> Option<BTreeSet<ConversationId>> {
    Some(ids.into_iter().collect())
}

/// Answers for the process behind a mount.
pub(crate) fn answer(session: &dyn Live, direction: Direction, form: Option<Form>, part: &Part, caller: u32) -> Answer {
    match outcome(session, direction, form, part, caller) {
        Ok(outcome) => Answer { outcome: Some(outcome), ..Answer::done() },
        Err(error) => Answer { code: Some(error.kind.exit().0), ..Answer::failed(error.whole()) },
    }
}

fn outcome(session: &dyn Live, direction: Direction, form: Option<Form>, part: &Part, caller: u32) -> Result<Outcome> {
    let no_id = |word: &String| Error::usage(format!("no id: {word}"));
    let ids =
        |words: &Vec<String>| words.iter().map(|word| word.parse().map_err(|_| no_id(word))).collect::<Result<_>>();
    let wanted = Wanted { direction, only: part.only.as_ref().map(ids).transpose()?, form };
    Ok(match part.what {
        What::Plan => session.plan(&wanted)?.into(),
        What::Run => {
            let timeout = part.wait.as_deref().map_or(Ok(Duration::ZERO), humantime::parse_duration);
            let timeout = timeout.map_err(|error| Error::usage("no duration").because(&error))?;
            let wait = Wait { timeout, ..Wait::none() };
            session.reconcile(&wanted, &wait, caller)?.into()
        }
    })
}
