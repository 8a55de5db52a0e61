//! The program that [`settee::program`] is.

use std::process::ExitCode;

/// Gives memory back soon and keeps small blocks of many threads together: the budget of `memory_mb` counts on it. What
/// is large goes back at once (`.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    settee::program::main()
}
