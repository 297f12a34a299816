//! Tests of the whole, in one executable so that they are linked once and run side by side.

// What the source tree promises about itself.
mod tidy;
