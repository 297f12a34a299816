//! Decides, for one unit of one conversation, which copy wins. Nothing here reads a disk or a clock: two sides, seen
//! against what was remembered, go in; an action comes out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A file the store understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManagedFile {
    /// `metadata.json`.
    Metadata,
    /// `events.json`.
    Events,
    /// `base_config.json`.
    BaseConfig,
}

impl ManagedFile {
    /// All of them, in the order they are kept in a [`Base`].
    pub const ALL: [Self; 3] = [Self::Metadata, Self::Events, Self::BaseConfig];

    /// The file's name in a conversation directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata.json",
            Self::Events => "events.json",
            Self::BaseConfig => "base_config.json",
        }
    }

    /// The managed file of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.name() == name)
    }

    /// The unit it belongs to.
    pub fn unit(self) -> Unit {
        match self {
            Self::Metadata => Unit::Metadata,
            Self::Events | Self::BaseConfig => Unit::Stream,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// What is decided as one. A stream's two files always come from the same side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// `metadata.json` alone.
    Metadata,
    /// `events.json` with `base_config.json`.
    Stream,
}

impl Unit {
    /// Both units.
    pub const ALL: [Self; 2] = [Self::Metadata, Self::Stream];

    /// The files of the unit. The base configuration comes first, so that events never stand beside none.
    pub fn files(self) -> &'static [ManagedFile] {
        match self {
            Self::Metadata => &[ManagedFile::Metadata],
            Self::Stream => &[ManagedFile::BaseConfig, ManagedFile::Events],
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "metadata",
            Self::Stream => "stream",
        })
    }
}

/// What a glance at a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Modification time in nanoseconds since the epoch.
    pub mtime: i64,
    /// Size in bytes.
    pub size: u64,
    /// Inode number; a file that was replaced has another.
    pub ino: u64,
}

/// A fingerprint of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        let full = sha2::Sha256::digest(bytes);
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Self(short)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let mut bytes = [0; 16];
        let valid = text.len() == 32
            && bytes.iter_mut().enumerate().all(|(i, byte)| {
                text.get(2 * i..2 * i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).is_some_and(|value| {
                    *byte = value;
                    true
                })
            });
        valid.then_some(Self(bytes)).ok_or_else(|| serde::de::Error::custom("not a digest"))
    }
}

/// One file as the last reconcile left it: the same bytes on both sides, and how each side looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBase {
    /// The bytes; `None` when the file was on neither side.
    #[serde(rename = "d")]
    pub digest: Option<Digest>,
    /// How the store's copy looked.
    #[serde(rename = "s")]
    pub store: Option<Stamp>,
    /// How the workspace's copy looked.
    #[serde(rename = "w")]
    pub work: Option<Stamp>,
}

/// What the last reconcile left behind, by [`ManagedFile`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// The files in the order of [`ManagedFile::ALL`].
    pub files: [FileBase; 3],
    /// When the stamps were taken, in nanoseconds since the epoch.
    pub taken: i64,
}

impl Base {
    /// What is remembered of one file.
    pub fn file(&self, file: ManagedFile) -> &FileBase {
        &self.files[file.index()]
    }

    /// What is remembered of one file, to change it.
    pub fn file_mut(&mut self, file: ManagedFile) -> &mut FileBase {
        &mut self.files[file.index()]
    }
}

/// The two roots a unit can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Root {
    /// The durable, flat, per-user store.
    Store,
    /// The workspace's real files.
    Work,
}

impl Root {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Store => Self::Work,
            Self::Work => Self::Store,
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "store",
            Self::Work => "workspace",
        })
    }
}

/// All changes within this many nanoseconds may have the same stamp: filesystems take it from a clock that ticks every 10 ms
/// where kernels tick slowest, and the tick of a moment ago may be late.
pub(crate) const TICK: i64 = 20_000_000;

/// The same for filesystems that keep whole seconds; FAT keeps every other one.
const COARSE_TICK: i64 = 2_000_000_000;

/// Whether a time that a file had at `taken`, both in nanoseconds, tells it from what it is after any later change.
pub(crate) fn is_settled(time: i64, taken: i64) -> bool {
    let is_coarse = time % 1_000_000_000 == 0;
    time < taken.saturating_sub(if is_coarse { COARSE_TICK } else { TICK })
}

/// Whether a stamp alone proves that a file is as remembered. A different stamp proves nothing: `touch` and `git checkout`
/// move it without changing a byte.
pub fn is_conclusive(remembered: Option<Stamp>, now: Option<Stamp>, taken: i64) -> bool {
    match (remembered, now) {
        (None, None) => true,
        (Some(then), Some(now)) => then == now && is_settled(now.mtime, taken),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// One side of a unit, seen against what was remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Not there, and not remembered as having been.
    Absent,
    /// Not there, though it was.
    Deleted,
    /// There, with nothing of its own.
    Same,
    /// There, with bytes that neither the base nor the other side has.
    Changed,
    /// There, but not a document.
    Broken,
}

/// The digests of a unit's files on one side, in the order of [`Unit::files`]; `None` for a missing file.
pub type Digests = Vec<Option<Digest>>;

/// Classifies a side that is there and parses. A file equal to the other side's is no change of its own: that is how a copy
/// cut short between two files is told from an edit.
pub fn side(mine: &Digests, other: &Digests, base: Option<&Digests>) -> Side {
    let own = mine.iter().enumerate().any(|(i, digest)| {
        let elsewhere = other.get(i).copied().flatten();
        let before = base.and_then(|base| base.get(i).copied().flatten());
        match base {
            Some(_) => *digest != before && *digest != elsewhere,
            // What is not there is nothing of its own.
            None => digest.is_some() && *digest != elsewhere,
        }
    });
    if own { Side::Changed } else { Side::Same }
}

/// Whether a side merely lost files that the other side still has, or has not got them yet: what is there of it is the
/// base's or the other's.
pub fn lost(mine: &Digests, other: &Digests, base: Option<&Digests>) -> bool {
    let files = || mine.iter().zip(other).enumerate();
    let before = |i: usize| base.and_then(|base| base.get(i).copied().flatten());
    files().any(|(i, (mine, other))| mine.is_none() && other.is_some() && (base.is_none() || before(i).is_some()))
        && files().all(|(i, (mine, other))| mine.is_none() || mine == other || base.is_some() && *mine == before(i))
}

/// What to do about one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: both agree, or only the store has it and is meant to.
    Keep,
    /// Bring the workspace up to the store.
    Export,
    /// Bring the store up to the workspace.
    Import,
    /// As [`Action::Import`], and keep the store's broken bytes under `conflicts/`.
    Restore,
    /// The workspace copy was removed by hand: it is local here from now on.
    Unproject,
    /// The store's copy is gone and the workspace has nothing of its own: the leftover can go.
    Drop,
    /// Both have changes: the winner's bytes everywhere, the loser's under `conflicts/`.
    Conflict {
        /// Whose bytes win.
        winner: Root,
    },
    /// A side does not parse: touch neither.
    Hold,
}

/// Decides one unit. `newer` says which side was modified last; equal times are the store's.
pub fn decide(store: Side, work: Side, newer: Root) -> Action {
    use Side::{Absent, Broken, Changed, Deleted, Same};
    match (store, work) {
        (Absent | Deleted, Absent | Deleted) => Action::Keep,
        (Absent, Same | Changed) => Action::Import,
        (Deleted, Same) => Action::Drop,
        // An edit beats a deletion.
        (Deleted, Changed) => Action::Import,
        (Same | Changed, Absent) => Action::Keep,
        (Same | Changed, Deleted) => Action::Unproject,
        (Same, Same) => Action::Keep,
        (Same, Changed) => Action::Import,
        (Changed, Same) => Action::Export,
        (Changed, Changed) => Action::Conflict { winner: newer },
        (Absent | Deleted | Same | Changed | Broken, Broken) => Action::Hold,
        (Broken, Absent | Deleted) => Action::Hold,
        // The workspace has a good copy of what is damaged in the store.
        (Broken, Same | Changed) => Action::Restore,
    }
}

/// Decides one file of the user's own from what each side has of it and what both had. The second answer is whether a
/// hidden file is there again, put back by somebody, and so is shown from now on.
pub fn decide_own(
    store: Option<Digest>,
    work: Option<Digest>,
    base: Option<Digest>,
    hidden: bool,
    newer: Root,
) -> (Action, bool) {
    let side = |mine: Option<Digest>, other: Option<Digest>| match (mine, base) {
        (None, Some(_)) => Side::Deleted,
        (None, None) => Side::Absent,
        (Some(mine), _) if Some(mine) == base || Some(mine) == other => Side::Same,
        (Some(_), _) => Side::Changed,
    };
    match (hidden, work) {
        (true, None) => (Action::Keep, false),
        // What is there is what was exported before it was hidden.
        (true, Some(_)) if work == base => (Action::Drop, false),
        (true | false, _) => (decide(side(store, work), side(work, store), newer), hidden),
    }
}

impl Action {
    /// Where the unit's current content is to be read.
    pub fn source(self) -> Root {
        match self {
            Self::Keep | Self::Export | Self::Unproject | Self::Hold => Root::Store,
            Self::Import | Self::Restore | Self::Drop => Root::Work,
            Self::Conflict { winner } => winner,
        }
    }
}

/// Which side is newer, when all that is known is modification times.
pub fn newer(store: Option<i64>, work: Option<i64>) -> Root {
    if work > store { Root::Work } else { Root::Store }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: [Side; 5] = [Side::Absent, Side::Deleted, Side::Same, Side::Changed, Side::Broken];

    /// The whole table, a row per state of the store, a column per state of the workspace.
    #[test]
    fn the_table() {
        let table: Vec<String> = SIDES
            .iter()
            .map(|&store| {
                SIDES
                    .iter()
                    .map(|&work| match decide(store, work, Root::Work) {
                        Action::Keep => "keep",
                        Action::Export => "export",
                        Action::Import => "import",
                        Action::Restore => "restore",
                        Action::Unproject => "unproject",
                        Action::Drop => "drop",
                        Action::Conflict { winner: Root::Work } => "conflict",
                        Action::Conflict { winner: Root::Store } => "?",
                        Action::Hold => "hold",
                    })
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(
            table,
            [
                "keep keep import import hold",
                "keep keep drop import hold",
                "keep unproject keep import hold",
                "keep unproject export conflict hold",
                "hold hold restore restore hold",
            ]
        );
    }

    /// Over everything a file of one's own can be: bytes that only one side has are copied, kept or left, never overwritten.
    #[test]
    fn own_files() {
        let some = [None, Some(Digest([1; 16])), Some(Digest([2; 16])), Some(Digest([3; 16]))];
        for store in some {
            for work in some {
                for base in some {
                    for newer in [Root::Store, Root::Work] {
                        let (action, shown) = decide_own(store, work, base, false, newer);
                        assert!(!shown);
                        match action {
                            Action::Keep => assert!(store == work || base.is_none() && work.is_none()),
                            Action::Export => assert!(work == base && store != base && work.is_some()),
                            Action::Import => assert!(store.is_none() || store == base),
                            Action::Unproject => assert!(work.is_none() && base.is_some() && store.is_some()),
                            Action::Drop => assert!(store.is_none() && work == base),
                            Action::Conflict { winner } => {
                                assert!(winner == newer && store.is_some() && work.is_some() && store != work);
                                assert!(store != base && work != base);
                            }
                            Action::Restore | Action::Hold => panic!("no file of one's own is broken"),
                        }
                        let (action, shown) = decide_own(store, work, base, true, newer);
                        assert_eq!(shown, work.is_some() && work != base);
                        if !shown {
                            assert_eq!(action, if work.is_some() { Action::Drop } else { Action::Keep });
                        }
                    }
                }
            }
        }
    }

    /// Over every pair of sides: nothing that has changes of its own is ever overwritten or dropped without a conflict.
    #[test]
    fn no_change_is_lost() {
        for store in SIDES {
            for work in SIDES {
                for newer in [Root::Store, Root::Work] {
                    match decide(store, work, newer) {
                        Action::Import => assert_ne!(store, Side::Changed),
                        Action::Export => assert_ne!(work, Side::Changed),
                        Action::Drop => assert_eq!((store, work), (Side::Deleted, Side::Same)),
                        Action::Conflict { winner } => assert_eq!(winner, newer),
                        Action::Keep | Action::Restore | Action::Unproject | Action::Hold => {}
                    }
                }
            }
        }
    }

    fn digests(text: &str) -> Digests {
        text.chars().map(|c| (c != '-').then_some(Digest([c as u8; 16]))).collect()
    }

    fn check_side(mine: &str, other: &str, base: Option<&str>, expected: Side) {
        let base = base.map(digests);
        let got = side(&digests(mine), &digests(other), base.as_ref());
        assert_eq!(got, expected, "{mine} against {other}");
    }

    #[test]
    fn a_half_made_copy_is_not_an_edit() {
        check_side("ab", "ab", Some("ab"), Side::Same);
        check_side("xy", "ab", Some("ab"), Side::Changed);
        check_side("ab", "xy", Some("ab"), Side::Same);
        // Cut short while copying xy over ab: each file is explained by the base or by the other side.
        check_side("xb", "xy", Some("ab"), Side::Same);
        check_side("xy", "xb", Some("ab"), Side::Changed);
        check_side("zb", "xy", Some("ab"), Side::Changed);
        // A file that appeared or vanished counts like any other bytes.
        check_side("-b", "ab", Some("ab"), Side::Changed);
        check_side("-b", "-b", Some("ab"), Side::Same);
        check_side("ab", "-b", Some("ab"), Side::Same);
        // Nothing remembered: different is changed.
        check_side("ab", "ab", None, Side::Same);
        check_side("ab", "xb", None, Side::Changed);
    }

    #[test]
    fn a_lost_file_is_not_an_edit() {
        let check = |mine: &str, other: &str, base: Option<&str>, expected: bool| {
            let base = base.map(digests);
            assert_eq!(lost(&digests(mine), &digests(other), base.as_ref()), expected, "{mine} against {other}");
        };
        check("-b", "ab", Some("ab"), true);
        check("a-", "ab", Some("ab"), true);
        check("-y", "xy", Some("ab"), true);
        check("ab", "ab", Some("ab"), false);
        // An edit that also drops a file is an edit; a file that nobody has is nobody's loss.
        check("-z", "ab", Some("ab"), false);
        check("-b", "-b", Some("ab"), false);
        check("-b", "ab", Some("-b"), false);
        // With nothing to compare with, what is there and alike tells that the rest has not come yet.
        check("-b", "ab", None, true);
        check("-z", "ab", None, false);
        check("ab", "-b", None, false);
    }

    #[test]
    fn equal_times_are_the_stores() {
        assert_eq!(newer(Some(5), Some(5)), Root::Store);
        assert_eq!(newer(Some(5), Some(6)), Root::Work);
        assert_eq!(newer(Some(6), Some(5)), Root::Store);
        assert_eq!(newer(None, Some(0)), Root::Work);
        assert_eq!(newer(Some(0), None), Root::Store);
        assert_eq!(newer(None, None), Root::Store);
    }

    #[test]
    fn stamps_prove_sameness_only_outside_the_tick() {
        let stamp = Stamp { mtime: 1_000_000_001, size: 3, ino: 7 };
        let later = stamp.mtime + 2 * TICK;
        assert!(is_conclusive(Some(stamp), Some(stamp), later));
        assert!(!is_conclusive(Some(stamp), Some(stamp), stamp.mtime + 1));
        assert!(!is_conclusive(Some(stamp), Some(Stamp { mtime: 1, ..stamp }), later));
        assert!(!is_conclusive(Some(stamp), Some(Stamp { ino: 8, ..stamp }), later));
        assert!(!is_conclusive(None, Some(stamp), later));
        assert!(is_conclusive(None, None, later));
    }

    #[test]
    fn times_that_tell() {
        let check =
            |time: i64, taken: i64, expected: bool| assert_eq!(is_settled(time, taken), expected, "{time} {taken}");
        let second = 1_000_000_000;
        // A kernel with 100 ticks a second stamps two changes alike that are up to 10 ms apart.
        let fine = 5 * second + 1;
        check(fine, fine, false);
        check(fine, fine + 10_000_000, false);
        check(fine, fine + TICK, false);
        check(fine, fine + TICK + 1, true);
        check(fine, fine - 1, false);
        check(5 * second, 5 * second + TICK + 1, false);
        check(5 * second, 7 * second, false);
        check(5 * second, 7 * second + 1, true);
        check(0, i64::MIN, false);
        check(i64::MIN, i64::MIN, false);
    }
}
