//! How far something has come, in one line at the bottom of a terminal that goes when it is done.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Ui;

/// What is done sooner needs no telling.
const SOON: Duration = Duration::from_millis(500);
/// How often the line is drawn anew.
const OFTEN: Duration = Duration::from_millis(100);
/// How many marks a full line has.
const MARKS: usize = 30;

/// The line. A pipe gets none.
pub(crate) struct Bar<'a> {
    ui: &'a Ui,
    verb: &'static str,
    begun: Instant,
    drawn: Option<Instant>,
}

impl Ui {
    /// A line for something that may take a while.
    pub(crate) fn bar(&self, verb: &'static str) -> Bar<'_> {
        Bar { ui: self, verb, begun: Instant::now(), drawn: None }
    }
}

impl Bar<'_> {
    /// Shows how far it has come, if it takes long and there is somebody to see it.
    pub(crate) fn show(&mut self, done: usize, of: usize) {
        let now = Instant::now();
        let due = match self.drawn {
            Some(drawn) => now - drawn >= OFTEN,
            None => now - self.begun >= SOON,
        };
        if due && self.ui.terminals.stderr && self.ui.talks() && !self.ui.json {
            self.drawn = Some(now);
            self.ui.draw(&line(self.verb, done, of));
        }
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            self.ui.erase();
        }
    }
}

impl Ui {
    fn draw(&self, line: &str) {
        self.erase();
        self.say(line);
        self.has_bar.store(true, Ordering::SeqCst);
    }

    /// Takes the line away, so that something else can be said in its place.
    pub(super) fn erase(&self) {
        if self.has_bar.swap(false, Ordering::SeqCst) {
            self.say("\r\x1b[K");
        }
    }
}

fn line(verb: &str, done: usize, of: usize) -> String {
    let marks = (MARKS * done.min(of)).checked_div(of).unwrap_or(0);
    format!("{verb} [{}{}] {done}/{of}", "=".repeat(marks), " ".repeat(MARKS - marks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let check = |done, of, marks: usize| {
            let expected = format!("export [{}{}] {done}/{of}", "=".repeat(marks), " ".repeat(MARKS - marks));
            assert_eq!(line("export", done, of), expected);
        };
        check(0, 0, 0);
        check(0, 10, 0);
        check(5, 10, 15);
        check(10, 10, 30);
        check(11, 10, 30);
    }
}
