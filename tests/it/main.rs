//! Tests of the whole, in one executable so that they are linked once and run side by side.

// Every call of a change fails, and the process stops around each.
mod faults;
// Random operations against a model.
mod model;
// Many processes on one store.
mod parallel;
// What the source tree promises about itself.
mod tidy;
