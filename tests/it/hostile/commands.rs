//! Every command that runs unattended, as a script, and one of them run to its end with its limits.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use jp_tests::{ids, setting, until};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::outside::contains;
use super::sandbox::TAG;
use super::world::{EXTERNAL, SECRET, World};

/// How many seconds a command may take, unless `JP_HOSTILE_LIMIT` says otherwise. All of them take some milliseconds.
const LIMIT: u64 = 10;

/// A command, or a few in a row.
#[derive(Debug)]
pub(super) struct Cmd {
    /// What a shell runs in the project. It has `$A` to `$D`, `$L` and `$O` for ids, `$E` for one that only the worktree
    /// has, and `$W` for the world.
    pub(super) script: &'static str,
    /// It runs on every place, whatever it opens.
    pub(super) always: bool,
    /// Paths in the world that this one may make or change besides.
    pub(super) may: &'static [&'static str],
    /// It may put what is not a conversation into the trash.
    pub(super) trashes: bool,
}

pub(super) const fn one(script: &'static str) -> Cmd {
    Cmd { script, always: false, may: &[], trashes: false }
}

const fn always(script: &'static str) -> Cmd {
    Cmd { script, always: true, may: &[], trashes: false }
}

/// What people do in a mount, or in real files that are kept in step. Nothing in it follows a planted link: whatever is
/// changed outside, the program has changed.
macro_rules! in_the_tree {
    ($mount:literal) => {
        concat!(
            $mount,
            " || exit 1\n",
            r#"
            top=$(realpath -e .jp/conversations) && [ "$top" = "$W/main/.jp/conversations" ] || { jp unmount; exit 1; }
            own() { [ "$(realpath -m "$1")" = "$top/$1" ]; }
            cd "$top" && a=$(ls -d $A*) d=$(ls -d $D*) || { cd "$W/main"; jp unmount; exit 1; }
            ls -laR . > /dev/null
            own $a/metadata.json && timeout 2 cat $a/metadata.json > /dev/null
            own $a/new.md && echo hello > $a/new.md
            own $d/metadata.json && [ -f $d/metadata.json ] && sed 's/Weekend/Long/' $d/metadata.json > $W/tmp/x &&
                cat $W/tmp/x > $d/metadata.json
            own $a/conversations && d=$(ls -d $D*) && mv $d $a/conversations/
            own $a/conversations && rm -r $a/conversations/$B*
            cd "$W/main"
            jp unmount
            "#
        )
    };
}

/// All of them, those that only read first.
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
    always(in_the_tree!("jp mount")),
    one(in_the_tree!("jp mount --mirror")),
];

impl Cmd {
    /// The first line is enough to recognise it.
    pub(super) fn name(&self) -> &'static str {
        self.script.lines().next().unwrap_or_default()
    }

    /// Whether it leaves processes behind when it goes wrong.
    pub(super) fn mounts(&self) -> bool {
        self.script.starts_with("jp mount")
    }
}

/// What became of a command.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// It had to be killed.
    pub(super) hung: bool,
    /// 128 plus the signal for a killed process.
    pub(super) code: i32,
    /// Both streams, the beginning of them.
    pub(super) text: String,
    /// The secret is in what it printed.
    pub(super) told: bool,
}

impl Ended {
    /// A panic, or a signal that nobody here sent.
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

/// Runs a command in the project.
pub(super) fn run(world: &World, script: &str) -> io::Result<Ended> {
    let limit = Duration::from_secs(setting("JP_HOSTILE_LIMIT").unwrap_or(LIMIT));
    run_with(world, &["sh", "-c"], script, limit)
}

/// The same with another program in front, and another limit.
pub(super) fn run_with(world: &World, before: &[&str], script: &str, limit: Duration) -> io::Result<Ended> {
    let root = world.root();
    let capture = world.site.capture();
    let (out, err) = (capture.join("out"), capture.join("err"));
    // Memory and files are bounded, so that a device that never ends does not end the machine.
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
    // The output goes to files, because a daemon that keeps a pipe open would be waited for.
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
    if hung {
        // What waits for its own mount is ended when the site is cleared.
        let _ = killpg(group, Signal::SIGKILL);
        until(Duration::from_millis(200), &mut ended);
    }
    let code = status.map_or(-1, |status| status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1));
    let mut bytes = fs::read(&out).unwrap_or_default();
    bytes.extend(fs::read(&err).unwrap_or_default());
    let told = contains(&bytes, SECRET.as_bytes());
    bytes.truncate(4000);
    Ok(Ended { hung, code, text: String::from_utf8_lossy(&bytes).into_owned(), told })
}
