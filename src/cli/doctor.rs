//! The command `doctor`: looks at a machine before a node runs on it, or at one that runs (`docs/deploying.md`).
//!
//! What a check measures and what it makes of that are apart: the latter are functions without a system behind them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::auth::admins;
use crate::config::{Config, Sources};
use crate::limits;
use crate::wire::address;
use crate::wire::client::{Call, Client, Patience};
use crate::wire::tls::{Connector, Trust};
use crate::wire::url::Url;
use crate::world::Env;
use clap::Args;
use rustix::process::{Resource, getrlimit};

use crate::program::{Failure, failure};

/// Flags of `settee doctor`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit status: 0 nothing was found, 1 only warnings, 2 something that keeps a node from starting, or \
    with which it can lose data. With --up: 0 the node serves, 1 it does not."
)]
pub struct Doctor {
    /// The data directory that a node has, or is to have
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,
    /// Configuration files, as for `settee serve` [default: DIR/local.ini]
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Only ask a running node whether it serves, for health checks of containers
    #[arg(long, value_name = "URL")]
    pub up: Option<String>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finding {
    /// It is as it should be.
    Good(String),
    /// It may be meant so.
    Warning(String),
    /// A node does not start, or can lose data.
    Bad(String),
}

use Finding::{Bad, Good, Warning};

/// Runs `settee doctor`.
pub async fn run(env: &Env, flags: &Doctor) -> Result<ExitCode, Failure> {
    if let Some(url) = &flags.up {
        return up(env, url).await;
    }
    let fallback = Some(flags.data.join("local.ini"));
    let sources = Sources { files: flags.config.clone(), fallback, overrides: Vec::new() };
    let mut findings: Vec<(&str, Finding)> = Vec::new();
    let config = match Config::load(env, sources).await {
        Ok(config) => config,
        Err(error) => {
            findings.push(("configuration", Bad(error.to_string())));
            Config::in_memory(env, Vec::new())
        }
    };
    findings.push(("configuration", configuration(&config)));
    findings.push(("clock", clock(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())));
    findings.push(("open files", open_files(getrlimit(Resource::Nofile).current)));
    findings.push(("memory", memory(&config, machine_memory())));
    findings.extend(ports(&config));
    findings.extend(directory(&config, &flags.data));
    let mut out = io::stdout().lock();
    for (name, finding) in &findings {
        let (word, text) = match finding {
            Good(text) => ("ok", text),
            Warning(text) => ("warning", text),
            Bad(text) => ("bad", text),
        };
        // The reader may be gone.
        let _ = writeln!(out, "{word}: {name}: {text}");
    }
    Ok(ExitCode::from(status(&findings)))
}

fn status(findings: &[(&str, Finding)]) -> u8 {
    let worst = findings.iter().map(|(_, finding)| match finding {
        Good(_) => 0,
        Warning(_) => 1,
        Bad(_) => 2,
    });
    worst.max().unwrap_or(0)
}

/// Asks a node whether it serves.
async fn up(env: &Env, url: &str) -> Result<ExitCode, Failure> {
    let (mut url, _) = Url::parse(url).map_err(|_| failure("--up: expected http(s)://HOST:PORT"))?;
    url.path = format!("{}/_up", url.path.trim_end_matches('/'));
    let patience = Patience { silence: limits::DOCTOR_SILENCE, retries: 0 };
    let client = Client::with_tls(env, patience, Connector::new(env, Trust::Anyone, None));
    let call = Call { method: http::Method::GET, url, headers: http::HeaderMap::new(), body: bytes::Bytes::new() };
    match client.call(&call).await {
        Ok(answer) if answer.status.is_success() => Ok(ExitCode::SUCCESS),
        Ok(answer) => {
            println!("/_up answered {}", answer.status);
            Ok(ExitCode::from(1))
        }
        Err(error) => {
            println!("{error}");
            Ok(ExitCode::from(1))
        }
    }
}

fn configuration(config: &Config) -> Finding {
    if let Err(error) = config.check() {
        return Bad(error.to_string());
    }
    match admins::any(config) {
        true => Good("the values are taken, and there is an administrator".to_owned()),
        false => {
            Bad("there is no administrator: start with --admin NAME:PASSWORD, or put one under [admins]".to_owned())
        }
    }
}

/// `wall`: since the Unix epoch.
fn clock(wall: Duration) -> Finding {
    match wall {
        wall if wall < limits::DOCTOR_EARLIEST => {
            Bad("it is before the year 2025: cookies, tokens and certificates will not be valid".to_owned())
        }
        _ if Path::new("/run/systemd/timesync/synchronized").exists() => Good("it is synchronized".to_owned()),
        _ => Good("it is plausible; whether it is synchronized is not known here".to_owned()),
    }
}

/// `limit`: `None` for no limit.
fn open_files(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < limits::DOCTOR_FILES_LEAST => {
            Bad(format!("at most {limit}, a node needs {} and one for each connection", limits::DOCTOR_FILES_LEAST))
        }
        Some(limit) if limit < limits::HTTP_CONNECTIONS_MAX + limits::DOCTOR_FILES_LEAST => {
            Warning(format!("at most {limit}: fewer than connections are accepted (chttpd/max_connections)"))
        }
        Some(limit) => Good(format!("at most {limit}")),
        None => Good("no limit".to_owned()),
    }
}

/// Bytes of memory that this process may use: those of its control group, else of the machine.
fn machine_memory() -> Option<u64> {
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb * 1024)
    });
    group.into_iter().chain(machine).min()
}

fn memory(config: &Config, bytes: Option<u64>) -> Finding {
    let budget_mb = config.u64("settee", "memory_mb", limits::MEMORY_MB);
    let Some(mb) = bytes.map(|bytes| bytes >> 20) else { return Good("not known here".to_owned()) };
    match () {
        () if mb < budget_mb * 2 => Bad(format!(
            "{mb} MB, and settee/memory_mb = {budget_mb} needs about twice as much with all that is beside it"
        )),
        () if mb < budget_mb * 4 => Warning(format!("{mb} MB are little beside settee/memory_mb = {budget_mb}")),
        () => Good(format!("{mb} MB for settee/memory_mb = {budget_mb}")),
    }
}

fn ports(config: &Config) -> Vec<(&'static str, Finding)> {
    let http = (config.text("chttpd", "bind_address", limits::BIND_ADDRESS), config.text("chttpd", "port", "5984"));
    let own = config.text("cluster", "bind_address", &http.0);
    let wanted = [("port of clients", http), ("port of nodes", (own, config.text("cluster", "port", "9100")))];
    wanted.into_iter().map(|(name, (ip, port))| (name, port_free(&ip, &port))).collect()
}

fn port_free(ip: &str, port: &str) -> Finding {
    let Some((ip, port)) = address::bind_ip(ip).zip(port.parse::<u16>().ok()) else {
        return Bad(format!("{ip}:{port} is no address"));
    };
    match TcpListener::bind(SocketAddr::new(ip, port)) {
        Ok(_) => Good(format!("{ip}:{port} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Warning(format!("{ip}:{port} is in use: by a running node, or by another program"))
        }
        Err(error) => Bad(format!("{ip}:{port}: {error}")),
    }
}

/// What concerns the data directory; of one that is not there yet, the folder in which it is to be.
fn directory(config: &Config, data: &Path) -> Vec<(&'static str, Finding)> {
    let there = data.is_dir();
    let place = match data.ancestors().find(|path| path.is_dir()) {
        Some(path) => path,
        None => Path::new("."),
    };
    let mut out = Vec::new();
    if there {
        out.push(("data directory", mode(place)));
    }
    out.push(("file system", file_system(rustix::fs::statfs(place).ok().map(|found| found.f_type as u64))));
    let free = rustix::fs::statvfs(place).ok().map(|found| found.f_bavail * found.f_frsize);
    out.push(("disk room", room(free, config.u64("settee", "disk_reserve_mb", limits::DISK_RESERVE_MB))));
    out.push((
        "syncs",
        match measure_syncs(place) {
            Ok(times) => syncs(times),
            Err(error) => Bad(format!("{}: {error}", place.display())),
        },
    ));
    out
}

fn mode(path: &Path) -> Finding {
    match fs::metadata(path).map(|found| found.permissions().mode() & 0o777) {
        Ok(mode) if mode & 0o077 != 0 => Warning(format!(
            "mode {mode:03o}: other users of this machine can read it, with hashes of passwords and secrets"
        )),
        Ok(mode) => Good(format!("mode {mode:03o}")),
        Err(error) => Bad(error.to_string()),
    }
}

/// By the magic number that Linux gives each kind (`statfs(2)`).
fn file_system(kind: Option<u64>) -> Finding {
    match kind {
        Some(0x0102_1994 | 0x8584_58f6) => {
            Bad("it lies in memory: everything is lost when the machine stops".to_owned())
        }
        Some(0x6969 | 0xff53_4d42 | 0xfe53_4d42) => {
            Warning("it lies on another machine: locks and syncs are only as good as its server".to_owned())
        }
        Some(0x794c_7630) => Warning("it is a layer of a container: it goes with the container".to_owned()),
        Some(_) => Good("it is on a disk of this machine".to_owned()),
        None => Warning("it is not known".to_owned()),
    }
}

fn room(free: Option<u64>, reserve_mb: u64) -> Finding {
    match free.map(|bytes| bytes >> 20) {
        None => Warning("it is not known".to_owned()),
        Some(mb) if mb <= reserve_mb => Bad(format!("{mb} MB: writes stop at {reserve_mb} (settee/disk_reserve_mb)")),
        Some(mb) if mb < reserve_mb + limits::DOCTOR_ROOM_MB => Warning(format!("{mb} MB are left")),
        Some(mb) => Good(format!("{mb} MB")),
    }
}

/// Times of syncs of a small file that grows, as a journal does; sorted.
fn measure_syncs(place: &Path) -> io::Result<Vec<Duration>> {
    let path = place.join(format!(".settee-doctor-{}", std::process::id()));
    let mut file = File::create_new(&path)?;
    let measured = (0..limits::DOCTOR_SYNCS).map(|_| -> io::Result<Duration> {
        file.write_all(&[0x5a; 4096])?;
        let begun = Instant::now();
        file.sync_data()?;
        Ok(begun.elapsed())
    });
    let times: io::Result<Vec<Duration>> = measured.collect();
    fs::remove_file(&path)?;
    let mut times = times?;
    times.sort_unstable();
    Ok(times)
}

/// A drive that has a sync done takes its time for it. One that is faster than any drive has it in a memory, which only
/// a battery makes safe.
fn syncs(times: Vec<Duration>) -> Finding {
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    let slowest = times.last().copied().unwrap_or_default();
    let told =
        format!("a sync takes {} µs, the slowest of {} {} µs", middle.as_micros(), times.len(), slowest.as_micros());
    match middle {
        middle if middle < limits::DOCTOR_SYNC_TOO_FAST => Warning(format!(
            "{told}: faster than a drive. Without a battery behind it a power cut loses acknowledged writes"
        )),
        middle if middle > limits::DOCTOR_SYNC_SLOW => {
            Warning(format!("{told}: a single writer is that slow; many at a time share syncs"))
        }
        _ => Good(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_is_the_status() {
        let (good, warning, bad) = (Good(String::new()), Warning(String::new()), Bad(String::new()));
        assert_eq!(status(&[("a", good.clone())]), 0);
        assert_eq!(status(&[("a", warning.clone()), ("b", good)]), 1);
        assert_eq!(status(&[("a", bad), ("b", warning)]), 2);
    }

    #[test]
    fn measured_values_are_put_into_classes() {
        let us = |n: u64| vec![Duration::from_micros(n); 9];
        assert!(matches!(syncs(us(3)), Warning(text) if text.contains("faster than a drive")));
        assert!(matches!(syncs(us(400)), Good(_)) && matches!(syncs(us(40_000)), Warning(_)));
        assert!(matches!(clock(Duration::from_secs(1)), Bad(_)));
        assert!(matches!(open_files(Some(100)), Bad(_)) && matches!(open_files(None), Good(_)));
        assert!(matches!(file_system(Some(0x0102_1994)), Bad(_)) && matches!(file_system(Some(0xef53)), Good(_)));
        let mb = |mb: u64| Some(mb << 20);
        assert!(matches!(room(mb(10), 64), Bad(_)) && matches!(room(mb(100), 64), Warning(_)));
        assert!(matches!(room(mb(1 << 20), 64), Good(_)));
    }

    #[test]
    fn a_port_that_is_in_use_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        assert!(matches!(port_free("127.0.0.1", &port), Warning(_)));
        drop(taken);
        assert!(matches!(port_free("127.0.0.1", &port), Good(_)));
        assert!(matches!(port_free("nowhere", &port), Bad(_)));
    }
}
