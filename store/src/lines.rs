//! Files that only ever get lines added to them, by processes that can be stopped, on disks that can be full. Values only.
//!
//! A line counts when it is whole. What an append that was cut short left behind never becomes a line, whatever comes after
//! it: the one who was adding it was told that it failed.

/// What every append begins with. It makes what was left behind something that no line can be.
pub(crate) const BEGIN: &[u8] = b"#\n";

/// The whole lines of these bytes.
pub(crate) fn of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes[..whole(bytes)].split(|&byte| byte == b'\n')
}

/// How many of these bytes are whole lines. Another process may be in the middle of the next one.
pub(crate) fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}
