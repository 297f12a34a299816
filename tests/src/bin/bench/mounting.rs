//! How long it takes until a mount can be listed, beside reading every `metadata.json` once.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

use jp_tests::{Layout, Random, Workspace};

use crate::caches;
use crate::interrupt;
use crate::listing;
use crate::mount::Mount;
use crate::options::Options;
use crate::samples::{Samples, timed};
use crate::sheet::{Column, Figure, Sheet, Unit};
use crate::site::Site;

const COLUMNS: [Column; 6] = [
    Column { head: "first ÷ cat", key: "first_to_cat", unit: Unit::Ratio },
    Column { head: "second ÷ cat", key: "second_to_cat", unit: Unit::Ratio },
    Column { head: "cat, ms", key: "cat_ms", unit: Unit::Millis },
    Column { head: "first, ms", key: "first_ms", unit: Unit::Millis },
    Column { head: "second, ms", key: "second_ms", unit: Unit::Millis },
    Column { head: "unmount, ms", key: "unmount_ms", unit: Unit::Millis },
];

const FIRST: f64 = 1.5;
const SECOND: f64 = 0.5;

/// What is measured in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Cat,
    /// With nothing left of an earlier mount that could be of use.
    First,
    Second,
}

/// Measures mounts with the real files in step beneath them, and of the store alone.
pub(crate) fn measure(site: &Site, options: &Options, random: &mut Random) -> Result<Sheet, Box<dyn Error>> {
    let mut sheet = Sheet::new("mounting", &COLUMNS);
    let shown = ("files beneath", &site.work, &[][..]);
    let alone = ("the store alone", &site.bare, &["--all"][..]);
    let places = if options.layout == Layout::Absent { vec![alone] } else { vec![shown, alone] };
    for (place, work, flags) in places {
        // What is done once per worktree is not measured.
        Mount::begin(work, flags)?.end()?;
        for cold in [false, true] {
            let name = format!("mount, {place}, {}", if cold { "cold" } else { "warm" });
            if cold && !caches::can_drop() {
                sheet.row(name, vec![f64::NAN.into(); COLUMNS.len()]);
                continue;
            }
            let [cat, first, second, unmount] = rounds(work, flags, cold, options.slow_rounds, random)?;
            sheet.row(
                name,
                vec![
                    Figure::at_most(first.median() / cat.median(), FIRST),
                    Figure::at_most(second.median() / cat.median(), SECOND),
                    cat.median().into(),
                    first.median().into(),
                    second.median().into(),
                    unmount.median().into(),
                ],
            );
        }
    }
    Ok(sheet)
}

fn rounds(
    work: &Workspace,
    flags: &[&str],
    cold: bool,
    rounds: usize,
    random: &mut Random,
) -> Result<[Samples; 4], Box<dyn Error>> {
    let [mut cat, mut first, mut second, mut unmount] = [const { Samples::new() }; 4];
    let mut turns = [Turn::Cat, Turn::First, Turn::Second];
    for _ in 0..rounds {
        random.shuffle(&mut turns);
        for turn in turns {
            interrupt::check()?;
            if turn == Turn::First {
                forget(&work.silo())?;
            }
            nix::unistd::sync();
            if cold {
                caches::drop_all()?;
            }
            if turn == Turn::Cat {
                let mut command = listing::cat(work);
                let (took, status) = timed(|| command.stdin(Stdio::null()).stdout(Stdio::null()).status())?;
                if !status.success() {
                    return Err(format!("cat of all metadata: {status}").into());
                }
                cat.add(took);
                continue;
            }
            let (took, mount) = timed(|| Mount::begin(work, flags))?;
            if turn == Turn::First { &mut first } else { &mut second }.add(took);
            let (took, ()) = timed(|| mount.end())?;
            unmount.add(took);
        }
    }
    Ok([cat, first, second, unmount])
}

/// Removes what mounts keep of the store to begin faster, where they do.
fn forget(silo: &Path) -> io::Result<()> {
    let vfs = silo.join("vfs");
    let mut dirs = vec![vfs.clone()];
    for entry in fs::read_dir(&vfs)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            dirs.push(entry.path());
        }
    }
    for dir in dirs {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("index") {
                let gone = if entry.file_type()?.is_dir() { fs::remove_dir_all } else { fs::remove_file };
                gone(entry.path())?;
            }
        }
    }
    Ok(())
}
