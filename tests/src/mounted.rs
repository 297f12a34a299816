//! A project whose conversations are mounted by the real command, by whoever runs the tests or by an unprivileged user.

mod stored;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::stored::{Contents, contents};
use crate::asked::{copy_program, setting};
use crate::env::{TestEnv, Workspace, jp_binary};
use crate::fixture::skip;
use crate::procs::{Output, Running, code_of, show};
use crate::sample::Sample;
use crate::wait::until;

/// How long anything may take before it counts as hanging.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The conversations of the sample: `A` has the child `B`, which has the child `C`; `D` stands alone; `L` is in the store
/// only; `O` is archived.
pub mod ids {
    /// "Refactor error handling", a root.
    pub const A: u64 = 17_528_832_001;
    /// "Alternative approach", a child of [`A`].
    pub const B: u64 = 17_528_842_001;
    /// "Third thoughts", a child of [`B`].
    pub const C: u64 = 17_528_852_001;
    /// "Weekend plans", a root.
    pub const D: u64 = 17_528_862_001;
    /// "Secret plans", a root that this worktree does not show.
    pub const L: u64 = 17_528_872_001;
    /// "Old talk", an archived root.
    pub const O: u64 = 17_528_882_001;
}

const NOBODY: u32 = 65534;

/// Who mounts and who works in the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Own,
    /// One without rights, who mounts through `fusermount3`.
    Nobody,
}

/// A project with the sample in its store and its worktree. Taken down when dropped, also by a panic.
#[derive(Debug)]
pub struct Mounted {
    workspace: Workspace,
    user: User,
}

impl Mounted {
    /// The sample, mounted with these flags, in memory. `None` where there is nothing to mount with, which is said.
    #[track_caller]
    pub fn new(user: User, flags: &[&str]) -> Option<Self> {
        let mounted = Self::not_yet(user, TestEnv::in_memory)?;
        mounted.begin(flags);
        Some(mounted)
    }

    /// The sample, not mounted yet.
    #[track_caller]
    pub fn not_yet(user: User, env: impl FnOnce() -> TestEnv) -> Option<Self> {
        if let Some(reason) = obstacle(user) {
            assert!(setting("JP_REQUIRE_MOUNT").is_none(), "mounts have to be tested: {reason}");
            skip(&reason);
            return None;
        }
        Some(Self::unmounted(user, env()))
    }

    /// The sample, whether or not anything can be mounted.
    #[track_caller]
    pub(crate) fn unmounted(user: User, env: TestEnv) -> Self {
        furnish(&env, user);
        let workspace = env.init_workspace("main", "otvo8");
        write_sample(&workspace);
        let mounted = Self { workspace, user };
        mounted.give();
        mounted
    }

    /// Somebody else's clone of a repository, in an environment of its own with an empty store, not mounted yet.
    #[track_caller]
    pub fn cloned(&self, repository: &Path) -> Self {
        let env = TestEnv::in_memory();
        furnish(&env, self.user);
        let mut clone = self.command("git");
        clone.args(["clone", "--quiet"]).arg(repository).arg(env.root().join("main"));
        self.run(clone).ok();
        let mounted = Self::at(env.workspace("main"), self.user);
        mounted.give();
        mounted
    }

    /// Another worktree of the same store, made by git from what is committed in this one, not mounted yet.
    #[track_caller]
    pub fn worktree(&self, name: &str) -> Self {
        self.script(&format!("cd \"$P\" && git worktree add --quiet ../{name}")).ok();
        Self::at(self.workspace.env().workspace(name), self.user)
    }

    /// A workspace that is there already.
    pub(crate) fn at(workspace: Workspace, user: User) -> Self {
        Self { workspace, user }
    }

    /// Mounts, and asserts that there is a mount afterwards.
    #[track_caller]
    pub fn begin(&self, flags: &[&str]) -> Output {
        let output = self.mount(flags).ok();
        assert!(self.is_mounted(), "jp mount says it is done, and nothing is mounted\n{}", output.told());
        output
    }

    /// Runs `jp mount`.
    #[track_caller]
    pub fn mount(&self, flags: &[&str]) -> Output {
        self.jp(&[&["mount"], flags].concat())
    }

    /// Unmounts, and asserts that there is no mount afterwards.
    #[track_caller]
    pub fn end(&self, flags: &[&str]) -> Output {
        let output = self.jp(&[&["unmount"], flags].concat()).ok();
        assert!(!self.is_mounted(), "jp unmount says it is done, and there is a mount\n{}", output.told());
        output
    }

    /// The workspace, for what the mount has no part in.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The project.
    pub fn root(&self) -> &Path {
        self.workspace.root()
    }

    /// Where the mount is.
    pub fn point(&self) -> PathBuf {
        self.workspace.storage().join("conversations")
    }

    /// Who works here.
    pub fn user(&self) -> User {
        self.user
    }

    /// The state of this worktree in the store: `mount.json`, the log, drafts and scratch.
    pub fn state(&self) -> PathBuf {
        let hash = Sha256::digest(self.root().as_os_str().as_encoded_bytes());
        let key: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        self.workspace.silo().join("vfs").join(key)
    }

    /// Whether the kernel has a mount at the mount point, dead or alive.
    pub fn is_mounted(&self) -> bool {
        mount_points().contains(&self.point())
    }

    /// The process that serves the mount, as `mount.json` has it.
    pub fn daemon(&self) -> Option<i32> {
        let text = fs::read(self.state().join("mount.json")).ok()?;
        let value: Value = serde_json::from_slice(&text).ok()?;
        i32::try_from(value["pid"].as_i64()?).ok().filter(|pid| *pid > 1)
    }

    /// Sends a signal to the process that serves the mount.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = self.daemon().expect("mount.json names the daemon");
        kill(Pid::from_raw(pid), signal).unwrap_or_else(|err| panic!("cannot send {signal} to {pid}: {err}"));
    }

    /// Kills the process that serves the mount, as a crash does, and waits for its end.
    #[track_caller]
    pub fn crash(&self) {
        let pid = self.daemon().expect("mount.json names the daemon");
        self.signal(Signal::SIGKILL);
        assert!(until(LIMIT, || !is_alive(pid)), "{pid} outlives SIGKILL");
    }

    /// Runs `jp` in the project.
    #[track_caller]
    pub fn jp(&self, args: &[&str]) -> Output {
        let mut command = self.command("jp");
        command.args(args);
        self.run(command)
    }

    /// Runs a script in the mount and asserts that it works. It has `$M` (the mount), `$P` (the project), `$U` (the
    /// store), `$T` (a directory for anything) and `$A` to `$D`, `$L` and `$O` (the conversations, as paths in the mount).
    #[track_caller]
    pub fn sh(&self, script: &str) -> Output {
        self.try_sh(script).ok()
    }

    /// Runs a script in the mount, whatever comes of it.
    #[track_caller]
    pub fn try_sh(&self, script: &str) -> Output {
        assert!(self.is_mounted(), "there is no mount to run this in: {script}");
        self.script(&format!("cd \"$M\"\n{script}"))
    }

    /// Runs a script in the project.
    #[track_caller]
    pub fn script(&self, script: &str) -> Output {
        self.run(self.bash(script))
    }

    /// Starts a script in the project and returns at once.
    #[track_caller]
    pub fn start(&self, script: &str) -> Running {
        Running::start(self.bash(script))
    }

    /// Any program in the project, as the user.
    pub fn command(&self, program: &str) -> Command {
        let env = self.workspace.env();
        let bin = env.root().join("bin");
        // Programs are taken from the system, where any user finds them.
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", bin.display());
        let program = if program == "jp" { bin.join("jp").into_os_string() } else { program.into() };
        let mut command = env.command(&program, self.root());
        command
            .env("PATH", path)
            .env("M", self.point())
            .env("P", self.root())
            .env("U", self.workspace.silo())
            .env("T", env.root().join("tmp"))
            .env("TMPDIR", env.root().join("tmp"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("TERM", "xterm");
        let names = names();
        let children = |above: &str, name: &str| format!("{above}/conversations/{name}");
        let b = children(&names[0], &names[1]);
        let c = children(&b, &names[2]);
        command.env("A", &names[0]).env("B", b).env("C", c).env("D", &names[3]);
        command.env("L", &names[4]).env("O", format!(".archive/{}", names[5]));
        if self.user == User::Nobody {
            // The standard library drops the supplementary groups when it drops root.
            command.gid(NOBODY).uid(NOBODY);
        }
        command
    }

    /// Runs a command to its end, and fails with all that is known when it takes too long.
    #[track_caller]
    pub fn run(&self, command: Command) -> Output {
        let shown = show(&command);
        match self.attempt(command, LIMIT) {
            Ok(output) => output,
            Err(told) => panic!("hangs: {shown}\n{told}"),
        }
    }

    /// What `jp status --json` has under a key.
    #[track_caller]
    pub fn status(&self, key: &str) -> Vec<Value> {
        // The exit code is about problems, which are another key.
        let told = self.jp(&["status", "--json"]);
        let status: Value =
            serde_json::from_slice(&told.raw).unwrap_or_else(|err| panic!("no report: {err}\n{}", told.told()));
        status[key].as_array().unwrap_or_else(|| panic!("{key} is no array in {status}")).clone()
    }

    /// What the listing says of a conversation; archived ones are found too.
    #[track_caller]
    pub fn listed(&self, id: u64) -> Option<Value> {
        let name = format!("jp-c{id}");
        [&["c", "ls", "--json"][..], &["c", "ls", "--archived", "--json"][..]].iter().find_map(|args| {
            let all = self.jp(args).json();
            all.as_array().expect("a listing is an array").iter().find(|row| row["id"] == name).cloned()
        })
    }

    /// One key of what the listing says.
    #[track_caller]
    pub fn says(&self, id: u64, key: &str) -> Value {
        self.listed(id).unwrap_or_else(|| panic!("{id} is not listed"))[key].clone()
    }

    /// The end of the daemon's log.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.state().join("mount.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Makes everything the user's, after the test itself has made something.
    #[track_caller]
    pub fn give(&self) {
        if self.user == User::Nobody {
            let root = self.workspace.env().root();
            give(root).unwrap_or_else(|err| panic!("cannot give {} away: {err}", root.display()));
        }
    }

    fn bash(&self, script: &str) -> Command {
        let mut command = self.command("bash");
        command.args(["-euo", "pipefail", "-c", script]);
        command
    }

    /// Runs a command with its output in files, because a daemon that keeps a pipe open would be waited for.
    fn attempt(&self, mut command: Command, limit: Duration) -> Result<Output, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let shown = show(&command);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| self.workspace.env().root().join(format!("{kind}-{number}"));
        let (out, err) = (file("out"), file("err"));
        let create = |path: &Path| File::create(path).map_err(|err| format!("cannot make {}: {err}", path.display()));
        command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?).process_group(0);
        let mut child = command.spawn().map_err(|err| format!("cannot run {shown}: {err}"))?;
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        let mut status = None;
        let mut ended = || {
            status = child.try_wait().ok().flatten();
            status.is_some()
        };
        let hung = !until(limit, &mut ended);
        if hung {
            // Whoever waits for a request that is never answered stays until the daemon goes; nobody waits for that here.
            let _ = killpg(group, Signal::SIGKILL);
            until(Duration::from_secs(2), &mut ended);
        }
        let raw = fs::read(&out).unwrap_or_default();
        let output = Output {
            command: format!("{shown} # as {:?}", self.user),
            code: status.map_or(-1, code_of),
            stdout: String::from_utf8_lossy(&raw).into_owned(),
            stderr: String::from_utf8_lossy(&fs::read(&err).unwrap_or_default()).into_owned(),
            raw,
        };
        for path in [out, err] {
            // It goes with the environment otherwise.
            let _ = fs::remove_file(path);
        }
        if hung { Err(format!("{}\n--- mount.log\n{}", output.told(), self.log())) } else { Ok(output) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if thread::panicking() {
            // With standard error closed there is nobody to tell.
            let _ =
                writeln!(io::stderr(), "--- mount.log of {} ({:?})\n{}", self.root().display(), self.user, self.log());
        }
        let pid = self.daemon();
        let mut unmount = self.command("jp");
        unmount.args(["unmount", "--lazy", "--no-export"]);
        if self.is_mounted() || pid.is_some_and(is_jp) {
            // What this does not manage is done by force below.
            let _ = self.attempt(unmount, Duration::from_secs(10));
        }
        if let Some(pid) = pid
            && !until(Duration::from_secs(1), || !is_jp(pid))
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // A test may have mounted elsewhere. Whoever shares the environment goes down with it.
        for point in mount_points().into_iter().filter(|point| point.starts_with(self.workspace.env().root())) {
            let (program, flags) = if geteuid().is_root() { ("umount", "-l") } else { ("fusermount3", "-uz") };
            let mut detach = Command::new(program);
            detach.arg(flags).arg(point);
            let _ = self.attempt(detach, Duration::from_secs(10));
        }
    }
}

/// What everybody has: the command, a place for anything, and a name for git.
#[track_caller]
fn furnish(env: &TestEnv, user: User) {
    for name in ["bin", "tmp"] {
        fs::create_dir(env.root().join(name)).expect("an empty directory takes a new name");
    }
    let config =
        "[user]\n name = Ada\n email = ada@example.org\n[init]\n defaultBranch = main\n[safe]\n directory = *\n";
    fs::write(env.home().join(".gitconfig"), config).expect("a home takes a file");
    symlink(reachable_jp(env, user), env.root().join("bin/jp")).expect("an empty directory takes a link");
}

fn samples() -> [Sample; 6] {
    [
        Sample::new(ids::A).title("Refactor error handling").events(6),
        Sample::new(ids::B).title("Alternative approach").parent(ids::A).events(12),
        Sample::new(ids::C).title("Third thoughts").parent(ids::B).events(60),
        Sample::new(ids::D).title("Weekend plans").events(6),
        Sample::new(ids::L).title("Secret plans").events(6),
        Sample::new(ids::O).title("Old talk").events(6).archived(),
    ]
}

fn names() -> [String; 6] {
    samples().map(|sample| sample.dirname())
}

/// The store is flat, the worktree nested, and copies agree in time as they do after an export.
#[track_caller]
fn write_sample(workspace: &Workspace) {
    let time = 1_752_883_200_000_000_000;
    let [a, b, c, d, l, o] = samples().map(|sample| sample.mtime(time));
    let store = workspace.silo().join("conversations");
    for sample in [&a, &b, &c, &d, &l, &o] {
        sample.write_below(&store);
    }
    // A store is its owner's alone; what others can reach is a finding.
    fs::set_permissions(workspace.silo(), fs::Permissions::from_mode(0o700)).expect("the silo is ours");
    symlink(workspace.storage(), workspace.silo().join("storage")).expect("a new store takes a link");
    let work = workspace.storage().join("conversations");
    let mut dir = work.clone();
    for sample in [&a, &b, &c] {
        dir = sample.write_below(&dir).join("conversations");
    }
    d.write_below(&work);
    o.write_below(&work);
}

/// Why there cannot be a mount, if there cannot.
fn obstacle(user: User) -> Option<String> {
    let fuse = Path::new("/dev/fuse");
    let root = geteuid().is_root();
    let helper = ["/usr/bin/fusermount3", "/bin/fusermount3"].iter().any(|path| Path::new(path).exists());
    if !fuse.exists() {
        return Some("there is no /dev/fuse".to_owned());
    }
    let needed = !root || user == User::Nobody;
    if needed && !helper {
        return Some("there is no fusermount3".to_owned());
    }
    if user == User::Nobody && root {
        // The helper opens the device as the user. Elsewhere it is open to all from the start.
        let opened = fs::metadata(fuse).is_ok_and(|meta| meta.mode() & 0o006 == 0o006);
        if !opened && fs::set_permissions(fuse, fs::Permissions::from_mode(0o666)).is_err() {
            return Some("/dev/fuse is closed to others".to_owned());
        }
    }
    None
}

/// The command under test, where the user can run it.
fn reachable_jp(env: &TestEnv, user: User) -> PathBuf {
    let jp = jp_binary();
    let open = jp.ancestors().all(|path| fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o001 != 0));
    if user == User::Own || open {
        return jp;
    }
    let copy = env.root().join("jp");
    copy_program(&jp, &copy);
    copy
}

/// A tree that is being worked in: what goes away meanwhile is nobody's. A mount keeps its owner.
fn give(path: &Path) -> io::Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if meta.is_symlink() {
        return Ok(());
    }
    chown(path, Some(NOBODY), Some(NOBODY))?;
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path())?;
        }
    }
    Ok(())
}

/// Where something is mounted, once for each time.
fn mount_points() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

/// Whether a process runs, by any of its threads; one that nobody has waited for yet has ended all the same.
pub fn is_alive(pid: i32) -> bool {
    // The name is in parentheses and may hold anything; the state follows it.
    let runs =
        |stat: &str| stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']));
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|task| fs::read_to_string(task.path().join("stat")).unwrap_or_default()).any(|stat| runs(&stat))
}

fn is_jp(pid: i32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    is_alive(pid) && name.starts_with("jp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_sound_and_seen_by_every_user() {
        for user in [User::Own, User::Nobody] {
            let Some(bench) = Mounted::not_yet(user, TestEnv::in_memory) else { return };
            bench.check_store();
            assert_eq!(bench.says(ids::B, "parent"), format!("jp-c{}", ids::A));
            assert_eq!(bench.says(ids::C, "presence"), "projected");
            assert_eq!(bench.says(ids::L, "presence"), "local");
            assert_eq!(bench.says(ids::O, "archived"), true);
            let seen = bench.script("id -u; id -G; test -f \"$M/$C/metadata.json\"").ok();
            let uid = if user == User::Nobody { NOBODY } else { geteuid().as_raw() };
            assert_eq!(seen.stdout.lines().next(), Some(uid.to_string().as_str()));
            if user == User::Nobody {
                assert_eq!(seen.stdout.lines().nth(1), Some("65534"), "no other groups");
            }
        }
    }

    #[test]
    fn what_hangs_is_ended_and_told() {
        let Some(bench) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
        let told = bench.attempt(bench.bash("echo data; cat < /dev/zero > /dev/null"), Duration::from_millis(200));
        let told = told.expect_err("it never ends by itself");
        assert!(told.contains("data") && told.contains("137"), "{told}");
        assert_eq!(bench.script("echo \"$D\"; exit 3").fails_with(3).stdout, "17528862001-weekend-plans\n");
    }
}
