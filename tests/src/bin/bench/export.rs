//! `jp export` beside plain programs that write and look at the same files.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use jp_tests::Workspace;
use serde_json::Value;

use crate::job::{Group, Job};
use crate::mount::{checked, jp};

/// Every other time is shown as a multiple of these.
const COPY: &str = "cp -r";
const LOOK: &str = "find -printf '%T@'";

/// Brings the real files in step and makes sure that there are any, so that there is something to measure.
pub(crate) fn prepare(work: &Workspace) -> Result<(), Box<dyn Error>> {
    let shown = work.storage().join("conversations");
    for args in [&["export", "--quiet"][..], &["export", "--quiet", "--check"]] {
        checked(&mut jp(work, args))?;
    }
    match fs::read_dir(&shown)?.next() {
        Some(_) => Ok(()),
        None => Err(format!("nothing is exported to {}", shown.display()).into()),
    }
}

/// The commands on real files that are as they should be.
pub(crate) fn in_step(work: &Workspace, rounds: usize) -> Group {
    let jobs = [
        (LOOK, look(work)),
        ("jp export, in step", jp(work, &["export", "--quiet"])),
        ("jp export --check", jp(work, &["export", "--quiet", "--check"])),
    ];
    Group {
        title: "nothing to export",
        bases: &[(LOOK, "÷ find", "to_look")],
        jobs: jobs.map(|(name, command)| Job::new(name, command)).into(),
        rounds,
        synced: true,
    }
}

/// The commands that write every real file, each time from nothing.
pub(crate) fn from_scratch(work: &Workspace, rounds: usize) -> Group {
    let shown = work.storage().join("conversations");
    let target = work.env().root().join("copy");
    let mut copy = work.env().command("cp".as_ref(), work.root());
    copy.arg("-r").arg(&shown).arg(&target);
    let copy = Job::new(COPY, copy).before(Box::new(move || clear(&target)));
    let silo = work.silo();
    let first = Job::new("jp export, all of it", jp(work, &["export", "--quiet"])).before(Box::new(move || {
        clear(&shown)?;
        fs::create_dir(&shown)?;
        forget(&silo)
    }));
    Group {
        title: "a first export",
        bases: &[(COPY, "÷ cp", "to_copy")],
        jobs: vec![copy, first],
        rounds,
        synced: true,
    }
}

/// The plain program that looks at every real file without reading it.
pub(crate) fn look(work: &Workspace) -> Command {
    let mut look = work.env().command("find".as_ref(), work.root());
    look.arg(work.storage().join("conversations")).args(["-printf", "%T@\\n"]);
    look
}

/// Makes room for a directory by giving the one that is there another name. Removing it would spoil what is measured next:
/// for some minutes a filesystem such as ext4 steps over the inodes of removed files one by one.
fn clear(dir: &Path) -> io::Result<()> {
    for serial in 1.. {
        let aside = dir.with_extension(format!("{serial}.aside"));
        if !aside.exists() {
            return match fs::rename(dir, &aside) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            };
        }
    }
    Ok(())
}

/// Takes out of every ledger what the last export left behind, and leaves which conversations are meant to be shown. With
/// both gone nothing would be exported; with both there, all of it would count as removed by hand.
fn forget(silo: &Path) -> io::Result<()> {
    for file in ledgers(silo)? {
        let mut ledger: Value = serde_json::from_slice(&fs::read(&file)?)?;
        let entries = ledger.get_mut("conversations").and_then(Value::as_object_mut);
        for entry in entries.into_iter().flat_map(|entries| entries.values_mut()).filter_map(Value::as_object_mut) {
            entry.retain(|key, _| key == "intent");
        }
        fs::write(&file, serde_json::to_vec(&ledger)?)?;
    }
    Ok(())
}

fn ledgers(silo: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(silo.join("vfs"))? {
        let file = entry?.path().join("projection.json");
        if file.is_file() {
            found.push(file);
        }
    }
    Ok(found)
}
