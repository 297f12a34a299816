//! Names that lead astray: titles with everything in them, two directories of one id, and what else lies about among
//! conversations.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use jp_tests::{Place, Shot, dirname, set_mtime};

use super::{A, B, C, assert_same, holds, jp, listed, problems, roots, sample, shots, workspace};

#[test]
fn any_title_is_kept_and_shown_in_one_harmless_line() {
    let titles = [
        "x".repeat(10_000),
        "!!!...???".to_owned(),
        "../../etc/passwd".to_owned(),
        "/".to_owned(),
        "a\u{7}b\u{1b}[31mred\u{1b}]0;owned\u{7}\u{9b}2J\u{7f}".to_owned(),
        "one\ntwo\r\nthree\ttab\u{2028}four".to_owned(),
        "abc\u{202e}fed\u{2066}".to_owned(),
        "🎉".repeat(80),
        format!("{} b", "𠀀".repeat(58)),
        "İ".repeat(60),
        "日本語 ".repeat(40),
        "--flag".to_owned(),
        "\"quoted\" \\ 'title'".to_owned(),
    ];
    for title in &titles {
        let work = workspace();
        sample(A, "Before").write(&work, Place::Both);
        let outside = Shot::of(work.env().root()).without(&["data", "main"]);
        jp(&work, &["c", "edit", &format!("--title={title}"), &A.to_string()]).ok();
        outside.assert_same(&Shot::of(work.env().root()).without(&["data", "main"]));
        let name = dirname(A, Some(title));
        assert!(name.len() < 256, "{name}");
        for root in roots(&work) {
            assert!(root.join(&name).join("events.json").is_file(), "{} is not in {}", name, root.display());
        }
        assert_eq!(listed(&work, A)["title"], **title);
        for args in [&["c", "ls"][..], &["c", "ls", "--full"], &["c", "ls", "--tree"]] {
            let output = jp(&work, args).ok();
            assert_eq!(output.stdout.lines().count(), 1, "{}", output.told());
            assert!(!output.stdout.contains(['\u{202e}', '\u{2066}', '\u{2028}']), "{}", output.told());
        }
        jp(&work, &["c", "show", &A.to_string()]).ok();
        jp(&work, &["c", "grep", "-s", "title", "-r", "."]).ok();
        let made = jp(&work, &["c", "new", &format!("--title={title}")]).line().to_owned();
        jp(&work, &["c", "rm", "-y", &made]).ok();
        jp(&work, &["doctor"]).ok();
    }
}

/// Two directories of one id: which names, older first, and where.
#[test]
fn of_two_directories_with_one_id_the_newest_is_used_and_none_is_lost() {
    let table = [
        ("17528832001-old", "17528832001-new"),
        ("17528832001", "00017528832001-new"),
        ("17528832001-old", "+17528832001"),
        ("00017528832001", "17528832001-new"),
        ("+17528832001-old", "17528832001"),
        (".archive/17528832001-old", "17528832001-new"),
        (".archive/17528832001", "17528832001"),
    ];
    for (older, newer) in table {
        for root in [0, 1] {
            let work = workspace();
            let root = &roots(&work)[root];
            for (at, (name, title)) in [(older, "Old"), (newer, "New")].into_iter().enumerate() {
                let place = work.env().root().join("made");
                let dir = sample(A, title).write_below(&place);
                set_mtime(&dir.join("metadata.json"), 1_750_000_000_000_000_000 + i64::try_from(at).expect("small"));
                fs::create_dir_all(root.join(name).parent().expect("inside")).expect("made");
                fs::rename(dir, root.join(name)).expect("moved");
            }
            let told = format!("{older} and {newer} in {}", root.display());
            let before = shots(&work);
            assert_eq!(listed(&work, A)["title"], "New", "{told}");
            let (code, found) = problems(&work);
            assert_eq!((code, found.len()), (0, 1), "{told}: {found:#?}");
            assert_eq!(
                (&found[0]["kind"], &found[0]["path"]),
                (&"duplicate".into(), &root.join(older).to_string_lossy().into())
            );
            jp(&work, &["doctor"]).fails_with(1);
            assert_same(&before, &work);

            let loser = Shot::of(&root.join(older));
            jp(&work, &["c", "edit", "--title", "Newer", &A.to_string()]).ok();
            assert_eq!(listed(&work, A)["title"], "Newer", "{told}");
            loser.assert_same(&Shot::of(&root.join(older)));
            let bytes = fs::read(root.join(older).join("metadata.json")).expect("read");
            jp(&work, &["doctor", "--fix"]).ok();
            assert!(!root.join(older).exists(), "{told}");
            assert!(holds(&work.silo().join("vfs/conflicts"), "metadata.json", &bytes), "{told}: the other is gone");
            assert_eq!(listed(&work, A)["title"], "Newer", "{told}");
        }
    }
}

#[test]
fn what_is_no_conversation_is_left_alone() {
    let work = workspace();
    sample(A, "Real").write(&work, Place::Both);
    let strangers = ["stranger", "jp-c17528842001", "17528842001.foo", "-5", "99999999999999999999", "1752 8842001"];
    for root in roots(&work) {
        for name in ["metadata.json", "17528852001-file", "README.md"] {
            fs::write(root.join(name), "x").expect("written");
        }
        symlink(dirname(A, Some("Real")), root.join("17528862001-link")).expect("linked");
        symlink("nowhere", root.join("17528872001-dangling")).expect("linked");
        for name in [".staging-1", ".old-2", ".git"].into_iter().chain(strangers) {
            sample(B, "Inside").write_below(&root.join(name));
        }
        fs::create_dir(root.join(OsStr::from_bytes(b"1752\xff"))).expect("made");
    }
    let before = shots(&work);
    let listing = jp(&work, &["c", "ls", "--json"]).json();
    assert_eq!(listing.as_array().map(Vec::len), Some(1), "{listing:#}");
    let (code, found) = problems(&work);
    assert_eq!((code, found.len()), (0, 2 * (strangers.len() + 1)), "{found:#?}");
    assert!(found.iter().all(|one| one["kind"] == "stranger"), "{found:#?}");
    jp(&work, &["doctor"]).fails_with(1);
    assert_same(&before, &work);

    jp(&work, &["c", "edit", "--title", "New", &A.to_string()]).ok();
    jp(&work, &["c", "archive", "-y", &A.to_string()]).ok();
    jp(&work, &["c", "unarchive", &A.to_string()]).ok();
    let (old, new) = (dirname(A, Some("Real")), dirname(A, Some("New")));
    let mine = [old.as_str(), new.as_str(), ".archive"];
    for (before, after) in before.into_iter().zip(shots(&work)) {
        before.without(&mine).assert_same(&after.without(&mine));
    }
    jp(&work, &["doctor", "--fix"]).ok();
    let trash = roots(&work)[0].join(".trash");
    let file = sample(B, "Inside").contents().remove(0).1;
    assert!(holds(&trash, "metadata.json", &file) && !roots(&work)[0].join("stranger").exists());
}

#[test]
fn names_that_are_no_text_survive_everything() {
    let work = workspace();
    let (file, dir) = (OsStr::from_bytes(b"f\xff\xfe"), OsStr::from_bytes(b"d\xff"));
    let fill = |conversation: &Path| {
        fs::write(conversation.join(file), "file").expect("written");
        fs::create_dir(conversation.join(dir)).expect("made");
        fs::write(conversation.join(dir).join(file), "deep").expect("written");
        symlink(file, conversation.join(OsStr::from_bytes(b"l\xff"))).expect("linked");
    };
    sample(A, "Odd").write(&work, Place::Both);
    for root in roots(&work) {
        fill(&root.join(dirname(A, Some("Odd"))));
    }
    // A slug is decoration, whatever is in it.
    for (id, root) in [(B, 0), (C, 1)] {
        let root = &roots(&work)[root];
        let made = sample(id, "Plain").write_below(root);
        let mut name = format!("{id}-").into_bytes();
        name.push(0xff);
        let odd = root.join(OsStr::from_bytes(&name));
        fs::rename(made, &odd).expect("moved");
        fill(&odd);
        let path = jp(&work, &["c", "path", &id.to_string()]).ok();
        assert_eq!(path.raw.strip_suffix(b"\n"), Some(odd.as_os_str().as_bytes()));
    }
    for id in [A, B, C] {
        let id = id.to_string();
        for args in [
            &["c", "edit", "--title", "New", &id][..],
            &["c", "archive", "-y", &id],
            &["c", "unarchive", &id],
            &["c", "edit", "--local=true", &id],
            &["c", "edit", "--local=false", &id],
            &["c", "edit", "--title", "Newer", &id],
        ] {
            jp(&work, args).ok();
        }
        for root in roots(&work) {
            let dir_now = root.join(format!("{id}-newer"));
            for (path, text) in [(dir_now.join(file), "file"), (dir_now.join(dir).join(file), "deep")] {
                let found = fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
                assert_eq!(found, text);
            }
            assert!(dir_now.join(OsStr::from_bytes(b"l\xff")).is_symlink());
        }
    }
    jp(&work, &["doctor"]).ok();
}
