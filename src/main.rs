//! The `settee` program.
fn main() {}
