//! The remarks of the store and the mount, one per line: on stderr for `-v` and a mount in the foreground, in a file for one
//! in the background.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use jp_store::lock::WAIT_NOTICE;
use jp_store::store::Clock;
use jp_store::time::rfc3339;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use super::clean;
use super::log::Log;

/// Notices always, warnings at one `-v`, then debug, then everything.
pub(crate) fn install(verbose: u8, json: bool) {
    let level = match verbose {
        0 => None,
        1 => Some(Level::INFO),
        2 => Some(Level::DEBUG),
        3.. => Some(Level::TRACE),
    };
    begin(Lines { level, sink: Sink::Stderr { json } });
}

/// From now on remarks go to a file, with the time, unless `-v` has asked for them on stderr.
pub(crate) fn install_log(log: Log, clock: Clock) {
    begin(Lines { level: Some(Level::INFO), sink: Sink::Log { log, clock } });
}

fn begin(lines: Lines) {
    let mut current = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    // A level that was asked for first stays, in a second run in one process as well.
    if current.as_ref().is_none_or(|current| current.level.is_none()) {
        *current = Some(lines);
    }
    drop(current);
    // In a second run it is installed already.
    let _ = tracing::subscriber::set_global_default(Remarks);
}

/// Where remarks go.
static LINES: Mutex<Option<Lines>> = Mutex::new(None);

struct Lines {
    /// The least important remarks that are wanted; `None` for notices alone.
    level: Option<Level>,
    sink: Sink,
}

enum Sink {
    Stderr { json: bool },
    Log { log: Log, clock: Clock },
}

struct Remarks;

impl Subscriber for Remarks {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // The level changes when the log begins.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.target() == WAIT_NOTICE {
            return true;
        }
        let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines.as_ref().and_then(|lines| lines.level).is_some_and(|level| *metadata.level() <= level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match event.metadata().target() {
            WAIT_NOTICE => "warning".to_owned(),
            _ => event.metadata().level().as_str().to_lowercase(),
        };
        let message = format!("{}{}", clean(&line.message), clean(&line.fields));
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        // If stderr or the log cannot be written to, there is no other place to say so.
        let _ = match lines.as_mut().map(|lines| &mut lines.sink) {
            None => Ok(()),
            Some(Sink::Stderr { json: true }) if event.metadata().target() == WAIT_NOTICE => {
                writeln!(std::io::stderr(), "{}", serde_json::json!({ "level": level, "message": message }))
            }
            Some(Sink::Stderr { .. }) => writeln!(std::io::stderr(), "{level}: {message}"),
            Some(Sink::Log { log, clock }) => log.line(&format!("{} {level}: {message}", rfc3339(clock()))),
        };
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
