//! Spans of time as a person says them: one number, one unit.

use jp_store::time::Timestamp;

/// How long ago something was, or how far off it is.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    match now.as_second().saturating_sub(then.as_second()) {
        0 => "now".to_owned(),
        past @ 1.. => format!("{} ago", span(past.unsigned_abs())),
        future => format!("in {}", span(future.unsigned_abs())),
    }
}

/// The largest unit that is there once.
fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 6] =
        [(31_557_600, "y"), (2_629_800, "mo"), (604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m")];
    let unit = UNITS.into_iter().find(|&(size, _)| seconds >= size);
    let (size, name) = unit.unwrap_or((1, "s"));
    format!("{}{name}", seconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let check = |seconds: i64, expected: &str| {
            let then = Timestamp::from_second(1_000_000_000 + seconds).unwrap();
            assert_eq!(ago(now, then), expected, "{seconds}");
        };
        check(0, "now");
        check(-1, "1s ago");
        check(-59, "59s ago");
        check(-60, "1m ago");
        check(-7200, "2h ago");
        check(-86_400 * 6, "6d ago");
        check(-86_400 * 13, "1w ago");
        check(-86_400 * 70, "2mo ago");
        check(-86_400 * 800, "2y ago");
        check(90, "in 1m");
    }
}
