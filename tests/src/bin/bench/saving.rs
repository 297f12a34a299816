//! Saves as editors make them, on the mount and on the real files.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use jp_tests::{Random, pretty};
use serde_json::Value;

use crate::interrupt;
use crate::options::Options;
use crate::samples::{Samples, millis};
use crate::sheet::{Column, Figure, Sheet, Unit};
use crate::site::Site;
use crate::targets::{MOUNT, REAL, Target};

const CONFIG: &str = "base_config.json";
pub(crate) const METADATA: &str = "metadata.json";

/// How many saves are one sample, and how many samples there are of each round.
const BATCH: usize = 40;
const BATCHES: usize = 3;

const COLUMNS: [Column; 4] = [
    Column { head: "mount ÷ real", key: "mount_to_real", unit: Unit::Ratio },
    Column { head: "real, ms", key: "real_ms", unit: Unit::Millis },
    Column { head: "mount, ms", key: "mount_ms", unit: Unit::Millis },
    Column { head: "worst", key: "mount_most_ms", unit: Unit::Millis },
];

/// How a file is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Read, written beside, brought to disk, renamed over.
    Rename,
    /// Emptied and written.
    InPlace,
}

struct Row {
    name: &'static str,
    file: &'static str,
    way: Way,
    writers: usize,
    limit: f64,
}

const ROWS: [Row; 6] = [
    Row { name: "save by rename", file: CONFIG, way: Way::Rename, writers: 1, limit: 3.0 },
    Row { name: "save by rename, 4 writers", file: CONFIG, way: Way::Rename, writers: 4, limit: 3.0 },
    Row { name: "save metadata by rename", file: METADATA, way: Way::Rename, writers: 1, limit: 3.0 },
    Row { name: "save metadata by rename, 4 writers", file: METADATA, way: Way::Rename, writers: 4, limit: 3.0 },
    Row { name: "save in place", file: CONFIG, way: Way::InPlace, writers: 1, limit: 4.0 },
    Row { name: "save in place, 4 writers", file: CONFIG, way: Way::InPlace, writers: 4, limit: 4.0 },
];

/// Measures all ways of saving, and leaves the files as they were.
pub(crate) fn measure(
    site: &Site,
    options: &Options,
    targets: &[Target],
    random: &mut Random,
) -> Result<Sheet, Box<dyn Error>> {
    let places = site.places();
    // Any conversations do that nothing else is measured on; they lie at all depths.
    let places: Vec<&PathBuf> = places.iter().rev().step_by((places.len() / 25).max(1)).take(20).collect();
    let mut sheet = Sheet::new("saving, per save", &COLUMNS);
    let mut serial = 0;
    for row in ROWS.into_iter().filter(|row| options.wants_row(row.name)) {
        let mut samples: Vec<(Vec<Document>, &'static str, Samples)> = Vec::new();
        for target in targets.iter().filter(|target| [REAL, MOUNT].contains(&target.name)) {
            let documents = places.iter().map(|place| Document::at(target.root.join(place).join(row.file)));
            samples.push((documents.collect::<io::Result<_>>()?, target.name, Samples::default()));
        }
        for round in 0..=options.rounds * BATCHES {
            random.shuffle(&mut samples);
            for (documents, name, samples) in &mut samples {
                interrupt::check()?;
                serial += BATCH as u64;
                let took = batch(documents, &row, serial).map_err(|err| format!("{} on {name}: {err}", row.name))?;
                // The first one makes what is made once.
                if round > 0 {
                    samples.add(took);
                }
            }
        }
        for document in samples.iter().flat_map(|(documents, ..)| documents) {
            fs::write(&document.path, &document.bytes)?;
        }
        let of = |name: &str| samples.iter().find(|(_, at, _)| *at == name).map(|(.., samples)| samples.clone());
        let (real, mount) = (of(REAL).unwrap_or_default(), of(MOUNT).unwrap_or_default());
        let ratio = Figure::at_most(mount.median() / real.median(), row.limit);
        sheet.row(row.name, vec![ratio, real.median().into(), mount.median().into(), mount.most().into()]);
    }
    Ok(sheet)
}

/// A file with what was in it before.
pub(crate) struct Document {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    value: Value,
}

impl Document {
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        let bytes = fs::read(&path).map_err(|err| io::Error::new(err.kind(), format!("{}: {err}", path.display())))?;
        let value = serde_json::from_slice(&bytes)?;
        Ok(Self { path, bytes, value })
    }

    /// The same with a number of so many digits in it, so that every version is as long as the others.
    pub(crate) fn version(&self, serial: u64) -> Vec<u8> {
        let mut value = self.value.clone();
        value["bench"] = Value::from(1_000_000_000 + serial);
        pretty(&value)
    }
}

/// Saves so many times, and tells how long it took for each. Writers have documents of their own.
fn batch(documents: &[Document], row: &Row, serial: u64) -> io::Result<f64> {
    let each = BATCH / row.writers;
    let own = documents.len() / row.writers;
    let work: Vec<Vec<(&Path, Vec<u8>)>> = (0..row.writers)
        .map(|writer| {
            let documents = &documents[writer * own..][..own];
            let turn = |at: usize| (&*documents[at % own].path, documents[at % own].version(serial + at as u64));
            (0..each).map(turn).collect()
        })
        .collect();
    let start = Instant::now();
    thread::scope(|scope| {
        let saves = |saves: Vec<(&Path, Vec<u8>)>| {
            saves.into_iter().try_for_each(|(path, bytes)| match row.way {
                Way::Rename => by_rename(path, &bytes),
                Way::InPlace => in_place(path, &bytes),
            })
        };
        let writers: Vec<_> = work.into_iter().map(|work| scope.spawn(move || saves(work))).collect();
        writers.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    })?;
    Ok(millis(start.elapsed()) / (each * row.writers) as f64)
}

/// Reads a file, writes another one beside it, brings that to disk and renames it over the first.
pub(crate) fn by_rename(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::read(path)?;
    let beside = path.with_extension("json.tmp");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path)
}

fn in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(bytes)
}
