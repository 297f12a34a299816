//! Mappings as values: bytes in, bytes out, and every history of up to four conversations.

use super::*;

const FILE: &str = r#"{
  "history": [
    {
      "id": 17528862001,
      "activated_at": "2026-08-20T14:03:11.212827890Z"
    },
    {
      "id": 17528832001,
      "activated_at": "2026-08-20T13:58:42.568Z"
    }
  ],
  "id": "%3",
  "source": {
    "type": "env",
    "key": "TMUX_PANE"
  }
}
"#;

fn id(number: u64) -> ConversationId {
    ConversationId::new(number).unwrap()
}

fn at(text: &str) -> Timestamp {
    time::parse(text).unwrap()
}

fn pane() -> Session {
    Session { source: Source::Env("TMUX_PANE".to_owned()), value: "%3".to_owned() }
}

fn parse(text: &str) -> Result<Mapping> {
    Mapping::parse(Path::new("sessions/12057.json"), text.as_bytes())
}

#[track_caller]
fn assert_text(mapping: &Mapping, expected: &str) {
    assert_eq!(String::from_utf8(mapping.to_bytes()).unwrap(), expected);
}

#[test]
fn the_file_is_the_real_tools() {
    let mut mapping = Mapping::new(pane());
    mapping.activate(id(17528832001), at("2026-08-20T13:58:42.568Z"));
    mapping.activate(id(17528862001), at("2026-08-20T14:03:11.212827890Z"));
    assert_text(&mapping, FILE);

    let read = parse(FILE).unwrap();
    assert_text(&read, FILE);
    assert!(read.matches(&pane()) && !read.is_legacy());
    let ids: Vec<_> = read.history().iter().map(Entry::id).collect();
    assert_eq!(ids, [id(17528862001), id(17528832001)]);
    assert_eq!(read.history()[1].activated_at(), at("2026-08-20T13:58:42.568Z"));

    let getsid = Session { source: Source::Getsid, value: "7".to_owned() };
    let expected = "{\n  \"history\": [],\n  \"id\": \"7\",\n  \"source\": {\n    \"type\": \"getsid\"\n  }\n}\n";
    assert_text(&Mapping::new(getsid), expected);
}

#[test]
fn going_back_moves_to_the_front() {
    let mut mapping = Mapping::new(pane());
    for (number, when) in [(1, "2026-01-01T00:00:00Z"), (2, "2026-01-02T00:00:00Z"), (1, "2026-01-03T00:00:00Z")] {
        mapping.activate(id(number), at(when));
    }
    let history: Vec<_> = mapping.history().iter().map(|it| (it.id(), it.activated_at())).collect();
    assert_eq!(history, [(id(1), at("2026-01-03T00:00:00Z")), (id(2), at("2026-01-02T00:00:00Z"))]);
    assert_eq!(mapping.prune(&|it| it == id(2)), 1);
    assert_eq!(mapping.history().len(), 1);
}

#[test]
fn unknown_keys_stay_where_they_are() {
    let text = r#"{
  "before": 1,
  "history": [
    {
      "id": 1,
      "note": 1.50,
      "activated_at": "2026-01-01T00:00:00.10+00:00"
    }
  ],
  "between": null,
  "id": "x",
  "source": {
    "type": "env",
    "key": "A",
    "more": true
  },
  "after": []
}
"#;
    let mut mapping = parse(text).unwrap();
    assert_text(&mapping, text);
    mapping.activate(id(2), at("2026-01-02T00:00:00Z"));
    mapping.prune(&|it| it == id(1));
    assert_text(&mapping, text);
}

#[test]
fn a_legacy_file_is_named_for_its_session() {
    let legacy = parse(r#"{"history":[],"source":{"type":"getsid"},"more":1}"#).unwrap();
    assert!(legacy.is_legacy());
    assert!(legacy.matches(&Session { source: Source::Getsid, value: "12057".to_owned() }));
    assert_text(
        &legacy,
        "{\n  \"history\": [],\n  \"id\": \"12057\",\n  \"source\": {\n    \"type\": \"getsid\"\n  },\n  \"more\": 1\n}\n",
    );
}

#[test]
fn what_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with("sessions/12057.json: ") && error.contains(expected), "{error}");
    };
    check("", "");
    check("[]", "");
    check("{}", "history");
    check(r#"{"history":{},"id":"x","source":{"type":"getsid"}}"#, "history");
    check(r#"{"history":[{"id":1}],"id":"x","source":{"type":"getsid"}}"#, "history");
    check(r#"{"history":[{"id":1,"activated_at":"soon"}],"id":"x","source":{"type":"getsid"}}"#, "history");
    check(r#"{"history":[{"id":-1,"activated_at":"2026-01-01T00:00:00Z"}],"source":{"type":"getsid"}}"#, "history");
    check(r#"{"history":[],"id":"x"}"#, "source");
    check(r#"{"history":[],"id":"x","source":"getsid"}"#, "source");
    check(r#"{"history":[],"id":"x","source":{"type":"env"}}"#, "source");
    check(r#"{"history":[],"id":"x","source":{"type":"new"}}"#, "source");
    check(r#"{"history":[],"id":5,"source":{"type":"getsid"}}"#, "id");
}

#[test]
fn where_the_session_is() {
    use Standing::{Archived, Gone, Live};
    let check = |standings: &[Standing], active: Option<u64>, previous: Option<u64>| {
        let mut mapping = Mapping::new(pane());
        for number in (1..=standings.len() as u64).rev() {
            mapping.activate(id(number), at("2026-01-01T00:00:00Z"));
        }
        let standing = |it: ConversationId| standings[it.deciseconds() as usize - 1];
        assert_eq!(mapping.active(&standing), active.map(id), "active of {standings:?}");
        assert_eq!(mapping.previous(&standing), previous.map(id), "previous of {standings:?}");
    };
    check(&[], None, None);
    check(&[Live], Some(1), None);
    check(&[Archived], None, None);
    check(&[Gone], None, None);
    check(&[Live, Live], Some(1), Some(2));
    check(&[Live, Archived], Some(1), None);
    check(&[Live, Gone], Some(1), None);
    check(&[Archived, Live], None, None);
    check(&[Archived, Archived], None, None);
    check(&[Archived, Gone], None, None);
    check(&[Gone, Live], Some(2), None);
    check(&[Gone, Archived], None, None);
    check(&[Gone, Gone], None, None);

    // All the rest, by a rule that is put differently: the live ones before the first archived one.
    for length in 0..=4_u32 {
        for code in 0..3_usize.pow(length) {
            let nth = |n: u32| [Live, Archived, Gone][code / 3_usize.pow(n) % 3];
            let standings: Vec<_> = (0..length).map(nth).collect();
            let open = standings.split(|it| *it == Archived).next().unwrap();
            let live: Vec<u64> = (1..).zip(open).filter(|(_, it)| **it == Live).map(|(number, _)| number).collect();
            check(&standings, live.first().copied(), live.get(1).copied());
        }
    }
}
