//! What the process behind a mount takes of memory, at some moments of its life.

use std::error::Error;

use crate::mount::Mount;
use crate::sheet::{Column, Figure, Sheet, Unit};

const COLUMNS: [Column; 4] = [
    Column { head: "VmRSS, MB", key: "rss_mb", unit: Unit::Megabytes },
    Column { head: "VmHWM, MB", key: "hwm_mb", unit: Unit::Megabytes },
    Column { head: "VmRSS per conversation, bytes", key: "rss_each", unit: Unit::Bytes },
    Column { head: "VmHWM per conversation, bytes", key: "hwm_each", unit: Unit::Bytes },
];

/// A hundred megabytes for ten thousand conversations, four hundred for a hundred thousand.
const EACH: f64 = 300e6 / 90e3;
const WITHOUT_ANY: f64 = 100e6 - EACH * 10e3;

/// The figures so far.
pub(crate) struct Memory {
    size: f64,
    pub(crate) sheet: Sheet,
}

impl Memory {
    pub(crate) fn new(size: usize) -> Self {
        Self { size: size as f64, sheet: Sheet::new("memory of the daemon", &COLUMNS) }
    }

    /// Adds what it takes now.
    pub(crate) fn note(&mut self, moment: &str, mount: &Mount) -> Result<(), Box<dyn Error>> {
        let (now, most) = mount.memory()?;
        let limit = ((WITHOUT_ANY + EACH * self.size) / 1e6).round();
        self.sheet.row(
            moment,
            vec![
                Figure::at_most(now / 1e6, limit),
                Figure::at_most(most / 1e6, limit),
                (now / self.size).into(),
                (most / self.size).into(),
            ],
        );
        Ok(())
    }
}
