//! A private mount namespace and root directory for one thread and its child processes. Inside it, a planted link to `/`
//! leads to a temporary filesystem instead of the machine that runs the tests.
//!
//! # Limitations
//!
//! Needs root. For other users a site is a temporary directory, and no link to `/` may be planted in it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use jp_tests::{jp_binary, until};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Pid, chdir, chroot, geteuid};
use tempfile::TempDir;

/// System directories that are visible in a sandbox, read-only.
const SYSTEM: [&str; 9] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt"];

/// Environment variable that marks every process of a world, so that remaining processes can be found.
pub(super) const TAG: &str = "JP_HOSTILE_WORLD";

/// The surroundings of a world.
#[derive(Debug)]
pub(super) struct Site {
    /// `/` in a sandbox.
    base: PathBuf,
    private: bool,
    mounts: BTreeSet<String>,
    /// `None` in a sandbox, whose filesystem disappears with its last process.
    _dir: Option<TempDir>,
}

impl Site {
    /// Enters a new sandbox, or makes a temporary directory if the caller may not have one. The calling thread cannot leave
    /// the sandbox, so it must be a thread for this purpose.
    pub(super) fn enter() -> io::Result<Self> {
        if let Some(root) = private_root() {
            isolate(root)?;
            return Ok(Self { base: PathBuf::from("/"), private: true, mounts: mount_lines(), _dir: None });
        }
        // In memory, because every change is synced to disk.
        let dir =
            TempDir::with_prefix_in("jp-hostile-", "/dev/shm").or_else(|_| TempDir::with_prefix("jp-hostile-"))?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let base = dir.path().canonicalize()?;
        fs::create_dir(base.join("capture"))?;
        Ok(Self { base, private: false, mounts: mount_lines(), _dir: Some(dir) })
    }

    /// The top of the tree that is compared.
    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    /// The world's directory. It is so deep that a planted `../..` does not lead above the base.
    pub(super) fn world(&self) -> PathBuf {
        self.base.join("srv/a/b/world")
    }

    /// The directory for output of commands and traces.
    pub(super) fn capture(&self) -> PathBuf {
        self.base.join("capture")
    }

    /// The entries of the base that belong to the sandbox itself.
    pub(super) fn own_names(&self) -> impl Iterator<Item = &'static str> {
        let private: &[&str] = if self.private { &["proc", "dev", "fusectl", "jp"] } else { &[] };
        let system: &[&str] = if self.private { &SYSTEM } else { &[] };
        ["capture"].into_iter().chain(private.iter().copied()).chain(system.iter().copied())
    }

    /// `PATH`, with the directory of `jp` first.
    pub(super) fn search_path(&self) -> OsString {
        let jp = if self.private { PathBuf::from("/jp") } else { parent_of_jp() };
        let mut path = jp.into_os_string();
        path.push(":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        path
    }

    /// Whether there are mounts that were not there when the site was entered.
    pub(super) fn has_new_mounts(&self) -> bool {
        !self.new_mounts().is_empty()
    }

    /// Kills all processes of a world and removes their mounts, also if they hang.
    pub(super) fn clear(&self, tag: &str) {
        let marked = marked(tag);
        let mounts = self.new_mounts();
        if !marked.is_empty() || !mounts.is_empty() {
            for line in &mounts {
                abort_connection(line);
            }
            for pid in &marked {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            for line in mounts.iter().rev() {
                if let Some(point) = mount_point(line) {
                    detach(&point);
                }
            }
            until(Duration::from_secs(2), || marked.iter().all(|pid| !has_environment(*pid, tag)));
        }
    }

    fn new_mounts(&self) -> Vec<String> {
        let inside = |line: &String| self.private || mount_point(line).is_some_and(|at| at.starts_with(&self.base));
        mount_lines().difference(&self.mounts).filter(|line| inside(line)).cloned().collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !self.private {
            // Not even the owner can empty a directory without permissions.
            let _ = Command::new("chmod").args(["-R", "u+rwX"]).arg(&self.base).stderr(Stdio::null()).status();
        }
    }
}

/// Whether the caller can create a sandbox.
pub(super) fn can_be_private() -> bool {
    private_root().is_some()
}

/// The directory on which sandboxes are mounted, each in its own mount namespace.
fn private_root() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<&Path>> = OnceLock::new();
    *ROOT.get_or_init(|| {
        // Tried on another thread, so that this one keeps its namespace.
        let may = || unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).is_ok();
        if !geteuid().is_root() || !std::thread::spawn(may).join().unwrap_or(false) {
            return None;
        }
        let jp = parent_of_jp();
        ["/mnt", "/media", "/srv"].into_iter().map(Path::new).find(|dir| dir.is_dir() && !jp.starts_with(dir))
    })
}

fn isolate(root: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some("tmpfs"), root, Some("tmpfs"), MsFlags::empty(), Some("mode=755,size=512m"))?;
    for name in SYSTEM {
        bring(name, root)?;
    }
    let make = |name: &str, mode| fs::DirBuilder::new().mode(mode).create(root.join(name));
    for name in ["proc", "fusectl", "jp", "capture", "dev", "srv"] {
        make(name, 0o755)?;
    }
    make("tmp", 0o777)?;
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    mount(Some("/proc"), &root.join("proc"), none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
    // Without fusectl, a hanging mount is only detached.
    let _ = mount(Some("fusectl"), &root.join("fusectl"), Some("fusectl"), MsFlags::empty(), none);
    bind_read_only(&parent_of_jp(), &root.join("jp"))?;
    for (name, major, minor) in
        [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("fuse", 10, 229)]
    {
        let path = root.join("dev").join(name);
        mknod(&path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(major, minor))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    }
    chroot(root)?;
    chdir("/")?;
    Ok(())
}

/// Makes a system directory visible below `root`: copies a link, bind-mounts a directory.
fn bring(name: &str, root: &Path) -> io::Result<()> {
    let (from, to) = (Path::new("/").join(name), root.join(name));
    let Ok(meta) = fs::symlink_metadata(&from) else { return Ok(()) };
    if meta.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    fs::create_dir(&to)?;
    bind_read_only(&from, &to)
}

fn bind_read_only(from: &Path, to: &Path) -> io::Result<()> {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND, none)?;
    mount(none, to, none, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none)?;
    Ok(())
}

fn parent_of_jp() -> PathBuf {
    let jp = jp_binary();
    jp.parent().expect("an executable lies in a directory").to_owned()
}

/// The mounts in the namespace of this thread, which differs from that of the process.
fn mount_lines() -> BTreeSet<String> {
    let text = fs::read("/proc/thread-self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

/// The mount point in a line of mountinfo.
fn mount_point(line: &str) -> Option<PathBuf> {
    let field = line.split(' ').nth(4)?;
    Some(PathBuf::from(OsString::from_vec(super::trace::unescape(field.as_bytes()))))
}

/// Aborts a FUSE connection: the kernel fails all pending requests, which unblocks the processes that wait for them.
fn abort_connection(line: &str) {
    let Some(minor) = line.split(' ').nth(2).and_then(|device| device.split(':').nth(1)) else { return };
    for dir in ["/fusectl", "/sys/fs/fuse/connections"] {
        let _ = fs::write(Path::new(dir).join(minor).join("abort"), "1");
    }
}

fn detach(point: &Path) {
    if geteuid().is_root() {
        let _ = umount2(point, MntFlags::MNT_DETACH);
    } else {
        let _ = Command::new("fusermount3").arg("-uz").arg(point).stderr(Stdio::null()).status();
    }
}

/// The processes that have this tag in their environment.
fn marked(tag: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has_environment(*pid, tag)).collect()
}

/// Command line, state and kernel function of every process with this tag.
pub(super) fn processes(tag: &str) -> Vec<String> {
    let read = |pid: i32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', " ");
    let describe = |pid: i32| {
        let stat = text(&read(pid, "stat"));
        let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).unwrap_or("?").to_owned();
        let command: String = text(&read(pid, "cmdline")).chars().take(80).collect();
        format!("{} [{state} {}]", command.lines().next().unwrap_or_default(), text(&read(pid, "wchan")))
    };
    marked(tag).into_iter().map(describe).collect()
}

fn has_environment(pid: i32, tag: &str) -> bool {
    let wanted = format!("{TAG}={tag}");
    let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    text.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_has_a_private_root() {
        if !can_be_private() {
            return;
        }
        let outside = fs::read_dir("/").expect("a root can be listed").count();
        std::thread::spawn(|| {
            let site = Site::enter().expect("a sandbox can be made");
            fs::write("/planted", "").expect("the root is writable");
            assert!(fs::write("/usr/planted", "").is_err() && fs::write("/etc/planted", "").is_err());
            assert!(!site.has_new_mounts());
            let status = Command::new("true").status().expect("programs can be run");
            assert!(status.success());
        })
        .join()
        .expect("it works");
        assert!(!Path::new("/planted").exists());
        assert_eq!(fs::read_dir("/").expect("a root can be listed").count(), outside);
    }
}
