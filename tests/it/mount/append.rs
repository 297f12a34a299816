//! Programs write at the end of a file (`>>`) while others do, through another mount and in the store itself. Each reads
//! back what it wrote at once.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jp_tests::{LIMIT, Mounted, TestEnv, User, ids, wait_for};
use serde_json::Value;

use super::said;

const FLAGS: [&[&str]; 2] = [&[], &["--compat-open"]];

/// Two worktrees of one store, both mounted.
struct Pair {
    main: Mounted,
    feature: Mounted,
}

impl Pair {
    #[track_caller]
    fn new(flags: &[&str]) -> Option<Self> {
        let main = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
        main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
        let feature = main.worktree("feature");
        main.begin(flags);
        feature.begin(flags);
        Some(Self { main, feature })
    }

    /// A file of the conversation `D` as both show it, with these bytes in both.
    #[track_caller]
    fn shared(&self, name: &str, bytes: &[u8]) -> [PathBuf; 2] {
        let paths = [shown(&self.main, name), shown(&self.feature, name)];
        if let Some(dir) = paths[0].parent() {
            fs::create_dir_all(dir).expect("a conversation takes a directory");
        }
        fs::write(&paths[0], bytes).expect("written");
        for path in &paths {
            becomes(path, bytes);
        }
        paths
    }
}

fn shown(m: &Mounted, name: &str) -> PathBuf {
    m.point().join("17528862001-weekend-plans").join(name)
}

#[track_caller]
fn append(path: &Path, bytes: &[u8]) {
    let opened = OpenOptions::new().append(true).open(path);
    opened
        .and_then(|mut file| file.write_all(bytes))
        .unwrap_or_else(|error| panic!("cannot append to {}: {error}", path.display()));
}

/// Whoever has appended reads at once what it has appended.
#[track_caller]
fn is(path: &Path, bytes: &[u8]) {
    let found = fs::read(path).expect("read");
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(bytes), "{}", path.display());
    assert_eq!(fs::metadata(path).expect("there").len(), bytes.len() as u64);
}

/// The others read it in a while.
#[track_caller]
fn becomes(path: &Path, bytes: &[u8]) {
    wait_for(&format!("{} in {}", bytes.len(), path.display()), LIMIT, || fs::read(path).is_ok_and(|it| it == bytes));
}

#[test]
fn two_mounts_append_in_turn() {
    for flags in FLAGS {
        let Some(pair) = Pair::new(flags) else { return };
        for name in ["log.txt", "deep/er/log.txt"] {
            let mut expected = b"first\n".to_vec();
            let paths = pair.shared(name, &expected);
            for round in 0..20 {
                for path in [&paths[0], &paths[1], &paths[1], &paths[0]] {
                    let line = format!("line {round} of {}\n", expected.len());
                    append(path, line.as_bytes());
                    expected.extend(line.as_bytes());
                    is(path, &expected);
                }
                for path in &paths {
                    becomes(path, &expected);
                }
            }
            is(&pair.main.stored(ids::D).join(name), &expected);
        }
    }
}

#[test]
fn a_mount_and_another_program_append_in_turn() {
    for flags in FLAGS {
        let Some(pair) = Pair::new(flags) else { return };
        let mut expected = b"first\n".to_vec();
        let [shown, _] = pair.shared("log.txt", &expected);
        let stored = pair.main.stored(ids::D).join("log.txt");
        // One that stays open has no other end of the file than one that is opened for each line.
        let mut open = OpenOptions::new().append(true).open(&shown).expect("opened");
        for round in 0..20 {
            let mut line = |by: &str| {
                let line = format!("line {round} by {by}\n").into_bytes();
                expected.extend(&line);
                (line, expected.clone())
            };
            let (bytes, all) = line("another program");
            append(&stored, &bytes);
            let (bytes, _) = line("an open file");
            open.write_all(&bytes).expect("appended");
            drop(all);
            let (bytes, all) = line("a mount");
            append(&shown, &bytes);
            is(&shown, &all);
            is(&stored, &all);
        }
    }
}

#[test]
fn what_was_cut_off_elsewhere_is_not_filled_with_zeros() {
    let Some(pair) = Pair::new(&[]) else { return };
    for round in 0..10 {
        let [_, shown] = pair.shared("log.txt", &vec![b'x'; 9_000 + round]);
        let stored = pair.main.stored(ids::D).join("log.txt");
        fs::write(&stored, "short\n").expect("written");
        append(&shown, b"more\n");
        is(&stored, b"short\nmore\n");
        is(&shown, b"short\nmore\n");
    }
}

#[test]
fn one_that_takes_several_requests() {
    for flags in FLAGS {
        let Some(pair) = Pair::new(flags) else { return };
        let mut expected = b"first\n".to_vec();
        let paths = pair.shared("log.txt", &expected);
        for (round, path) in paths.iter().enumerate() {
            append(&pair.main.stored(ids::D).join("log.txt"), b"meanwhile\n");
            expected.extend(b"meanwhile\n");
            let large: Vec<u8> = (0..3_500_000_u32).map(|n| b'a' + (n % 23) as u8 + round as u8).collect();
            append(path, &large);
            expected.extend(large);
            assert!(fs::read(path).expect("read") == expected, "not what was appended");
        }
        for path in &paths {
            becomes(path, &expected);
        }
    }
}

#[test]
fn to_a_document_that_was_saved_elsewhere() {
    for flags in FLAGS {
        let Some(pair) = Pair::new(flags) else { return };
        let paths = [shown(&pair.main, "events.json"), shown(&pair.feature, "events.json")];
        for (round, size) in [10, 5_000, 100, 20_000, 50].into_iter().enumerate() {
            let before = fs::read(&paths[1]).expect("read");
            becomes(&paths[0], &before);
            let document = said(&format!("round {round}"), size);
            fs::write(&paths[0], &document).expect("saved");
            append(&paths[1], b" \n");
            let expected = [document.as_bytes(), b" \n"].concat();
            is(&paths[1], &expected);
            is(&pair.main.stored(ids::D).join("events.json"), &expected);
            assert_eq!(pair.feature.status("drafts"), [] as [Value; 0]);
            becomes(&paths[0], &expected);
        }
        // What is not a document any more is a draft, with the line at its end.
        let document = said("the last", 3_000);
        fs::write(&paths[0], &document).expect("saved");
        append(&paths[1], b"one\n");
        append(&paths[1], b"two\n");
        is(&paths[1], format!("{document}one\ntwo\n").as_bytes());
        is(&pair.main.stored(ids::D).join("events.json"), document.as_bytes());
        assert_eq!(pair.feature.status("drafts").len(), 1);
    }
}

#[test]
fn files_that_are_in_no_store() {
    for flags in FLAGS {
        let Some(m) = Mounted::new(User::Own, flags) else { return };
        for path in [shown(&m, "x.tmp"), m.point().join("x.tmp"), m.point().join(".gitignore")] {
            let mut expected = b"first\n".to_vec();
            fs::write(&path, &expected).expect("written");
            let open = || OpenOptions::new().append(true).open(&path).expect("opened");
            let mut files: [File; 2] = [open(), open()];
            for round in 0..10 {
                for file in &mut files {
                    let line = format!("line {round}\n");
                    file.write_all(line.as_bytes()).expect("appended");
                    expected.extend(line.as_bytes());
                    is(&path, &expected);
                }
            }
            // One that has lost its name is appended to as well.
            fs::remove_file(&path).expect("removed");
            files.iter_mut().for_each(|file| file.write_all(b"gone\n").expect("appended"));
            assert_eq!(files[0].metadata().expect("open").len(), expected.len() as u64 + 10);
        }
    }
}
