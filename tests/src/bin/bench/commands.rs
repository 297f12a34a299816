//! Commands of `jp` beside the plain programs that read the same files.

use std::process::Command;

use jp_tests::{Layout, RARE, Workspace};

use crate::export;
use crate::job::{Group, Job};
use crate::listing;
use crate::mount::jp;
use crate::options::Options;
use crate::sheet::{Column, Figure, Sheet, Unit};

const CAT: &str = "find | xargs cat";
const RG: &str = "rg over the store";
const LOOK: &str = "find -printf '%T@'";

const COLUMNS: [Column; 3] = [
    Column { head: "÷ plain", key: "to_plain", unit: Unit::Ratio },
    Column { head: "plain, ms", key: "plain_ms", unit: Unit::Millis },
    Column { head: "jp, ms", key: "jp_ms", unit: Unit::Millis },
];

const LIMIT: f64 = 1.5;

/// The commands, each group with the plain program it is a multiple of.
pub(crate) fn groups(work: &Workspace, options: &Options) -> Vec<Group> {
    let group = |title, bases, jobs: Vec<(&'static str, Command)>| Group {
        title,
        bases,
        jobs: jobs.into_iter().map(|(name, command)| Job::new(name, command)).collect(),
        rounds: options.rounds,
        synced: false,
    };
    let mut rg = work.env().command("rg".as_ref(), work.root());
    rg.args(["-uu", RARE]).arg(work.silo().join("conversations"));
    let ls = vec![
        (CAT, listing::cat(work)),
        ("jp c ls", jp(work, &["c", "ls"])),
        ("jp c ls --tree", jp(work, &["c", "ls", "--tree"])),
    ];
    let grep = vec![(RG, rg), ("jp c grep", jp(work, &["c", "grep", RARE]))];
    let mut groups = vec![group("ls", &[(CAT, "÷ cat", "to_cat")], ls), group("grep", &[(RG, "÷ rg", "to_rg")], grep)];
    // What the worktree does not show cannot be checked.
    if options.layout != Layout::Absent {
        let check =
            vec![(LOOK, export::look(work)), ("jp export --check", jp(work, &["export", "--quiet", "--check"]))];
        groups.push(group("check", &[(LOOK, "÷ find", "to_find")], check));
    }
    groups
}

/// What was measured, as one table.
pub(crate) fn sheet(groups: &[Group]) -> Sheet {
    let mut sheet = Sheet::new("commands", &COLUMNS);
    for group in groups {
        let plain = group.bases.first().map_or(f64::NAN, |(name, ..)| group.median(name));
        for job in group.jobs.iter().filter(|job| group.bases.iter().all(|(name, ..)| *name != job.name)) {
            let ratio = Figure::at_most(job.median() / plain, LIMIT);
            sheet.row(job.name, vec![ratio, plain.into(), job.median().into()]);
        }
    }
    sheet
}
