//! Which conversation a terminal is on, and how long that is remembered.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use jp_tests::{Call, Output, Running, Workspace, jp_binary, wait_for};
use serde_json::Value;

use crate::story::{digits, in_store, jp, json, new, number, workspace};

fn sessions(main: &Workspace) -> Vec<String> {
    let entries = fs::read_dir(main.silo().join("sessions")).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn file(main: &Workspace, name: &str) -> PathBuf {
    main.silo().join("sessions").join(name)
}

/// A shell that leads a session of its own, with no variable to name it. `$jp` is the command.
fn shell(main: &Workspace, script: &str) -> std::process::Command {
    let mut command = main.env().command(OsStr::new("setsid"), main.root());
    command.env_remove("JP_SESSION").env("jp", jp_binary()).args(["-w", "sh", "-c", script]);
    command
}

fn named(main: &Workspace, session: &str, args: &[&str]) -> Call {
    main.call(args).var("JP_SESSION", session)
}

#[test]
fn the_file_is_the_real_tools() {
    let main = workspace();
    let [a, b] = ["A", "B"].map(|title| new(&main, title, &[]));
    for id in [&a, &b] {
        named(&main, "1234", &["c", "use", id]).run().ok();
    }
    let path = file(&main, "env-JP_SESSION-03ac674216f3e15c.json");
    let text = fs::read_to_string(&path).expect("the file is named by the value's hash");
    let at = |step: usize| json(&path)["history"][step]["activated_at"].as_str().expect("a time").to_owned();
    let expected = format!(
        r#"{{
  "history": [
    {{
      "id": {},
      "activated_at": "{}"
    }},
    {{
      "id": {},
      "activated_at": "{}"
    }}
  ],
  "id": "1234",
  "source": {{
    "type": "env",
    "key": "JP_SESSION"
  }}
}}
"#,
        digits(&b),
        at(0),
        digits(&a),
        at(1)
    );
    assert_eq!(text, expected);
    assert!(at(0).ends_with('Z') && at(0).as_bytes()[10] == b'T' && at(0) > at(1), "{text}");
}

#[test]
fn identity() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let script = format!("echo $$; exec \"$jp\" c use {id}");
    // The session leader comes before what terminals set.
    let mut command = shell(&main, &script);
    command.env("TMUX_PANE", "%3");
    let leader = Output::of(command, b"").ok().stdout.trim().to_owned();
    let name = format!("getsid-{leader}.json");
    assert_eq!(sessions(&main), [name.as_str()]);
    let stored = json(&file(&main, &name));
    assert_eq!((&stored["id"], &stored["source"]), (&Value::from(leader), &serde_json::json!({ "type": "getsid" })));
    // A name given by hand comes before all.
    let mut command = shell(&main, &script);
    command.env("JP_SESSION", "1234").env("TMUX_PANE", "%3");
    Output::of(command, b"").ok();
    assert_eq!(sessions(&main), ["env-JP_SESSION-03ac674216f3e15c.json"], "and the dead leader's file is gone");
}

#[test]
fn turning_to_and_fro() {
    let main = workspace();
    let [a, b, c] = ["A", "B", "C"].map(|title| new(&main, title, &[]));
    let show = |session: &str| {
        let shown = named(&main, session, &["session", "show", "--json"]).run().json();
        (shown["active"].clone(), shown["previous"].clone())
    };
    let pair = |a: &str, b: &str| (Value::from(a), Value::from(b));
    main.jp(&["c", "use"]).fails_with(1).says("no previous one");
    jp(&main, &["c", "use", &a]);
    jp(&main, &["c", "use", &b]);
    assert_eq!(show("test"), pair(&b, &a));
    jp(&main, &["c", "use"]);
    assert_eq!(show("test"), pair(&a, &b));
    jp(&main, &["c", "use", "previous"]);
    assert_eq!(show("test"), pair(&b, &a));
    named(&main, "other", &["c", "use", &c]).run().ok();
    assert_eq!(show("test"), pair(&b, &a), "every terminal has its own");
    assert_eq!(main.jp(&["c", "path"]).line(), main.jp(&["c", "path", &b]).line());
    jp(&main, &["c", "use", &c]);
    jp(&main, &["c", "rm", &b, "-y"]);
    assert_eq!(show("test"), pair(&c, &a), "what is gone is passed over");
    jp(&main, &["c", "archive", &c, "-y"]);
    assert_eq!(show("test").0, Value::Null, "what is put away is not");
}

#[test]
fn a_terminal_that_is_gone_is_forgotten() {
    let main = workspace();
    let id = new(&main, "A", &[]);
    let live = Running::start(shell(&main, &format!("\"$jp\" c use {id}; cat")));
    wait_for("the session's file", Duration::from_secs(20), || sessions(&main).len() == 1);
    let name = sessions(&main).remove(0);
    assert!(name.starts_with("getsid-"), "{name}");
    // One that ends at once.
    Output::of(shell(&main, &format!("\"$jp\" c use {id}")), b"").ok();
    assert_eq!(sessions(&main).len(), 2);
    main.jp(&["c", "ls"]).ok();
    assert_eq!(sessions(&main).len(), 2, "reading removes nothing");
    jp(&main, &["c", "edit", &id, "--pin"]);
    assert_eq!(sessions(&main), [name.as_str()], "the dead one's is gone, the live one's is not");
    live.finish().ok();
    jp(&main, &["c", "edit", &id, "--pin=false"]);
    assert_eq!(sessions(&main), [""; 0]);
}

#[test]
fn a_named_session_lasts_as_long_as_its_conversations() {
    let main = workspace();
    let [a, b] = ["A", "B"].map(|title| new(&main, title, &[]));
    jp(&main, &["c", "use", &a]);
    jp(&main, &["c", "use", &b]);
    jp(&main, &["c", "rm", &b, "-y"]);
    assert_eq!(sessions(&main).len(), 1);
    let history = json(&file(&main, &sessions(&main)[0]))["history"].clone();
    assert_eq!(history.as_array().map(Vec::len), Some(1), "what is gone is pruned");
    assert_eq!(history[0]["id"], number(&a));
    jp(&main, &["c", "archive", &a, "-y"]);
    let other = new(&main, "C", &[]);
    assert_eq!(sessions(&main).len(), 1, "what is put away is still there");
    jp(&main, &["c", "rm", &a, "-y"]);
    assert!(in_store(&main, &other).is_some());
    assert_eq!(sessions(&main), [""; 0]);
}

/// What one command lists, another takes from the pipe, the columns after the id and all.
#[test]
fn a_listing_can_be_piped_back() {
    let work = workspace();
    for title in ["one", "two", "three"] {
        work.jp(&["c", "new", "--title", title]).ok();
    }
    let listed = work.jp(&["c", "ls"]).ok().stdout;
    let piped = work.call(&["c", "ls", "-", "--sort", "id"]).stdin(listed.clone()).run().ok().stdout;
    assert_eq!((piped.lines().count(), listed.contains('\t')), (3, true), "{piped}");
    assert_eq!(work.call(&["c", "show", "-"]).stdin("no id\n").run().code, 2);
}
