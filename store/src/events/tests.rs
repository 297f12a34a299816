//! Tables of what events are, and what is made of them.

use super::*;

const STREAM: &str = r#"[
  {"type": "config_delta", "timestamp": "2025-07-18 00:00:00.0", "delta": {"base": true}},
  {"timestamp": "2025-07-19 00:00:00.0", "type": "turn_start"},
  {"timestamp": "2025-07-19 00:00:00.1", "type": "chat_request", "content": "Where is it?\nShow me.", "author": "Ada"},
  {"timestamp": "2025-07-19 00:00:00.2", "type": "chat_response", "reasoning": "Hm."},
  {"timestamp": "2025-07-19 00:00:00.3", "type": "tool_call_request", "id": "a", "name": "read",
   "arguments": {"path": "c3JjL21haW4ucnM=", "limit": 10, "nested": {"q": ["YQ==", true, "plain text"]}},
   "metadata": {"x": "c2ln"}},
  {"timestamp": "2025-07-19 00:00:00.4", "type": "inquiry_request", "id": "a.b", "source": {"source": "user"},
   "question": {"text": "Proceed?", "answer_type": {"type": "boolean"}}},
  {"timestamp": "2025-07-19 00:00:00.5", "type": "inquiry_response", "id": "a.b", "answer": true},
  {"timestamp": "2025-07-19 00:00:00.6", "type": "tool_call_response", "id": "a", "content": "Zm4gbWFpbigpIHt9Cg==", "is_error": false},
  {"timestamp": "2025-07-19 00:00:00.7", "type": "chat_response", "message": "Here."},
  {"type": "config_delta", "timestamp": "2025-07-19 00:00:00.8", "delta": {"user": "Ada"}},
  {"timestamp": "2025-07-19 00:01:00.0", "type": "turn_start"},
  {"timestamp": "2025-07-19 00:01:00.1", "type": "chat_request", "content": "As JSON"},
  {"timestamp": "2025-07-19 00:01:00.2", "type": "tool_call_request", "id": "b", "name": "check", "arguments": {}},
  {"timestamp": "2025-07-19 00:01:00.3", "type": "tool_call_response", "id": "b", "content": "not base64!", "is_error": true},
  {"timestamp": "2025-07-19 00:01:00.4", "type": "chat_response", "data": {"ok": 1.50}},
  {"timestamp": "2025-07-19 00:01:00.5", "type": "from_the_future", "z": 1, "a": [1e400]},
  {"type": "compaction", "timestamp": "2025-07-19 00:01:01.0", "from_turn": 0, "to_turn": 1, "summary": {"summary": "Found."}},
  {"timestamp": "2025-07-19 00:02:00.0", "type": "turn_start"},
  {"timestamp": "2025-07-19 00:02:00.1", "type": "chat_request", "content": "Thanks"},
  {"type": "config_delta", "timestamp": "2025-07-19 00:02:00.2", "delta": {}}
]"#;

fn stream(json: &str) -> Stream {
    Stream::parse(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn at(text: &str) -> Timestamp {
    time::parse(text).expect("a date")
}

#[test]
fn skims() {
    fn check(json: &str, expected: Result<(usize, Option<&str>), &str>) {
        let skimmed = skim(json.as_bytes()).map(|skim| (skim.count, skim.last_at));
        let expected = expected.map(|(count, last)| (count, last.map(at))).map_err(str::to_owned);
        assert_eq!(skimmed.map_err(|error| error.to_string()), expected, "{json}");
        assert_eq!(Stream::parse(json.as_bytes()).is_ok(), expected.is_ok(), "{json}");
    }
    let date = "2025-07-19 00:00:05.1";
    check("[]\n", Ok((0, None)));
    check(" [ { } , { } ] ", Ok((2, None)));
    check(r#"[{"timestamp":"2025-07-19 00:00:05.1"}]"#, Ok((1, Some(date))));
    check(r#"[{"time\u0073tamp":"2025-07-19\u002000:00:05.1"}]"#, Ok((1, Some(date))));
    check(r#"[{"timestamp":"2025-07-19 00:00:05.1"},{"x":{"timestamp":"2026-01-01 00:00:00"}}]"#, Ok((2, None)));
    check(r#"[{"timestamp":"soon"}]"#, Ok((1, None)));
    check(r#"[{"timestamp":5}]"#, Ok((1, None)));
    check("", Err("line 1, column 1: the text ends too early"));
    check("{}", Err("line 1, column 1: expected an array"));
    check("[{}", Err("line 1, column 4: the text ends too early"));
    check("[{},]", Err("line 1, column 5: a comma with nothing after it"));
    check("[{},\n  1]", Err("line 2, column 3: expected an object"));
    check("[{}] x", Err("line 1, column 6: more text after the end"));
    check("[{\"a\":\"\n\"}]", Err("line 1, column 8: a control character inside a string"));
    check("[\n<<<<<<< HEAD\n{}]", Err("line 2, column 1: unresolved merge conflict marker"));
    check("\u{feff}[]", Err("line 1, column 1: starts with a byte order mark (BOM)"));
    assert!(skim(b"[{\"a\":\"\xff\"}]").is_err());
    assert_eq!(skim(STREAM.as_bytes()), Ok(Skim { count: 20, last_at: Some(at("2025-07-19 00:02:00.2")) }));
}

#[test]
fn validates() {
    fn check(json: &str, expected: Result<usize, &str>) {
        let count = validate(json.as_bytes()).map(|skim| skim.count).map_err(|error| error.to_string());
        assert_eq!(count, expected.map_err(str::to_owned), "{json}");
    }
    check("[]", Ok(0));
    check(STREAM, Ok(20));
    check(r#"[{"type":"x","timestamp":"any","n":{"type":1,"timestamp":2}}]"#, Ok(1));
    check("[\n  {\"type\":\"x\"}]", Err("line 2, column 3: an event without a `timestamp` string"));
    check(r#"[{"timestamp":"x"}]"#, Err("line 1, column 2: an event without a `type` string"));
    check(r#"[{"timestamp":"x","type":null}]"#, Err("line 1, column 2: an event without a `type` string"));
    check(r#"[{"timestamp":"x","type":"y","type":"z"}]"#, Err("line 1, column 2: the key `type` occurs twice"));
    check(r#"[{"timestamp":1,"timestamp":"y","type":"z"}]"#, Err("line 1, column 2: the key `timestamp` occurs twice"));
}

#[test]
fn streams_keep_every_element() {
    let parsed = stream(STREAM);
    assert_eq!(parsed.elements().len(), 20);
    let bytes = parsed.to_bytes();
    assert_eq!(Stream::parse(&bytes).as_ref(), Ok(&parsed));
    assert!(bytes.ends_with(b"  }\n]\n"));
    assert!(parsed.is_legacy(false) && !parsed.is_legacy(true));
    assert!(!stream(r#"[{"type":"turn_start"}]"#).is_legacy(false));
    assert!(!Stream::default().is_legacy(false));
    assert_eq!(Stream::default().to_bytes(), b"[]\n");
}

#[test]
fn turns() {
    /// One letter per element: `t`urn start, `m`essage, `c`onfig, `k` for compaction, `x` unknown. In the answer, a bar
    /// stands before each turn.
    fn check(expected: &str) {
        let shape = expected.replace('|', "");
        let elements = shape.chars().map(|letter| match letter {
            't' => r#"{"type":"turn_start"}"#,
            'm' => r#"{"type":"chat_request"}"#,
            'c' => r#"{"type":"config_delta"}"#,
            'k' => r#"{"type":"compaction"}"#,
            _ => r#"{"type":"x"}"#,
        });
        let turns = stream(&format!("[{}]", elements.collect::<Vec<_>>().join(","))).turns();
        let before = turns.first().map_or(shape.len(), |turn| turn.start);
        let shown: String = turns.into_iter().map(|turn| format!("|{}", &shape[turn])).collect();
        assert_eq!(format!("{}{shown}", &shape[..before]), expected);
    }
    for shape in ["", "c", "xck", "|tm", "|mm", "|m|tm", "c|mc|tmk", "c|tmc|tm", "|t|t", "x|tx|tx"] {
        check(shape);
    }
}

#[test]
fn selections() {
    /// The indices of the elements that survive.
    fn check(selection: Selection, expected: &[usize]) {
        let whole = stream(STREAM);
        let left = whole.select(&selection);
        let expected: Vec<_> = expected.iter().map(|index| whole.elements()[*index].clone()).collect();
        assert_eq!(left.elements(), expected, "{selection:?}");
    }
    let all: Vec<usize> = (0..20).collect();
    let one: Vec<usize> = (0..10).collect();
    let last = [0, 9, 17, 18, 19];
    let none = Selection::default();
    check(none.clone(), &all);
    check(Selection { first: Some(3), ..none.clone() }, &all);
    check(Selection { first: Some(9), last: Some(9), ..none.clone() }, &all);
    check(Selection { first: Some(1), ..none.clone() }, &one);
    check(Selection { first: Some(0), ..none.clone() }, &[0]);
    check(Selection { last: Some(1), ..none.clone() }, &last);
    check(Selection { last: Some(2), ..none.clone() }, &[0, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19]);
    check(Selection { first: Some(1), last: Some(1), ..none.clone() }, &[&one[..], &last[2..]].concat());
    check(Selection { none: true, first: Some(1), ..none.clone() }, &[0]);
    let (second, third) = (at("2025-07-19 00:01:00"), at("2025-07-19 00:02:00"));
    check(Selection { from: Some(third), ..none.clone() }, &last);
    check(Selection { until: Some(second), ..none.clone() }, &one);
    check(Selection { from: Some(second), until: Some(third), ..none.clone() }, &[0, 9, 10, 11, 12, 13, 14, 15]);
    check(Selection { until: Some(third), last: Some(1), ..none.clone() }, &[0, 9, 10, 11, 12, 13, 14, 15]);
    check(Selection { from: Some(at("2026-01-01 00:00:00")), ..none }, &[0]);
    let timeless = stream(r#"[{"type":"turn_start"}]"#);
    assert_eq!(timeless.select(&Selection::default()), timeless);
    assert_eq!(timeless.select(&Selection { from: Some(second), ..Selection::default() }), Stream::default());
}

#[test]
fn said_and_done() {
    let found = stream(STREAM).texts();
    let shown: Vec<_> = found.iter().map(|text| (text.turn, text.element, text.scope, text.text.as_str())).collect();
    let arguments = "read\n{\n  \"path\": \"src/main.rs\",\n  \"limit\": 10,\n  \"nested\": {\n    \"q\": [\n      \"a\",\n      true,\n      \"plain text\"\n    ]\n  }\n}";
    let expected = [
        (0, 2, Scope::User, "Where is it?\nShow me."),
        (0, 3, Scope::Reasoning, "Hm."),
        (0, 4, Scope::ToolCall, arguments),
        (0, 5, Scope::Inquiry, "Proceed?"),
        (0, 6, Scope::Inquiry, "true"),
        (0, 7, Scope::ToolResult, "fn main() {}\n"),
        (0, 8, Scope::Assistant, "Here."),
        (1, 11, Scope::User, "As JSON"),
        (1, 12, Scope::ToolCall, "check"),
        (1, 13, Scope::ToolResult, "not base64!"),
        (1, 14, Scope::Structured, "{\n  \"ok\": 1.50\n}"),
        (2, 18, Scope::User, "Thanks"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(found[0].at, Some(at("2025-07-19 00:00:00.1")));

    let scanned: Vec<_> = texts(STREAM.as_bytes(), |_| true).collect::<Result<_, _>>().expect("well-formed");
    assert_eq!(scanned, found);
    let wanted: Vec<_> = texts(STREAM.as_bytes(), |scope| scope == Scope::User).flatten().collect();
    assert_eq!(wanted, found.into_iter().filter(|text| text.scope == Scope::User).collect::<Vec<_>>());
}

#[test]
fn odd_events_have_no_text() {
    fn check(element: &str, expected: Option<(Scope, &str)>) {
        let json = format!("[{element}]");
        let found = stream(&json).texts();
        let shown = found.first().map(|text| (text.scope, text.text.as_str()));
        assert_eq!(shown, expected, "{element}");
        assert_eq!(texts(json.as_bytes(), |_| true).flatten().collect::<Vec<_>>(), found, "{element}");
    }
    check(r#"{}"#, None);
    check(r#"{"type":"chat_request"}"#, None);
    check(r#"{"type":"chat_request","content":5}"#, None);
    check(r#"{"type":"chat_response"}"#, None);
    check(r#"{"type":"chat_response","message":null,"reasoning":"r"}"#, Some((Scope::Reasoning, "r")));
    check(r#"{"type":"chat_response","data":null}"#, Some((Scope::Structured, "null")));
    check(r#"{"type":"tool_call_request","arguments":{}}"#, None);
    check(r#"{"type":"tool_call_request","name":"n"}"#, Some((Scope::ToolCall, "n")));
    check(r#"{"type":"tool_call_response","content":"/w=="}"#, Some((Scope::ToolResult, "/w==")));
    check(r#"{"type":"tool_call_response","content":"YQ"}"#, Some((Scope::ToolResult, "YQ")));
    check(r#"{"type":"tool_call_response","content":"YQ=="}"#, Some((Scope::ToolResult, "a")));
    check(r#"{"type":"inquiry_response","answer":"yes"}"#, Some((Scope::Inquiry, "yes")));
    check(r#"{"type":"inquiry_request","question":{}}"#, None);
    assert!(texts(b"[{}, 1, {}]", |_| true).last().is_some_and(|last| last.is_err()));
}

#[test]
fn transcripts() {
    fn check(style: Style, turns: Option<std::ops::Range<usize>>, expected: &str) {
        assert_eq!(stream(STREAM).transcript(style, turns), expected, "{style:?}");
    }
    check(
        Style::User,
        None,
        "# Turn 1, 2025-07-19 00:00:00.0\n\n## Ada\n\nWhere is it?\nShow me.\n\n# Turn 2, 2025-07-19 00:01:00.0\n\n## User\n\nAs JSON\n\n# Turn 3, 2025-07-19 00:02:00.0\n\n## User\n\nThanks\n",
    );
    check(
        Style::Chat,
        Some(1..2),
        "# Turn 2, 2025-07-19 00:01:00.0\n\n## User\n\nAs JSON\n\n## Assistant\n\n```json\n{\n  \"ok\": 1.50\n}\n```\n",
    );
    check(
        Style::Brief,
        Some(0..2),
        "# Turn 1, 2025-07-19 00:00:00.0\n\n## Ada\n\nWhere is it?\nShow me.\n\n- read {\"path\":\"src/main.rs\",\"limit\":10,\"nested\":{\"q\":[\"a\",true,\"plain text\"]}}\n\n## Assistant\n\nHere.\n\n# Turn 2, 2025-07-19 00:01:00.0\n\n## User\n\nAs JSON\n\n- check (failed)\n\n## Assistant\n\n```json\n{\n  \"ok\": 1.50\n}\n```\n",
    );
    check(
        Style::Full,
        Some(1..99),
        "# Turn 2, 2025-07-19 00:01:00.0\n\n## User\n\nAs JSON\n\n### Tool call: check\n\n### Tool error\n\n```\nnot base64!\n```\n\n## Assistant\n\n```json\n{\n  \"ok\": 1.50\n}\n```\n\n*An event of type `from_the_future`.*\n\n*Turns 1 to 2 are compacted.*\n\nFound.\n\n# Turn 3, 2025-07-19 00:02:00.0\n\n## User\n\nThanks\n\n*The configuration changes.*\n",
    );
    check(Style::Full, Some(7..9), "");
    let full = stream(STREAM).transcript(Style::Full, Some(0..1));
    for part in
        ["### Reasoning\n\nHm.\n", "### Question\n\nProceed?\n", "### Answer\n\ntrue\n", "```\nfn main() {}\n```\n"]
    {
        assert!(full.contains(part), "{part:?} in {full}");
    }
}

#[test]
fn fences_outlast_their_content() {
    let json = r#"[{"type":"tool_call_response","id":"a","content":"a ```` b","is_error":false}]"#;
    let full = stream(json).transcript(Style::Full, None);
    assert_eq!(full, "# Turn 1\n\n### Tool result\n\n`````\na ```` b\n`````\n");
}
