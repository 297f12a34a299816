//! What a worktree remembers holds for its `.jp` directory, whatever number the device under it has, and for no other.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use jp_tests::{TestEnv, Workspace};

use crate::story::{in_store, in_work, jp, new, presence};

#[track_caller]
fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {told}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// An ext4 filesystem in a file, mounted through a loop device.
struct Disk {
    image: PathBuf,
    point: PathBuf,
    device: String,
}

impl Disk {
    #[track_caller]
    fn new(image: &Path, point: &Path) -> Self {
        let image_text = image.to_str().expect("UTF-8");
        fs::File::create(image).and_then(|file| file.set_len(32 << 20)).expect("made");
        run("mkfs.ext4", &["-q", "-F", image_text]);
        let device = run("losetup", &["--find", "--show", image_text]);
        let disk = Self { image: image.to_owned(), point: point.to_owned(), device };
        disk.mount();
        disk
    }

    #[track_caller]
    fn mount(&self) {
        fs::create_dir_all(&self.point).expect("made");
        run("mount", &[&self.device, self.point.to_str().expect("UTF-8")]);
    }

    /// Mounts the same filesystem through another device.
    #[track_caller]
    fn through_another_device(&mut self) {
        let before = fs::metadata(&self.point).expect("mounted").dev();
        run("umount", &[self.point.to_str().expect("UTF-8")]);
        // The old one is held until there is another.
        let other = run("losetup", &["--find", "--show", self.image.to_str().expect("UTF-8")]);
        run("losetup", &["--detach", &self.device]);
        self.device = other;
        self.mount();
        assert_ne!(fs::metadata(&self.point).expect("mounted").dev(), before);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What this does not manage goes with the machine.
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

#[test]
fn another_loop_device_and_a_hidden_file() {
    let env = TestEnv::new();
    let mut disk = Disk::new(&env.root().join("image"), &env.project("main"));
    let w = env.init_workspace("main", "otvo8");
    let [_, _, shown] = worktree(&w);
    jp(&w, &["mount"]);
    let name = in_store(&w, &shown).expect("stored").file_name().expect("a name").to_owned();
    fs::remove_file(w.storage().join("conversations").join(name).join("base_config.json")).expect("hidden");
    jp(&w, &["unmount"]);
    disk.through_another_device();
    jp(&w, &["export"]);
    assert!(!in_work(&w, &shown).expect("shown").join("base_config.json").exists(), "what was hidden stays hidden");
}

/// A worktree that hides one conversation, has lost another by hand, and has synced a third.
fn worktree(w: &Workspace) -> [String; 3] {
    let all = ["Hidden", "Taken away", "Shown"].map(|title| new(w, title, &[]));
    jp(w, &["c", "edit", "--local", &all[0]]);
    fs::remove_dir_all(in_work(w, &all[1]).expect("shown")).expect("removed");
    jp(w, &["export"]);
    all
}

#[track_caller]
fn assert_remembered(w: &Workspace, [hidden, taken, shown]: &[String; 3]) {
    assert_eq!(presence(w, hidden), "local");
    assert_eq!(presence(w, taken), "local");
    assert_eq!(presence(w, shown), "projected");
    jp(w, &["export", "--check"]);
    jp(w, &["export"]);
    assert_eq!((in_work(w, hidden), in_work(w, taken)), (None, None));
}

#[test]
fn another_loop_device_with_the_project() {
    let env = TestEnv::new();
    let mut disk = Disk::new(&env.root().join("image"), &env.project("main"));
    let w = env.init_workspace("main", "otvo8");
    let all = worktree(&w);
    disk.through_another_device();
    assert_remembered(&w, &all);
    // A line of the journal holds as well, and so does a removal.
    jp(&w, &["c", "edit", "--local", &all[2]]);
    disk.through_another_device();
    assert_eq!(presence(&w, &all[2]), "local");
    jp(&w, &["c", "rm", "--yes", &all[2]]);
    disk.through_another_device();
    jp(&w, &["export"]);
    assert_eq!((in_store(&w, &all[2]), in_work(&w, &all[2])), (None, None));
}

#[test]
fn another_loop_device_with_the_store() {
    let env = TestEnv::new();
    let mut disk = Disk::new(&env.root().join("image"), &env.data());
    let w = env.init_workspace("main", "otvo8");
    let all = worktree(&w);
    disk.through_another_device();
    assert_remembered(&w, &all);
}

#[test]
fn another_loop_device_beneath_a_mount_that_died() {
    let env = TestEnv::new();
    let mut disk = Disk::new(&env.root().join("image"), &env.project("main"));
    let w = env.init_workspace("main", "otvo8");
    let all = worktree(&w);
    jp(&w, &["mount"]);
    let shown = w.storage().join("conversations");
    let name = in_store(&w, &all[2]).expect("stored").file_name().expect("a name").to_owned();
    fs::remove_dir_all(shown.join(name)).expect("hidden");
    jp(&w, &["unmount", "--no-export"]);
    disk.through_another_device();
    assert_eq!(presence(&w, &all[2]), "local", "what was hidden stays hidden");
    jp(&w, &["export"]);
    assert_eq!(in_work(&w, &all[2]), None);
    assert!(in_store(&w, &all[2]).is_some());
}

#[test]
fn a_ledger_of_an_older_version() {
    let env = TestEnv::new();
    let w = env.init_workspace("main", "otvo8");
    let all = worktree(&w);
    let state = fs::read_dir(w.silo().join("vfs")).expect("listed").flatten().map(|entry| entry.path());
    let file = state.map(|dir| dir.join("projection.json")).find(|file| file.is_file()).expect("a ledger");
    let text = fs::read_to_string(&file).expect("read");
    let (line, rest) = text.split_once("},\n").expect("the directory comes first");
    let meta = fs::metadata(w.storage()).expect("there");
    let birth = meta.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let birth = birth.map_or("null".to_owned(), |birth| birth.as_nanos().to_string());
    assert!(line.starts_with("{\n\"workspace\": {"), "{line}");
    let older = |device: u64, inode: u64| {
        format!("{{\n\"workspace\": {{\"device\":{device},\"inode\":{inode},\"birth\":{birth}}},\n{rest}")
    };
    fs::write(&file, older(meta.dev() + 7, meta.ino())).expect("written");
    assert_remembered(&w, &all);
    fs::write(&file, older(meta.dev(), meta.ino() + 1)).expect("written");
    assert_eq!(presence(&w, &all[2]), "projected");
    jp(&w, &["c", "edit", "--pin", &all[2]]);
    let again = fs::read_to_string(&file).expect("read");
    assert!(!again.contains(&format!("\"inode\":{}", meta.ino() + 1)), "the ledger of another directory is void");
}
