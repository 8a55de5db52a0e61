//! Document ids and their rules.
