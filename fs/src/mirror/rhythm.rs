//! When to reconcile, as a value: soon after something changed, but not amid a burst of changes; again when what was busy
//! is free; every second where nothing is watched. Nothing here reads a clock.

use std::time::{Duration, Instant};

/// A burst is over when nothing has changed for this long.
pub(crate) const QUIET: Duration = Duration::from_millis(150);
/// A burst that does not end is not waited for any longer.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);
/// Whoever removes a great deal is waited for: what is half removed looks like something that lost a file. Not forever.
pub(crate) const REMOVAL: Duration = Duration::from_secs(30);
/// How often is looked where nothing is watched, and at what is busy.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// How long the pauses between attempts become that fail.
const SLOWEST: Duration = Duration::from_secs(60);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The two sides are brought in step.
    Reconcile,
    /// It is looked whether what was busy is free by now.
    Probe,
}

/// What a reconcile came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The two sides are in step, but for what waits for a person.
    InStep,
    /// Somebody works on something.
    Busy,
    /// It could not be done.
    Failed,
}

/// What has happened since the last reconcile.
#[derive(Clone, Debug)]
pub(crate) struct Rhythm {
    polling: bool,
    /// The first change and the last one.
    burst: Option<(Instant, Instant)>,
    /// The last removal among them.
    removal: Option<Instant>,
    /// When the last attempt ended.
    last: Instant,
    /// Whether something was busy, and when that was looked at.
    busy: Option<Instant>,
    failures: u32,
}

impl Rhythm {
    /// The two sides have just been looked at.
    pub(crate) fn new(now: Instant, polling: bool) -> Self {
        Self { polling, burst: None, removal: None, last: now, busy: None, failures: 0 }
    }

    /// Nothing is watched from now on.
    pub(crate) fn poll(&mut self) {
        self.polling = true;
    }

    /// Something changed.
    pub(crate) fn changed(&mut self, now: Instant) {
        let first = self.burst.map_or(now, |(first, _)| first);
        self.burst = Some((first, now));
    }

    /// Something was removed.
    pub(crate) fn removed(&mut self, now: Instant) {
        self.changed(now);
        self.removal = Some(now);
    }

    /// Until when somebody may be removing things, so that even whoever asks had better wait.
    pub(crate) fn removing_until(&self) -> Option<Instant> {
        let (first, _) = self.burst?;
        Some((self.removal? + QUIET).min(first + REMOVAL))
    }

    /// Somebody let go of a lock, ours or another.
    pub(crate) fn unlocked(&mut self, now: Instant) {
        if let Some(looked) = &mut self.busy {
            // As if the time had come, but no sooner than a second after the last attempt.
            *looked = now.max(self.last + PERIOD) - PERIOD;
        }
    }

    /// What was busy still is.
    pub(crate) fn probed(&mut self, now: Instant) {
        if let Some(looked) = &mut self.busy {
            *looked = now;
        }
    }

    /// A reconcile begins: it sees everything that happened so far.
    pub(crate) fn begin(&mut self) {
        (self.burst, self.removal) = (None, None);
    }

    /// It has ended.
    pub(crate) fn end(&mut self, now: Instant, outcome: Outcome) {
        self.last = now;
        self.busy = (outcome == Outcome::Busy).then_some(now);
        self.failures = if outcome == Outcome::Failed { self.failures + 1 } else { 0 };
    }

    /// Whether nothing is to be done unless something happens.
    pub(crate) fn is_resting(&self) -> bool {
        self.burst.is_none() && self.busy.is_none() && self.failures == 0
    }

    /// What is to be done next, and when.
    pub(crate) fn next(&self) -> Option<(Instant, Task)> {
        if self.failures > 0 {
            // Even a burst waits: what fails may itself be what changes something.
            let pause = PERIOD * 2_u32.saturating_pow(self.failures - 1).min(SLOWEST.as_secs() as u32);
            return Some((self.last + pause.min(SLOWEST), Task::Reconcile));
        }
        let burst = self.burst.map(|(first, last)| ((last + QUIET).min(first + LONGEST), Task::Reconcile));
        let poll = self.polling.then(|| (self.last + PERIOD, Task::Reconcile));
        let probe = self.busy.map(|looked| (looked + PERIOD, Task::Probe));
        let next = [burst, poll, probe].into_iter().flatten().min_by_key(|(at, _)| *at);
        next.map(|(at, task)| (self.removing_until().map_or(at, |until| until.max(at)), task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens, in milliseconds, to a rhythm that was new at 0; and what is next then, in milliseconds.
    fn after(polling: bool, events: &[(u64, &str)]) -> Option<(u64, Task)> {
        let start = Instant::now();
        let mut rhythm = Rhythm::new(start, polling);
        for (at, what) in events {
            let now = start + Duration::from_millis(*at);
            match *what {
                "changed" => rhythm.changed(now),
                "removed" => rhythm.removed(now),
                "unlocked" => rhythm.unlocked(now),
                "probed" => rhythm.probed(now),
                "begin" => rhythm.begin(),
                "in step" => rhythm.end(now, Outcome::InStep),
                "busy" => rhythm.end(now, Outcome::Busy),
                "failed" => rhythm.end(now, Outcome::Failed),
                "poll" => rhythm.poll(),
                other => panic!("{other} does not happen"),
            }
        }
        assert_eq!(
            rhythm.is_resting() && !polling,
            rhythm.next().is_none() || rhythm.polling && !polling,
            "{events:?}"
        );
        rhythm.next().map(|(at, task)| (u64::try_from((at - start).as_millis()).unwrap(), task))
    }

    #[test]
    fn nothing_happens_by_itself() {
        assert_eq!(after(false, &[]), None);
        assert_eq!(after(false, &[(5, "unlocked"), (9, "probed")]), None);
        assert_eq!(after(false, &[(5, "changed"), (155, "begin"), (160, "in step")]), None);
    }

    #[test]
    fn a_burst_is_waited_for_but_not_forever() {
        let reconcile = |at| Some((at, Task::Reconcile));
        assert_eq!(after(false, &[(5, "changed")]), reconcile(155));
        assert_eq!(after(false, &[(5, "changed"), (100, "changed")]), reconcile(250));
        let burst: Vec<_> = (0..100).map(|n| (5 + n * 100, "changed")).collect();
        for many in 1..burst.len() {
            let expected = (burst[many - 1].0 + 150).min(1005);
            assert_eq!(after(false, &burst[..many]), reconcile(expected), "{many} changes");
        }
    }

    #[test]
    fn whoever_removes_a_great_deal_is_waited_for() {
        let reconcile = |at| Some((at, Task::Reconcile));
        let mut burst: Vec<_> = (0..200).map(|n| (5 + n * 100, "removed")).collect();
        assert_eq!(after(false, &burst[..1]), reconcile(155));
        assert_eq!(after(false, &burst), reconcile(5 + 19_900 + 150));
        burst.push((19_950, "changed"));
        assert_eq!(after(false, &burst), reconcile(20_055), "a change beside it does not prolong it");
        let forever: Vec<_> = (0..400).map(|n| (5 + n * 100, "removed")).collect();
        assert_eq!(after(false, &forever), reconcile(30_005));
        let later = [&burst[..], &[(20_055, "begin"), (20_060, "in step"), (21_000, "changed")]].concat();
        assert_eq!(after(false, &later), reconcile(21_150));
    }

    #[test]
    fn what_happens_meanwhile_is_looked_at_once_more() {
        let events = [(0, "changed"), (150, "begin"), (160, "changed"), (170, "in step")];
        assert_eq!(after(false, &events), Some((310, Task::Reconcile)));
        let rest = [&events[..], &[(310, "begin"), (320, "in step")]].concat();
        assert_eq!(after(false, &rest), None);
    }

    #[test]
    fn what_is_busy_is_probed_each_second_or_when_a_lock_goes() {
        let probe = |at| Some((at, Task::Probe));
        let busy = [(0, "begin"), (100, "busy")];
        let with = |more: &[(u64, &'static str)]| after(false, &[&busy[..], more].concat());
        assert_eq!(with(&[]), probe(1100));
        assert_eq!(with(&[(1100, "probed")]), probe(2100));
        assert_eq!(with(&[(1100, "probed"), (1500, "unlocked")]), probe(1500));
        assert_eq!(with(&[(150, "unlocked")]), probe(1100), "at most once a second");
        assert_eq!(with(&[(1100, "begin"), (1110, "in step")]), None);
        assert_eq!(with(&[(200, "changed")]), Some((350, Task::Reconcile)), "news do not wait for it");
    }

    #[test]
    fn what_fails_is_tried_ever_more_slowly() {
        let mut events = Vec::new();
        for (failures, pause) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            events.extend([(failures as u64, "begin"), (failures as u64, "failed")]);
            let expected = failures as u64 + pause * 1000;
            assert_eq!(after(false, &events), Some((expected, Task::Reconcile)), "{} failures", failures + 1);
        }
        let ahead = [&events[..], &[(9, "changed")]].concat();
        assert_eq!(after(false, &ahead), Some((7 + 60_000, Task::Reconcile)));
        assert_eq!(after(false, &[&events[..], &[(9, "in step")]].concat()), None);
    }

    #[test]
    fn without_watches_it_is_looked_every_second() {
        let reconcile = |at| Some((at, Task::Reconcile));
        assert_eq!(after(true, &[]), reconcile(1000));
        assert_eq!(after(true, &[(1000, "begin"), (1020, "in step")]), reconcile(2020));
        assert_eq!(after(true, &[(100, "changed")]), reconcile(250));
        assert_eq!(after(false, &[(100, "in step"), (200, "poll")]), reconcile(1100));
    }
}
