//! One copy of one range of a database: the place where documents live.
