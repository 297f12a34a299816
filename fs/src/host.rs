//! The edges: what turns a system's requests into calls of [`Vfs`](crate::vfs::Vfs), and its answers back. No decisions.

pub(crate) mod fuse;
