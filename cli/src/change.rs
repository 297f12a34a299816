//! What commands that write have in common: they say what a migration did, let Ctrl-C wait, go on with the next
//! conversation when one fails, and clean up behind themselves.

use jp_store::lock::{Guard, Wait};
use jp_store::session::Session;
use jp_store::store::Store;
use jp_store::writer::{Migrated, Writer};
use jp_store::{ConversationId, Error as StoreError};

use crate::ctx::Ctx;
use crate::error::{Error, Exit, Kind, Result};
use crate::mounts;
use crate::ui::{Ui, clean};

/// A store that is being changed.
pub(crate) struct Change<'a> {
    ctx: &'a Ctx<'a>,
    pub(crate) writer: Writer,
}

/// Does something to the store. What the work says is the result; what tidying up afterwards says is a warning at most.
pub(crate) fn change<T>(ctx: &Ctx<'_>, store: &Store, work: impl FnOnce(&Change<'_>) -> Result<T>) -> Result<T> {
    with_migration(ctx, store, |change, migrated| {
        tell_migration(ctx.ui, &migrated);
        work(change)
    })
}

/// The same, for a command that has its own way of telling what a migration did.
pub(crate) fn with_migration<T>(
    ctx: &Ctx<'_>,
    store: &Store,
    work: impl FnOnce(&Change<'_>, Migrated) -> Result<T>,
) -> Result<T> {
    // A wait that makes no sense is an error before anything is touched.
    ctx.patience()?;
    let _hold = ctx.signals.hold();
    let (writer, migrated) = store.writer()?;
    let change = Change { ctx, writer };
    let result = work(&change, migrated);
    match change.writer.tidy() {
        Ok(tidied) => {
            // No business of this command's; `jp doctor` names it too.
            for (_, error) in &tidied.failed {
                tracing::info!("session file left alone: {}", whole(error));
            }
        }
        Err(error) => ctx.ui.warn(&format!("not everything was tidied up: {}", whole(&error))),
    }
    // Work that failed may have changed something before it did.
    mounts::refresh(change.writer.store().layout());
    result
}

impl Change<'_> {
    /// Takes the lock on a conversation, waiting as long as the user wants to.
    pub(crate) fn lock(&self, id: ConversationId) -> Result<Guard> {
        self.patiently(|writer, wait| writer.lock(id, wait))
    }

    /// Does what takes its own locks.
    pub(crate) fn patiently<T>(&self, work: impl FnOnce(&Writer, &Wait<'_>) -> jp_store::Result<T>) -> Result<T> {
        let patience = self.ctx.patience()?;
        Ok(work(&self.writer, &patience.wait())?)
    }

    /// Does something to each conversation. One that fails is told of and does not keep the others; the exit code is the
    /// worst of all.
    pub(crate) fn each<T>(
        &self,
        ids: &[ConversationId],
        mut work: impl FnMut(ConversationId) -> Result<T>,
    ) -> Result<(Vec<T>, Exit)> {
        if let [id] = ids {
            return Ok((vec![work(*id)?], Exit::DONE));
        }
        let (mut done, mut worst) = (Vec::new(), Exit::DONE);
        for &id in ids {
            self.ctx.signals.check()?;
            match work(id) {
                Ok(result) => done.push(result),
                Err(error) if matches!(error.kind, Kind::Interrupted | Kind::Unread) => return Err(error),
                Err(error) => worst = Exit(worst.0.max(self.ctx.ui.fail(&error).0)),
            }
        }
        Ok((done, worst))
    }
}

/// Copies into the store what only the workspace has; tells it with what getting ready did.
pub(crate) fn import_all(change: &Change<'_>, mut migrated: Migrated) -> Result<Migrated> {
    let rest = change.writer.import_all()?;
    migrated.imported.extend(rest.imported);
    for left in rest.refused {
        if !migrated.refused.contains(&left) {
            migrated.refused.push(left);
        }
    }
    Ok(migrated)
}

/// This terminal, or what to do about having none.
pub(crate) fn session<'a>(ctx: &'a Ctx<'_>) -> Result<&'a Session> {
    ctx.env.session.as_ref().ok_or_else(|| {
        Error::no("this terminal cannot be told from others, so it can have no active conversation")
            .hint("set JP_SESSION to anything that stays the same in this terminal, such as `export JP_SESSION=$$`")
    })
}

/// Refuses `--local` where there is only one root.
pub(crate) fn can_be_local(store: &Store) -> Result<()> {
    if !store.layout().is_single_root() {
        return Ok(());
    }
    Err(Error::no("there is no user-local storage, so no conversation can be local")
        .hint("set JP_USER_DATA_DIR, XDG_DATA_HOME or HOME to say where it is"))
}

/// `1 conversation`, `2 conversations`.
pub(crate) fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// What a migration did, or is going to do, in one line; `None` if nothing.
pub(crate) fn migration(migrated: &Migrated, done: bool) -> Option<String> {
    let verb = |before: &'static str, after: &'static str| if done { after } else { before };
    let conversations = |ids: &[ConversationId]| count(ids.len(), "conversation");
    let mut parts = Vec::new();
    if migrated.silos > 0 {
        let silos = count(migrated.silos, "other silo");
        parts.push(format!("{} {silos} into the store", verb("merge", "merged")));
    }
    if !migrated.moved.is_empty() {
        parts.push(format!("{} {}", verb("move", "moved"), conversations(&migrated.moved)));
    }
    if !migrated.conflicts.is_empty() {
        let conflicts = conversations(&migrated.conflicts);
        parts.push(format!("{} the older copy of {conflicts} under conflicts/", verb("keep", "kept")));
    }
    if !migrated.imported.is_empty() {
        let imported = conversations(&migrated.imported);
        parts.push(format!("{} {imported} from the workspace", verb("import", "imported")));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(crate) fn tell_migration(ui: &Ui, migrated: &Migrated) {
    if let Some(text) = migration(migrated, true) {
        ui.note(&format!("Migration: {text}."));
    }
    for left in &migrated.refused {
        ui.warn(&format!("not migrated: {}", clean(left)));
    }
}

/// An error with its causes, in one line.
pub(crate) fn whole(error: &StoreError) -> String {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
