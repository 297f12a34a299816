//! A filesystem that is mounted for as long as it is measured.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use jp_tests::{Workspace, is_alive, jp_binary, until};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// How long a process may take to end that has nothing left to serve.
const LIMIT: Duration = Duration::from_secs(60);

/// The conversations of a worktree, mounted by `jp`.
pub(crate) struct Mount {
    work: Workspace,
    pub(crate) point: PathBuf,
    pid: i32,
}

impl Mount {
    /// Mounts, and returns when `jp mount` does.
    pub(crate) fn begin(work: &Workspace, flags: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut mount = Self { work: work.clone(), point: work.storage().join("conversations"), pid: 0 };
        let output = checked(jp(work, &["mount", "--json"]).args(flags))?;
        let told: Value = serde_json::from_slice(&output.stdout)?;
        mount.pid = told["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).ok_or("jp mount tells no pid")?;
        match told["kind"].as_str() {
            Some("mirror") => Err("nothing can be mounted here: jp keeps the real files in step instead".into()),
            Some(_) | None => Ok(mount),
        }
    }

    /// Unmounts, and returns when `jp unmount` does.
    pub(crate) fn end(mut self) -> Result<(), Box<dyn Error>> {
        checked(&mut jp(&self.work, &["unmount"]))?;
        self.pid = 0;
        Ok(())
    }

    /// How it learns of changes beside it: by watching, or by looking once a second where there are no watches left.
    pub(crate) fn manner(&self) -> Result<String, Box<dyn Error>> {
        let output = checked(&mut jp(&self.work, &["status", "--json"]))?;
        let status: Value = serde_json::from_slice(&output.stdout)?;
        let mounts = status["mounts"].as_array().into_iter().flatten();
        let manner = mounts.filter_map(|mount| mount["staleness"].as_str()).next();
        Ok(manner.unwrap_or("not telling how it learns of changes").to_owned())
    }

    /// How often the process behind the mount has written anything so far. While others only read, that is its answers, and
    /// so the requests it got.
    pub(crate) fn answers(&self) -> Result<f64, Box<dyn Error>> {
        let told = fs::read_to_string(format!("/proc/{}/io", self.pid))?;
        let count = told.lines().find_map(|line| line.strip_prefix("syscw: ")?.parse().ok());
        count.ok_or_else(|| "the system does not count what the process behind the mount writes".into())
    }

    /// What the system says of the memory of the process behind the mount: now and at most, in bytes.
    pub(crate) fn memory(&self) -> Result<(f64, f64), Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let field = |name: &str| -> Option<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1_024.0)
        };
        field("VmRSS:").zip(field("VmHWM:")).ok_or_else(|| "the process behind the mount has ended".into())
    }
}

impl Drop for Mount {
    /// What went wrong is told already; here the mount only has to be gone.
    fn drop(&mut self) {
        if is_mounted(&self.point) {
            let _ = jp(&self.work, &["unmount", "--lazy"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        detach(&self.point);
        if self.pid > 1 && !until(LIMIT, || !is_alive(self.pid)) {
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

/// Real files through `bindfs`, which is what a FUSE filesystem costs that adds nothing.
pub(crate) struct Bindfs {
    pub(crate) point: PathBuf,
}

impl Bindfs {
    /// Mounts, with as much remembered by the kernel as it can have. Nothing where there is no `bindfs`.
    pub(crate) fn begin(work: &Workspace, real: &Path, point: &Path) -> Result<Option<Self>, Box<dyn Error>> {
        let command = |args: &[&str]| {
            let mut command = work.env().command("bindfs".as_ref(), work.root());
            command.args(args);
            command
        };
        if command(&["--version"]).output().is_err() {
            return Ok(None);
        }
        fs::create_dir_all(point)?;
        let bindfs = Self { point: point.to_owned() };
        let options = ["--multithreaded", "-o", "attr_timeout=3600,entry_timeout=3600,negative_timeout=3600"];
        checked(command(&options).arg(real).arg(point))?;
        Ok(Some(bindfs))
    }
}

impl Drop for Bindfs {
    fn drop(&mut self) {
        detach(&self.point);
    }
}

/// `jp` in a worktree.
pub(crate) fn jp(work: &Workspace, args: &[&str]) -> Command {
    let mut command = work.env().command(jp_binary().as_os_str(), work.root());
    command.args(args);
    command
}

/// Runs a command that has to succeed.
pub(crate) fn checked(command: &mut Command) -> Result<Output, Box<dyn Error>> {
    judged(command.stdin(Stdio::null()).output(), command)
}

/// Runs a command that has to succeed, feeding it its standard input.
pub(crate) fn fed(command: &mut Command, input: &[u8]) -> Result<Output, Box<dyn Error>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut pipe = child.stdin.take().ok_or("a pipe was asked for")?;
    // A program may fill its output before it has read all of its input.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || drop(pipe.write_all(input)));
        child.wait_with_output()
    });
    judged(output, command)
}

fn judged(output: std::io::Result<Output>, command: &Command) -> Result<Output, Box<dyn Error>> {
    let output = output.map_err(|err| format!("cannot run {command:?}: {err}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{told}", output.status).into())
}

/// Whether something is mounted at or beneath a path.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(|line| line.split(' ').nth(4)).any(|point| Path::new(point).starts_with(path))
}

/// Takes a mount away whoever is in it. Without rights of our own, the system's helper has them.
fn detach(point: &Path) {
    if is_mounted(point) && umount2(point, MntFlags::MNT_DETACH).is_err() {
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(point).stderr(Stdio::null()).status();
    }
}
