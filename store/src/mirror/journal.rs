//! Changes of the mirror since its file was written, one line each, so that moving one of ten thousand conversations is one
//! small append. Values only; reading and writing the file is the store's affair.
//!
//! A line has everything that is mirrored of one conversation, so twice is as good as once. It counts only for the file it
//! was written on top of.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Link, Mirror};
use crate::disk::Stat;
use crate::id::ConversationId;
use crate::lines;

/// What a line was written on top of: how the mirror's file looked, by modification time and size; `None` when there was
/// none. The inode would not survive a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footing(Option<(i64, u64)>);

impl Footing {
    /// The mirror's file.
    pub fn new(file: Option<Stat>) -> Self {
        Self(file.map(|stat| (stat.mtime, stat.size)))
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    on: Footing,
    id: ConversationId,
    #[serde(flatten)]
    link: Link,
}

/// The line for what is mirrored of a conversation now.
pub fn line(id: ConversationId, link: Link, on: Footing) -> serde_json::Result<Vec<u8>> {
    let mut out = lines::BEGIN.to_vec();
    serde_json::to_writer(&mut out, &Line { on, id, link })?;
    out.push(b'\n');
    Ok(out)
}

/// Applies the lines that were written on top of this mirror, and says whom they are about. Others, and what an append that
/// was cut short left, are passed over.
pub fn replay(mirror: &mut Mirror, bytes: &[u8], on: Footing) -> BTreeSet<ConversationId> {
    let lines = lines::of(bytes).filter_map(|line| serde_json::from_slice::<Line>(line).ok());
    let mut changed = BTreeSet::new();
    for line in lines.filter(|line| line.on == on) {
        changed.insert(line.id);
        mirror.set(line.id, line.link);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Kind;

    fn id(n: u64) -> ConversationId {
        ConversationId::new(n).unwrap()
    }

    fn footing(mtime: i64) -> Footing {
        let stat = Stat { kind: Kind::File, size: 9, mtime, ctime: 0, ino: 7, dev: 8, mode: 0o644, birth: None };
        Footing::new(Some(stat))
    }

    fn link(parent: Option<u64>, origin: Option<&str>) -> Link {
        Link { parent: parent.map(id), origin: origin.map(ToOwned::to_owned) }
    }

    fn mirror() -> Mirror {
        let mut mirror = Mirror::default();
        mirror.set(id(1), link(Some(7), Some("a\n\"b")));
        mirror.set(id(2), link(Some(1), None));
        mirror
    }

    #[test]
    fn the_last_line_about_a_conversation_holds() {
        let mut bytes = Vec::new();
        for (n, new) in [
            (1, link(Some(8), Some("a\n\"b"))),
            (2, link(None, None)),
            (3, link(None, Some("o"))),
            (1, link(None, Some("x"))),
        ] {
            bytes.extend(line(id(n), new, footing(1)).unwrap());
        }
        let mut mirror = mirror();
        for _ in 0..2 {
            assert_eq!(replay(&mut mirror, &bytes, footing(1)), [1, 2, 3].map(id).into());
            assert_eq!(mirror.of(id(1)), link(None, Some("x")));
            assert_eq!(mirror.of(id(2)), Link::default());
            assert_eq!(mirror.of(id(3)), link(None, Some("o")));
        }
    }

    #[test]
    fn a_torn_line_says_nothing_and_swallows_nothing() {
        let whole = line(id(1), link(Some(9), None), footing(1)).unwrap();
        let later = line(id(3), link(Some(1), None), footing(1)).unwrap();
        for cut in 0..whole.len() {
            let mut torn = mirror();
            replay(&mut torn, &whole[..cut], footing(1));
            assert_eq!(torn, mirror(), "cut at {cut}");
            let mut expected = mirror();
            expected.set(id(3), link(Some(1), None));
            replay(&mut torn, &[&whole[..cut], &later].concat(), footing(1));
            assert_eq!(torn, expected, "cut at {cut}");
        }
    }

    #[test]
    fn lines_on_another_file_say_nothing() {
        let bytes = line(id(1), link(Some(9), None), footing(1)).unwrap();
        for on in [footing(2), Footing::default()] {
            let mut unmoved = mirror();
            assert!(replay(&mut unmoved, &bytes, on).is_empty());
            assert_eq!(unmoved, mirror());
        }
    }

    #[test]
    fn differences_are_named() {
        let mut other = mirror();
        assert!(mirror().differences(&other).is_empty());
        other.set(id(1), link(None, None));
        other.set(id(2), link(Some(1), Some("new")));
        other.set(id(3), link(Some(1), None));
        assert_eq!(mirror().differences(&other), [1, 2, 3].map(id).into());
        assert_eq!(other.differences(&mirror()), [1, 2, 3].map(id).into());
    }
}
