//! The store as a filesystem: what a mount answers, and the FUSE host at its edge.
//!
//! Everything but `host` knows neither the kernel nor its library, and can be used in process.

mod ahead;
pub mod backing;
mod bell;
pub mod caller;
pub mod catalog;
pub mod draft;
pub mod error;
mod flag;
mod host;
pub mod inodes;
pub mod listings;
pub mod live;
pub mod memory;
pub mod mirror;
pub mod mount;
pub mod node;
pub mod refusal;
pub mod remembering;
mod remote;
mod renames;
pub mod teller;
pub mod unmounted;
pub mod vfs;
mod watch;

pub use live::Live;
pub use mirror::Mirror;
pub use mount::{Options, Session};
