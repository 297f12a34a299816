//! What was measured of one thing that was done again and again.

use std::time::{Duration, Instant};

/// Figures, mostly milliseconds, in the order they were taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// The middle one; not a number where there is none.
    pub(crate) fn median(&self) -> f64 {
        let mut figures = self.0.clone();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn most(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }
}

/// A duration as all tables have it.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// How long something takes, in milliseconds, with what it returns.
pub(crate) fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(f64, T), E> {
    let start = Instant::now();
    let done = work()?;
    Ok((millis(start.elapsed()), done))
}
