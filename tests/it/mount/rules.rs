//! What names mean, what is refused and with which error, and what the options change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use jp_tests::{Mounted, Sample, TestEnv, User, ids, mtime};
use serde_json::Value;

use super::{everyone, everyone_with, lines, put, said};

/// Runs a line of Python in the mount that must fail with this error.
#[track_caller]
fn refused(m: &Mounted, errno: &str, line: &str) {
    let script = format!(
        "python3 -c 'import errno, os, sys
A, B, C, D, L, O = (os.environ[name] for name in \"ABCDLO\")
try:
    {line}
except OSError as err:
    assert err.errno == errno.{errno}, err
else:
    sys.exit(\"it was allowed\")'"
    );
    m.sh(&script);
}

#[test]
fn an_id_and_former_names_are_links() {
    everyone(|m| {
        let target = |path: &str| m.sh(&format!("readlink {path}")).stdout.trim_end().to_owned();
        assert_eq!(target("17528832001"), "17528832001-refactor-error-handling");
        assert_eq!(target("jp-c17528832001"), "17528832001-refactor-error-handling");
        assert_eq!(target("17528832001/conversations/17528842001"), "17528842001-alternative-approach");
        m.sh("cmp 17528832001/conversations/jp-c17528842001/conversations/17528852001/events.json \"$C/events.json\"");
        m.sh("test ! -e 17528872001; test ! -e 17599999999; test ! -e jp-c1");

        m.sh("sed -i 's/Alternative approach/Second way/' \"$B/metadata.json\"");
        assert_eq!(target("\"$B\""), "17528842001-second-way");
        m.sh("cat \"$C/events.json\" > /dev/null");
        m.sh("sed -i 's/Second way/Third way/' \"$B/metadata.json\"");
        assert_eq!(target("\"$B\""), "17528842001-third-way");
        assert_eq!(target("\"$A/conversations/17528842001-second-way\""), "17528842001-third-way");
        assert_eq!(lines(&m.sh("ls \"$A/conversations\"").stdout), ["17528842001-third-way"]);
        m.check_store();
    });
}

#[test]
fn links_and_devices_are_refused() {
    everyone_with(&["python3"], &[], |m| {
        m.sh("echo note > \"$D/notes.md\"");
        let before = m.store();
        refused(m, "EPERM", "os.link(D + \"/metadata.json\", D + \"/other.json\")");
        refused(m, "EPERM", "os.mkfifo(D + \"/pipe\")");
        refused(m, "EPERM", "os.link(D + \"/notes.md\", A + \"/notes.md\")");
        assert_eq!(m.store(), before);
    });
}

#[test]
fn directories_that_may_be_made() {
    everyone_with(&["python3"], &[], |m| {
        let before = m.store();
        for name in ["foo", "17x-foo", "-17", ".hidden"] {
            refused(m, "EPERM", &format!("os.mkdir(\"{name}\")"));
            refused(m, "EPERM", &format!("os.mkdir(A + \"/conversations/{name}\")"));
        }
        // A file among conversations is nobody's: refused, or whoever made it has it for a while.
        m.sh("for x in notes.md .DS_Store \"$A/conversations/notes.md\"; do
                  if echo mine > \"$x\"; then test \"$(cat \"$x\")\" = mine; rm \"$x\"; test ! -e \"$x\"; fi
              done 2> /dev/null");
        refused(m, "EEXIST", "os.mkdir(D)");
        m.sh("mkdir \"$A/foo\"; rmdir \"$A/foo\"");
        assert_eq!(m.store(), before);

        // A known one that was here is shown, contents and all, by its own name whatever words it was called by.
        m.jp(&["c", "unhide", &format!("jp-c{}", ids::L)]).ok();
        m.sh("rm -r \"$L\"");
        m.sh("mkdir 17528872001-some-words; cat \"$L/metadata.json\" \"$L/events.json\" > /dev/null");
        assert_eq!(lines(&m.sh("ls").stdout)[2], "17528872001-secret-plans");
        assert_eq!(m.sh("readlink 17528872001").stdout.trim(), "17528872001-secret-plans");
        assert_eq!(m.says(ids::L, "presence"), "projected");
        assert_eq!(m.store(), before);

        // An unknown one waits until it is whole.
        let new = Sample::new(17_700_000_001).title("New one").events(6);
        new.write_below(&m.workspace().env().root().join("tmp"));
        m.give();
        m.sh("mkdir 17700000001-new-one; cp \"$T/17700000001-new-one/metadata.json\" 17700000001-new-one/");
        assert_eq!(m.listed(17_700_000_001), None, "half a conversation is none");
        assert_eq!(m.store(), before);
        m.sh("cmp 17700000001-new-one/metadata.json \"$T/17700000001-new-one/metadata.json\"; sync 17700000001-new-one/metadata.json");
        m.crash();
        m.begin(&[]);
        m.sh("cp \"$T/17700000001-new-one/events.json\" 17700000001-new-one/; ls 17700000001-new-one");
        for (name, bytes) in new.contents().iter().filter(|(name, _)| name != "base_config.json") {
            assert_eq!(m.text(17_700_000_001, name).as_bytes(), bytes, "{name}");
        }
        assert_eq!(m.says(17_700_000_001, "presence"), "projected");
        m.sh("cp \"$T/17700000001-new-one/base_config.json\" 17700000001-new-one/");
        m.check_store();
    });
}

#[test]
fn renamed_back() {
    everyone_with(&["python3"], &[], |m| {
        m.sh("mv -T \"$D\" '17528862001-new words'");
        refused(m, "ENOTDIR", "os.rename(\"17528862001-new-words\", D)");
        m.sh("test -L \"$D\" && mv -T 17528862001-new-words \"$D\" && test -d \"$D\" && test ! -L \"$D\"");
        assert_eq!(m.value(ids::D, "metadata.json")["title"], "Weekend plans");
        m.check_store();
    });
}

#[test]
fn moves_that_are_refused() {
    everyone_with(&["python3"], &[], |m| {
        let before = m.store();
        refused(m, "EPERM", "os.rename(D, \"17528862002-other-id\")");
        refused(m, "EPERM", "os.rename(D, \"no-id\")");
        refused(m, "EPERM", "os.rename(D, A + \"/\" + D)");
        refused(m, "EPERM", "os.rename(D, A + \"/conversations/no-id\")");
        refused(m, "EPERM", "os.rename(A + \"/conversations\", D + \"/conversations\")");
        refused(m, "EINVAL", "os.rename(A, B + \"/conversations/\" + A)");
        refused(m, "ENOTEMPTY", "os.rmdir(A)");
        refused(m, "ENOENT", "os.rename(\"17599999999\", D)");
        assert_eq!(m.store(), before);
        assert_eq!(m.sh("find . -type f | wc -l").stdout.trim(), "15");
        m.check_store();
    });
}

/// `renameat2` with flags, which no shell program offers everywhere.
const RENAMEAT2: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def rename(old, new, flags):
    if libc.renameat2(-100, old.encode(), -100, new.encode(), flags) == 0:
        return 0
    return ctypes.get_errno()
NOREPLACE, EXCHANGE = 1, 2
os.chdir(os.environ["D"])
read = lambda name: open(name).read()
with open("x.tmp", "w") as file:
    file.write(read(os.environ["T"] + "/new.json"))
old = read("events.json")
assert rename("x.tmp", "events.json", NOREPLACE) == errno.EEXIST
assert read("events.json") == old
assert rename("x.tmp", "y.tmp", NOREPLACE) == 0
assert not os.path.exists("x.tmp")
with open("one.md", "w") as file: file.write("one")
with open("two.md", "w") as file: file.write("two")
assert rename("one.md", "two.md", NOREPLACE) == errno.EEXIST
def exchange(one, two):
    before = read(one), read(two)
    failed = rename(one, two, EXCHANGE)
    assert failed in (0, errno.EINVAL), os.strerror(failed)
    after = read(one), read(two)
    assert after == (before if failed else before[::-1]), after
    return failed == 0
exchange("one.md", "two.md")
if not exchange("y.tmp", "events.json"):
    os.rename("y.tmp", "events.json")
"#;

#[test]
fn renaming_with_flags() {
    everyone_with(&["python3"], &[], |m| {
        put(m, "new.json", &said("renamed with flags", 200));
        put(m, "flags.py", RENAMEAT2);
        m.sh("python3 \"$T/flags.py\"");
        assert_eq!(m.text(ids::D, "events.json"), said("renamed with flags", 200));
        let shown = m.sh("cat \"$D/one.md\"; echo; cat \"$D/two.md\"").stdout;
        assert_eq!(lines(&shown), ["one", "two"]);
        assert_eq!(format!("{}\n{}", m.text(ids::D, "one.md"), m.text(ids::D, "two.md")), shown);
        m.check_store();
    });
}

#[test]
fn modes_times_and_owners() {
    everyone_with(&["python3"], &[], |m| {
        m.sh("chmod 600 \"$D/events.json\"; test $(stat -c %a \"$D/events.json\") = 600
              touch -d '2020-02-02 02:02:02.5 UTC' \"$D/events.json\"; test $(stat -c %Y \"$D/events.json\") = 1580608922
              chown $(id -u):$(id -g) \"$D/events.json\"");
        let file = m.stored(ids::D).join("events.json");
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!((mode & 0o777, mtime(&file)), (0o600, 1_580_608_922_500_000_000));
        refused(m, "EPERM", "os.chown(D + \"/events.json\", 1, 1)");
        m.sh("test $(stat -c %u \"$D/events.json\") = $(id -u)");
        // Setuid, setgid and sticky bits cannot be set, and new files and directories come without them.
        for mode in ["0o4600", "0o2600", "0o1600"] {
            refused(m, "EPERM", &format!("os.chmod(D + \"/events.json\", {mode})"));
        }
        m.sh("cd \"$D\"; python3 -c 'import os; os.umask(0); os.open(\"odd\", os.O_CREAT | os.O_WRONLY, 0o6751); os.mkdir(\"deep\", 0o3751)'
              test $(stat -c %a odd) = 751; test $(stat -c %a deep) = 751");
        for name in ["odd", "deep"] {
            let mode = std::fs::metadata(m.stored(ids::D).join(name)).expect("there").permissions().mode();
            assert_eq!(mode & 0o7777, 0o751, "{name}");
        }
        // A save keeps the mode that was asked for.
        put(m, "new.json", &said("private", 10));
        m.sh("cat \"$T/new.json\" > \"$D/events.json\"; test $(stat -c %a \"$D/events.json\") = 600");
        m.check_store();
    });
}

#[test]
fn the_free_space_is_that_of_the_store() {
    everyone(|m| {
        let space = |path: &str| m.sh(&format!("stat -f -c '%S %b %c' {path}")).stdout;
        assert_eq!(space("."), space("\"$U/conversations\""));
        assert_eq!(space("\"$C/events.json\""), space("\"$U/conversations\""));
        m.sh("df . > /dev/null");
    });
}

#[test]
fn attributes_when_asked_for() {
    everyone_with(&["getfattr", "setfattr"], &["--xattrs"], |m| {
        let read = |name: &str, path: &str| {
            m.sh(&format!("getfattr --only-values -n user.jp.{name} \"{path}\"")).stdout.trim().to_owned()
        };
        assert!(read("id", "$B").ends_with("17528842001"));
        assert_eq!(read("title", "$B"), "Alternative approach");
        assert!(read("parent", "$B").ends_with("17528832001"));
        assert_eq!(read("presence", "$B"), "projected");
        let listed = m.sh("getfattr \"$B\"").stdout;
        assert!(listed.contains("user.jp.id") && listed.contains("user.jp.title"), "{listed}");
        for set in ["user.jp.title", "user.other"] {
            assert_ne!(m.try_sh(&format!("setfattr -n {set} -v x \"$B\"")).code, 0, "{set}");
        }
        assert_eq!(read("title", "$B"), "Alternative approach");
        m.end(&[]);
        m.begin(&[]);
        assert_ne!(m.try_sh("getfattr --only-values -n user.jp.id \"$B\"").code, 0, "off by default");
    });
}

#[test]
fn read_only() {
    everyone_with(&["python3"], &["--read-only"], |m| {
        let before = m.store();
        m.sh("find . -type f | xargs cat > /dev/null; test -f \"$C/events.json\"");
        for line in [
            "open(D + \"/metadata.json\", \"w\")",
            "open(D + \"/notes.md\", \"w\")",
            "os.mkdir(L)",
            "os.unlink(D + \"/events.json\")",
            "os.rename(D, A + \"/conversations/\" + D)",
            "os.truncate(D + \"/events.json\", 0)",
            "os.chmod(D + \"/events.json\", 0o600)",
        ] {
            refused(m, "EROFS", line);
        }
        assert_ne!(m.try_sh("rm -rf \"$A\"").code, 0);
        assert_eq!(m.store(), before);
        assert_eq!(m.says(ids::D, "presence"), "projected");
        // What happens beside it is seen all the same.
        m.jp(&["c", "edit", &format!("jp-c{}", ids::D), "--title", "Beside"]).ok();
        m.sh("test -d 17528862001-beside");
        m.check_store();
    });
}

#[test]
fn everything_when_asked_for() {
    everyone_with(&[], &["--all"], |m| {
        assert_eq!(lines(&m.sh("ls").stdout).len(), 3);
        m.sh("cmp \"$L/events.json\" \"$U/conversations/$L/events.json\"");
        put(m, "new.json", &said("all of it", 50));
        m.sh("cat \"$T/new.json\" > \"$L/events.json\"");
        assert_eq!(m.text(ids::L, "events.json"), said("all of it", 50));
        m.end(&[]);
        m.begin(&[]);
        m.sh("test ! -e \"$L\"");
        assert_eq!(m.says(ids::L, "presence"), "local", "to be seen is not to be shown");
        m.check_store();
    });
}

#[test]
fn others_may_look_when_asked_to() {
    let Some(m) = Mounted::new(User::Own, &["--allow-other"]) else { return };
    if !nix::unistd::geteuid().is_root() {
        jp_tests::skip("whoever has no rights may not let others look");
        return;
    }
    // Everything above the mount lets others through; in it the modes decide.
    let root = m.workspace().env().root();
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).expect("changed");
    let mut command = m.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "stat", "-c", "%i"]).arg(m.point());
    let seen = m.run(command).ok();
    assert_eq!(seen.stdout, m.sh("stat -c %i .").stdout);
    assert_eq!(m.status("drafts"), [] as [Value; 0]);
    // A new conversation is its owner's alone, until it is opened with chmod.
    let id = m.jp(&["c", "new", "--title", "Shared"]).line().trim_start_matches("jp-c").to_owned();
    let other = |script: &str| {
        let mut command = m.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, "sh"]).arg(m.point());
        m.run(command)
    };
    let read = format!("cat \"$1\"/{id}*/events.json");
    assert!(other("ls \"$1\"").ok().stdout.contains(&id), "the names can be seen");
    assert_ne!(other(&read).code, 0, "the conversation is private");
    m.sh(&format!("chmod 755 {id}-shared; chmod 644 {id}-shared/events.json"));
    other(&read).ok();
    m.jp(&["doctor"]).ok();
}

#[test]
fn names_that_are_no_text() {
    everyone(|m| {
        m.sh("printf kept > \"$D/$(printf 'odd\\377')\"; mkdir \"$D/$(printf 'dir\\377')\"; printf too > \"$D/$(printf 'dir\\377/inside')\"
              test \"$(cat \"$D\"/odd*)\" = kept; rm -r \"$D\"; test ! -e \"$D\"");
        assert_eq!(m.says(ids::D, "presence"), "local");
        assert_eq!(m.status("conflicts").len(), 0, "they are hidden like any other");
        let kept =
            m.script(&format!("cat \"$U/conversations/{}\"-*/*/inside \"$U/conversations/{}\"-*/odd*", ids::D, ids::D));
        assert_eq!(kept.ok().stdout, "tookept");
    });
}

/// Whoever has the id of a private conversation neither shows nor replaces it, whatever the program. A command does.
#[test]
fn no_program_shows_what_is_private() {
    everyone(|m| {
        let id = m.script("jp c new --local --title Private").ok().stdout.trim().to_owned();
        let name = format!("{}-guessed", id.trim_start_matches("jp-c"));
        m.script("cp \"$(command -v mkdir)\" \"$T/git\"").ok();
        for program in ["\"$T/git\"", "mkdir", "cp -r \"$M/$D\""] {
            let told = m.script(&format!("{program} \"$M/{name}\""));
            assert!(told.code != 0 && told.stderr.contains("not permitted"), "{}", told.told());
            assert!(!m.script("ls \"$M\"").ok().stdout.contains("private"));
        }
        m.jp(&["c", "unhide", &id]).ok();
        m.sh(&format!("test -d {}-private", id.trim_start_matches("jp-c")));
    });
}

/// A managed file that is a link in the store is not shown and cannot be saved to: a program would follow it.
#[test]
fn a_link_in_the_place_of_a_managed_file_is_not_shown() {
    let Some(m) = Mounted::not_yet(User::Own, TestEnv::in_memory) else { return };
    let outside = m.workspace().root().join("outside");
    fs::write(&outside, "[]\n").expect("written");
    let stored = m.stored(ids::D).join("events.json");
    fs::remove_file(&stored).expect("removed");
    std::os::unix::fs::symlink(&outside, &stored).expect("planted");
    m.begin(&[]);
    m.sh("test ! -e \"$D/events.json\" && test ! -L \"$D/events.json\" && ! ls \"$D\" | grep events");
    m.sh("! printf '[]\\n\\n' 2> /dev/null > \"$D/events.json\"");
    assert_eq!(fs::read_to_string(&outside).expect("there"), "[]\n", "nothing outside is touched");
    assert!(stored.is_symlink(), "it stays for the user to see to");
    m.jp(&["unmount"]).fails_with(1).says("events.json");
}
