//! Tests of the whole, in one executable so that they are linked once and run side by side.

// What no program should have written, and what a system refuses.
mod bad_input;
// Every call of a change fails, and the process stops around each.
mod faults;
// A store as the real tool leaves it.
mod real_store;
// What the source tree promises about itself.
mod tidy;
