//! Names that programs give to files of the moment: swap files, backups, locks, half-written saves. Such a file belongs to
//! the program that made it, not to the conversation it lies in. Names only; no disk.

use std::ffi::OsStr;

/// Whether a file of this name is somebody's scratch.
pub fn is_scratch(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let has = |prefix: &str, suffix: &str| {
        name.len() > prefix.len() + suffix.len()
            && name.starts_with(prefix.as_bytes())
            && name.ends_with(suffix.as_bytes())
    };
    // vim probes a directory with 4913 and counts up; its swap files end in .swp, then .swo, .swn and so on downwards.
    let probe = name == b"4913";
    let swap = has(".", "") && matches!(name, [.., b'.', b's', b'w', b'a'..=b'p']);
    let emacs = has(".#", "") || has("#", "#");
    let editors = has("", "~")
        || has(".goutputstream-", "")
        || name.windows(6).any(|part| part == b"___jb_")
        || has(".", ".kate-swp");
    let saves = has("", ".tmp") || has("", ".swx") || has(".nfs", "");
    let mac = name == b".DS_Store" || has("._", "");
    probe || swap || emacs || editors || saves || mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |names: &[&str], expected: bool| {
            for name in names {
                assert_eq!(is_scratch(OsStr::new(name)), expected, "{name}");
            }
        };
        check(
            &[".metadata.json.swp", ".notes.swo", ".x.swa", "4913", "metadata.json~", ".#notes.md", "#notes.md#"],
            true,
        );
        check(
            &[
                "events.json.tmp",
                ".goutputstream-X1Y2Z3",
                "___jb_tmp___",
                "x.json___jb_old___",
                ".DS_Store",
                "._notes.md",
                ".nfs0001",
            ],
            true,
        );
        check(
            &["metadata.json", "notes.md", "4914", "~", "#", "##", ".tmp", ".#", "._", "a.swp", "tmp", ".hidden"],
            false,
        );
        check(&["swp", "x.swz", ".x.swq", "notes.tmpl", ""], false);
    }
}
