//! Every limit and default of the node in one table, with its unit and reason.
//!
//! Limits that users may change have a configuration key beside them; the value here is the default.
