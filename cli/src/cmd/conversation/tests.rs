//! The commands that read, on a small store.

use std::process::ExitCode;

use crate::testing::Project;

/// A family of four, one of them archived, one pinned, one with a broken parent.
fn family() -> Project {
    let project = Project::new();
    project
        .conversation("17528832001-first", "First", "20 11:00", "")
        .conversation("17528832002-second", "Second words", "20 09:00", r#", "parent_id": 17528832001"#)
        .conversation("17528832003", "Third", "20 10:00", r#", "parent_id": "jp-c17528832002", "labels": {"wip": ""}"#)
        .conversation("17528832004-x", "Fourth", "18 12:00", r#", "pinned_at": "2025-07-18 12:00:00.0""#)
        .conversation(".archive/17528832005-old", "Old", "01 12:00", "")
        .history(&[17528832003, 17528832001, 17528832002]);
    project
}

#[test]
fn targets() {
    let project = family();
    let check = |words: &str, expected: &str| {
        let answer = project.jp(&format!("c show {words} --json"));
        let ids: Vec<_> =
            answer.out.lines().filter_map(|line| line.strip_prefix("    \"id\": \"jp-c1752883200")).collect();
        let ids: String = ids.iter().map(|id| id.trim_end_matches("\",")).collect();
        assert_eq!(ids, expected, "{words}: {}", answer.err);
    };
    check(".", "3");
    check("active", "3");
    check("s", "1");
    check("prev", "1");
    check("last", "1");
    check("r", "1");
    check("last-created", "4");
    check("newest", "4");
    check("p", "4");
    check("archived", "5");
    check("parent", "2");
    check("root", "1");
    check("+session", "312");
    check("+live", "3124");
    check("+pinned", "4");
    check("+archived", "5");
    check("17528832002", "2");
    check("jp-c17528832005", "5");
    check("17528832001-stale-name last", "1");
    check("/a/17528832001-x/conversations/17528832002-y/events.json", "2");
}

#[test]
fn what_is_not_found() {
    let project = family();
    let check = |line: &str, code: u8, told: &str| {
        let answer = project.jp(line);
        assert_eq!(answer.code, ExitCode::from(code), "{line}");
        assert!(answer.err.contains(told), "{line}: {}", answer.err);
        assert_eq!(answer.out, "", "{line}");
    };
    check("c path words", 1, "did you mean jp-c17528832002  Second words");
    check("c path 2", 1, "`2` is not a conversation");
    check("c path 17528832009", 1, "no conversation jp-c17528832009");
    check("c path ?", 1, "there is no terminal");
    check("c path - last", 2, "`-` stands alone");
    check("c grep -r (", 2, "unclosed group");
    check("c grep nothing-like-it", 1, "");
    check("c ls --nonsense", 2, "unexpected argument");
    project.history(&[]);
    check("c path", 1, "set JP_SESSION");
    check("c path parent", 1, "no active");
}

#[test]
fn listings() {
    let project = family();
    let check = |line: &str, expected: &str| assert_eq!(project.jp(line).out, expected, "{line}");
    check(
        "c ls",
        "jp-c17528832002\t3h ago\tY\t\tSecond words\njp-c17528832001\t1h ago\tY\t\tFirst\n\
         jp-c17528832004\t2d ago\tY\t*\tFourth\njp-c17528832003\t2h ago\tY\t>\tThird\n",
    );
    check(
        "c ls --tree",
        "jp-c17528832001\t1h ago\tY\t\tFirst\njp-c17528832002\t3h ago\tY\t\t└─ Second words\n\
         jp-c17528832003\t2h ago\tY\t>\t   └─ Third\njp-c17528832004\t2d ago\tY\t*\tFourth\n",
    );
    check("c ls --tree --limit 1", "jp-c17528832004\t2d ago\tY\t*\tFourth\n");
    check("c ls --root --sort id", "jp-c17528832001\t1h ago\tY\t\tFirst\njp-c17528832004\t2d ago\tY\t*\tFourth\n");
    check("c ls --root=17528832002", "jp-c17528832003\t2h ago\tY\t>\tThird\n");
    check("c ls --label wip", "jp-c17528832003\t2h ago\tY\t>\tThird\n");
    check("c ls --archived", "jp-c17528832005\t2w ago\tY\t\tOld\n");
    // A parent that is filtered out does not take its children along.
    check(
        "c ls --tree 17528832001 17528832003",
        "jp-c17528832001\t1h ago\tY\t\tFirst\njp-c17528832003\t2h ago\tY\t>\t└─ Third\n",
    );
    check("c ls --full --label wip", "jp-c17528832003\t0\t2h ago\tY\t>\tN\tjp-c17528832002\t\t\twip\tThird\n");
}

#[test]
fn searching_finds_what_is_encoded() {
    let project = family();
    // The tool's answer is base64 of `needle`; the request has an escaped letter and an escape character.
    let events = r#"[
        {"timestamp": "2025-07-19 00:00:00.0", "type": "chat_request", "content": "caf\u00e9 \u001b[31m"},
        {"timestamp": "2025-07-19 00:00:01.0", "type": "tool_call_response", "id": "t", "content": "bmVlZGxl", "is_error": false}
    ]"#;
    project.events("17528832001-first", events);
    let check = |line: &str, expected: &str| assert_eq!(project.jp(line).out, expected, "{line}");
    check("c grep needle", "jp-c17528832001:1:tool-result:needle\n");
    check("c grep café", "jp-c17528832001:1:user:café \\x1b[31m\n");
    check("c grep -s chat needle", "");
    check("c grep -s title FIRST", "");
    check("c grep -s title first", "jp-c17528832001:..:title:First\n");
    check("c grep --output count needle first", "jp-c17528832001:2\n");
    check("c grep --output ids needle", "jp-c17528832001\n");
    check("c grep --output text needle", "needle\n");
    check("c print 17528832001 -s user --turn 1", "# Turn 1, 2025-07-19 00:00:00.0\n\n## User\n\ncafé \\x1b[31m\n");
}
