//! Tests of the whole, in one executable so that they are linked once and run side by side. The hostile repositories are a second
//! executable (`tests/hostile`): they use every processor, so they run alone.

// What no program should have written, and what a system refuses.
mod bad_input;
// Real files beneath a mount: left alone while it is there, made to follow when it ends.
mod covered;
// What was saved through a mount and is not in the store, and what is hidden, by command.
mod drafts;
// Archives, removals and expiry take both roots and the tree along.
mod endings;
// Real files written out and taken in by command.
mod exporting;
// Every call of a change fails, and the process stops around each.
mod faults;
// The real git on real files and on mounts, alone and in company.
mod git;
// Edits made by hand in either root, and which of two copies counts.
mod hand_edits;
// What git runs before a commit.
mod hooks;
// Metadata that was read once need not be read again, and is never believed.
mod index;
// What loses its place keeps its bytes.
mod keeping;
// Who holds a conversation, who waits, and who is let through.
mod locks;
// The files of a conversation: opened in an editor, written by others, of an older layout.
mod managed_files;
// Several silos of one workspace become one.
mod migrate;
// Real files that are kept in step with the store.
mod mirror;
// Random operations against a model.
mod model;
// Who can read what.
mod modes;
// The tree as a filesystem, with the programs people use on it.
mod mount;
// Nothing outside the store, the worktree and the target of an export is read, written or removed.
mod outside;
// Many processes on one store.
mod parallel;
// Copies that arrive with the id of a conversation that the store has.
mod planted;
// What both roots have after each kind of change.
mod presence;
// Something happens at the worst moment.
mod races;
// Other ways into the store, other worktrees out of reach, and what cannot be read.
mod reach;
// A store as the real tool leaves it.
mod real_store;
// Conversations that left the store.
mod removed;
// A new title or parent beneath a mount, without a look at everything.
mod reshape;
// Which conversation a terminal is on.
mod sessions;
// What stories look at; no tests of its own.
mod story;
// What the source tree promises about itself.
mod tidy;
// Hiding conversations from a worktree and showing them again.
mod toggles;
// The filesystem, in this process and through the kernel.
mod vfs;
// Worktrees and clones come and go; conversations stay.
mod worktree;
// Whose state a worktree's is.
mod worktree_identity;
