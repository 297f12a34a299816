//! Metadata as it was read some time ago, with the stamps of the very files it came from, as one value and as bytes. It is
//! never believed by itself: bytes are given only to whoever brings a stamp of the file as it is now, and only where that
//! stamp is the same to the last number.
//!
//! The bytes: a head (magic, version, length, checksum of all the rest), the silo it belongs to, one record for each file
//! in the order of inode numbers, and what was in the files. Anything odd makes it no index at all.

use xxhash_rust::xxh3::Xxh3;

use crate::disk::{Kind, Stat};
use crate::identity::Identity;
use crate::reconcile::is_settled;

const MAGIC: &[u8; 8] = b"jp-index";
const VERSION: u64 = 2;
/// Magic, version, length, checksum.
const HEAD: usize = 8 * 4;
/// The silo's filesystem, inode and birth, and how many records there are.
const TITLE: usize = 8 * 4;
/// Inode, size, modification, change, and where its bytes begin.
const RECORD: usize = 8 * 5;

/// By now a file's bytes are on disk, though nobody asked for it. Before that a power loss may leave the stamp of a write
/// beside the bytes of an earlier one.
const SAFE: i64 = 60_000_000_000;

/// What was in files when they had certain stamps.
#[derive(Clone, Debug)]
pub struct Index {
    bytes: Vec<u8>,
    device: u64,
    count: usize,
}

/// One file that was read.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What `fstat` said of it.
    pub stat: Stat,
    /// What was in it.
    pub bytes: &'a [u8],
}

impl Entry<'_> {
    /// Whether its bytes were on disk before `taken`, as far as one can tell without bringing them there.
    pub fn is_safe(&self, taken: i64) -> bool {
        self.stat.ctime < taken.saturating_sub(SAFE)
    }

    /// Whether its stamp tells these bytes from all that may be in the file later, given that it was read no earlier than
    /// `taken`.
    pub fn is_conclusive(&self, taken: i64) -> bool {
        let Stat { kind, size, mtime, ctime, .. } = self.stat;
        let whole = kind == Kind::File && size == self.bytes.len() as u64;
        whole && is_settled(mtime, taken) && is_settled(ctime, taken)
    }
}

impl Index {
    /// The bytes of an index of these files, for the silo of this identity, which is on this device now. Files of other
    /// devices are left out.
    pub fn encode(silo: Identity, device: u64, mut entries: Vec<Entry<'_>>) -> Vec<u8> {
        entries.retain(|entry| entry.stat.dev == device);
        entries.sort_by_key(|entry| entry.stat.ino);
        entries.dedup_by_key(|entry| entry.stat.ino);
        let contents: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        let mut out = Vec::with_capacity(HEAD + TITLE + RECORD * entries.len() + contents);
        out.resize(HEAD, 0);
        for number in silo.numbers() {
            out.extend(number.to_le_bytes());
        }
        out.extend((entries.len() as u64).to_le_bytes());
        let mut at = HEAD + TITLE + RECORD * entries.len();
        for Entry { stat, bytes } in &entries {
            for number in key(stat) {
                out.extend(number.to_le_bytes());
            }
            out.extend((at as u64).to_le_bytes());
            at += bytes.len();
        }
        for entry in &entries {
            out.extend(entry.bytes);
        }
        let length = out.len() as u64;
        out[..8].copy_from_slice(MAGIC);
        out[8..16].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(&out);
        out[24..HEAD].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The index in these bytes, if they are one, whole, of this version and for this silo, which is on this device now.
    pub fn decode(bytes: Vec<u8>, silo: Identity, device: u64) -> Option<Self> {
        let whole = bytes.get(..8)? == MAGIC
            && number(&bytes, 8)? == VERSION
            && number(&bytes, 16)? == bytes.len() as u64
            && number(&bytes, 24)? == checksum(&bytes);
        let ours = || silo.numbers().iter().enumerate().all(|(i, &told)| number(&bytes, HEAD + 8 * i) == Some(told));
        let count = usize::try_from(number(&bytes, HEAD + 8 * 3).filter(|_| whole && ours())?).ok()?;
        let records = count.checked_mul(RECORD)?.checked_add(HEAD + TITLE)?;
        (records <= bytes.len()).then_some(Self { bytes, device, count })
    }

    /// How many files it knows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is in the file with this stamp, and under which number that is known here.
    pub fn find(&self, stat: &Stat) -> Option<(usize, &[u8])> {
        if stat.kind != Kind::File || stat.dev != self.device {
            return None;
        }
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let ino = number(&self.bytes, HEAD + TITLE + RECORD * middle)?;
            match ino.cmp(&stat.ino) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let (then, bytes) = self.record(middle)?;
                    return (then == key(stat)).then_some((middle, bytes));
                }
            }
        }
        None
    }

    /// One of its files by number, as it was put in.
    pub fn entry(&self, at: usize) -> Option<Entry<'_>> {
        let ([ino, size, mtime, ctime], bytes) = self.record(at)?;
        let (mtime, ctime) = (mtime.cast_signed(), ctime.cast_signed());
        let stat = Stat { kind: Kind::File, size, mtime, ctime, ino, dev: self.device, mode: 0, birth: None };
        Some(Entry { stat, bytes })
    }

    fn record(&self, at: usize) -> Option<([u64; 4], &[u8])> {
        let start = HEAD + TITLE + RECORD * at;
        let mut told = [0; 4];
        for (i, place) in told.iter_mut().enumerate() {
            *place = number(&self.bytes, start + 8 * i)?;
        }
        let from = usize::try_from(number(&self.bytes, start + 8 * 4)?).ok()?;
        let to = from.checked_add(usize::try_from(told[1]).ok()?)?;
        Some((told, self.bytes.get(from..to)?))
    }
}

/// What must be the same of a file.
fn key(stat: &Stat) -> [u64; 4] {
    [stat.ino, stat.size, stat.mtime.cast_unsigned(), stat.ctime.cast_unsigned()]
}

/// Of everything but itself.
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(bytes.get(..24).unwrap_or_default());
    sum.update(bytes.get(HEAD..).unwrap_or_default());
    sum.digest()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(eight.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(ino: u64, bytes: &[u8]) -> Stat {
        let (mtime, ctime) = (1_000 + ino.cast_signed(), -5);
        Stat { kind: Kind::File, size: bytes.len() as u64, mtime, ctime, ino, dev: 7, mode: 0o644, birth: Some(3) }
    }

    fn silo() -> Identity {
        Identity::new(Stat { kind: Kind::Dir, ..stat(2, b"") }, Some(1))
    }

    fn files() -> Vec<(Stat, Vec<u8>)> {
        let text = |n: u64| vec![b'x'; usize::try_from(n % 5).unwrap()];
        [9, 3, 70, 12, 4].map(|n| (stat(n, &text(n)), text(n))).into()
    }

    fn bytes(silo: Identity) -> Vec<u8> {
        let files = files();
        Index::encode(silo, 7, files.iter().map(|(stat, bytes)| Entry { stat: *stat, bytes }).collect())
    }

    #[test]
    fn gives_back_what_was_put_in() {
        let index = Index::decode(bytes(silo()), silo(), 7).unwrap();
        assert_eq!(index.len(), 5);
        for (stat, bytes) in files() {
            // How it may be read, and when it was made, says nothing of what is in it.
            let (at, found) = index.find(&Stat { mode: 0, birth: None, ..stat }).unwrap();
            assert_eq!(found, bytes);
            let entry = index.entry(at).unwrap();
            assert_eq!((key(&entry.stat), entry.bytes), (key(&stat), &*bytes));
        }
        assert!(index.entry(5).is_none());
        let none = Index::decode(Index::encode(silo(), 7, Vec::new()), silo(), 7).unwrap();
        assert!(none.is_empty() && none.find(&stat(3, b"xxx")).is_none());
    }

    #[test]
    fn every_number_of_a_stamp_counts() {
        let index = Index::decode(bytes(silo()), silo(), 7).unwrap();
        let known = stat(3, b"xxx");
        assert!(index.find(&known).is_some());
        let others = [
            Stat { ino: 5, ..known },
            Stat { size: 4, ..known },
            Stat { mtime: known.mtime + 1, ..known },
            Stat { ctime: known.ctime + 1, ..known },
            Stat { dev: 8, ..known },
            Stat { kind: Kind::Link, ..known },
        ];
        for other in others {
            assert!(index.find(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn damage_makes_it_no_index() {
        let whole = bytes(silo());
        for at in 0..whole.len() {
            assert!(Index::decode(whole[..at].to_vec(), silo(), 7).is_none(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                assert!(Index::decode(flipped, silo(), 7).is_none(), "bit {bit} of {at}");
            }
        }
        let longer = [&*whole, b"\0"].concat();
        assert!(Index::decode(longer, silo(), 7).is_none());
    }

    #[test]
    fn of_another_silo_or_another_time() {
        let elsewhere = Identity::new(Stat { ino: 99, ..stat(2, b"") }, Some(1));
        assert!(Index::decode(bytes(elsewhere), silo(), 7).is_none());
        let mut later = bytes(silo());
        later[8] += 1;
        let sum = checksum(&later);
        later[24..HEAD].copy_from_slice(&sum.to_le_bytes());
        assert!(Index::decode(later, silo(), 7).is_none());
    }

    #[test]
    fn numbers_that_lead_nowhere() {
        // Whoever writes a right checksum over wrong numbers gets no panic and no bytes.
        let spoil = |at: usize, value: u64| {
            let mut bytes = bytes(silo());
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let sum = checksum(&bytes);
            bytes[24..HEAD].copy_from_slice(&sum.to_le_bytes());
            Index::decode(bytes, silo(), 7)
        };
        assert!(spoil(HEAD + 24, u64::MAX).is_none() && spoil(HEAD + 24, 1 << 20).is_none());
        for value in [u64::MAX, 1 << 30] {
            let index = spoil(HEAD + TITLE + 8 * 4, value).unwrap();
            assert!(index.find(&stat(3, b"xxx")).is_none() && index.entry(0).is_none());
        }
    }

    #[test]
    fn what_changed_a_moment_ago_is_not_conclusive() {
        let now = 1_000_000_000;
        let check = |mtime: i64, ctime: i64, expected: bool| {
            let entry = Entry { stat: Stat { mtime, ctime, ..stat(3, b"xxx") }, bytes: b"xxx" };
            assert_eq!(entry.is_conclusive(now), expected, "{mtime} {ctime}");
        };
        let old = now - crate::reconcile::TICK - 1;
        check(old, old, true);
        check(old + 1, old, false);
        check(old, old + 1, false);
        check(now + 5, old, false);
        let grown = Entry { stat: Stat { mtime: 0, ctime: 0, ..stat(3, b"xxx") }, bytes: b"xxxx" };
        assert!(!grown.is_conclusive(now));
        assert!(!Entry { stat: stat(3, b""), bytes: b"" }.is_conclusive(i64::MIN));
    }
}
