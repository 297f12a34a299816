//! What is hidden through a mount and made again with the bytes it had is there again, also in the real files afterwards.

use jp_tests::{Mounted, TestEnv, User};

/// The sample with files of the user's own, synced, and mounted.
fn mounted() -> Option<Mounted> {
    let m = Mounted::not_yet(User::Own, TestEnv::in_memory)?;
    m.script("cd \"$M/$D\" && echo notes > notes.md && mkdir sub && echo list > sub/list.txt && ln -s notes.md link")
        .ok();
    m.jp(&["import"]).ok();
    m.jp(&["export"]).ok();
    m.jp(&["export", "--check"]).ok();
    m.begin(&[]);
    Some(m)
}

const LISTING: &str = "find . | sort; find . -type f | sort | xargs sha256sum";

/// Runs a script in the mount that hides something, and one that makes it again, and asserts that everything is as before:
/// in the mount, in the store and in the real files. Once in one mount, and once with the real files without it in between.
#[track_caller]
fn as_before(hide: &str, restore: &str) {
    for between in [false, true] {
        let Some(m) = mounted() else { return };
        let (shown, store) = (m.sh(LISTING).stdout, m.store());
        m.sh(hide);
        if between {
            m.end(&[]);
            // The stamps are taken again once they tell files apart.
            m.jp(&["export"]).ok();
            m.jp(&["export"]).ok();
            assert_ne!(m.script(&format!("cd \"$M\" && {LISTING}")).ok().stdout, shown, "{hide}");
            m.begin(&[]);
        }
        m.sh(restore);
        assert_eq!(m.sh(LISTING).stdout, shown, "in the mount: {hide}; {restore}");
        assert_eq!(m.store(), store, "in the store: {hide}; {restore}");
        m.end(&[]);
        let real = || m.script(&format!("cd \"$M\" && {LISTING}")).ok().stdout;
        assert_eq!(real(), shown, "in the real files, {between}: {hide}; {restore}");
        m.jp(&["export", "--check"]).ok();
        m.begin(&[]);
        assert_eq!(m.sh(LISTING).stdout, shown, "in the next mount: {hide}; {restore}");
        m.end(&[]);
        assert_eq!(real(), shown, "and after that: {hide}; {restore}");
        m.check_store();
    }
}

#[test]
fn managed_files() {
    for file in ["events.json", "metadata.json", "base_config.json"] {
        let hide = format!("cp -a \"$D/{file}\" \"$T/saved\"; rm \"$D/{file}\"");
        as_before(&hide, &format!("cp \"$T/saved\" \"$D/{file}\""));
        as_before(&hide, &format!("cp -a \"$T/saved\" \"$D/{file}\""));
        as_before(&hide, &format!("cp \"$T/saved\" \"$D/y.tmp\"; mv \"$D/y.tmp\" \"$D/{file}\""));
        let hide = format!("mv \"$D/{file}\" \"$D/x.tmp\"");
        as_before(&hide, &format!("mv \"$D/x.tmp\" \"$D/{file}\""));
    }
}

/// A conversation that is new in the mount is copied out without the file that is hidden by then.
#[test]
fn managed_files_that_were_never_copied_out() {
    for file in ["events.json", "metadata.json", "base_config.json"] {
        let Some(m) = mounted() else { return };
        let id = m.jp(&["c", "new", "--title", "New"]).ok().stdout;
        let dir = format!("{}-new", id.trim().trim_start_matches("jp-c"));
        m.sh(&format!("cp \"{dir}/{file}\" \"$T/saved\" && rm \"{dir}/{file}\""));
        m.end(&[]);
        m.script(&format!("cd \"$M/{dir}\" && test ! -e {file}")).ok();
        m.begin(&[]);
        m.sh(&format!("cp \"$T/saved\" \"{dir}/{file}\""));
        let shown = m.sh(LISTING).stdout;
        m.end(&[]);
        assert_eq!(m.script(&format!("cd \"$M\" && {LISTING}")).ok().stdout, shown, "{file}");
        m.jp(&["export", "--check"]).ok();
    }
}

#[test]
fn user_files() {
    for file in ["notes.md", "sub/list.txt"] {
        let hide = format!("cp -a \"$D/{file}\" \"$T/saved\"; rm \"$D/{file}\"");
        as_before(&hide, &format!("cp \"$T/saved\" \"$D/{file}\""));
        as_before(&hide, &format!("cp \"$T/saved\" \"$D/y.tmp\"; mv \"$D/y.tmp\" \"$D/{file}\""));
        as_before(&format!("mv \"$D/{file}\" \"$D/aside\""), &format!("mv \"$D/aside\" \"$D/{file}\""));
    }
    as_before("rm \"$D/link\"", "ln -s notes.md \"$D/link\"");
    as_before("cp -r \"$D/sub\" \"$T/\"; rm -r \"$D/sub\"", "cp -r \"$T/sub\" \"$D/\"");
    as_before("mv \"$D/sub\" \"$D/aside\"", "mv \"$D/aside\" \"$D/sub\"");
}

#[test]
fn whole_conversations() {
    as_before("cp -a \"$D\" \"$T/saved\"; rm -r \"$D\"", "cp -a \"$T/saved\" \"$D\"");
    as_before("cp -a \"$A\" \"$T/saved\"; rm -r \"$A\"", "cp -a \"$T/saved\" \"$A\"");
    as_before("cp -a \"$D\" \"$T/saved\"; rm -r \"$D\"", "mkdir \"$D\"; cp -a \"$T/saved/.\" \"$D/\"");
    // A file of it is hidden first, which its return must not hide again.
    let hide = "cp -a \"$D\" \"$T/saved\"; rm \"$D/base_config.json\" \"$D/notes.md\"";
    as_before(hide, "rm -r \"$D\"; cp -a \"$T/saved\" \"$D\"");
}
