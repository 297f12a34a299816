//! What a daemon keeps alive, from its beginning to its end: a mount, or a mirror where nothing can be mounted.

use std::fmt::Debug;
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::lock::Wait;
use jp_store::plan::{Held, Plan, Wanted};
use jp_store::reconcile::ManagedFile;
use jp_store::writer::Reconciled;

use crate::mount::{Brought, Error, Status};
use crate::vfs::Handled;

/// The projection while it is shown.
pub trait Live: Debug + Send + Sync {
    /// Takes in everything that happened so far; when this returns it can be seen.
    fn refresh(&self) -> Result<(), Error>;

    /// How things stand.
    fn status(&self) -> Status;

    /// What the real files brought when it began.
    fn brought(&self) -> &Brought;

    /// Takes it away. Fails with `EBUSY` while somebody is in it, unless `lazy`.
    fn unmount(&self, lazy: bool) -> Result<(), Error>;

    /// Whether it has ended, whoever ended it; waits for that at most so long.
    fn wait(&self, limit: Duration) -> bool;

    /// Brings everything to disk and ends the threads. To be called once it has ended.
    fn finish(&self) -> Result<(), Error>;

    /// What bringing the real files and the store in step would do. Changes nothing.
    fn plan(&self, wanted: &Wanted) -> Result<Plan, Error>;

    /// Brings the real files and the store in step, for another process: whoever lets that one through lets us through.
    /// When this returns what came of it can be seen.
    fn reconcile(&self, wanted: &Wanted, wait: &Wait<'_>, caller: u32) -> Result<Reconciled, Error>;

    /// Gives up the draft of a file, or a conversation that is arriving. The bytes are kept, and what the store has is shown
    /// when this returns.
    fn give_up(&self, id: ConversationId, file: Option<ManagedFile>) -> Result<Handled, Error>;

    /// Commits the draft of a file, or takes in a conversation that is arriving, for another process: whoever lets that one
    /// through lets us through. `force`: also if the store's file was changed since the draft began.
    fn apply(&self, id: ConversationId, file: Option<ManagedFile>, force: bool, caller: u32) -> Result<Handled, Error>;

    /// Makes the real files what was shown last; says what does not follow. To be called after [`Live::finish`].
    fn follow(&self, wait: &Wait<'_>) -> Result<Vec<Held>, Error>;
}
