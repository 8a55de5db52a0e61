//! One logical operation on a database: which ranges, which copies, what to answer.
