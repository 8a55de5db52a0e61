//! The commands `completions` and `man`: the command line as shells and manual pages have it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::program::{Failure, at, failure};

/// Flags of `settee completions`.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Flags of `settee man`.
#[derive(Args, Debug)]
pub struct Man {
    /// The folder for the pages of all commands; must exist [default: the main page on standard output]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Writes the completions of a shell to standard output.
pub fn completions(flags: &Completions) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "settee", &mut text);
    io::stdout().write_all(&text).map_err(failure)
}

/// Writes manual pages.
pub fn man(flags: &Man) -> Result<(), Failure> {
    match &flags.dir {
        Some(dir) => at(dir, clap_mangen::generate_to(Cli::command(), dir)),
        None => clap_mangen::Man::new(Cli::command()).render(&mut io::stdout()).map_err(failure),
    }
}
