//! The command line (`docs/operations.md`): its flags are stable, other tools rely on them. Pure.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use crate::config::Setting;
use crate::observe::told::Told;
use clap::{Args, Parser, Subcommand};

pub mod banner;
pub mod bucket;
pub mod doctor;
pub mod migrate;
pub mod pages;

use bucket::{Pull, Push};
use doctor::Doctor;
use migrate::{Export, Import};
use pages::{Completions, Man};

/// A clustered, CouchDB-compatible document database.
#[derive(Parser, Debug)]
#[command(name = "settee", version, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a node until SIGTERM or SIGINT.
    Serve(Serve),
    /// Read everything in a data directory that no node is using and say what is damaged. Changes nothing. Exit status:
    /// 0 all is whole, 1 something is damaged, 2 it could not be checked
    Check(Check),
    /// Print a token with which one new node may join the cluster of a node, within an hour
    Token(Token),
    /// Write a database of a data directory that no node is using as one portable stream
    Dump(Dump),
    /// Make a database of a data directory that no node is using from such a stream
    Load(Load),
    /// Make a database, or all of a node, of a data directory that no node is using from a snapshot
    Restore(Restore),
    /// Copy what is new in a folder of snapshots into a bucket of a store that speaks S3
    Push(Push),
    /// Bring snapshots back from such a bucket into a folder, for `settee restore`
    Pull(Pull),
    /// Carry databases over from a running CouchDB-compatible server, from a file of couchbackup, or translate a
    /// configuration file of CouchDB
    Import(Import),
    /// Carry databases over to a running CouchDB-compatible server
    Export(Export),
    /// Take over what is whole of a damaged data directory that no node is using, into a new one, and say what is lost.
    /// Changes nothing in the damaged one. Exit status: 0 nothing is lost, 1 something is
    Salvage(Salvage),
    /// Look at this machine: clock, limits, memory, ports, file system, disk room, truth of syncs
    Doctor(Doctor),
    /// Write the completions of a shell to standard output
    Completions(Completions),
    /// Write manual pages
    Man(Man),
    /// Run functions of a design document for the node that started this
    #[command(hide = true)]
    ScriptHost,
}

/// Flags of `settee dump`.
#[derive(Args, Debug)]
pub struct Dump {
    /// The data directory
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
    /// The database
    #[arg(long, value_name = "NAME")]
    pub db: String,
    /// The file to write; must not exist [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Flags of `settee load`.
#[derive(Args, Debug)]
pub struct Load {
    /// The data directory; made if missing
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
    /// The name of the new database [default: the one that it had]
    #[arg(long, value_name = "NAME")]
    pub db: Option<String>,
    /// The file to read [default: standard input]
    #[arg(long = "in", value_name = "FILE")]
    pub input: Option<PathBuf>,
}

/// Flags of `settee restore`.
#[derive(Args, Debug)]
pub struct Restore {
    /// The folder of the snapshots, or one file below its `databases` or, with --all, its `nodes`
    #[arg(value_name = "SNAPSHOT")]
    pub from: PathBuf,
    /// The data directory; made if missing
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,
    /// The database whose newest snapshot it is
    #[arg(long, value_name = "NAME", required_unless_present = "all")]
    pub db: Option<String>,
    /// The name of the new database [default: the one that it had]
    #[arg(long = "as", value_name = "NEW")]
    pub new_name: Option<String>,
    /// All databases of the newest snapshot of a node
    #[arg(long, conflicts_with_all = ["db", "new_name"])]
    pub all: bool,
}

/// Flags of `settee check`.
#[derive(Args, Debug)]
pub struct Check {
    /// The data directory
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
}

/// Flags of `settee salvage`.
#[derive(Args, Debug)]
pub struct Salvage {
    /// The damaged data directory
    #[arg(value_name = "DIR")]
    pub data: PathBuf,
    /// The new data directory; must not exist, or be empty
    #[arg(long, value_name = "NEW-DIR")]
    pub to: PathBuf,
}

/// Flags of `settee token`.
#[derive(Args, Debug)]
pub struct Token {
    /// The node's data directory
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,
    /// The node's configuration files, as for `settee serve` [default: DIR/local.ini]
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
}

/// Flags of `settee serve`.
#[derive(Args, Debug)]
pub struct Serve {
    /// Directory of the node's data; made if missing.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,
    /// Configuration file in CouchDB's INI format; may be repeated, later ones win, the last one is written to, and
    /// local.d/*.ini beside it is read too [default: DIR/local.ini]
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Address to listen on [default: chttpd/bind_address, else 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    pub bind: Option<String>,
    /// Port to listen on [default: chttpd/port, else 5984]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Port for other nodes of a cluster; opened once the node is part of one, at once with this flag [default:
    /// cluster/port, else 9100]
    #[arg(long, value_name = "N")]
    pub cluster_port: Option<u16>,
    /// Join the cluster of the node with this cluster port, at the first start; needs --token
    #[arg(long, value_name = "HOST:PORT", requires = "token")]
    pub join: Option<String>,
    /// The join token, from `settee token` or POST /_cluster/join_token
    #[arg(long, value_name = "TOKEN", requires = "join")]
    pub token: Option<String>,
    /// This node's name [default: settee@127.0.0.1]
    #[arg(long, value_name = "NAME@HOST", value_parser = node_name)]
    pub node: Option<String>,
    /// Make a server administrator; the password is stored hashed in the configuration file
    #[arg(long, value_name = "NAME:PASSWORD", value_parser = admin)]
    pub admin: Option<Admin>,
    /// A setting above every file, for this run only; may be repeated
    #[arg(long, value_name = "SECTION/KEY=VALUE", value_parser = setting)]
    pub set: Vec<Setting>,
}

/// A name and a plain password.
#[derive(Clone)]
pub struct Admin {
    /// The name.
    pub name: String,
    /// The password as typed.
    pub password: String,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admin({})", self.name)
    }
}

impl Serve {
    /// The settings that the flags stand for; `--bind` and the like win over `--set`.
    pub fn overrides(&self) -> Vec<Setting> {
        let flag = |section: &str, key: &str, value: Option<String>| {
            value.map(|value| Setting { section: section.to_owned(), key: key.to_owned(), value })
        };
        let flags = [
            flag("chttpd", "bind_address", self.bind.clone()),
            flag("chttpd", "port", self.port.map(|p| p.to_string())),
            flag("cluster", "port", self.cluster_port.map(|p| p.to_string())),
            flag("settee", "node", self.node.clone()),
            flag("cluster", "join", self.join.clone()),
            flag("cluster", "join_token", self.token.clone()),
        ];
        self.set.iter().cloned().chain(flags.into_iter().flatten()).collect()
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    Setting::parse(text).ok_or_else(|| "expected SECTION/KEY=VALUE".to_owned())
}

fn admin(text: &str) -> Result<Admin, String> {
    match text.split_once(':') {
        Some((name, password)) if !name.trim().is_empty() && !password.trim().is_empty() => {
            Ok(Admin { name: name.trim().to_owned(), password: password.trim().to_owned() })
        }
        _ => Err("expected NAME:PASSWORD, neither empty".to_owned()),
    }
}

fn node_name(text: &str) -> Result<String, String> {
    match text.split_once('@') {
        Some((name, host)) if !name.is_empty() && !host.is_empty() && !host.contains('@') => Ok(text.to_owned()),
        _ => Err("expected NAME@HOST".to_owned()),
    }
}

/// Shows what a command tells: lines stay, progress is one line that changes on a terminal and a line now and then
/// elsewhere.
fn show(told: Told) {
    let terminal = io::stderr().is_terminal();
    let mut out = io::stderr().lock();
    // The reader may be gone; the command goes on.
    let _ = match (told, terminal) {
        (Told::Line(line), true) => writeln!(out, "\r\x1b[K{line}"),
        (Told::Line(line), false) => writeln!(out, "{line}"),
        (Told::Progress(line), true) => write!(out, "\r\x1b[K{line}"),
        (Told::Progress(line), false) => writeln!(out, "progress: {line}"),
    };
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn serve(args: &[&str]) -> Result<Serve, String> {
        let all = ["settee", "serve"].iter().chain(args);
        match Cli::try_parse_from(all).map_err(|e| e.to_string())?.command {
            Command::Serve(serve) => Ok(serve),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn every_flag_has_its_default() {
        let flags = serve(&[]).unwrap();
        assert_eq!(flags.data, PathBuf::from("./data"));
        assert!(flags.config.is_empty() && flags.admin.is_none());
        assert!(flags.overrides().is_empty());
    }

    #[test]
    fn flags_become_settings_above_those_of_set() {
        let args =
            ["--bind", "::1", "--port", "0", "--node", "a@b", "--set", "chttpd/port=7", "--set", "log/level=debug"];
        let overrides = serve(&args).unwrap().overrides();
        let all: Vec<String> = overrides.iter().map(|s| format!("{}/{}={}", s.section, s.key, s.value)).collect();
        assert_eq!(
            all,
            ["chttpd/port=7", "log/level=debug", "chttpd/bind_address=::1", "chttpd/port=0", "settee/node=a@b"]
        );
    }

    #[test]
    fn malformed_values_are_refused() {
        for args in [
            ["--join", "h:1"],
            ["--token", "t"],
            ["--admin", "adm"],
            ["--admin", ":p"],
            ["--admin", "adm:"],
            ["--set", "a=b"],
            ["--node", "x"],
        ] {
            assert!(serve(&args).is_err(), "{args:?}");
        }
        let admin = serve(&["--admin", "adm:a:b"]).unwrap().admin.unwrap();
        assert_eq!((admin.name.as_str(), admin.password.as_str()), ("adm", "a:b"));
    }

    /// The flags are stable: a changed line of the snapshot is a change that other tools see.
    #[test]
    fn the_help_of_every_command() {
        let mut program = Cli::command();
        program.build();
        let mut text = program.render_long_help().to_string();
        for command in program.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
            text += &format!("\n==== settee {}\n\n", command.get_name());
            text += &command.render_long_help().to_string();
        }
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!("help", text);
        });
    }
}
