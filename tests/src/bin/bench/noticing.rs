//! How long a change of the store by somebody else takes to be seen through the mount.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::interrupt;
use crate::samples::{Samples, millis};
use crate::saving::Document;
use crate::sheet::{Column, Figure, Sheet, Unit};
use crate::site::Site;

const COLUMNS: [Column; 4] = [
    Column { head: "median, ms", key: "median_ms", unit: Unit::Millis },
    Column { head: "least", key: "least_ms", unit: Unit::Millis },
    Column { head: "worst, ms", key: "most_ms", unit: Unit::Millis },
    Column { head: "not seen", key: "not_seen", unit: Unit::Count },
];

const TIMES: u64 = 50;
const AT_MOST: f64 = 100.0;

/// How long it may take before it counts as never. The next change may be seen all the same.
const LIMIT: Duration = Duration::from_secs(2);

/// Changes files of the store beside the mount, looks at them through it all the time, and leaves them as they were.
pub(crate) fn measure(site: &Site, point: &Path) -> Result<Sheet, Box<dyn Error>> {
    let mut sheet = Sheet::new("noticing", &COLUMNS);
    let places = site.places();
    let place = &places[places.len() / 2];
    let name = place.file_name().ok_or("a conversation has a name")?;
    let aside = site.scratch("aside.json");
    for file in ["base_config.json", "metadata.json"] {
        let document = Document::at(site.work.silo().join("conversations").join(name).join(file))?;
        let seen = point.join(place).join(file);
        let (mut samples, mut missed) = (Samples::default(), 0);
        for serial in 0..TIMES {
            interrupt::check()?;
            let took = notice(&document, &document.version(serial), &seen, &aside)?;
            missed += u32::from(took >= millis(LIMIT));
            samples.add(took);
        }
        notice(&document, &document.bytes, &seen, &aside)?;
        let worst = Figure::at_most(samples.most(), AT_MOST);
        let median = Figure::at_most(samples.median(), AT_MOST);
        let figures = vec![median, samples.least().into(), worst, Figure::at_most(missed.into(), 0.0)];
        sheet.row(format!("{file} in the store"), figures);
    }
    Ok(sheet)
}

/// Puts new bytes in place by one rename, and waits until they are seen. They come from elsewhere, so that nothing but that
/// rename tells of them.
fn notice(document: &Document, bytes: &[u8], seen: &Path, aside: &Path) -> Result<f64, Box<dyn Error>> {
    fs::write(aside, bytes)?;
    fs::rename(aside, &document.path)?;
    let start = Instant::now();
    while fs::read(seen)? != bytes && start.elapsed() < LIMIT {}
    Ok(millis(start.elapsed()))
}
