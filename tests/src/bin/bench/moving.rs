//! Moving a conversation with everything beneath it, and giving one another title by its name.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use jp_tests::{LIMIT, Random, pretty, until};
use serde_json::Value;

use crate::interrupt;
use crate::samples::{Samples, millis};
use crate::saving::{METADATA, by_rename};
use crate::sheet::{Column, Figure, Sheet, Unit};
use crate::site::Site;
use crate::targets::{MOUNT, REAL, Target};

const COLUMNS: [Column; 4] = [
    Column { head: "mount ÷ real", key: "mount_to_real", unit: Unit::Ratio },
    Column { head: "real, ms", key: "real_ms", unit: Unit::Millis },
    Column { head: "mount, ms", key: "mount_ms", unit: Unit::Millis },
    Column { head: "worst", key: "mount_most_ms", unit: Unit::Millis },
];

/// How often it is moved away or back, an even number.
const MOVES: usize = 20;

/// A directory that goes from place to place, and a key of its metadata that says in which it is.
struct Moved {
    target: &'static str,
    places: Vec<PathBuf>,
    key: &'static str,
    values: Vec<Value>,
    samples: Samples,
}

/// Measures moves and retitles, and leaves everything where it was.
pub(crate) fn measure(site: &Site, targets: &[Target], random: &mut Random) -> Result<Sheet, Box<dyn Error>> {
    let mut sheet = Sheet::new("moving", &COLUMNS);
    let row = |sheet: &mut Sheet, name: String, moved: &[Moved], limit: Option<f64>| {
        let of = |name: &str| moved.iter().find(|one| one.target == name).map(|one| one.samples.clone());
        let (real, mount) = (of(REAL).unwrap_or_default(), of(MOUNT).unwrap_or_default());
        let ratio = mount.median() / real.median();
        let ratio = limit.map_or(ratio.into(), |limit| Figure::at_most(ratio, limit));
        sheet.row(name, vec![ratio, real.median().into(), mount.median().into(), mount.most().into()]);
    };
    let moved = back_and_forth(family(site, targets)?, MOVES, random)?;
    row(&mut sheet, format!("mv of {} descendants", site.descendants()), &moved, Some(2.0));
    let titled = titles(site, targets)?;
    // By target, because moving changes their order.
    let before = titled.iter().map(|one| Ok((one.target, fs::read(one.places[0].join(METADATA))?)));
    let before: HashMap<_, _> = before.collect::<io::Result<_>>()?;
    let titled = back_and_forth(titled, MOVES, random)?;
    for one in &titled {
        one.restore(&before[one.target])?;
    }
    row(&mut sheet, "mv to another title".to_owned(), &titled, None);
    Ok(sheet)
}

/// Moves the family there and back a few times, for whoever wants it moved and not measured.
pub(crate) fn stir(site: &Site, targets: &[Target], random: &mut Random) -> Result<(), Box<dyn Error>> {
    back_and_forth(family(site, targets)?, 4, random).map(drop)
}

/// The conversation with many descendants, beneath its parent and beneath the other one.
fn family(site: &Site, targets: &[Target]) -> Result<Vec<Moved>, Box<dyn Error>> {
    let places = site.places();
    let [above, head, other, ..] = &places[..] else {
        return Err("there are too few conversations to move any".into());
    };
    let name = head.file_name().ok_or("a conversation has a name")?;
    let id = |place: &Path| {
        let name = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.split('-').next().and_then(|digits| digits.parse::<u64>().ok()).map(Value::from)
    };
    let ids = id(above).zip(id(other)).ok_or("a conversation's name begins with its id")?;
    let one = |target: &Target| Moved {
        target: target.name,
        places: vec![target.root.join(head), target.root.join(other).join("conversations").join(name)],
        key: "parent_id",
        values: vec![ids.0.clone(), ids.1.clone()],
        samples: Samples::default(),
    };
    Ok(compared(targets).map(one).collect())
}

/// A root with nothing special about it, under its own name and then under a new one each time: in a mount, a name that it
/// had leads to it and is not free.
fn titles(site: &Site, targets: &[Target]) -> Result<Vec<Moved>, Box<dyn Error>> {
    let places = site.places();
    let root = places.iter().rev().find(|place| place.components().count() == 1).ok_or("there is no root")?;
    let digits = root.to_string_lossy().chars().take_while(char::is_ascii_digit).collect::<String>();
    let one = |target: &Target| Moved {
        target: target.name,
        places: std::iter::once(target.root.join(root))
            .chain((1..=MOVES).map(|time| target.root.join(format!("{digits}-title-{time}"))))
            .collect(),
        key: "title",
        values: (0..=MOVES).map(|time| format!("title {time}").into()).collect(),
        samples: Samples::default(),
    };
    Ok(compared(targets).map(one).collect())
}

fn compared(targets: &[Target]) -> impl Iterator<Item = &Target> {
    targets.iter().filter(|target| [REAL, MOUNT].contains(&target.name))
}

fn back_and_forth(mut moved: Vec<Moved>, times: usize, random: &mut Random) -> Result<Vec<Moved>, Box<dyn Error>> {
    for time in 0..times {
        random.shuffle(&mut moved);
        for one in &mut moved {
            interrupt::check()?;
            one.go(time).map_err(|err| format!("cannot move {} ({}): {err}", one.places[0].display(), one.target))?;
        }
    }
    Ok(moved)
}

impl Moved {
    /// Moves it from one place to the other. On a disk its metadata has to be saved as well; the mount does that.
    fn go(&mut self, time: usize) -> io::Result<()> {
        let (at, next) = (time % self.places.len(), (time + 1) % self.places.len());
        let (from, to, value) = (&self.places[at], &self.places[next], &self.values[next]);
        let metadata = to.join(METADATA);
        let mut changed: Value = serde_json::from_slice(&fs::read(from.join(METADATA))?)?;
        changed[self.key] = value.clone();
        let bytes = pretty(&changed);
        let start = Instant::now();
        fs::rename(from, to)?;
        if self.target == REAL {
            by_rename(&metadata, &bytes)?;
        }
        self.samples.add(millis(start.elapsed()));
        // The next move reads this again, and what the kernel remembers of it is told to be stale a moment later. A title
        // that is read from a name may be spelled in another way.
        let says = |metadata: &Path| {
            let said = fs::read(metadata).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            said.is_some_and(|said| self.key == "title" || said[self.key] == *value)
        };
        match until(LIMIT, || says(&metadata)) {
            true => Ok(()),
            false => Err(io::Error::other(format!("{} does not say so", metadata.display()))),
        }
    }

    /// Brings it back under its first name, with the metadata it had. In a mount the name follows the title.
    fn restore(&self, bytes: &[u8]) -> io::Result<()> {
        let [first, .., last] = &self.places[..] else { return Ok(()) };
        if self.target == REAL {
            fs::rename(last, first)?;
            return fs::write(first.join(METADATA), bytes);
        }
        fs::write(last.join(METADATA), bytes)?;
        let back = || fs::symlink_metadata(first).is_ok_and(|meta| meta.is_dir());
        if until(LIMIT, back) { Ok(()) } else { Err(io::Error::other(format!("{} is not back", first.display()))) }
    }
}
