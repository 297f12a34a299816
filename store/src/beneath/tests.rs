//! Every call on every kind of thing, planted at the end of a path and on the way to it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use nix::sys::stat::Mode as StatMode;
use tempfile::TempDir;

use super::*;

struct Ground {
    dir: TempDir,
    files: AllowedDirs,
}

impl Ground {
    /// `ours` is allowed; `theirs` is not, and holds a file and a directory.
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("ours/sub")).unwrap();
        fs::create_dir_all(dir.path().join("theirs/dir")).unwrap();
        fs::write(dir.path().join("theirs/file"), "secret").unwrap();
        fs::write(dir.path().join("theirs/dir/file"), "secret").unwrap();
        fs::write(dir.path().join("ours/file"), "mine").unwrap();
        let files = AllowedDirs::default();
        files.allow(&dir.path().join("ours")).unwrap();
        Self { dir, files }
    }

    fn ours(&self, path: &str) -> PathBuf {
        self.dir.path().join("ours").join(path)
    }

    fn theirs(&self, path: &str) -> PathBuf {
        self.dir.path().join("theirs").join(path)
    }

    /// Names, modes, times and contents of everything that is not ours.
    fn outside(&self) -> Vec<(PathBuf, Vec<u8>, u32, std::time::SystemTime)> {
        let mut found = Vec::new();
        let mut open = vec![self.dir.path().join("theirs")];
        while let Some(path) = open.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if meta.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            found.push((path, bytes, meta.permissions().mode(), meta.modified().unwrap()));
        }
        found.sort();
        found
    }
}

type Call = fn(&AllowedDirs, &Path, &Path) -> io::Result<()>;

/// Every call, on a path; the second path is one that is free.
const CALLS: [(&str, Call); 23] = [
    ("stat", |files, path, _| files.stat(path).map(drop)),
    ("open", |files, path, _| files.open(path).map(drop)),
    ("open_within", |files, path, _| files.open_within(path, LARGEST).map(drop)),
    ("read_within", |files, path, _| files.read_within(path, 64).map(drop)),
    ("open_write", |files, path, _| files.open_write(path).map(drop)),
    ("open_append", |files, path, _| files.open_append(path, 0o600).map(drop)),
    ("open_or_create", |files, path, _| files.open_or_create(path, 0o600).map(drop)),
    ("sync", |files, path, _| files.sync(path)),
    ("open_both", |files, path, _| files.open_both(path).map(drop)),
    ("create", |files, path, _| files.create(path, 0o600).map(drop)),
    ("open_dir", |files, path, _| files.open_dir(path).map(drop)),
    ("list", |files, path, _| files.list(path).map(drop)),
    ("create_dir", |files, path, _| files.create_dir(path, 0o700)),
    ("symlink", |files, path, _| files.symlink(Path::new("x"), path)),
    ("link to", |files, path, free| files.link(path, free)),
    ("rename from", |files, path, free| files.rename(path, free)),
    ("rename_new from", |files, path, free| files.rename_new(path, free)),
    ("put", |files, path, _| files.put(path, b"new", 0o600, Over::Anything)),
    ("remove_file", |files, path, _| files.remove_file(path)),
    ("remove_dir", |files, path, _| files.remove_dir(path)),
    ("set_mode", |files, path, _| files.set_mode(path, 0o777)),
    ("set_times", |files, path, _| files.set_times(path, TimeSpec::new(1, 0), TimeSpec::new(1, 0))),
    ("space", |files, path, _| files.space(path).map(drop)),
];

#[test]
fn no_call_leads_through_a_link() {
    // To look at something is not to open it.
    for (name, call) in CALLS.into_iter().filter(|(name, _)| *name != "stat") {
        for target in ["../theirs", "../theirs/dir", "..", "/", "way", "."] {
            let ground = Ground::new();
            let (way, before) = (ground.ours("way"), ground.outside());
            symlink(target, &way).unwrap();
            let inside = way.join("file");
            let failed = call(&ground.files, &inside, &ground.ours("free")).expect_err(name);
            assert!(is_wrong_kind(&failed), "{name} through {target}: {failed}");
            assert_eq!(failed.to_string(), format!("{} is {}", way.display(), WrongKind::LINK), "{name}");
            assert_eq!(before, ground.outside(), "{name} through {target}");
        }
    }
}

#[test]
fn no_call_acts_on_what_a_link_points_to() {
    for (name, call) in CALLS {
        for target in ["../theirs/file", "../theirs/dir", "../theirs/new", "/dev/zero"] {
            let ground = Ground::new();
            let (link, before) = (ground.ours("link"), ground.outside());
            symlink(target, &link).unwrap();
            let done = call(&ground.files, &link, &ground.ours("free"));
            let on_itself =
                ["stat", "link to", "rename from", "rename_new from", "put", "remove_file", "set_times", "space"];
            assert_eq!(done.is_ok(), on_itself.contains(&name), "{name} on a link to {target}: {done:?}");
            assert_eq!(before, ground.outside(), "{name} on a link to {target}");
        }
    }
}

#[test]
fn nothing_outside_is_reached() {
    for (name, call) in CALLS {
        let ground = Ground::new();
        let before = ground.outside();
        for path in [ground.theirs("file"), ground.ours("../theirs/file"), ground.ours("sub/../../theirs/file")] {
            let failed = call(&ground.files, &path, &ground.ours("free")).expect_err(name);
            assert!(is_wrong_kind(&failed), "{name} on {}: {failed}", path.display());
        }
        assert_eq!(before, ground.outside(), "{name}");
    }
}

#[test]
fn pipes_sockets_and_devices_are_no_files_and_hang_nobody() {
    let ground = Ground::new();
    let (pipe, socket) = (ground.ours("pipe"), ground.ours("socket"));
    nix::unistd::mkfifo(&pipe, StatMode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    let reading = ["open", "open_within", "read_within", "open_write", "open_append", "open_or_create", "open_both"];
    for (name, call) in CALLS.iter().filter(|(name, _)| reading.contains(name)) {
        for path in [&pipe, &socket, &ground.ours("sub")] {
            let failed = call(&ground.files, path, path).expect_err(name);
            assert!(is_wrong_kind(&failed), "{name} on {}: {failed:?}", path.display());
        }
    }
    let listed = ground.files.list(&ground.ours("")).unwrap();
    let kind = |name: &str| listed.iter().find(|(found, _)| found == name).map(|(_, kind)| *kind);
    assert_eq!(
        ["pipe", "socket", "sub", "file"].map(kind),
        [Kind::Other, Kind::Other, Kind::Dir, Kind::File].map(Some)
    );
}

/// What is written in place is written to a file that has no other name.
#[test]
fn a_second_name() {
    let ground = Ground::new();
    let path = ground.ours("twice");
    fs::hard_link(ground.theirs("file"), &path).unwrap();
    let created = ground.files.open_or_create(&path, 0o600).map(|(file, _)| file);
    for opened in [ground.files.open_append(&path, 0o600), created] {
        assert!(is_wrong_kind(&opened.unwrap_err()));
    }
}

#[test]
fn a_file_that_claims_to_be_huge_is_not_read() {
    let ground = Ground::new();
    let path = ground.ours("huge");
    fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
    assert!(is_wrong_kind(&ground.files.open_within(&path, LARGEST).unwrap_err()));
    assert!(is_wrong_kind(&ground.files.read_within(&path, 10).unwrap_err()));
    assert_eq!(ground.files.read_within(&ground.ours("file"), 4).unwrap(), b"mine");
    assert!(is_wrong_kind(&ground.files.read_within(&ground.ours("file"), 3).unwrap_err()));
}

#[test]
fn both_ways_to_resolve_agree() {
    let ground = Ground::new();
    symlink("../theirs", ground.ours("link")).unwrap();
    symlink("nowhere", ground.ours("sub/dangling")).unwrap();
    nix::unistd::mkfifo(&ground.ours("sub/pipe"), StatMode::S_IRWXU).unwrap();
    let top = open_top(&ground.ours("")).unwrap();
    let read = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let pin = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    for path in [
        ".",
        "file",
        "sub",
        "sub/pipe",
        "sub/dangling",
        "sub/none",
        "none/none",
        "file/none",
        "link",
        "link/file",
        "link/dir/file",
        "sub/dangling/x",
    ] {
        for flags in [read, pin, pin | OFlag::O_DIRECTORY, read | OFlag::O_DIRECTORY] {
            let open = |how: fn(BorrowedFd<'_>, &OsStr, OFlag, Mode) -> nix::Result<OwnedFd>| {
                how(top.as_fd(), OsStr::new(path), flags, Mode::empty())
                    .map(|fd| File::from(fd).metadata().unwrap().len())
            };
            let (one, other) = (open(resolve::in_one_call), open(resolve::by_names));
            // A link where a directory is wanted is named either way.
            let named = |errno| if errno == Errno::ENOTDIR { Errno::ELOOP } else { errno };
            assert_eq!(one.map_err(named), other.map_err(named), "{path} with {flags:?}");
        }
    }
    assert_eq!(resolve::by_names(top.as_fd(), OsStr::new("../theirs"), pin, Mode::empty()).err(), Some(Errno::EXDEV));
}

/// Nothing lies beneath a file, and that is no link's fault.
#[test]
fn a_file_on_the_way() {
    let ground = Ground::new();
    for (name, call) in CALLS {
        let failed = call(&ground.files, &ground.ours("file/none/x"), &ground.ours("free")).expect_err(name);
        assert_eq!(failed.kind(), io::ErrorKind::NotADirectory, "{name}: {failed}");
    }
}

#[test]
fn an_allowed_directory_is_not_a_link() {
    let ground = Ground::new();
    for (name, target) in [("to-dir", "../theirs"), ("dangling", "nowhere"), ("to-file", "file")] {
        let link = ground.ours(name);
        symlink(target, &link).unwrap();
        let files = AllowedDirs::default();
        assert!(is_wrong_kind(&files.allow(&link).unwrap_err()), "{name}");
        assert!(is_wrong_kind(&files.allow_existing(&link).unwrap_err()), "{name}");
        assert!(files.stat(&link.join("file")).is_err(), "{name}");
    }
    let file = AllowedDirs::default().allow(&ground.ours("file")).unwrap_err();
    assert_eq!(file.to_string(), format!("{} is {}", ground.ours("file").display(), WrongKind::NOT_DIR));
}

#[test]
fn one_that_comes_later_and_one_that_is_replaced() {
    let ground = Ground::new();
    let later = ground.dir.path().join("a/b/later");
    ground.files.allow(&later).unwrap();
    assert!(!ground.files.allow_existing(&later).unwrap());
    assert_eq!(ground.files.stat(&later.join("x")).unwrap_err().kind(), io::ErrorKind::NotFound);
    for dir in [ground.dir.path().join("a"), ground.dir.path().join("a/b"), later.clone(), later.join("sub")] {
        ground.files.create_dir(&dir, 0o700).unwrap();
    }
    ground.files.create(&later.join("sub/x"), 0o600).unwrap();
    assert!(later.join("sub/x").exists());
    fs::remove_dir_all(&later).unwrap();
    fs::create_dir_all(later.join("sub")).unwrap();
    ground.files.create(&later.join("sub/x"), 0o600).unwrap();
    assert!(later.join("sub/x").exists(), "what has the name is what is meant");
    // Nothing else beside the way there can be made or looked at.
    assert!(ground.files.create_dir(&ground.dir.path().join("a/c"), 0o700).is_err());
}

/// A project that is moved away meanwhile is not half made again.
#[test]
fn one_that_was_there_is_not_made_again() {
    let ground = Ground::new();
    let (top, aside) = (ground.dir.path().join("project/.jp"), ground.dir.path().join("aside"));
    fs::create_dir_all(&top).unwrap();
    ground.files.allow(&top).unwrap();
    fs::rename(ground.dir.path().join("project"), &aside).unwrap();
    for (depth, path) in [top.clone(), top.join("conversations"), top.join("a/b/c")].iter().enumerate() {
        // What is opened is where it was moved to.
        let made = ground.files.create_dirs(path, 0o700);
        assert!(depth > 0 || made.is_err(), "{made:?}");
        assert!(!ground.dir.path().join("project").exists(), "{}", path.display());
    }
    fs::remove_dir_all(&aside).unwrap();
    assert!(ground.files.create_dirs(&top.join("x"), 0o700).is_err());
    assert!(ground.files.create_dir(&top, 0o700).is_err());
    assert!(!ground.dir.path().join("project").exists());
    // Who has been allowed to make it can.
    ground.files.allow(&top).unwrap();
    assert!(ground.files.create_dirs(&top.join("x"), 0o700).is_err(), "it was there once");
}

#[test]
fn directories_within_each_other() {
    let ground = Ground::new();
    symlink("../theirs", ground.ours("link")).unwrap();
    let check = |inner: PathBuf, outer: PathBuf, expected| {
        assert_eq!(trusted::is_within(&inner, &outer).unwrap(), expected, "{} in {}", inner.display(), outer.display());
    };
    check(ground.ours("sub"), ground.ours(""), true);
    check(ground.ours(""), ground.ours(""), true);
    check(ground.ours(""), ground.ours("sub"), false);
    check(ground.ours("link/dir"), ground.theirs(""), true);
    check(ground.ours("link/dir"), ground.ours(""), false);
    check(ground.theirs("dir/not/yet"), ground.ours("link"), true);
    check(ground.ours("sub"), ground.ours("not/yet"), false);
}

#[test]
fn only_files_and_directories_are_synced() {
    let ground = Ground::new();
    let pipe = ground.ours("pipe");
    nix::unistd::mkfifo(&pipe, StatMode::S_IRWXU).unwrap();
    assert!(is_wrong_kind(&ground.files.sync(&pipe).unwrap_err()));
    ground.files.sync(&ground.ours("file")).unwrap();
    ground.files.sync(&ground.ours("sub")).unwrap();
}

/// A pinned directory is looked at by its descriptor, any other by its path: both give the same answer.
#[test]
fn both_ways_to_look_agree() {
    let ground = Ground::new();
    symlink("file", ground.ours("link")).unwrap();
    nix::unistd::mkfifo(&ground.ours("pipe"), StatMode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(ground.ours("socket")).unwrap();
    let pinned = AllowedDirs::default();
    pinned.allow_open(Path::new("/nowhere"), fs::File::open(ground.ours("")).unwrap().into());
    for name in ["", "file", "sub", "link", "pipe", "socket"] {
        let (by_path, by_descriptor) =
            (ground.files.stat(&ground.ours(name)), pinned.stat(&Path::new("/nowhere").join(name)));
        assert_eq!(by_path.unwrap(), by_descriptor.unwrap(), "{name:?}");
    }
    assert!(pinned.stat(Path::new("/nowhere/socket")).unwrap().is_socket());
    assert_eq!(pinned.stat(Path::new("/nowhere/none")).unwrap_err().kind(), io::ErrorKind::NotFound);
}
