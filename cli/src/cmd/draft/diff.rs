//! What differs between two texts, in one piece: the lines between their common beginning and their common end.

use std::fmt::Write as _;

/// How many equal lines are shown around the difference.
const CONTEXT: usize = 3;

/// A unified diff with one hunk; empty if there is no difference.
pub(super) fn unified(old_name: &str, old: &[u8], new_name: &str, new: &[u8]) -> String {
    if old == new {
        return String::new();
    }
    let (old, new) = (lines(old), lines(new));
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(CONTEXT);
    let after = end.saturating_sub(CONTEXT);
    let (old_end, new_end) = (old.len() - end, new.len() - end);
    let range = |from: usize, to: usize| {
        let count = to - from;
        format!("{},{count}", if count == 0 { from } else { from + 1 })
    };
    let mut out = format!("--- {old_name}\n+++ {new_name}\n");
    let _ = writeln!(out, "@@ -{} +{} @@", range(start, old.len() - after), range(start, new.len() - after));
    let mut put = |sign: char, some: &[String]| {
        for line in some {
            let _ = write!(out, "{sign}{line}");
            if !line.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    put(' ', &old[start..same]);
    put('-', &old[same..old_end]);
    put('+', &new[same..new_end]);
    put(' ', &old[old_end..old.len() - after]);
    out
}

fn lines(bytes: &[u8]) -> Vec<String> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hunk() {
        let check = |old: &str, new: &str, expected: &str| {
            assert_eq!(unified("a", old.as_bytes(), "b", new.as_bytes()), expected, "{old:?} {new:?}");
        };
        check("x\n", "x\n", "");
        check("x\n", "y\n", "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-x\n+y\n");
        check("", "y", "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+y\n\\ No newline at end of file\n");
        check("y\n", "", "--- a\n+++ b\n@@ -1,1 +0,0 @@\n-y\n");
        check(
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            "1\n2\n3\n4\nfive\n6\n7\n8\n9\n",
            "--- a\n+++ b\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
        );
        check("a\na\n", "a\na\na\n", "--- a\n+++ b\n@@ -1,2 +1,3 @@\n a\n a\n+a\n");
    }
}
