//! Tables of what metadata may say, and what writing it back leaves alone.

use super::*;

const NOW: &str = "2025-07-19 00:00:05.1";

fn meta(json: &str) -> Meta {
    Meta::parse(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn at(text: &str) -> Timestamp {
    time::parse(text).expect("a date")
}

fn id(deciseconds: u64) -> ConversationId {
    ConversationId::new(deciseconds).expect("in range")
}

/// A valid file with these further members.
fn with(members: &str) -> String {
    format!("{{\"last_activated_at\":\"{NOW}\"{}{members}}}", if members.is_empty() { "" } else { "," })
}

#[test]
fn reads_what_is_there() {
    let meta = meta(
        r#"{"title":"T","last_activated_at":"2025-07-19 00:00:05.1","pinned_at":"2026-01-01T01:00:00+01:00",
            "archived_at":null,"labels":{"b":"2","a":""},"origin":"main","local":true}"#,
    );
    assert_eq!(meta.title(), Some("T"));
    assert_eq!(meta.last_activated_at(), at(NOW));
    assert_eq!(meta.pinned_at(), Some(at("2026-01-01 00:00:00")));
    assert_eq!((meta.archived_at(), meta.expires_at()), (None, None));
    assert_eq!(meta.labels().collect::<Vec<_>>(), [("b", "2"), ("a", "")]);
    assert_eq!(meta.origin(), Some("main"));
    assert_eq!(meta.fields().get("local"), Some(&Value::Bool(true)));
}

#[test]
fn refuses_what_cannot_be() {
    fn check(json: &str, expected: &str) {
        let shown = Meta::parse(json.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(shown.err().as_deref(), Some(expected), "{json}");
    }
    let date = "must be a date such as \"2025-07-19 00:00:05.1\"";
    check("{}", "line 1, column 1: `last_activated_at` is missing");
    check(r#"{"last_activated_at":null}"#, &format!("line 1, column 22: `last_activated_at` {date}"));
    check("{\n  \"last_activated_at\": 5\n}", &format!("line 2, column 24: `last_activated_at` {date}"));
    check(&with(r#""title":5"#), "line 1, column 54: `title` must be a string");
    check(&with(r#""pinned_at":"soon""#), &format!("line 1, column 58: `pinned_at` {date}"));
    check(&with(r#""archived_at":1"#), &format!("line 1, column 60: `archived_at` {date}"));
    check(&with(r#""expires_at":"2025-02-30 00:00:00""#), &format!("line 1, column 59: `expires_at` {date}"));
    check(&with(r#""labels":null"#), "line 1, column 55: `labels` must be an object of strings");
    check(&with(r#""labels":{"a":1}"#), "line 1, column 55: `labels` must be an object of strings");
    check("[]", "line 1, column 1: invalid type: sequence, expected an object");
    check(&with(r#""title":"a","title":"b""#), "line 1, column 64: the key `title` occurs twice");
    check("{\n<<<<<<< a\n", "line 2, column 1: unresolved merge conflict marker");
}

#[test]
fn parents() {
    fn check(members: &str, expected: Parent) {
        assert_eq!(meta(&with(members)).parent(), expected, "{members}");
    }
    check("", Parent::Absent);
    check(r#""parent_id":null"#, Parent::Root);
    check(r#""parent_id":17528832001"#, Parent::Of(id(17_528_832_001)));
    check(r#""parent_id":"17528832001""#, Parent::Of(id(17_528_832_001)));
    check(r#""parent_id":"jp-c17528832001""#, Parent::Of(id(17_528_832_001)));
    check(r#""parent_id":"jp-c17528832001-otvo8""#, Parent::Of(id(17_528_832_001)));
    for garbage in ["-1", "1.5", "92233720369", "\"x\"", "\"\"", "true", "[1]", "{\"a\":1}"] {
        check(&format!("\"parent_id\":{garbage}"), Parent::Garbage(garbage.to_owned()));
    }
}

/// Changes a file and compares the result as compact JSON.
fn check(json: &str, change: impl FnOnce(&mut Meta), expected: &str) {
    let mut changed = meta(json);
    change(&mut changed);
    assert_eq!(Value::Object(changed.fields().clone()).to_string(), expected);
    assert_eq!(Meta::parse(&changed.to_bytes()), Ok(changed));
}

#[test]
fn new_keys_find_their_place() {
    let all = |meta: &mut Meta| {
        meta.set_origin("main");
        meta.set_parent(Parent::Of(id(7)));
        meta.set_label("k", "v");
        meta.set_expires_at(Some(at(NOW)));
        meta.set_archived_at(Some(at(NOW)));
        meta.set_pinned_at(Some(at(NOW)));
        meta.set_title(Some("T"));
    };
    let date = format!("\"{NOW}\"");
    check(
        &with(""),
        all,
        &format!(
            r#"{{"title":"T","last_activated_at":{date},"pinned_at":{date},"archived_at":{date},"expires_at":{date},"labels":{{"k":"v"}},"parent_id":7,"origin":"main"}}"#
        ),
    );
    check(
        &format!(r#"{{"x":1.10,"last_activated_at":{date},"y":2,"labels":{{}},"z":1e+400}}"#),
        all,
        &format!(
            r#"{{"x":1.10,"title":"T","last_activated_at":{date},"pinned_at":{date},"archived_at":{date},"expires_at":{date},"y":2,"labels":{{"k":"v"}},"parent_id":7,"origin":"main","z":1e+400}}"#
        ),
    );
    let mut fresh = Meta::new(at(NOW));
    fresh.set_title(Some("T"));
    assert_eq!(
        String::from_utf8_lossy(&fresh.to_bytes()),
        format!("{{\n  \"title\": \"T\",\n  \"last_activated_at\": {date}\n}}\n")
    );
}

#[test]
fn present_keys_stay_where_they_are() {
    let file =
        r#"{"origin":"a","x":1,"title":"T","last_activated_at":"2020-01-01T00:00:00Z","parent_id":"jp-c5","y":2}"#;
    check(
        file,
        |meta| {
            meta.set_title(Some("U"));
            meta.set_last_activated_at(at(NOW));
            meta.set_parent(Parent::Root);
            meta.set_origin("b");
        },
        r#"{"origin":"a","x":1,"title":"U","last_activated_at":"2025-07-19 00:00:05.1","parent_id":null,"y":2}"#,
    );
    check(
        file,
        |meta| {
            meta.set_title(None);
            meta.set_parent(Parent::Absent);
            meta.set_pinned_at(None);
        },
        r#"{"origin":"a","x":1,"last_activated_at":"2020-01-01T00:00:00Z","y":2}"#,
    );
    check(file, |meta| meta.set_parent(Parent::Garbage("x".to_owned())), file);
}

#[test]
fn labels_are_sorted_and_never_empty() {
    let one = with(r#""labels":{"m":"1"},"x":0"#);
    let labels = |labels: &str| with(&format!("\"labels\":{labels},\"x\":0"));
    check(
        &one,
        |meta| {
            meta.set_label("z", "");
            meta.set_label("a", "é");
            meta.set_label("m", "2");
        },
        &labels(r#"{"a":"é","m":"2","z":""}"#),
    );
    check(&one, |meta| assert!(!meta.remove_label("q")), &labels(r#"{"m":"1"}"#));
    check(&one, |meta| assert!(meta.remove_label("m")), &with("\"x\":0"));
    check(&one, Meta::clear_labels, &with("\"x\":0"));
    check(&with("\"x\":0"), |meta| assert!(!meta.remove_label("q")), &with("\"x\":0"));
}

#[test]
fn label_keys() {
    for good in ["a", "Z", "branch", "a-b_c9"] {
        assert!(valid_label_key(good), "{good:?}");
    }
    for bad in ["", "9a", "-a", "_a", "a b", "a.b", "é", "aé", "a="] {
        assert!(!valid_label_key(bad), "{bad:?}");
    }
}
