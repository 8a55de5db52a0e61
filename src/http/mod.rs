//! Bytes to typed requests, answers to bytes. No decisions are taken here.
