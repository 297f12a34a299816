//! Ctrl-C. Outside of anything that must be finished it ends the process at once. While a lock is waited for or held it
//! is remembered: the wait gives up, the work is finished first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jp_store::ConversationId;
use jp_store::lock::{Holder, Wait};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::ui::Ui;

/// How long to wait for a lock when nobody says.
const PATIENCE: Duration = Duration::from_secs(30);

/// What Ctrl-C does and whether there was one.
#[derive(Debug)]
pub(crate) struct Signals {
    /// Ends the process at the first Ctrl-C.
    ends: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
}

/// As long as this lives, Ctrl-C is remembered rather than obeyed.
#[derive(Debug)]
#[must_use = "Ctrl-C ends the process again at once"]
pub(crate) struct Hold<'a> {
    signals: &'a Signals,
    before: bool,
}

impl Signals {
    pub(crate) fn install() -> Result<Self> {
        let signals = Self { ends: Arc::new(AtomicBool::new(true)), interrupted: Arc::new(AtomicBool::new(false)) };
        // Handlers run in the order of registration, so the flag is set only by a signal that did not end the process.
        flag::register_conditional_shutdown(SIGINT, 130, signals.ends.clone())
            .and_then(|_| flag::register(SIGINT, signals.interrupted.clone()))
            .map_err(|error| Error::no("cannot handle Ctrl-C").because(&error))?;
        Ok(signals)
    }

    /// Puts Ctrl-C off until the result is dropped.
    pub(crate) fn hold(&self) -> Hold<'_> {
        Hold { signals: self, before: self.ends.swap(false, Ordering::SeqCst) }
    }

    /// Whether there was a Ctrl-C.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Fails if there was a Ctrl-C.
    pub(crate) fn check(&self) -> Result<()> {
        if self.interrupted() { Err(Error::interrupted()) } else { Ok(()) }
    }

    /// Forgets a Ctrl-C that was meant for a child process.
    pub(crate) fn forget(&self) {
        self.interrupted.store(false, Ordering::SeqCst);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.signals.ends.store(self.before, Ordering::SeqCst);
    }
}

/// Tells of whoever is waited for.
type Teller<'a> = Box<dyn Fn(ConversationId, &Option<Holder>) + 'a>;

/// The manner of waiting for locks: how long, whom to tell, when to give up.
pub(crate) struct Patience<'a> {
    timeout: Duration,
    on_wait: Teller<'a>,
    cancelled: Box<dyn Fn() -> bool + 'a>,
}

impl Patience<'_> {
    /// What the store wants to be told.
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { timeout: self.timeout, on_wait: &*self.on_wait, cancelled: &*self.cancelled }
    }
}

/// How to wait for locks.
pub(crate) fn wait<'a>(env: &Env, ui: &'a Ui, signals: &'a Signals) -> Result<Patience<'a>> {
    let timeout = timeout(env)?;
    let on_wait = move |id, holder: &Option<Holder>| {
        let who = holder.as_ref().map(|holder| format!(" (held by {holder})")).unwrap_or_default();
        ui.note(&format!("Waiting for lock on conversation {id}{who}..."));
    };
    Ok(Patience { timeout, on_wait: Box::new(on_wait), cancelled: Box::new(|| signals.interrupted()) })
}

fn timeout(env: &Env) -> Result<Duration> {
    let Some(typed) = &env.lock_duration else {
        return Ok(PATIENCE);
    };
    let bad = || {
        Error::usage(format!("JP_LOCK_DURATION is not a duration: {}", typed.to_string_lossy()))
            .hint("such as `10s`, `2m`, `1h`; `0` does not wait at all")
    };
    let text = typed.to_str().ok_or_else(bad)?.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|error| bad().because(&error))
}
