//! JSON as documents need it: ordered members, exact integers of any size, floats that stay floats, one canonical text.
