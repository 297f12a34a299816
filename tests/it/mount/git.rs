//! The real git on the tree, while it is mounted: what a checkout writes is what the store holds, and what it takes away
//! is hidden, not gone.

use jp_tests::{Mounted, Sample, ids};
use serde_json::Value;

use super::{everyone, everyone_with, lines, put, said};

const E: u64 = 17_600_000_001;

/// Commits everything that is shown.
#[track_caller]
fn commit(m: &Mounted, message: &str) {
    m.script(&format!("cd \"$P\" && git add --all && git commit --quiet --message='{message}'")).ok();
    clean(m);
}

#[track_caller]
fn git(m: &Mounted, args: &str) -> String {
    m.script(&format!("cd \"$P\" && git {args}")).ok().stdout
}

/// Asserts that the tree is what is committed, by name and by content, whatever git's cache believes.
#[track_caller]
fn clean(m: &Mounted) {
    assert_eq!(git(m, "status --porcelain"), "");
    let shown = m.sh("find . -type f | sed 's,^\\./,.jp/conversations/,'").stdout;
    assert_eq!(lines(&shown), lines(&git(m, "ls-files -- .jp/conversations")));
    git(m, "update-index --really-refresh");
    assert_eq!(git(m, "diff --stat"), "");
}

#[test]
fn status_add_commit() {
    everyone(|m| {
        let before = m.store();
        git(m, "init --quiet");
        commit(m, "one");
        assert_eq!(m.store(), before);
        assert_eq!(git(m, "ls-files | grep -c secret || true").trim(), "0", "what is hidden here is not committed");

        m.sh("sed -i 's/Question 0/Question zero/' \"$C/events.json\"");
        assert_eq!(git(m, "status --porcelain | wc -l").trim(), "1");
        put(m, "new.json", &said("of length", 300));
        m.sh("cat \"$T/new.json\" > \"$A/events.json\"; echo note > \"$D/notes.md\"");
        let changed = git(m, "status --porcelain");
        assert_eq!(changed.lines().count(), 3, "{changed}");
        commit(m, "two");
        let shown = git(m, "show HEAD:.jp/conversations/17528832001-refactor-error-handling/events.json");
        assert_eq!(shown, m.text(ids::A, "events.json"));
        // A commit is whole without the mount, too.
        m.script("cd \"$T\" && git clone --quiet \"$P\" clone && test -f \"clone/.jp/conversations/$C/events.json\"")
            .ok();

        m.sh("echo garbage > \"$A/events.json\"");
        assert_eq!(
            git(m, "status --porcelain").trim(),
            "M .jp/conversations/17528832001-refactor-error-handling/events.json"
        );
        git(m, "checkout --quiet -- .");
        assert_eq!(m.text(ids::A, "events.json"), shown);
        assert_eq!(m.status("drafts"), [] as [Value; 0], "a good version takes the draft's place");
        clean(m);
        m.check_store();
    });
}

#[test]
fn branches() {
    everyone(|m| {
        git(m, "init --quiet");
        commit(m, "main");
        let main = m.store();
        let shown = m.sh("find . -type f | sort | xargs sha256sum").stdout;

        // Another title, another parent, one more, one less, other words.
        git(m, "checkout --quiet -b other");
        Sample::new(E).title("Elsewhere").events(6).write_below(&m.workspace().env().root().join("tmp"));
        m.give();
        m.sh("mv \"$D\" \"$A/conversations/\"
              sed -i 's/Third thoughts/Fourth thoughts/' \"$C/metadata.json\"
              cp -r \"$T\"/17600000001-elsewhere .
              sed -i 's/Question 0/Question zero/' \"$B/events.json\"
              rm -r \"$O\"");
        commit(m, "other");
        let other = m.store();
        let others = m.sh("find . -type f | sort | xargs sha256sum").stdout;
        assert_ne!(shown, others);

        for round in 0..3 {
            git(m, "checkout --quiet main");
            clean(m);
            assert_eq!(m.sh("find . -type f | sort | xargs sha256sum").stdout, shown, "round {round}");
            assert_eq!(m.says(ids::D, "parent"), Value::Null);
            assert_eq!(m.says(ids::C, "title"), "Third thoughts");
            assert_eq!(m.says(E, "presence"), "local", "it is another branch's");
            assert_eq!(m.says(ids::O, "archived"), true);
            for (path, bytes) in &main {
                assert_eq!(m.store().get(path), Some(bytes), "{}", path.display());
            }

            git(m, "checkout --quiet other");
            clean(m);
            assert_eq!(m.sh("find . -type f | sort | xargs sha256sum").stdout, others, "round {round}");
            assert_eq!(m.says(ids::D, "parent"), format!("jp-c{}", ids::A));
            assert_eq!(m.says(ids::C, "title"), "Fourth thoughts");
            assert_eq!(m.says(E, "presence"), "projected");
            assert_eq!(m.store(), other);
        }
        assert_eq!(m.status("drafts"), [] as [Value; 0]);
        assert_eq!(m.status("conflicts"), [] as [Value; 0]);
        m.check_store();
    });
}

#[test]
fn stash_and_clean() {
    everyone_with(&["jq"], &[], |m| {
        git(m, "init --quiet");
        commit(m, "one");
        let committed = m.store();
        m.sh("sed -i 's/Weekend/Stashed/' \"$D/metadata.json\"; jq -c . \"$A/events.json\" > \"$A/x.tmp\"
              mv \"$A/x.tmp\" \"$A/events.json\"");
        let edited = m.store();
        git(m, "stash --quiet --include-untracked");
        clean(m);
        assert_eq!(m.store(), committed);
        git(m, "stash pop --quiet");
        assert_eq!(m.store(), edited);
        assert_eq!(m.says(ids::D, "title"), "Stashed plans");
        git(m, "reset --quiet --hard");
        git(m, "clean -fdxq");
        clean(m);

        Sample::new(E).title("Untracked").events(6).write_below(&m.workspace().env().root().join("tmp"));
        m.give();
        m.sh("cp -r \"$T\"/17600000001-untracked .; echo note > \"$D/notes.md\"; mkdir -p \"$D/sub/dir\"; echo x > \"$D/sub/dir/x\"");
        let events = m.text(E, "events.json");
        git(m, "clean -fdxq");
        m.sh("test ! -e 17600000001-untracked; test ! -e \"$D/notes.md\"; test ! -e \"$D/sub\"");
        clean(m);
        assert_eq!(m.says(E, "presence"), "local", "hidden, not gone");
        assert_eq!(m.text(E, "events.json"), events);
        m.check_store();
    });
}

#[test]
fn merging() {
    everyone(|m| {
        git(m, "init --quiet");
        commit(m, "base");
        git(m, "checkout --quiet -b theirs");
        m.sh("sed -i 's/Question 0/Their question/' \"$D/events.json\"; sed -i 's/Third/Fourth/' \"$C/metadata.json\"");
        commit(m, "theirs");
        git(m, "checkout --quiet main");
        m.sh("sed -i 's/Question 0/Our question/' \"$D/events.json\"");
        commit(m, "ours");
        let before = m.store();
        let told = m.script("cd \"$P\" && git merge theirs").fails_with(1);
        assert!(told.stdout.contains("CONFLICT"), "{}", told.told());
        // Markers are the worktree's; the store keeps the last document. What merged is there.
        m.sh("grep -q '^<<<<<<<' \"$D/events.json\"");
        assert!(m.text(ids::D, "events.json").contains("Our question"));
        assert_eq!(m.says(ids::C, "title"), "Fourth thoughts");
        let drafts = m.status("drafts");
        assert!(drafts.len() == 1 && drafts[0]["file"] == "events.json" && drafts[0]["line"].is_u64(), "{drafts:#?}");
        git(m, "merge --abort");
        assert_eq!(m.store(), before);
        clean(m);
        assert_eq!(m.status("drafts"), [] as [Value; 0]);

        m.script("cd \"$P\" && git merge --quiet theirs").fails_with(1);
        m.sh("sed -i '/^<<<<<<</d; /^=======/,/^>>>>>>>/d' \"$D/events.json\"");
        assert_eq!(m.status("drafts"), [] as [Value; 0], "a resolution is a save");
        commit(m, "merged");
        assert!(m.text(ids::D, "events.json").contains("Our question"));
        m.check_store();
    });
}

/// The hook asks for an export before each commit. Under a mount there is nothing to write, and git sees what the store has.
#[test]
fn the_hook() {
    everyone(|m| {
        git(m, "init --quiet");
        m.jp(&["hooks", "install"]).ok();
        commit(m, "one");
        m.jp(&["c", "edit", &ids::D.to_string(), "--title", "Other plans"]).ok();
        // Git does not count what a hook stages when it asks whether there is anything to commit.
        let told = m.script("cd \"$P\" && echo 1 > code && git add code && git commit --quiet --message=two").ok();
        assert_eq!(told.stderr, "");
        clean(m);
        let files = git(m, "ls-tree -r --name-only HEAD -- .jp/conversations");
        let path = files.lines().find(|path| path.ends_with("-other-plans/metadata.json"));
        let path = path.unwrap_or_else(|| panic!("the commit follows the new title: {files}"));
        assert_eq!(git(m, &format!("show HEAD:{path}")), m.text(ids::D, "metadata.json"));
        m.check_store();
    });
}
