//! The remarks of the store and the mount, one per line: on stderr for `-v` and a mount in the foreground, in a file for one
//! in the background.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use jp_store::store::Clock;
use jp_store::time::rfc3339;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::clean;
use super::log::Log;

/// Warnings at one `-v`, then debug, then everything.
pub(crate) fn install(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => Level::INFO,
        2 => Level::DEBUG,
        3.. => Level::TRACE,
    };
    begin(Lines { level, sink: Sink::Stderr });
}

/// From now on remarks go to a file, with the time.
pub(crate) fn install_log(log: Log, clock: Clock) {
    begin(Lines { level: Level::INFO, sink: Sink::Log { log: Mutex::new(log), clock } });
}

fn begin(lines: Lines) {
    // What was chosen first stays, in a second run in one process as well.
    let _ = tracing::subscriber::set_global_default(lines);
}

struct Lines {
    level: Level,
    sink: Sink,
}

enum Sink {
    Stderr,
    Log { log: Mutex<Log>, clock: Clock },
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = event.metadata().level().as_str().to_lowercase();
        let text = format!("{level}: {}{}", clean(&line.message), clean(&line.fields));
        // There is nobody to tell that nobody can be told.
        let _ = match &self.sink {
            Sink::Stderr => writeln!(std::io::stderr(), "{text}"),
            Sink::Log { log, clock } => {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.line(&format!("{} {text}", rfc3339(clock())))
            }
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
