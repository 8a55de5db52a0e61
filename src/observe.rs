//! What a node tells of itself: counters and log set-up.
