//! The commands under test, as shell scripts, and a runner with limits on time, memory and file size.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use jp_tests::{ids, setting, until};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::outside::contains;
use super::sandbox::{TAG, processes};
use super::world::{EXTERNAL, SECRET, World};

/// Time limit in seconds; `JP_HOSTILE_LIMIT` overrides it. Every command takes milliseconds when it does not hang.
const LIMIT: u64 = 10;

/// A script with one or more `jp` commands.
#[derive(Debug)]
pub(super) struct Cmd {
    /// Run by `sh` in the project. Variables: `$A` to `$D`, `$L` and `$O` are ids, `$E` is the id of a conversation that
    /// only the worktree has, `$W` is the world's directory.
    pub(super) script: &'static str,
    /// Run at every place, also if its trace does not touch the place.
    pub(super) always: bool,
    /// Further paths in the world that it may create, or change the modification time of.
    pub(super) may: &'static [&'static str],
    /// It may move a directory that is not a conversation into the trash.
    pub(super) trashes: bool,
}

pub(super) const fn one(script: &'static str) -> Cmd {
    Cmd { script, always: false, may: &[], trashes: false }
}

const fn always(script: &'static str) -> Cmd {
    Cmd { script, always: true, may: &[], trashes: false }
}

/// File operations in a mount or a mirror. The script itself follows no planted link, so a change outside was made by `jp`.
/// `$check` must hold while mounted, or the script fails.
macro_rules! in_the_tree {
    ($mount:literal, $check:literal) => {
        concat!(
            $mount,
            " || exit 1\n",
            $check,
            " || failed=1\n",
            r#"
            top=$(realpath -e .jp/conversations) && [ "$top" = "$W/main/.jp/conversations" ] || { jp unmount; exit 1; }
            own() { [ "$(realpath -m "$1")" = "$top/$1" ] && { [ ! -e "$1" ] || [ -f "$1" ] || [ -d "$1" ]; }; }
            cd "$top" && a=$(ls -d $A*) d=$(ls -d $D*) || { cd "$W/main"; jp unmount; exit 1; }
            ls -laR . > /dev/null
            own $a/metadata.json && cat $a/metadata.json > /dev/null
            own $a/new.md && echo hello > $a/new.md
            own $d/metadata.json && sed 's/Weekend/Long/' $d/metadata.json > $W/tmp/x &&
                cat $W/tmp/x > $d/metadata.json
            own $a/conversations && d=$(ls -d $D*) && mv $d $a/conversations/
            own $a/conversations && rm -r $a/conversations/$B*
            cd "$W/main"
            jp unmount && [ -z "$failed" ]
            "#
        )
    };
}

/// All commands; those that only read come first.
pub(super) const COMMANDS: &[Cmd] = &[
    always("jp status"),
    one("jp status --json"),
    always("jp c ls"),
    one("jp c ls --tree"),
    one("jp c ls --json"),
    one("jp c ls --archived"),
    one("jp c show $A $L"),
    one("jp c show $B --json"),
    one("jp c print $A --last"),
    one("jp c print $B $D $O --style full"),
    one("jp c path $A $B"),
    one("jp c path $D --events"),
    always("jp c grep Question swordfish"),
    one("jp c grep --archived Question"),
    one("jp c label ls --id $A"),
    one("jp lock ls"),
    one("jp session show"),
    one("jp session ls"),
    one("jp completions bash"),
    one("jp man"),
    one("jp doctor"),
    one("jp gc --dry-run --trash=0s --conflicts=0s"),
    one("jp migrate --dry-run"),
    one("jp export --check"),
    one("jp export --dry-run"),
    one("jp import --dry-run"),
    Cmd { script: "jp init", always: false, may: &["main/.jp", "main/.jp/.id"], trashes: false },
    Cmd {
        script: "jp hooks install; jp hooks status; jp hooks uninstall",
        always: false,
        may: &["main/.git", "main/.git/hooks", "main/.git/hooks/pre-commit"],
        trashes: false,
    },
    always("jp export"),
    one("jp export --transcripts --layout flat; jp export --layout nested --transcripts=false"),
    always("jp export --to $W/target"),
    one(
        "jp export --to $W/target && jp c edit $D --title Changed && jp c rm $B --cascade -y && jp export --to $W/target",
    ),
    always("jp import"),
    one("jp import $E"),
    one("jp migrate"),
    always("jp c new --title New"),
    one("jp c new --parent $A --label kind=test"),
    one("jp c new --local --activate"),
    one("jp c fork $A --title Fork"),
    one("jp c fork $B --last 1 --local=true"),
    one("jp c use $A && jp c use $D && jp c use"),
    one("jp c edit $A --title 'Another title'"),
    one("jp c edit $D --local=true; jp c edit $D --local=false"),
    one("jp c edit $A --local=true"),
    one("jp c edit $L --local=false"),
    one("jp c edit $D --metadata"),
    one("jp c edit $A --events --base-config"),
    one("jp c edit $D --tmp=now; jp gc"),
    one("jp c label add k=v --id $A; jp c label rm k --id $A"),
    one("jp c mv $B --root"),
    one("jp c mv $D --parent $A"),
    one("jp c archive $A -y; jp c unarchive $A"),
    one("jp c unarchive $O"),
    one("jp c archive $D -y"),
    one("jp c rm $D -y"),
    one("jp c rm $A --cascade -y"),
    one("jp c rm $A --promote -y"),
    one("jp lock run $A -- true"),
    one("jp lock clear"),
    one("jp session clean"),
    Cmd { script: "jp doctor --fix", always: true, may: &[], trashes: true },
    one("jp gc"),
    always("jp gc --trash=0s --conflicts=0s"),
    always(in_the_tree!("jp mount", "[ ! -w /dev/fuse ] || grep -q ' - fuse' /proc/self/mountinfo")),
    one(in_the_tree!("jp mount --mirror", "true")),
];

impl Cmd {
    /// The first line of the script, for messages.
    pub(super) fn name(&self) -> &'static str {
        self.script.lines().next().unwrap_or_default()
    }

    /// Whether it starts a daemon.
    pub(super) fn mounts(&self) -> bool {
        self.script.starts_with("jp mount")
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Killed because it exceeded the time limit.
    pub(super) hung: bool,
    /// The processes that existed when it was killed.
    pub(super) stuck: Vec<String>,
    /// The exit code, or 128 plus the signal.
    pub(super) code: i32,
    /// The first 4,000 bytes of stdout and stderr.
    pub(super) text: String,
    /// The output contains the secret.
    pub(super) told: bool,
}

impl Ended {
    /// Describes a panic or a death by a signal that the runner did not send.
    pub(super) fn crashed(&self) -> Option<String> {
        if self.hung {
            return None;
        }
        let panicked =
            self.text.lines().find(|line| line.contains("panicked at") || line.contains("memory allocation"));
        match panicked {
            Some(line) => Some(format!("crashed: {line}")),
            None if self.code == 101 || self.code > 128 && self.code != 130 => {
                Some(format!("ended with {}", self.code))
            }
            None => None,
        }
    }
}

/// The time limit of a command.
pub(super) fn limit() -> Duration {
    Duration::from_secs(setting("JP_HOSTILE_LIMIT").unwrap_or(LIMIT))
}

/// Runs a script in the project.
pub(super) fn run(world: &World, script: &str, limit: Duration) -> io::Result<Ended> {
    run_with(world, &["sh", "-c"], script, limit)
}

/// Runs a script with another interpreter and time limit. `before` is the program and its arguments before the script.
pub(super) fn run_with(world: &World, before: &[&str], script: &str, limit: Duration) -> io::Result<Ended> {
    let root = world.root();
    let capture = world.site.capture();
    let (out, err) = (capture.join("out"), capture.join("err"));
    // Limits on memory and file size protect the machine from reading or copying /dev/zero.
    let script = format!("ulimit -v 1500000 -f 131072 2> /dev/null\n{script}");
    let mut command = Command::new(before[0]);
    command
        .args(&before[1..])
        .arg(script)
        .current_dir(root.join("main"))
        .env_clear()
        .env("PATH", world.site.search_path())
        .env("HOME", root.join("home"))
        .env("JP_USER_DATA_DIR", root.join("data"))
        .env("JP_SESSION", "test")
        .env("JP_LOCK_DURATION", "1s")
        .env("TMPDIR", root.join("tmp"))
        .env("EDITOR", root.join("bin/editor"))
        .env("LANG", "C.UTF-8")
        .env("NO_COLOR", "1")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("MALLOC_ARENA_MAX", "2")
        .env(TAG, &world.tag)
        .env("W", &root);
    for (name, id) in [("A", ids::A), ("B", ids::B), ("C", ids::C), ("D", ids::D), ("L", ids::L), ("O", ids::O)] {
        command.env(name, id.to_string());
    }
    command.env("E", EXTERNAL.to_string());
    // Output goes to files: a daemon that keeps a pipe open would block the reader.
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?).process_group(0);
    if let Some(uid) = world.uid() {
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn()?;
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let mut status = None;
    let mut ended = || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    };
    let hung = !until(limit, &mut ended);
    let mut stuck = Vec::new();
    if hung {
        stuck = processes(&world.tag);
        // A process that waits for its own mount survives this; `Site::clear` ends it.
        let _ = killpg(group, Signal::SIGKILL);
        until(Duration::from_millis(200), &mut ended);
    }
    let code = status.map_or(-1, |status| status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1));
    let mut bytes = fs::read(&out).unwrap_or_default();
    bytes.extend(fs::read(&err).unwrap_or_default());
    let told = contains(&bytes, SECRET.as_bytes());
    bytes.truncate(4000);
    Ok(Ended { hung, stuck, code, text: String::from_utf8_lossy(&bytes).into_owned(), told })
}
