//! The terminal. Owns stdout and stderr: data goes to the one, talk to the other, and nothing else prints.
//!
//! Text out of conversations is not trusted: it passes [`clean`], [`clean_block`] or [`clean_json`] on its way here, into
//! pipes too, because a pipe often ends at a terminal.

mod ago;
mod ask;
mod bar;
mod log;
mod table;
mod trace;

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anstyle::{AnsiColor, Style};
use jp_store::clean::clean_json;
pub(crate) use jp_store::clean::{clean, clean_block};
use serde::Serialize;

pub(crate) use self::ago::ago;
pub(crate) use self::log::{LONGEST_LOG, Log};
pub(crate) use self::table::{Cell, Column, Look, Table};
pub(crate) use self::trace::{install as install_trace, install_log};
use crate::args::{Color, Format, Global};
use crate::env::{Env, Terminals};
use crate::error::{Error, Exit, Kind, Result};

/// Something that takes output.
type Sink = Mutex<Box<dyn Write + Send>>;

/// Where output goes and what it looks like.
pub struct Ui {
    out: Sink,
    err: Sink,
    terminals: Terminals,
    width: Option<usize>,
    json: bool,
    quiet: bool,
    color: Colored,
    /// Whether the last line of the terminal says how far something has come.
    has_bar: AtomicBool,
}

/// Which streams are coloured.
#[derive(Clone, Copy)]
struct Colored {
    out: bool,
    err: bool,
}

/// What an error looks like to machines.
#[derive(Serialize)]
struct Told<'a> {
    message: &'a str,
    causes: &'a [String],
    hints: &'a [String],
    code: u8,
}

/// What talk looks like to machines.
#[derive(Serialize)]
struct Remark<'a> {
    level: &'static str,
    message: &'a str,
}

impl Ui {
    /// The process's own streams.
    pub fn of_process(env: &Env) -> Self {
        Self::new(Box::new(BufWriter::with_capacity(1 << 16, io::stdout())), Box::new(io::stderr()), env)
    }

    /// Any two streams.
    pub fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, env: &Env) -> Self {
        Self {
            out: Mutex::new(out),
            err: Mutex::new(err),
            terminals: env.terminals,
            width: env.columns,
            json: false,
            quiet: false,
            color: colored(Color::Auto, env),
            has_bar: AtomicBool::new(false),
        }
    }

    pub(crate) fn configure(&mut self, global: &Global, env: &Env) {
        self.json = global.json || global.format == Format::Json;
        self.quiet = global.quiet;
        self.color = colored(global.color, env);
        trace::install(global.verbose, self.json);
    }

    pub(crate) fn set_json(&mut self, json: bool) {
        self.json = json;
    }

    /// Whether machines read this.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether anybody wants to hear more than warnings.
    pub(crate) fn talks(&self) -> bool {
        !self.quiet
    }

    /// Whether help texts may be coloured.
    pub(crate) fn color(&self) -> bool {
        self.color.out
    }

    /// The width to wrap help at.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether there is a person to ask.
    pub(crate) fn interactive(&self) -> bool {
        self.terminals.stdin && self.terminals.stderr && !self.json
    }

    /// One line of data. The text is clean already.
    pub(crate) fn line(&self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Data as it is.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<()> {
        lock(&self.out).write_all(bytes).map_err(|error| unwritten(&error))
    }

    /// Bytes of somebody's as data: as they are, but shown like any foreign text where a person reads them.
    pub(crate) fn contents(&self, bytes: &[u8]) -> Result<()> {
        if !self.terminals.stdout {
            return self.bytes(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        self.bytes(clean_block(&text).as_bytes())?;
        if bytes.last().is_none_or(|last| *last == b'\n') { Ok(()) } else { self.bytes(b"\n") }
    }

    /// A path as data: byte for byte, but shown like any foreign text where a person reads it.
    pub(crate) fn path(&self, path: &Path) -> Result<()> {
        if self.terminals.stdout {
            return self.line(&clean(&path.to_string_lossy()));
        }
        self.bytes(path.as_os_str().as_bytes())?;
        self.bytes(b"\n")
    }

    /// Data for machines.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Error::new(Kind::Damaged, "cannot write JSON").because(&error))?;
        self.line(&clean_json(&text))
    }

    /// A table: aligned under a header at a terminal, tab-separated without one in a pipe.
    pub(crate) fn table(&self, table: &Table) -> Result<()> {
        let look = match self.terminals.stdout {
            true => Look::Terminal { width: self.width, color: self.color.out },
            false => Look::Pipe,
        };
        self.bytes(table.render(look).as_bytes())
    }

    /// Text in a style, where stdout is coloured.
    pub(crate) fn paint(&self, text: &str, style: Style) -> String {
        if self.color.out { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// Says something, unless the user wants quiet.
    pub(crate) fn note(&self, text: &str) {
        if self.quiet {
            return;
        }
        if self.json {
            return self.remark("note", text);
        }
        self.talk(&format!("{}\n", clean_block(text)));
    }

    /// Warns, even who wants quiet.
    pub(crate) fn warn(&self, text: &str) {
        if self.json {
            return self.remark("warning", text);
        }
        self.talk(&format!("{} {}\n", self.tag("warning:", AnsiColor::Yellow), clean_block(text)));
    }

    /// Talk for machines. Whoever wants to read an error as JSON can read all of stderr that way.
    fn remark(&self, level: &'static str, message: &str) {
        let text = serde_json::to_string(&Remark { level, message }).unwrap_or_default();
        self.talk(&format!("{}\n", clean_json(&text)));
    }

    /// Prints a help text that nobody asked for.
    pub(crate) fn remind(&self, text: &clap::Error) {
        let text = text.render();
        self.talk(&if self.color.err { text.ansi().to_string() } else { text.to_string() });
    }

    /// Prints a help text or a version.
    pub(crate) fn help(&self, text: &clap::Error) -> Result<()> {
        let text = text.render();
        let text = if self.color.out { text.ansi().to_string() } else { text.to_string() };
        self.bytes(text.as_bytes())
    }

    /// Tells of a failure; gives the exit code.
    pub(crate) fn fail(&self, error: &Error) -> Exit {
        let _ = self.flush();
        let exit = error.kind.exit();
        match error.kind {
            Kind::Unread | Kind::Told => {}
            _ if self.json => {
                let told = Told { message: &error.message, causes: &error.causes, hints: &error.hints, code: exit.0 };
                let text = serde_json::to_string_pretty(&told).unwrap_or_default();
                self.talk(&format!("{}\n", clean_json(&text)));
            }
            Kind::No | Kind::Usage | Kind::Locked | Kind::Damaged | Kind::Interrupted => {
                let mut text = format!("{} {}\n", self.tag("error:", AnsiColor::Red), clean_block(&error.message));
                for cause in &error.causes {
                    let cause = clean_block(cause).replace('\n', "\n    ");
                    let _ = writeln!(text, "  {} {cause}", self.tag("because:", AnsiColor::Red));
                }
                for hint in &error.hints {
                    let _ = writeln!(text, "{} {}", self.tag("hint:", AnsiColor::Cyan), clean_block(hint));
                }
                self.talk(&text);
            }
        }
        exit
    }

    /// Brings everything to the reader.
    pub(crate) fn flush(&self) -> Result<()> {
        lock(&self.out).flush().map_err(|error| unwritten(&error))
    }

    fn talk(&self, text: &str) {
        // Where both end at one terminal, what was said first is shown first.
        if self.terminals.stdout {
            let _ = self.flush();
        }
        self.erase();
        self.say(text);
    }

    fn say(&self, text: &str) {
        // With stderr gone there is nobody left to tell.
        let _ = lock(&self.err).write_all(text.as_bytes());
    }

    fn tag(&self, text: &str, color: AnsiColor) -> String {
        if !self.color.err {
            return text.to_owned();
        }
        let style = Style::new().bold().fg_color(Some(color.into()));
        format!("{style}{text}{style:#}")
    }
}

fn colored(color: Color, env: &Env) -> Colored {
    let wanted = |terminal: bool| match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && env.color,
    };
    Colored { out: wanted(env.terminals.stdout), err: wanted(env.terminals.stderr) }
}

fn lock(sink: &Sink) -> MutexGuard<'_, Box<dyn Write + Send>> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unwritten(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(Kind::Unread, "nobody reads the output"),
        _ => Error::new(Kind::Damaged, "cannot write to standard output").because(error),
    }
}
