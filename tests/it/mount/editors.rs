//! Editors, each with its own dance of swap files, backups, probes and locks. The saved text is in the store; the dance
//! is not.

use jp_tests::{Mounted, ids};

use super::{everyone_with, lines};

/// Runs an editor that replaces one word of a title, and looks at what is left of it.
#[track_caller]
fn check(m: &Mounted, word: &str, script: &str) {
    let before = m.text(ids::D, "metadata.json");
    let old = before.split('"').nth(3).and_then(|title| title.split(' ').next()).expect("a title").to_owned();
    m.sh(&script.replace("OLD", &old).replace("NEW", word));
    assert_eq!(m.text(ids::D, "metadata.json"), before.replacen(&old, word, 1), "{script}");
    let canonical = format!("17528862001-{}-plans", word.to_lowercase());
    assert!(m.sh("ls").stdout.lines().any(|name| name == canonical), "the name follows the title");
    m.sh("cmp \"$D/metadata.json\" \"$U/conversations/17528862001-\"*/metadata.json");
    let stored = m.script("ls -A \"$U/conversations/17528862001-\"*").ok().stdout;
    assert_eq!(lines(&stored), ["base_config.json", "events.json", "metadata.json"]);
    assert_eq!(m.status("drafts"), [] as [serde_json::Value; 0]);
}

#[test]
fn vim() {
    everyone_with(&["vim"], &[], |m| {
        let vim = |settings: &str, more: &str| {
            format!(
                "vim -es -u NONE -i NONE -N -c 'set updatecount=1 swapfile directory=. backupskip= {settings}' \
                 -c \"e $D/metadata.json\" -c '%s/OLD/NEW/' {more} -c 'wq!'; test ! -e \"$D/.metadata.json.swp\""
            )
        };
        check(m, "Copied", &vim("backupcopy=yes", ""));
        check(m, "Renamed", &vim("backupcopy=no", ""));
        check(m, "Automatic", &vim("backupcopy=auto nofsync", ""));
        // A backup that is kept is the editor's; a swap file is there while the editor is.
        check(m, "Kept", &vim("backup backupcopy=no", "-c 'preserve' -c '!ls -A 17528862001/ > $T/seen'"));
        let seen = m.sh("cat \"$T/seen\"").stdout;
        assert!(seen.contains(".metadata.json.swp"), "{seen}");
        let shown = m.sh("ls -A \"$D/\"; grep title \"$D/metadata.json~\"").stdout;
        assert!(shown.contains("metadata.json~\n") && shown.contains("Automatic plans"), "{shown}");
        m.check_store();
    });
}

/// Types at a program as a person does: each key once the screen says what it waits for.
const TYPIST: &str = r#"
import os, pty, select, sys
keys = [(b"Weekend", b"\x1c"), (b"Search", b"Weekend\r"), (b"Replace with", b"Nano\r"), (b"instance", b"A"),
        (b"Replaced", b"\x0f"), (b"File Name", b"\r"), (b"Wrote", b"\x18")]
pid, fd = pty.fork()
if pid == 0:
    os.execvp("nano", ["nano", "--ignorercfiles", "-G", sys.argv[1]])
seen = b""
while True:
    if not select.select([fd], [], [], 20)[0]:
        sys.exit("nano waits: " + repr(seen[-2000:]))
    try:
        seen += os.read(fd, 4096)
    except OSError:
        break
    if keys and keys[0][0] in seen:
        os.write(fd, keys.pop(0)[1])
        seen = b""
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn nano() {
    everyone_with(&["nano", "python3"], &[], |m| {
        super::put(m, "typist.py", TYPIST);
        check(m, "Nano", "python3 \"$T/typist.py\" \"$D/metadata.json\"; ls -A \"$D\"");
        m.check_store();
    });
}

#[test]
fn emacs() {
    everyone_with(&["emacs"], &[], |m| {
        let emacs = |settings: &str| {
            format!(
                "emacs -Q --batch --eval '(progn {settings} (find-file (getenv \"FILE\")) (search-forward \"OLD\") \
                 (replace-match \"NEW\" t) (save-buffer))' 2> \"$T/told\" || {{ cat \"$T/told\"; exit 1; }}"
            )
        };
        let with = |script: String| format!("export FILE=\"$D/metadata.json\"; {script}");
        check(m, "Emacs", &with(emacs("")));
        let shown = m.sh("ls -A \"$D/\"; grep title \"$D/metadata.json~\"").stdout;
        assert!(shown.contains("Weekend plans"), "the first save leaves a backup: {shown}");
        check(m, "Copied", &with(emacs("(setq backup-by-copying t)")));
        check(m, "Precious", &with(emacs("(setq file-precious-flag t)")));
        m.check_store();
    });
}

/// What programs that were not run here are known to do.
#[test]
fn dances() {
    everyone_with(&["jq"], &[], |m| {
        let edit = "sed 's/OLD/NEW/' \"$D/metadata.json\"";
        check(
            m,
            "Jet",
            "cd \"$D\"; sed 's/OLD/NEW/' metadata.json > metadata.json___jb_tmp___
                 mv metadata.json metadata.json___jb_old___; mv metadata.json___jb_tmp___ metadata.json
                 rm metadata.json___jb_old___",
        );
        check(
            m,
            "Glib",
            &format!("{edit} > \"$D/.goutputstream-X1Y2Z3\"; mv \"$D/.goutputstream-X1Y2Z3\" \"$D/metadata.json\""),
        );
        // An open file is renamed over the name it replaces, and written to afterwards.
        check(
            m,
            "Open",
            "python3 -c 'import os, sys
name = sys.argv[1]
text = open(name).read().replace(\"OLD\", \"NEW\")
with open(name + \".tmp\", \"w\") as file:
    file.write(text[:20]); file.flush()
    os.rename(name + \".tmp\", name)
    file.write(text[20:])' \"$D/metadata.json\"",
        );
        check(
            m,
            "Mapped",
            "python3 -c 'import mmap, os, sys
name = sys.argv[1]
text = open(name).read().replace(\"OLD\", \"NEW\").encode()
with open(name, \"r+b\") as file:
    os.ftruncate(file.fileno(), len(text))
    with mmap.mmap(file.fileno(), len(text)) as view:
        view[:] = text
        view.flush()
    os.fsync(file.fileno())' \"$D/metadata.json\"",
        );
        m.check_store();
    });
}
