//! Changes of a ledger since its file was written, one line each, so that hiding one of ten thousand conversations is one
//! small append. Values only; reading and writing the file is the store's affair.
//!
//! A line counts only for the ledger it was written on top of. Once the whole ledger is written anew, lines that were
//! left behind say nothing, even if they contradict it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::disk::Stat;
use crate::id::ConversationId;
use crate::identity::Identity;
use crate::ledger::Ledger;
use crate::lines;
use crate::presence::Projection;
use crate::reconcile::Digest;

/// One change of what a worktree shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The conversation is meant to be here.
    Show(ConversationId),
    /// The conversation is not; its hidden files are no special case any more.
    Hide(ConversationId),
    /// One of its files is not shown, by its path relative to the conversation's directory.
    HideFile(ConversationId, String),
    /// One of its files is shown again.
    ShowFile(ConversationId, String),
    /// What was last shown of a file that is hidden; `None` when that is not known.
    LastShown(ConversationId, String, Option<Digest>),
    /// A mount lies over the real files from now on, and they may be behind.
    Cover,
}

impl Change {
    /// Whose change it is; of none if it is about all.
    pub fn id(&self) -> Option<ConversationId> {
        match self {
            Self::Show(id)
            | Self::Hide(id)
            | Self::HideFile(id, _)
            | Self::ShowFile(id, _)
            | Self::LastShown(id, ..) => Some(*id),
            Self::Cover => None,
        }
    }

    /// Makes the ledger say so. Twice is as good as once. What was last exported stays known: it is what real files
    /// that are behind are measured against.
    pub fn apply(&self, ledger: &mut Ledger) {
        match self {
            Self::Show(id) => {
                let entry = ledger.entry(*id);
                entry.intent = Projection::Projected;
                entry.never_projected = false;
                entry.end_made_local();
            }
            Self::Hide(id) => {
                let entry = ledger.entry(*id);
                entry.intent = Projection::LocalOnly;
                entry.show(|_| true);
            }
            Self::HideFile(id, file) => {
                ledger.entry(*id).hidden.insert(file.clone());
            }
            Self::ShowFile(id, file) => {
                let entry = ledger.entry(*id);
                entry.show(|hidden| hidden == file);
                entry.last_shown.remove(file);
            }
            Self::LastShown(id, file, Some(digest)) => {
                ledger.entry(*id).last_shown.insert(file.clone(), *digest);
            }
            Self::LastShown(id, file, None) => {
                ledger.entry(*id).last_shown.remove(file);
            }
            Self::Cover => ledger.covered = true,
        }
    }
}

/// What a line was written on top of: which `.jp` directory, and how the ledger's file looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footing {
    workspace: Identity,
    /// Modification time and size; `None` when there was no file. The inode would not survive a backup.
    ledger: Option<(i64, u64)>,
}

impl Footing {
    /// The `.jp` directory, and the ledger's file.
    pub fn new(workspace: Identity, ledger: Option<Stat>) -> Self {
        Self { workspace, ledger: ledger.map(|stat| (stat.mtime, stat.size)) }
    }

    /// Whether both are the same `.jp` directory and the same ledger.
    fn is_same(self, other: Self) -> bool {
        self.workspace.is_same(other.workspace) && self.ledger == other.ledger
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    on: Footing,
    #[serde(flatten)]
    change: Change,
}

/// Several changes that are made together or not at all.
#[derive(Serialize, Deserialize)]
struct Together {
    on: Footing,
    together: Vec<Change>,
}

/// Whether any line that was written on top of this ledger says that a mount lies over the real files.
pub(crate) fn covers(bytes: &[u8], on: Footing) -> bool {
    let mut ledger = Ledger::default();
    replay(&mut ledger, bytes, on);
    ledger.covered
}

/// The line for these changes. They are one line, so that all of them count or none does.
pub fn line(changes: &[Change], on: Footing) -> serde_json::Result<Vec<u8>> {
    let mut out = lines::BEGIN.to_vec();
    match changes {
        [change] => serde_json::to_writer(&mut out, &Line { on, change: change.clone() })?,
        changes => serde_json::to_writer(&mut out, &Together { on, together: changes.to_vec() })?,
    }
    out.push(b'\n');
    Ok(out)
}

fn parse(line: &[u8]) -> Option<(Footing, Vec<Change>)> {
    let one = serde_json::from_slice(line).map(|Line { on, change }| (on, vec![change]));
    let together = |_| serde_json::from_slice(line).map(|Together { on, together }| (on, together));
    one.or_else(together).ok()
}

/// Applies the lines that were written on top of this ledger, and says whom they are about. Others, and what an append
/// that was cut short left, are passed over.
pub fn replay(ledger: &mut Ledger, bytes: &[u8], on: Footing) -> BTreeSet<ConversationId> {
    let mut changed = BTreeSet::new();
    for (_, changes) in lines::of(bytes).filter_map(parse).filter(|(other, _)| other.is_same(on)) {
        for change in changes {
            change.apply(ledger);
            changed.extend(change.id());
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Kind;
    use crate::ledger::Entry;
    use crate::reconcile::Base;

    fn id(n: u64) -> ConversationId {
        ConversationId::new(n).unwrap()
    }

    fn stat(mtime: i64) -> Stat {
        Stat { kind: Kind::File, size: 9, mtime, ctime: mtime, ino: 7, dev: 8, mode: 0o644, birth: None }
    }

    fn footing(mtime: i64) -> Footing {
        Footing::new(Identity::new(stat(0), None), Some(stat(mtime)))
    }

    /// What the ledger says of each conversation: `projected`, `local`, hidden files, `+base`.
    fn told(ledger: &Ledger) -> String {
        let entries = ledger.entries().map(|(id, entry)| {
            let intent = if entry.intent == Projection::Projected { "projected" } else { "local" };
            let base = if entry.base.is_some() { "+base" } else { "" };
            let hidden: Vec<_> = entry.hidden.iter().map(|file| format!("-{file}")).collect();
            format!("{}:{intent}{base}{}", id.deciseconds(), hidden.concat())
        });
        let covered = ledger.covered.then(|| "covered".to_owned());
        entries.chain(covered).collect::<Vec<_>>().join(" ")
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(Identity::new(stat(0), None));
        ledger.set(id(1), Entry { base: Some(Base::default()), ..Entry::new(Projection::Projected) });
        ledger
    }

    #[test]
    fn changes() {
        let file = |name: &str| name.to_owned();
        let check = |changes: &[Change], expected: &str| {
            let bytes = line(changes, footing(1)).unwrap();
            let mut ledger = ledger();
            for _ in 0..2 {
                replay(&mut ledger, &bytes, footing(1));
                assert_eq!(told(&ledger), expected, "{changes:?}");
            }
        };
        check(&[], "1:projected+base");
        check(&[Change::Hide(id(1))], "1:local+base");
        check(&[Change::Hide(id(1)), Change::Show(id(1))], "1:projected+base");
        check(&[Change::Show(id(2))], "1:projected+base 2:projected");
        check(&[Change::HideFile(id(1), file("a\n\"b"))], "1:projected+base-a\n\"b");
        check(
            &[
                Change::HideFile(id(1), file("a")),
                Change::HideFile(id(1), file("b")),
                Change::ShowFile(id(1), file("a")),
            ],
            "1:projected+base-b",
        );
        check(&[Change::HideFile(id(1), file("a")), Change::Hide(id(1))], "1:local+base");
        check(&[Change::Cover, Change::Hide(id(1))], "1:local+base covered");
    }

    #[test]
    fn a_torn_line_says_nothing_and_swallows_nothing() {
        let later = line(&[Change::Show(id(3))], footing(1)).unwrap();
        for changes in [&[Change::Hide(id(1))][..], &[Change::Hide(id(1)), Change::Show(id(2))]] {
            let whole = line(changes, footing(1)).unwrap();
            for cut in 0..whole.len() {
                let mut bytes = whole[..cut].to_vec();
                let mut ledger = ledger();
                replay(&mut ledger, &bytes, footing(1));
                assert_eq!(told(&ledger), "1:projected+base", "cut at {cut}");
                bytes.extend(&later);
                replay(&mut ledger, &bytes, footing(1));
                assert_eq!(told(&ledger), "1:projected+base 3:projected", "cut at {cut}");
            }
        }
    }

    #[test]
    fn lines_of_older_versions_count() {
        let one = |change: Change| serde_json::to_string(&Line { on: footing(1), change }).unwrap();
        let bytes = format!("\n{}\n{}\n", one(Change::Hide(id(1))), one(Change::Show(id(2))));
        let mut ledger = ledger();
        replay(&mut ledger, bytes.as_bytes(), footing(1));
        assert_eq!(told(&ledger), "1:local+base 2:projected");
    }

    #[test]
    fn lines_of_another_ledger_say_nothing() {
        let bytes = line(&[Change::Hide(id(1))], footing(1)).unwrap();
        let other = Footing::new(Identity::new(Stat { ino: 99, ..stat(0) }, None), Some(stat(1)));
        for on in [footing(2), Footing::new(Identity::new(stat(0), None), None), other] {
            let mut ledger = ledger();
            replay(&mut ledger, &bytes, on);
            assert_eq!(told(&ledger), "1:projected+base");
        }
    }
}
