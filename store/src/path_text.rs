//! Paths as text, so that a file of any name can be written down in JSON. A path that is UTF-8 is its own text. The text of any
//! other begins with NUL, which no path contains, and has `%XX` for each byte that is not UTF-8 and for `%`.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

const ESCAPED: &str = "\0";

/// The text for a path.
pub fn to_text(path: &Path) -> Cow<'_, str> {
    if let Some(text) = path.to_str() {
        return Cow::Borrowed(text);
    }
    let mut text = ESCAPED.to_owned();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    Cow::Owned(text)
}

/// The path that a text stands for.
pub fn to_path(text: &str) -> Cow<'_, Path> {
    let Some(escaped) = text.strip_prefix(ESCAPED) else { return Cow::Borrowed(Path::new(text)) };
    let mut parts = escaped.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[2..]);
            }
            // Nobody has written that. It stands for no file.
            None => bytes.extend(part.as_bytes()),
        }
    }
    Cow::Owned(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn every_path_has_a_text_of_its_own() {
        let paths: [&[u8]; 9] = [
            b"notes.md",
            b"",
            b"100%.md",
            b"sub/\xff\xfe",
            b"\xff",
            b"%FF",
            b"\xff%FF",
            b"\xff%25",
            b"gr\xc3\xb6\xc3\x9fe/\xf6",
        ];
        let mut texts = HashSet::new();
        for bytes in paths {
            let path = Path::new(OsStr::from_bytes(bytes));
            let text = to_text(path).into_owned();
            assert_eq!(to_path(&text), path, "{text:?}");
            assert!(texts.insert(text));
        }
        assert_eq!(to_text(Path::new("größe/%")), "größe/%");
    }

    #[test]
    fn what_is_no_text_of_a_path_is_no_panic() {
        for text in ["\0%", "\0%F", "\0%ZZ", "\0%ö", "\0"] {
            let _ = to_path(text);
        }
    }
}
