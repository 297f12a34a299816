//! The daemon is killed at random moments while programs save. Every save that was whole when its last call returned is
//! there, whole, after `jp mount` alone.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use jp_tests::{Mounted, Random, User, ids, setting, until};
use nix::errno::Errno;

use super::{asked, said};

/// One program that saves over and over, and what it knows.
struct Writer {
    id: u64,
    file: &'static str,
    way: Way,
    path: PathBuf,
    /// The last save that was acknowledged, and the last that was begun.
    acknowledged: AtomicU64,
    begun: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Truncated, written in pieces, not brought to disk.
    InPlace,
    /// Written beside and renamed over.
    Renamed,
    /// The same, brought to disk before.
    Synced,
    /// No document at all, brought to disk: a draft.
    Draft,
    /// A file of one's own, brought to disk.
    Note,
}

impl Writer {
    fn new(m: &Mounted, id: u64, name: &str, file: &'static str, way: Way) -> Self {
        let path = m.point().join(m.sh(&format!("printf %s \"{name}\"")).stdout).join(file);
        Self { id, file, way, path, acknowledged: AtomicU64::new(0), begun: AtomicU64::new(0) }
    }

    fn document(&self, number: u64) -> String {
        let text = format!("{:?} {number}", self.way);
        match self.way {
            Way::InPlace | Way::Renamed | Way::Synced => said(&text, 2_000),
            Way::Draft | Way::Note => format!("{{ {text}\n"),
        }
    }

    /// Which save this is, if it is a whole one.
    fn number(&self, bytes: &[u8]) -> Option<u64> {
        let text = match self.way {
            Way::InPlace | Way::Renamed | Way::Synced => asked(bytes)?,
            Way::Draft | Way::Note => String::from_utf8(bytes.strip_suffix(b"\n")?.to_vec()).ok()?,
        };
        let number = text.split(' ').next_back()?.parse().ok()?;
        (self.document(number).as_bytes() == bytes).then_some(number)
    }

    fn save(&self, number: u64) -> io::Result<()> {
        let document = self.document(number);
        let beside = self.path.with_extension("json.tmp");
        match self.way {
            Way::InPlace => write(&self.path, &document).map(drop),
            Way::Renamed => write(&beside, &document).and_then(|_| fs::rename(&beside, &self.path)),
            Way::Synced => {
                write(&beside, &document)?.sync_all()?;
                fs::rename(&beside, &self.path)
            }
            Way::Draft | Way::Note => write(&self.path, &document)?.sync_all(),
        }
    }

    /// Saves until it is told that the mount is gone.
    fn work(&self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            match self.save(number) {
                Ok(()) => self.acknowledged.store(number, Ordering::SeqCst),
                Err(err) => {
                    let gone = [Errno::ENOTCONN, Errno::ECONNABORTED, Errno::EIO].map(|errno| errno as i32);
                    let told = err.raw_os_error().is_some_and(|errno| gone.contains(&errno));
                    assert!(told, "{:?}: a living mount refuses: {err}", self.way);
                    return;
                }
            }
        }
    }

    /// Asserts that what was acknowledged is there, or the one after it, and that saving goes on.
    #[track_caller]
    fn check(&self, m: &Mounted) {
        let (acknowledged, begun) = (self.acknowledged.load(Ordering::SeqCst), self.begun.load(Ordering::SeqCst));
        let shown = fs::read(&self.path).unwrap_or_default();
        let bytes = match self.way {
            Way::Draft => shown.clone(),
            Way::InPlace | Way::Renamed | Way::Synced | Way::Note => {
                fs::read(m.stored(self.id).join(self.file)).unwrap_or_default()
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        let found = match (self.way, self.number(&bytes)) {
            // Half of the save that was cut off is this writer's own text, and nothing in the store: what was saved
            // before is in nobody's hands but its own.
            (Way::Draft | Way::Note, None) if is_half_of(&bytes, &self.document(begun)) => begun,
            (_, Some(number)) => number,
            // What was there before the first save.
            (_, None) if acknowledged == 0 => 0,
            (way, None) => panic!("{way:?}: {acknowledged} was acknowledged, and there is no whole save:\n{text}"),
        };
        assert!(
            found == acknowledged || found == begun,
            "{:?}: {acknowledged} was acknowledged and {begun} begun, and there is {found}",
            self.way,
        );
        if matches!(self.way, Way::InPlace | Way::Renamed | Way::Synced) {
            let half = is_half_of(&shown, &self.document(begun));
            assert!(shown == bytes || half, "{:?} shows\n{}", self.way, String::from_utf8_lossy(&shown));
        }
        self.save(begun + 1).unwrap_or_else(|err| panic!("{:?}: cannot go on: {err}", self.way));
        self.begun.store(begun + 1, Ordering::SeqCst);
        self.acknowledged.store(begun + 1, Ordering::SeqCst);
    }
}

fn write(path: &Path, document: &str) -> io::Result<File> {
    let mut file = File::create(path)?;
    for piece in document.as_bytes().chunks(700) {
        file.write_all(piece)?;
    }
    Ok(file)
}

fn is_half_of(bytes: &[u8], document: &str) -> bool {
    document.as_bytes().starts_with(bytes)
}

#[test]
fn every_acknowledged_save_survives() {
    let Some(m) = Mounted::new(User::Own, &[]) else { return };
    let writers = [
        Writer::new(&m, ids::A, "$A", "events.json", Way::InPlace),
        Writer::new(&m, ids::B, "$B", "events.json", Way::Renamed),
        Writer::new(&m, ids::C, "$C", "events.json", Way::Synced),
        Writer::new(&m, ids::D, "$D", "events.json", Way::Draft),
        Writer::new(&m, ids::D, "$D", "notes.md", Way::Note),
    ];
    let mut random = Random::new(7);
    for round in 0..setting("JP_CRASH_ROUNDS").unwrap_or(100) {
        let saves = || writers.iter().map(|writer| writer.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
        let enough = saves() + 5 + random.below(30);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in &writers {
                scope.spawn(|| writer.work(&over));
            }
            // If nobody gets anywhere the round still ends, and says so below.
            until(Duration::from_secs(60), || saves() >= enough);
            m.crash();
            over.store(true, Ordering::Relaxed);
            assert!(m.is_mounted(), "a dead mount stays until it is cleared");
            // Whoever still waits for an answer of the dead one is let go of by this.
            m.begin(&[]);
        });
        assert!(saves() >= enough, "round {round}: nobody could save\n{}", m.log());
        for writer in &writers {
            writer.check(&m);
        }
    }
    let text = m.text(ids::D, "events.json");
    assert!(text.contains("Question 0"), "a draft never touches the store:\n{text}");
    m.check_store();
}
