//! The bench that tests of the whole stand on: a sealed environment for the `jp` command, conversations as they lie on
//! disk, a disk that fails on request, a live mount, and snapshots of directory trees.
//!
//! Formats are spelled out here a second time on purpose. A harness that asked the store how to write a conversation
//! could not notice the store writing it wrongly.

mod asked;
mod bulk;
pub mod driver;
mod env;
mod fault_backing;
mod fault_disk;
mod fixture;
mod mirrored;
mod mounted;
mod procs;
mod sample;
mod shot;
mod small_disk;
mod wait;

pub use asked::{copy_program, have, named_program, setting, words};
pub use bulk::{Bulk, Layout, RARE, Random};
pub use env::{Call, TestEnv, Workspace, jp_binary};
pub use fault_backing::FaultBacking;
pub use fault_disk::FaultDisk;
pub use fixture::{copy_tree, fixture_store, repository, skip};
pub use mirrored::Mirrored;
pub use mounted::{Contents, LIMIT, Mounted, User, contents, ids, is_alive};
pub use procs::{Output, Running};
pub use sample::{Place, Sample, dirname, mtime, native_time, pretty, set_mtime};
pub use shot::Shot;
pub use small_disk::SmallDisk;
pub use wait::{until, wait_for};
