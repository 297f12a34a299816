//! Finds lines. Texts and a pattern come in, hits come out; nothing here reads a disk.

use jp_store::events::{Scope, Text};
use jp_store::time::Timestamp;
use regex::{Regex, RegexBuilder};

/// One line that matches, or stands near one that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The turn, from 1; `None` is the title.
    pub(crate) turn: Option<usize>,
    /// Whose words; `None` is the title.
    pub(crate) scope: Option<Scope>,
    /// When they were said.
    pub(crate) at: Option<Timestamp>,
    /// The line within the text, from 1.
    pub(crate) line: usize,
    /// Which text of the conversation, so that groups of context are told apart.
    pub(crate) text_index: usize,
    /// The words.
    pub(crate) text: String,
    /// Whether it matches, as opposed to standing near.
    pub(crate) matches: bool,
}

/// How case counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Only if a pattern has a capital letter.
    Smart,
    /// Never.
    Ignore,
    /// Always.
    Respect,
}

impl Case {
    /// Whether case does not count for these patterns.
    pub(crate) fn is_ignored(self, patterns: &[String], regex: bool) -> bool {
        match self {
            Self::Smart => !patterns.iter().any(|pattern| has_capital(pattern, regex)),
            Self::Ignore => true,
            Self::Respect => false,
        }
    }
}

/// One expression for all patterns. They are plain text unless `regex` says otherwise.
pub(crate) fn expression(patterns: &[String], regex: bool, case: Case) -> Result<Regex, regex::Error> {
    let ignore = case.is_ignored(patterns, regex);
    // Each is tried by itself first: an error then shows what was typed.
    let one = |pattern: &String| match regex {
        true => Regex::new(pattern).map(|_| format!("(?:{pattern})")),
        false => Ok(regex::escape(pattern)),
    };
    let all = patterns.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    RegexBuilder::new(&all.join("|")).case_insensitive(ignore).build()
}

/// A capital letter that is not part of a class such as `\W`.
fn has_capital(pattern: &str, regex: bool) -> bool {
    let mut escaped = false;
    pattern.chars().any(|char| {
        let counts = !(regex && escaped);
        escaped = char == '\\' && !escaped;
        counts && char.is_uppercase()
    })
}

/// The lines of one text that match, with `context` lines around them. `left` counts matches down.
pub(crate) fn lines(text: &Text, index: usize, pattern: &Regex, context: usize, left: &mut usize, hits: &mut Vec<Hit>) {
    // Most texts have no match, and looking at the whole is faster than looking at every line.
    if *left == 0 || !pattern.is_match(&text.text) && !pattern.as_str().contains(['^', '$', '\\', '[']) {
        return;
    }
    let all: Vec<&str> = text.text.lines().collect();
    let matching: Vec<usize> = (0..all.len()).filter(|&line| pattern.is_match(all[line])).take(*left).collect();
    *left -= matching.len();
    let mut next = 0;
    for &line in &matching {
        let end = (line + context + 1).min(all.len());
        let start = next.max(line.saturating_sub(context));
        for (near, words) in all.iter().enumerate().take(end).skip(start) {
            hits.push(Hit {
                turn: Some(text.turn + 1),
                scope: Some(text.scope),
                at: text.at,
                line: near + 1,
                text_index: index,
                text: (*words).to_owned(),
                matches: matching.binary_search(&near).is_ok(),
            });
        }
        next = next.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, patterns: &[&str], regex: bool, case: Case, context: usize, limit: usize) -> String {
        let text = Text { turn: 0, element: 0, scope: Scope::User, at: None, text: text.to_owned() };
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let pattern = expression(&patterns, regex, case).unwrap();
        let (mut hits, mut left) = (Vec::new(), limit);
        lines(&text, 0, &pattern, context, &mut left, &mut hits);
        let line = |hit: &Hit| format!("{}{}{}", hit.line, if hit.matches { ':' } else { '-' }, hit.text);
        hits.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn matches() {
        let text = "Alpha\nbeta\ngamma\nALPHA\ndelta";
        let check = |patterns: &[&str], regex, case, context, limit, expected: &str| {
            assert_eq!(found(text, patterns, regex, case, context, limit), expected, "{patterns:?}");
        };
        check(&["alpha"], false, Case::Smart, 0, 9, "1:Alpha 4:ALPHA");
        check(&["Alpha"], false, Case::Smart, 0, 9, "1:Alpha");
        check(&["Alpha"], false, Case::Ignore, 0, 9, "1:Alpha 4:ALPHA");
        check(&["alpha"], false, Case::Respect, 0, 9, "");
        check(&["alpha"], false, Case::Smart, 0, 1, "1:Alpha");
        check(&["a.p"], false, Case::Smart, 0, 9, "");
        check(&["a.p"], true, Case::Smart, 0, 9, "1:Alpha 4:ALPHA");
        check(&["^b", "^d"], true, Case::Smart, 0, 9, "2:beta 5:delta");
        check(&["a$"], true, Case::Smart, 0, 9, "1:Alpha 2:beta 3:gamma 4:ALPHA 5:delta");
        check(&["\\Wx"], true, Case::Smart, 0, 9, "");
        check(&["gamma"], false, Case::Smart, 1, 9, "2-beta 3:gamma 4-ALPHA");
        check(&["beta", "gamma"], false, Case::Smart, 1, 9, "1-Alpha 2:beta 3:gamma 4-ALPHA");
        check(&["alpha"], false, Case::Smart, 9, 9, "1:Alpha 2-beta 3-gamma 4:ALPHA 5-delta");
        check(&["alpha"], false, Case::Smart, 9, 1, "1:Alpha 2-beta 3-gamma 4-ALPHA 5-delta");
    }

    #[test]
    fn patterns() {
        assert!(expression(&["(".to_owned()], true, Case::Smart).is_err());
        assert!(expression(&["(".to_owned()], false, Case::Smart).is_ok());
        // Two halves that only make sense together are two mistakes.
        assert!(expression(&["a)|(b".to_owned()], true, Case::Smart).is_err());
    }
}
