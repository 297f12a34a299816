//! Conversations as plain JSON: the durable flat store, the tree of parents, locks and sessions.
//!
//! The store never learns that a mount or a terminal exists. Decisions are pure functions of values; the disk is reached
//! through [`disk::Disk`] alone, and nothing is written without a [`lock::Guard`].

pub mod beneath;
pub mod books;
pub mod boundaries;
pub mod clean;
pub mod conflict;
pub mod conversation;
pub mod disk;
pub mod document;
pub mod error;
pub mod events;
mod files;
pub mod id;
pub mod identity;
pub mod index;
pub mod join;
pub mod journal;
pub mod json;
pub mod layout;
pub mod ledger;
mod lines;
pub mod lock;
pub mod meta;
pub mod mirror;
pub mod modes;
pub mod mountinfo;
pub mod moved;
pub mod observe;
mod own;
pub mod parallel;
pub mod path_text;
pub mod plan;
pub mod presence;
pub mod problem;
mod recall;
pub mod reconcile;
mod removed;
pub mod scan;
pub mod scratch;
pub mod session;
mod sighting;
pub mod snapshot;
pub mod store;
mod temporaries;
pub mod time;
pub mod transcript;
pub mod tree;
pub mod workspace;
mod worktrees;
pub mod writer;

pub use error::{Error, Result};
pub use id::ConversationId;
pub use store::Store;
