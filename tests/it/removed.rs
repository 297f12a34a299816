//! A conversation that left the store: removed by a command, which holds in every worktree, or lost by other means, which
//! must not take the last copy along.

use std::fs;

use jp_tests::{Mounted, TestEnv, User, Workspace, contents, ids};

use crate::story::{assert_twins, family, in_store, in_work, jp, new, presence, work_file, workspace};

/// Two worktrees of one store, made by git, which have synced all that both show. Neither is mounted.
fn two_worktrees() -> Option<(Mounted, Mounted)> {
    let main = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
    main.script("cd \"$P\" && git init --quiet && git add --all && git commit --quiet --message=one").ok();
    let other = main.worktree("other");
    for m in [&main, &other] {
        m.jp(&["export"]).ok();
        m.jp(&["export", "--check"]).ok();
    }
    assert!(in_work(other.workspace(), &id(ids::D)).is_some());
    Some((main, other))
}

fn id(n: u64) -> String {
    format!("jp-c{n}")
}

#[track_caller]
fn assert_gone(m: &Mounted, n: u64) {
    assert_eq!(in_store(m.workspace(), &id(n)), None, "it is not in the store");
    assert_eq!(in_work(m.workspace(), &id(n)), None, "nor in the worktree");
    assert_eq!(m.listed(n), None, "nor in the listing");
}

#[test]
fn an_untouched_copy_goes_with_the_next_mount() {
    let Some((main, other)) = two_worktrees() else { return };
    main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
    other.begin(&[]);
    assert_eq!(in_store(other.workspace(), &id(ids::D)), None, "the mount has not brought it back");
    other.sh("test ! -e \"$D\" && test -e \"$C\"");
    other.end(&[]);
    assert_gone(&other, ids::D);
    main.jp(&["export", "--check"]).ok();
    other.jp(&["export", "--check"]).ok();
}

#[test]
fn an_untouched_copy_goes_with_the_unmount() {
    let Some((main, other)) = two_worktrees() else { return };
    other.begin(&[]);
    main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
    other.end(&[]);
    assert_gone(&other, ids::D);
    other.jp(&["export", "--check"]).ok();
}

/// A file that is hidden here is missing from the copy, which is untouched all the same.
#[test]
fn an_untouched_copy_with_hidden_files_goes() {
    for file in ["metadata.json", "events.json", "base_config.json"] {
        let Some((main, other)) = two_worktrees() else { return };
        other.begin(&[]);
        other.sh(&format!("rm \"$D/{file}\""));
        other.end(&[]);
        main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
        other.begin(&[]);
        other.end(&[]);
        assert_gone(&other, ids::D);
        other.jp(&["export", "--check"]).ok();
    }
}

#[test]
fn an_untouched_subtree_goes_from_the_inside() {
    for mounted in [true, false] {
        let Some((main, other)) = two_worktrees() else { return };
        if mounted {
            other.begin(&[]);
        }
        main.jp(&["c", "rm", "--yes", "--cascade", &id(ids::A)]).ok();
        if !mounted {
            other.begin(&[]);
        }
        other.end(&[]);
        for n in [ids::A, ids::B, ids::C] {
            assert_gone(&other, n);
        }
    }
}

#[test]
fn an_untouched_copy_goes_when_another_place_is_mounted() {
    let Some((main, other)) = two_worktrees() else { return };
    main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
    other.script("jp mount \"$T/far\" > /dev/null && test ! -e \"$T/far/$D\" && jp unmount").ok();
    assert_eq!(in_store(main.workspace(), &id(ids::D)), None);
    other.jp(&["export"]).ok();
    assert_gone(&other, ids::D);
}

#[test]
fn what_expired_goes_too() {
    let Some((main, other)) = two_worktrees() else { return };
    main.jp(&["c", "edit", &id(ids::D), "--tmp=now"]).ok();
    other.jp(&["export"]).ok();
    main.jp(&["gc"]).ok();
    assert_gone(&main, ids::D);
    other.begin(&[]);
    other.end(&[]);
    assert_gone(&other, ids::D);
}

#[test]
fn an_edit_beats_the_removal() {
    // A managed file and a file of the user's own; seen first by a mount, or by an import.
    let edits = ["sed -i 's/Weekend/Edited/' \"$M/$D/metadata.json\"", "echo mine > \"$M/$D/notes.md\""];
    for edit in edits {
        for how in ["mount", "import"] {
            let Some((main, other)) = two_worktrees() else { return };
            main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
            other.script(edit).ok();
            let before = contents(&in_work(other.workspace(), &id(ids::D)).expect("there"));
            other.jp(&["export"]).fails_with(1).says(&id(ids::D)).says("jp import");
            let told = other.jp(&[how]).ok();
            assert!(told.stderr.contains(&id(ids::D)) || told.stdout.contains("weekend-plans"), "{}", told.told());
            let there = in_store(other.workspace(), &id(ids::D)).expect("an edit is not lost");
            assert_eq!(contents(&there), before);
            if how == "mount" {
                other.end(&[]);
            }
            assert_eq!(contents(&in_work(other.workspace(), &id(ids::D)).expect("there")), before);
            // The record of the removal has ended: what happens to it now was not asked for.
            fs::remove_dir_all(there).expect("removed");
            other.jp(&["export"]).fails_with(1).says(&id(ids::D));
            assert_eq!(contents(&in_work(other.workspace(), &id(ids::D)).expect("the last copy")), before);
        }
    }
}

#[test]
fn what_an_edited_one_hangs_beneath_comes_back_with_it() {
    let Some((main, other)) = two_worktrees() else { return };
    main.jp(&["c", "rm", "--yes", "--cascade", &id(ids::A)]).ok();
    other.script("echo mine > \"$M/$C/notes.md\"").ok();
    other.begin(&[]);
    other.sh("test -e \"$C/notes.md\"");
    other.end(&[]);
    for n in [ids::A, ids::B, ids::C] {
        assert_twins(other.workspace(), &id(n));
    }
    other.jp(&["export", "--check"]).ok();
    other.check_store();
}

#[test]
fn an_import_by_name_brings_it_back() {
    let Some((main, other)) = two_worktrees() else { return };
    main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
    let planned = other.jp(&["import", "--dry-run", &id(ids::D)]).ok();
    assert!(planned.stdout.contains("import 17528862001-weekend-plans"), "{}", planned.told());
    // Without its name it is not meant.
    other.jp(&["import"]).ok();
    assert_eq!(in_store(other.workspace(), &id(ids::D)), None);
    other.jp(&["import", &id(ids::D)]).ok();
    assert_twins(other.workspace(), &id(ids::D));
    assert_eq!(main.says(ids::D, "title"), "Weekend plans");
    other.jp(&["export", "--check"]).ok();
    other.begin(&[]);
    other.sh("test -e \"$D\"");
    other.end(&[]);
    assert_twins(other.workspace(), &id(ids::D));
    // And it can be removed again.
    main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
    other.begin(&[]);
    other.end(&[]);
    assert_gone(&other, ids::D);
}

/// Eight conversations that are shown, one of which the store loses.
fn lost() -> (Workspace, String) {
    let w = workspace();
    let all: Vec<String> = (0..8).map(|n| new(&w, &format!("Number {n}"), &[])).collect();
    jp(&w, &["export"]);
    let lost = all[3].clone();
    fs::remove_dir_all(in_store(&w, &lost).expect("stored")).expect("removed");
    (w, lost)
}

#[test]
fn the_last_copy_of_one_stays_and_is_named() {
    let (w, lost) = lost();
    let before = contents(&in_work(&w, &lost).expect("shown"));
    w.jp(&["export", "--check"]).fails_with(1).says(&lost);
    w.jp(&["export"]).fails_with(1).says(&lost).says(&format!("jp import {lost}")).says(&format!("jp c rm {lost}"));
    // A change of the tree puts the worktree in order.
    let more = new(&w, "Another", &[]);
    jp(&w, &["c", "archive", &more]);
    jp(&w, &["c", "rm", "--yes", &more]);
    assert_eq!(contents(&in_work(&w, &lost).expect("the last copy stays")), before);
    for command in ["status", "doctor"] {
        let told = w.jp(&[command]);
        let text = format!("{}{}", told.stdout, told.stderr);
        assert!(text.contains(&format!("jp import {lost}")), "{}", told.told());
    }
    let problems = w.jp(&["status", "--json"]).json()["problems"].clone();
    assert!(problems.as_array().expect("an array").iter().any(|problem| problem["kind"] == "lost"), "{problems}");
    jp(&w, &["import", &lost]);
    assert_twins(&w, &lost);
    assert_eq!(contents(&in_work(&w, &lost).expect("shown")), before);
    jp(&w, &["export", "--check"]);
}

/// What the store lost of a tree: a parent, a child, or both. No command that puts the worktree in order takes them along.
#[test]
fn the_last_copies_in_a_tree_stay() {
    for lost in [&[0][..], &[1], &[2], &[0, 1, 2]] {
        let commands: [&[&str]; 8] = [
            &["export"],
            &["gc"],
            &["doctor", "--fix"],
            &["c", "mv", "OTHER", "--parent", "A"],
            &["c", "archive", "OTHER"],
            &["c", "edit", "A", "--title", "Another"],
            &["export", "--layout", "flat"],
            &["export", "--layout", "nested"],
        ];
        let w = workspace();
        let family = family(&w);
        let other = new(&w, "Other", &[]);
        jp(&w, &["export"]);
        let texts = |w: &Workspace| family.clone().map(|id| fs::read(work_file(w, &id, "events.json")).expect("there"));
        for (n, id) in family.iter().enumerate() {
            let text = format!(r#"[{{"timestamp": "2026-01-01 00:00:00.0", "type": "note", "n": {n}}}]"#);
            fs::write(work_file(&w, id, "events.json"), text).expect("written");
        }
        jp(&w, &["export"]);
        let before = texts(&w);
        for &n in lost {
            fs::remove_dir_all(in_store(&w, &family[n]).expect("stored")).expect("removed");
        }
        for args in commands {
            let word = |word: &&'static str| match *word {
                "A" => family[0].clone(),
                "OTHER" => other.clone(),
                word => word.to_owned(),
            };
            let args: Vec<String> = args.iter().map(word).collect();
            w.jp(&args.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(texts(&w), before, "{lost:?}");
        }
    }
}

#[test]
fn the_last_copy_of_one_can_be_removed() {
    let (w, lost) = lost();
    jp(&w, &["c", "rm", "--yes", &lost]);
    assert_eq!((presence(&w, &lost).as_str(), in_work(&w, &lost)), ("gone", None));
    jp(&w, &["export", "--check"]);
}

#[test]
fn the_last_copy_of_one_outlives_a_mount() {
    let Some((main, other)) = two_worktrees() else { return };
    let before = contents(&in_work(other.workspace(), &id(ids::D)).expect("shown"));
    other.begin(&[]);
    fs::remove_dir_all(main.stored(ids::D)).expect("removed");
    let told = other.jp(&["unmount"]).fails_with(1).says(&id(ids::D));
    assert!(!other.is_mounted(), "{}", told.told());
    assert_eq!(contents(&in_work(other.workspace(), &id(ids::D)).expect("the last copy stays")), before);
    other.begin(&[]);
    other.sh("test -e \"$D/events.json\"");
    other.end(&[]);
    assert_twins(other.workspace(), &id(ids::D));
}

#[test]
fn a_hidden_copy_that_is_the_last_one_stays() {
    let Some((main, other)) = two_worktrees() else { return };
    let before = contents(&in_work(other.workspace(), &id(ids::D)).expect("shown"));
    other.begin(&[]);
    other.sh("rm -r \"$D\"");
    fs::remove_dir_all(main.stored(ids::D)).expect("removed");
    other.jp(&["unmount"]).fails_with(1).says(&id(ids::D));
    assert_eq!(contents(&in_work(other.workspace(), &id(ids::D)).expect("the last copy stays")), before);
}

#[test]
fn a_removal_that_was_cut_short_is_not_held_against_it() {
    let w = workspace();
    let one = new(&w, "Not removed", &[]);
    jp(&w, &["export"]);
    // The record is written first, and the process dies.
    let file = w.silo().join("vfs/removed");
    let text = fs::read_to_string(&file).unwrap_or_default();
    fs::write(&file, format!("{text}\n{}\n", crate::story::digits(&one))).expect("written");
    jp(&w, &["c", "archive", &new(&w, "Any", &[])]);
    fs::remove_dir_all(in_store(&w, &one).expect("stored")).expect("removed");
    w.jp(&["export"]).fails_with(1).says(&one);
    assert!(work_file(&w, &one, "events.json").is_file(), "the last copy stays");
}

/// Hiding, showing or archiving a conversation takes what lies in its copy along, but not what was removed for good.
#[test]
fn it_does_not_come_back_with_the_one_it_lies_in() {
    for args in [&["edit", "--local=true"][..], &["archive", "--yes"]] {
        let Some((main, other)) = two_worktrees() else { return };
        main.jp(&["c", "rm", "--yes", &id(ids::C)]).ok();
        let parent = id(ids::B);
        let mut command = vec!["c", args[0], &parent];
        command.extend(&args[1..]);
        other.jp(&command).ok();
        assert_gone(&other, ids::C);
    }
}

/// A child that was removed for good in another worktree is none, although its copy is still here.
#[test]
fn it_is_no_child_of_the_one_it_lies_in() {
    let Some((main, other)) = two_worktrees() else { return };
    main.jp(&["c", "rm", "--yes", &id(ids::C)]).ok();
    other.jp(&["c", "rm", "--yes", &id(ids::B)]).ok();
    assert_gone(&other, ids::C);
    assert_gone(&other, ids::B);
    other.jp(&["export", "--check"]).ok();
}

/// A conversation that is in the store again was not removed, whoever brought it back. If the store loses it later, its copy
/// is the last there is.
#[test]
fn a_record_ends_when_the_conversation_is_there_again() {
    for command in [&["export"][..], &["import"], &["mount"]] {
        let Some((main, other)) = two_worktrees() else { return };
        let stored = in_store(main.workspace(), &id(ids::D)).expect("stored");
        let backup = main.workspace().root().join("backup");
        jp_tests::copy_tree(&stored, &backup).expect("copied");
        main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
        jp_tests::copy_tree(&backup, &stored).expect("brought back");
        if command == ["mount"] {
            other.begin(&[]);
            other.end(&[]);
        } else {
            other.jp(command).ok();
        }
        fs::remove_dir_all(&stored).expect("lost");
        other.jp(&["export"]).fails_with(1);
        assert!(in_work(other.workspace(), &id(ids::D)).is_some(), "{command:?}: the last copy stays");
    }
}

/// Of several copies one may have something that no other has.
#[test]
fn a_second_copy_does_not_go_with_a_hidden_one() {
    let Some((main, other)) = two_worktrees() else { return };
    let copy = in_work(other.workspace(), &id(ids::D)).expect("shown");
    let second = copy.with_file_name(format!("{}-zcopy", ids::D));
    jp_tests::copy_tree(&copy, &second).expect("copied");
    fs::write(second.join("note.md"), "only here\n").expect("written");
    other.begin(&[]);
    other.sh("rm -r \"$D\"");
    main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
    other.script("jp unmount || true").ok();
    let everywhere = [other.workspace().root().to_owned(), main.workspace().silo()];
    let found = everywhere.iter().flat_map(|root| contents(root)).any(|(_, bytes)| bytes == b"only here\n");
    assert!(found, "what only the second copy had is somewhere");
}

/// Times can be set, so what looks untouched is read before the last copy goes.
#[test]
fn an_edit_that_looks_untouched_stays() {
    let Some((main, other)) = two_worktrees() else { return };
    let file = in_work(other.workspace(), &id(ids::D)).expect("shown").join("notes.md");
    fs::write(&file, "aaaaaaaa\n").expect("written");
    for _ in 0..2 {
        other.jp(&["export"]).ok();
    }
    let before = jp_tests::mtime(&file);
    fs::write(&file, "LATENOTE\n").expect("written");
    jp_tests::set_mtime(&file, before);
    main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
    other.jp(&["export"]).fails_with(1);
    assert_eq!(fs::read_to_string(&file).expect("it stays"), "LATENOTE\n");
}

/// What somebody wrote into a transcript is theirs.
#[test]
fn notes_in_a_transcript_are_kept() {
    for local in [true, false] {
        let Some((main, other)) = two_worktrees() else { return };
        other.jp(&["export", "--transcripts"]).ok();
        let file = in_work(other.workspace(), &id(ids::D)).expect("shown").join("transcript.md");
        let text = fs::read_to_string(&file).expect("written") + "my notes\n";
        fs::write(&file, &text).expect("written");
        if local {
            other.jp(&["c", "edit", &id(ids::D), "--local=true"]).ok();
        } else {
            main.jp(&["c", "rm", "--yes", &id(ids::D)]).ok();
            other.jp(&["export"]);
        }
        let everywhere = [other.workspace().root().to_owned(), main.workspace().silo()];
        let found = everywhere.iter().flat_map(|root| contents(root)).any(|(_, bytes)| bytes == text.as_bytes());
        assert!(found, "local {local}: the notes are somewhere");
    }
}

/// The same, with copies in it that belong elsewhere by now.
#[test]
fn it_does_not_come_back_for_what_lies_in_it() {
    let Some((main, other)) = two_worktrees() else { return };
    main.jp(&["c", "rm", "--yes", "--promote", &id(ids::B)]).ok();
    other.jp(&["c", "edit", &id(ids::A), "--local=true"]).ok();
    assert_gone(&other, ids::B);
    assert!(in_store(other.workspace(), &id(ids::C)).is_some());
    other.jp(&["export", "--check"]).ok();
}
