//! The production host: tokio's runtime and sockets, threads for blocking work, the file system.
