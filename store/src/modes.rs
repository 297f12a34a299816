//! Permission bits: what new files and directories get, and what a copy gets. Arithmetic only; no disk.

/// The bits that are ever set. Setuid, setgid and sticky bits never enter a store or leave it.
pub const PERMISSIONS: u32 = 0o777;

/// Who may reach what is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The owner alone, whatever the umask: everything in the data directory.
    Private,
    /// Whoever the umask allows: the worktree, and the target of an export.
    Shared,
}

impl Access {
    /// The bits of a new file, before the umask.
    pub const fn file(self) -> u32 {
        match self {
            Self::Private => 0o600,
            Self::Shared => 0o666,
        }
    }

    /// The bits of a new directory, before the umask.
    pub const fn dir(self) -> u32 {
        match self {
            Self::Private => 0o700,
            Self::Shared => 0o777,
        }
    }

    /// The bits of a new copy of a file that has these, before the umask. Never more than the file has.
    pub const fn copy_of(self, mode: u32) -> u32 {
        mode & self.dir()
    }
}

/// The bits that both modes have. The owner can always read and write.
pub const fn narrower(one: u32, other: u32) -> u32 {
    one & other & PERMISSIONS | 0o600
}

/// What `jp doctor --fix` makes of the mode of a directory in a store.
pub const fn private_dir(mode: u32) -> u32 {
    mode & 0o700 | 0o700
}

/// What `jp doctor --fix` makes of the mode of a file in a store. An owner's execute bit stays.
pub const fn private_file(mode: u32) -> u32 {
    mode & 0o700 | 0o600
}

/// Whether a mode allows anything to anybody but the owner.
pub const fn is_wide(mode: u32) -> bool {
    mode & 0o077 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrower_of_two_modes() {
        let check = |one: u32, other: u32, expected: u32| {
            assert_eq!(narrower(one, other), expected, "{one:o} and {other:o}");
            assert_eq!(narrower(other, one), expected, "{other:o} and {one:o}");
        };
        check(0o644, 0o600, 0o600);
        check(0o664, 0o640, 0o640);
        check(0o755, 0o644, 0o644);
        check(0o755, 0o700, 0o700);
        check(0o444, 0o644, 0o644);
        check(0o4755, 0o4711, 0o711);
        check(0, 0o777, 0o600);
    }

    #[test]
    fn copies_are_never_wider() {
        for mode in 0..=0o7777 {
            assert_eq!(Access::Private.copy_of(mode) & !0o700, 0, "{mode:o}");
            assert_eq!(Access::Private.copy_of(mode) & !mode, 0, "{mode:o}");
            assert_eq!(Access::Shared.copy_of(mode), mode & 0o777, "{mode:o}");
            assert!(!is_wide(private_file(mode)) && !is_wide(private_dir(mode)), "{mode:o}");
        }
        assert_eq!((private_file(0o755), private_file(0o444), private_dir(0o755)), (0o700, 0o600, 0o700));
    }
}
