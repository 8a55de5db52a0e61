//! House rules that a machine can check.
#[test]
fn placeholder() {}
