//! What `-v` shows: the store's own remarks, one per line on stderr.

use std::fmt::Write as _;
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::clean;

/// Warnings at one `-v`, then debug, then everything.
pub(crate) fn install(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => Level::INFO,
        2 => Level::DEBUG,
        3.. => Level::TRACE,
    };
    // A second run in one process keeps the first one's level.
    let _ = tracing::subscriber::set_global_default(Lines { level });
}

struct Lines {
    level: Level,
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
        let _ = writeln!(std::io::stderr(), "{level}: {}{}", clean(&line.message), clean(&line.fields));
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
