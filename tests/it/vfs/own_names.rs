//! Names of the user's own files: what is hidden here, and what the store keeps.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use jp_fs::caller::Caller;
use jp_fs::vfs::{Lookup, Rename, SetAttr};

use super::*;

fn begun() -> (Workspace, InProcess) {
    let workspace = TestEnv::in_memory().init_workspace("project", "otvo8");
    write_bare_sample(&workspace);
    let driver = InProcess::new(&workspace, Rules::default(), Memory::Long);
    (workspace, driver)
}

fn stored(workspace: &Workspace, inner: &str) -> PathBuf {
    workspace.silo().join("conversations").join(D_PATH).join(inner)
}

fn journal(driver: &InProcess) -> String {
    let path = driver.vfs().writer().store().layout().journal_file();
    fs::read_to_string(path).unwrap_or_default()
}

/// The names of a directory, by number.
fn names(driver: &InProcess, number: u64) -> Vec<String> {
    let listing = driver.vfs().list(number, 0).expect("listed");
    let named = listing.rest().filter(|(_, listed)| !listed.is_dots());
    named.map(|(_, listed)| listed.name.to_string_lossy().into_owned()).collect()
}

#[test]
fn a_rename_leaves_nothing_hidden() {
    let (workspace, mut driver) = begun();
    driver.create(&join(D_PATH, "one")).expect("made");
    driver.mkdir(&join(D_PATH, "dir")).expect("made");
    driver.create(&join(D_PATH, "dir/inner")).expect("made");
    let before = journal(&driver);
    for _ in 0..50 {
        driver.rename(&join(D_PATH, "one"), &join(D_PATH, "two")).expect("renamed");
        driver.rename(&join(D_PATH, "two"), &join(D_PATH, "one")).expect("renamed");
        driver.rename(&join(D_PATH, "dir"), &join(D_PATH, "other")).expect("renamed");
        driver.rename(&join(D_PATH, "other"), &join(D_PATH, "dir")).expect("renamed");
    }
    assert_eq!(journal(&driver), before, "a rename of a user file writes no line");
    // Another worktree makes a file under a name that was left.
    driver.rename(&join(D_PATH, "one"), &join(D_PATH, "three")).expect("renamed");
    fs::write(stored(&workspace, "one"), "theirs").expect("written");
    fs::create_dir(stored(&workspace, "other")).expect("made");
    fs::write(stored(&workspace, "other/inner"), "theirs").expect("written");
    assert_eq!(driver.read(&join(D_PATH, "one")).as_deref(), Ok(&b"theirs"[..]));
    assert_eq!(driver.read(&join(D_PATH, "other/inner")).as_deref(), Ok(&b"theirs"[..]));
}

#[test]
fn a_directory_over_the_name_of_a_hidden_one_takes_its_own_hidden_names_along() {
    let (workspace, mut driver) = begun();
    for dir in ["from", "to"] {
        driver.mkdir(&join(D_PATH, dir)).expect("made");
        for name in ["kept", "hidden"] {
            driver.create(&join(D_PATH, &format!("{dir}/{name}"))).expect("made");
        }
        driver.unlink(&join(D_PATH, &format!("{dir}/hidden"))).expect("removed");
    }
    driver.unlink(&join(D_PATH, "to/kept")).expect("removed");
    driver.rmdir(&join(D_PATH, "to")).expect("removed");
    driver.rename(&join(D_PATH, "from"), &join(D_PATH, "to")).expect("renamed");
    assert_eq!(driver.list(&join(D_PATH, "to")).expect("listed"), ["kept"]);
    assert!(stored(&workspace, "to/hidden").is_file());
    // A directory of the old name has nothing hidden in it.
    driver.mkdir(&join(D_PATH, "from")).expect("made");
    fs::write(stored(&workspace, "from/hidden"), "theirs").expect("written");
    assert_eq!(driver.list(&join(D_PATH, "from")).expect("listed"), ["hidden"]);
}

#[test]
fn a_removed_directory_stays_in_the_store_and_is_empty_when_made_again() {
    let (workspace, mut driver) = begun();
    for dir in ["empty", "full"] {
        driver.mkdir(&join(D_PATH, dir)).expect("made");
        driver.chmod(&join(D_PATH, dir), 0o755).expect("set");
    }
    driver.create(&join(D_PATH, "full/file")).expect("made");
    driver.unlink(&join(D_PATH, "full/file")).expect("removed");
    for dir in ["empty", "full"] {
        driver.rmdir(&join(D_PATH, dir)).expect("removed");
        assert_eq!(driver.stat(&join(D_PATH, dir)).err(), Some(libc::ENOENT));
        assert!(driver.list(D_PATH).expect("listed").iter().all(|name| name != dir));
        assert!(stored(&workspace, dir).is_dir(), "{dir} left the store");
    }
    assert!(stored(&workspace, "full/file").is_file());
    driver.remount();
    for dir in ["empty", "full"] {
        assert_eq!(driver.stat(&join(D_PATH, dir)).err(), Some(libc::ENOENT));
        let number = driver.know(D_PATH).expect("there");
        let caller = Caller { pid: std::process::id() };
        driver.vfs().make_dir(caller, number, OsStr::new(dir), 0o700).expect("made again");
        assert_eq!(driver.list(&join(D_PATH, dir)).expect("listed"), Vec::<String>::new());
        assert_eq!(driver.stat(&join(D_PATH, dir)).expect("there").mode, 0o700, "it has the mode that was asked for");
    }
}

/// Files that are removed and made again write two lines each time. Only what they come to is kept for long.
#[test]
fn a_journal_that_outgrows_its_book_is_folded() {
    let (_, mut driver) = begun();
    driver.create(&join(D_PATH, "hidden")).expect("made");
    driver.unlink(&join(D_PATH, "hidden")).expect("removed");
    for _ in 0..400 {
        driver.create(&join(D_PATH, "again")).expect("made");
        driver.unlink(&join(D_PATH, "again")).expect("removed");
    }
    driver.create(&join(D_PATH, "again")).expect("made");
    assert!(journal(&driver).len() > 64 << 10);
    driver.vfs().tend_disk().expect("folded");
    assert_eq!(journal(&driver), "");
    for _ in 0..2 {
        assert_eq!(driver.stat(&join(D_PATH, "hidden")).err(), Some(libc::ENOENT));
        driver.stat(&join(D_PATH, "again")).expect("shown");
        driver.remount();
    }
}

/// A name that is not UTF-8 is hidden like any other, however long.
#[test]
fn names_that_are_not_text_are_hidden_and_shown() {
    let (workspace, mut driver) = begun();
    let caller = Caller { pid: std::process::id() };
    driver.mkdir(&join(D_PATH, "sub")).expect("made");
    let number = driver.know(&join(D_PATH, "sub")).expect("there");
    let bytes = vec![0xff; 255];
    let name = OsStr::from_bytes(&bytes);
    for round in 0..2 {
        let made = driver.vfs().create(caller, number, name, 0o600).expect("made");
        driver.vfs().write(caller, made.number, 0, &[b'a' + round]).expect("written");
        assert_eq!(names(&driver, number).len(), 1);
        driver.vfs().remove_file(caller, number, name).expect("removed");
        assert_eq!(names(&driver, number), Vec::<String>::new());
        assert!(matches!(driver.vfs().lookup(caller, number, name), Ok(Lookup::Absent { .. })));
        assert_eq!(fs::read(stored(&workspace, "sub").join(name)).expect("the store keeps it"), [b'a' + round]);
    }
    // The directory is hidden with what is hidden in it wherever it goes.
    driver.rename(&join(D_PATH, "sub"), &join(D_PATH, "moved")).expect("renamed");
    driver.remount();
    let number = driver.know(&join(D_PATH, "moved")).expect("there");
    assert_eq!(names(&driver, number), Vec::<String>::new());
    // To a name for scratch and back: its bytes are copied, and the store keeps the file.
    driver.vfs().create(caller, number, name, 0o600).expect("made");
    let backup = OsStr::new("backup~");
    driver.vfs().rename(caller, (number, name), (number, backup), Rename::Replace).expect("renamed");
    assert_eq!(names(&driver, number), ["backup~"]);
    assert!(stored(&workspace, "moved").join(name).exists());
}

#[test]
fn directories_of_the_tree_have_no_mode_of_their_own() {
    let (_, mut driver) = begun();
    for path in ["", ".archive"] {
        let before = driver.stat(path).expect("there").mode;
        assert_eq!(driver.chmod(path, before ^ 0o022), Err(libc::EPERM), "{path}");
        assert_eq!(driver.stat(path).expect("there").mode, before);
        driver.chmod(path, before).unwrap_or_else(|errno| panic!("{path} has that mode: {errno}"));
    }
    // One of children has the mode of its conversation, whichever of the two it is set on.
    for (path, other) in
        [(join(A_PATH, "conversations"), A_PATH.to_owned()), (A_PATH.to_owned(), join(A_PATH, "conversations"))]
    {
        for mode in [0o750, 0o700] {
            driver.chmod(&path, mode).expect("set");
            assert_eq!([&path, &other].map(|path| driver.stat(path).expect("there").mode), [mode; 2], "{path}");
        }
        assert_eq!(driver.chmod(&path, 0o4750), Err(libc::EPERM));
    }
}

/// The answer to a change of attributes must not be the one that tells the kernel of a new time: it would keep old pages.
#[test]
fn attributes_that_are_set_do_not_hide_a_change_of_the_content() {
    let (_, mut driver) = begun();
    driver.rename(D_PATH, &format!("{A_PATH}/conversations/{D_PATH}")).expect("moved");
    let number = driver.know(&format!("{A_PATH}/conversations/{D_PATH}/metadata.json")).expect("there");
    let caller = Caller { pid: std::process::id() };
    for set in [
        SetAttr { mtime: Some(BEFORE), ..SetAttr::default() },
        SetAttr { mode: Some(0o640), ..SetAttr::default() },
        SetAttr { mtime: Some(BEFORE), ..SetAttr::default() },
    ] {
        let answer = driver.vfs().set_attr(caller, number, set).expect("set");
        let next = driver.vfs().attr(number).expect("there");
        assert!(!answer.keep && answer.attr.mtime != next.mtime, "the kernel would keep its pages");
        assert_eq!(next.mtime, BEFORE, "what is set is told as it was set");
    }
}
