//! Conversations as plain JSON: the durable flat store, the tree of parents, locks and sessions.
//!
//! The store never learns that a mount or a terminal exists. Decisions are pure functions of values; the disk is reached
//! through [`disk::Disk`] alone, and nothing is written without a [`lock::Guard`].

pub mod disk;
pub mod error;
pub mod events;
pub mod id;
pub mod json;
pub mod lock;
pub mod meta;
pub mod session;
pub mod time;

pub use error::{Error, Result};
pub use id::ConversationId;
