//! The commands `push` and `pull`: snapshots in a bucket of a store that speaks S3 (`docs/backup.md`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::coordinator::backup::s3::{self, Access, Choice, Key, Order, Place, Pulled, Pushed};
use crate::limits;
use crate::observe::told::megabytes;
use crate::wire::iso_time::iso_time;
use crate::wire::tls::Trust;
use crate::world::Env;
use clap::Args;

use super::show;
use crate::program::{Failure, at, failure};

/// The region of signatures where nothing says another one, as the tools of AWS have it.
const REGION: &str = "us-east-1";

/// Flags of `settee push`.
#[derive(Args, Debug)]
#[command(
    after_help = "Credentials are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. Exit \
    status: 0 everything is in the bucket, 1 something is not."
)]
pub struct Push {
    /// The folder of the snapshots
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Where they go
    #[arg(value_name = "s3://BUCKET[/PREFIX]", value_parser = place)]
    pub to: Place,
    /// Then read back all that the snapshots in the bucket need, and compare it with its hashes
    #[arg(long)]
    pub verify: bool,
    /// The store, and how it is asked
    #[command(flatten)]
    pub store: Store,
}

/// Flags of `settee pull`.
#[derive(Args, Debug)]
#[command(
    after_help = "Credentials are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. Exit \
    status: 0 everything is in the folder, 1 something is not."
)]
pub struct Pull {
    /// Where they are
    #[arg(value_name = "s3://BUCKET[/PREFIX]", value_parser = place)]
    pub from: Place,
    /// The folder for the snapshots; made if missing
    #[arg(value_name = "FOLDER", required_unless_present = "list")]
    pub folder: Option<PathBuf>,
    /// Only the newest snapshot of this database [default: the newest one of a node, with all its databases]
    #[arg(long, value_name = "NAME")]
    pub db: Option<String>,
    /// All snapshots of all times
    #[arg(long, conflicts_with = "db")]
    pub all_times: bool,
    /// Only say which snapshots there are
    #[arg(long, conflicts_with_all = ["folder", "db", "all_times"])]
    pub list: bool,
    /// The store, and how it is asked
    #[command(flatten)]
    pub store: Store,
}

/// Flags of both.
#[derive(Args, Debug)]
pub struct Store {
    /// The address of the store [default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else that of AWS in the region]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The region of the bucket [default: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1]
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Put the bucket into the host of addresses; without it only for AWS, elsewhere it stands in the path
    #[arg(long)]
    pub virtual_host: bool,
    /// The file of the key with which the backup is encrypted: 32 random bytes in base64 or hex, for its owner alone
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Objects at once
    #[arg(long, value_name = "N", default_value_t = limits::BUCKET_PARALLEL)]
    pub parallel: usize,
    /// Authorities to trust over https, PEM [default: those of the operating system]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long, conflicts_with = "ca_file")]
    pub insecure: bool,
}

fn place(text: &str) -> Result<Place, String> {
    Place::parse(text).ok_or_else(|| "expected s3://BUCKET[/PREFIX]".to_owned())
}

/// The first of these variables of the environment that says something.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
}

impl Store {
    fn order(&self, place: &Place) -> Result<Order, Failure> {
        let region = self.region.clone().or_else(|| variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let endpoint = self.endpoint.clone().or_else(|| variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        // Certificates of AWS hold for one label before their name.
        let is_virtual_host = self.virtual_host || (endpoint.is_none() && !place.bucket.contains('.'));
        let (Some(id), Some(secret)) = (variable(&["AWS_ACCESS_KEY_ID"]), variable(&["AWS_SECRET_ACCESS_KEY"])) else {
            return Err(failure("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"));
        };
        let trust = match (&self.ca_file, self.insecure) {
            (Some(path), _) => Trust::File(path.clone()),
            (None, true) => Trust::Anyone,
            (None, false) => Trust::System,
        };
        let access = Access {
            place: place.clone(),
            endpoint: endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
            region,
            is_virtual_host,
            login: (id, secret, variable(&["AWS_SESSION_TOKEN"])),
            trust,
        };
        let key = self.key_file.as_deref().map(read_key).transpose()?;
        Ok(Order { access, key, parallel: self.parallel })
    }
}

/// Reads the file of a key, which nobody else may read.
fn read_key(file: &Path) -> Result<Key, Failure> {
    let mode = at(file, fs::metadata(file))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(failure(format_args!("{}: others may read this key: chmod 600", file.display())));
    }
    let text = at(file, fs::read_to_string(file))?;
    Key::parse(&text)
        .ok_or_else(|| failure(format_args!("{}: no key: expected 32 bytes in base64 or hex", file.display())))
}

/// Runs `settee push`.
pub async fn push(env: &Env, flags: &Push) -> Result<ExitCode, Failure> {
    let order = flags.store.order(&flags.to)?;
    let done = s3::push(env, &flags.folder, &order, flags.verify, &show).await.map_err(failure)?;
    let Pushed { objects, bytes, objects_there, lists, lists_there, verified, failed } = done;
    let verified = if flags.verify { format!("; {verified} objects read back") } else { String::new() };
    println!(
        "{objects} objects ({}) and {lists} lists sent, {objects_there} objects and {lists_there} lists were there{verified}; \
         {failed} failed",
        megabytes(bytes)
    );
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Runs `settee pull`.
pub async fn pull(env: &Env, flags: &Pull) -> Result<ExitCode, Failure> {
    let order = flags.store.order(&flags.from)?;
    let Some(folder) = &flags.folder else {
        return list(env, &order).await;
    };
    let choice = match &flags.db {
        Some(name) => Choice::Database(name.clone()),
        None if flags.all_times => Choice::All,
        None => Choice::Node,
    };
    let Pulled { objects, bytes, objects_there, lists, failed } =
        s3::pull(env, &order, folder, &choice, &show).await.map_err(failure)?;
    println!(
        "{objects} objects ({}) fetched, {objects_there} were there; {lists} lists written; {failed} failed",
        megabytes(bytes)
    );
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Says which snapshots there are.
async fn list(env: &Env, order: &Order) -> Result<ExitCode, Failure> {
    for (database, times) in s3::lists(env, order).await.map_err(failure)? {
        let newest = iso_time(Duration::from_millis(times.first().copied().unwrap_or_default()));
        let whose = database.map_or_else(|| "of the node".to_owned(), |name| format!("of {name}"));
        println!("{whose}: {} snapshots, the newest of {newest}", times.len());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn a_key_that_others_may_read_or_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let read = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            read_key(&file).is_ok()
        };
        let good = "07".repeat(32);
        assert!(read(&good, 0o600) && read(&good, 0o400));
        assert!(!read(&good, 0o640) && !read(&good, 0o604) && !read("secret", 0o600) && !read("", 0o600));
        assert!(read_key(&dir.path().join("none")).is_err());
    }
}
