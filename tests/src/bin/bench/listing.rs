//! `jp c ls` beside plain readers of the same files.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use jp_tests::Workspace;

use crate::job::{Group, Job};
use crate::mount::jp;
use crate::say;

/// The argument with which this program runs itself as the bare reader.
pub(crate) const READER: &str = "--read-metadata";

/// Every other time is shown as a multiple of these two.
const FIND: &str = "find | xargs cat";
const BARE: &str = "bare reader";

/// The commands, on the store as it is.
pub(crate) fn group(work: &Workspace, rounds: usize) -> io::Result<Group> {
    let store = work.silo().join("conversations");
    let program = |program: &Path| work.env().command(program.as_os_str(), work.root());
    let jp = |args: &[&str]| jp(work, args);
    let mut bare = program(&std::env::current_exe()?);
    bare.arg(READER).arg(&store);
    let mut both = program(&std::env::current_exe()?);
    both.arg(READER).arg(&store).arg(work.storage().join("conversations"));
    let jobs = [
        (FIND, cat(work)),
        (BARE, bare),
        ("bare, both roots", both),
        ("jp c ls", jp(&["c", "ls"])),
        ("jp c ls --tree", jp(&["c", "ls", "--tree"])),
        ("jp c ls --json", jp(&["c", "ls", "--json"])),
    ];
    Ok(Group {
        title: "listing",
        bases: &[(FIND, "÷ find", "to_find"), (BARE, "÷ bare", "to_bare")],
        jobs: jobs.map(|(name, command)| Job::new(name, command)).into(),
        rounds,
        synced: false,
    })
}

/// What a shell would do to read every `metadata.json` of the store once.
pub(crate) fn cat(work: &Workspace) -> Command {
    let mut command = work.env().command("sh".as_ref(), work.root());
    command.args(["-c", "find \"$1\" -name metadata.json -print0 | xargs -0 cat > /dev/null", "sh"]);
    command.arg(work.silo().join("conversations"));
    command
}

/// The least that a lister can do: find every `metadata.json` and read it once. The store is flat, the workspace nested.
pub(crate) fn read_all(dirs: &[OsString]) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut total = 0;
    for (index, dir) in dirs.iter().enumerate() {
        let mut open = vec![PathBuf::from(dir)];
        while let Some(dir) = open.pop() {
            let entries = match fs::read_dir(&dir) {
                Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let conversation = entry?.path();
                buffer.clear();
                total += fs::File::open(conversation.join("metadata.json"))?.read_to_end(&mut buffer)?;
                if index > 0 {
                    open.push(conversation.join("conversations"));
                }
            }
        }
    }
    say(&format!("{total}\n"))
}
