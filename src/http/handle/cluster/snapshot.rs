//! Online snapshots, an extension for server administrators: `POST /{db}/_snapshot`, `POST /{db}/_restore`, `POST
//! /_node/{name}/_snapshot`. Folders lie below `[settee] snapshot_dir`, and nowhere else.

use std::path::{Component, Path, PathBuf};

use http::StatusCode;
use serde_json::json;

use crate::auth::access::Class;
use crate::coordinator::backup::{self, BackupError, Extent, Snapshot};
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::limits;
use crate::world::Pool;

impl From<BackupError> for Problem {
    fn from(error: BackupError) -> Problem {
        match error {
            BackupError::Damaged(what) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "snapshot_damaged", format!("The snapshot: {what}"))
            }
            BackupError::Io(what) => {
                tracing::error!("a snapshot folder could not be used: {what}");
                Problem::internal("The snapshot folder could not be used.")
            }
            BackupError::Database(error) => error.into(),
            BackupError::Shard(error) => error.into(),
            error @ BackupError::Elsewhere(_) => Problem::bad_request(format!("{error}: ask a node that holds all.")),
            error @ (BackupError::Unfilled(_) | BackupError::NoMajority(_)) => {
                Problem::unavailable(format!("{error}, try again later."))
            }
        }
    }
}

/// `POST /{db}/_snapshot` with `{"path": FOLDER}`, and `"whole": true` for one that adds to none before it
///
/// # Errors
/// 403 without `[settee] snapshot_dir`, 400 for a path that leads out of it, and those of reading and writing.
pub async fn take(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let database = ctx.open(db, &request, Class::ServerAdmin)?;
    let Asked { folder, extent, .. } = asked(ctx, &mut request).await?;
    let taken = backup::snapshot(&ctx.env, &database, &folder, extent).await?;
    Ok(Reply::value(StatusCode::CREATED, &told(db, &taken)))
}

/// `POST /_node/{name}/_snapshot` with the same body: every database of the node, one after the other.
///
/// # Errors
/// As [`take`]. A database that was deleted meanwhile is left out.
pub async fn take_all(ctx: &Context, mut request: Request) -> Result<Reply> {
    let Asked { folder, extent, .. } = asked(ctx, &mut request).await?;
    let taken = backup::snapshot_node(&ctx.env, &ctx.coordinator, &folder, extent).await?;
    let databases: Vec<_> = taken.databases.iter().map(|(name, taken)| told(name, taken)).collect();
    let body = json!({"ok": true, "file": taken.file, "databases": databases, "left_out": taken.left_out});
    Ok(Reply::value(StatusCode::CREATED, &body))
}

/// `POST /{db}/_restore` with `{"path": FOLDER, "db": NAME}`: makes `{db}` from the newest snapshot of NAME (default:
/// of the same name).
///
/// # Errors
/// 412 when there is such a database, 404 when there is no such snapshot, 500 when it is damaged.
pub async fn restore(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    crate::auth::access::check(Class::ServerAdmin, &request.user, None)?;
    let Asked { folder, of, .. } = asked(ctx, &mut request).await?;
    let (disk, within, of) = (ctx.env.disk(), folder.clone(), of.unwrap_or_else(|| db.to_owned()));
    let latest = ctx.env.blocking(Pool::Background, move || backup::latest(disk.as_ref(), &within, &of)).await?;
    let list = latest.ok_or_else(|| Problem::not_found("no such snapshot"))?;
    let restored = backup::restore(&ctx.env, &ctx.coordinator, (&folder, &list), Some(db)).await?;
    let body = json!({"ok": true, "documents": restored.counts.documents, "taken_ms": restored.taken_ms});
    Ok(Reply::value(StatusCode::CREATED, &body))
}

/// `GET /_node/{name}/_snapshot`: the folders below `[settee] snapshot_dir`; with `?path=FOLDER` the snapshots there,
/// by database, newest first.
///
/// # Errors
/// 403 without `[settee] snapshot_dir`, 400 for a path that leads out of it.
pub async fn list(ctx: &Context, request: &Request) -> Result<Reply> {
    let root = root(ctx)?;
    let disk = ctx.env.disk();
    let Some(path) = request.query.get("path") else {
        let found = ctx.env.blocking(Pool::Foreground, move || match disk.exists(&root)? {
            true => disk.list(&root),
            false => Ok(Vec::new()),
        });
        let entries = found.await.map_err(|error| Problem::from(BackupError::Io(error.to_string())))?;
        let folders = entries.into_iter().filter(|entry| entry.is_dir && !entry.name.starts_with('.'));
        let names: Vec<String> = folders.map(|entry| entry.name).take(limits::STATUS_DATABASES).collect();
        return Ok(Reply::value(StatusCode::OK, &json!({ "folders": names })));
    };
    let folder = within(&root, path)?;
    let found = move || backup::listed(disk.as_ref(), &folder, limits::STATUS_DATABASES);
    let databases = ctx.env.blocking(Pool::Foreground, found).await?;
    let told = |(db, times): (String, Vec<u64>)| json!({"db": db, "taken_ms": times});
    let databases: Vec<_> = databases.into_iter().map(told).collect();
    Ok(Reply::value(StatusCode::OK, &json!({"path": path, "databases": databases})))
}

/// The folder below which snapshots lie.
fn root(ctx: &Context) -> Result<PathBuf> {
    let root = ctx.config.get("settee", "snapshot_dir").filter(|dir| !dir.is_empty());
    root.map(PathBuf::from).ok_or_else(|| Problem::forbidden("No [settee] snapshot_dir is configured on this node."))
}

/// A folder below the root.
fn within(root: &Path, path: &str) -> Result<PathBuf> {
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    match path.is_empty() || !inside || path.chars().any(char::is_control) {
        true => Err(Problem::bad_request("`path` must name a folder below the snapshot_dir.")),
        false => Ok(root.join(path)),
    }
}

fn told(db: &str, taken: &Snapshot) -> serde_json::Value {
    json!({
        "ok": true,
        "db_name": db,
        "file": taken.file,
        "documents": taken.counts.documents,
        "bytes_written": taken.written_bytes,
        "bytes_kept": taken.kept_bytes,
    })
}

/// What a body asks for.
struct Asked {
    folder: PathBuf,
    /// The member `db`.
    of: Option<String>,
    extent: Extent,
}

async fn asked(ctx: &Context, request: &mut Request) -> Result<Asked> {
    let root = root(ctx)?;
    request.require_json()?;
    let body = request.query_object().await?;
    let text = |name: &str| body.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    let folder = within(&root, &text("path").unwrap_or_default())?;
    let extent = match body.get("whole").map(|whole| whole.as_bool()) {
        None | Some(Some(false)) => Extent::Added,
        Some(Some(true)) => Extent::Whole,
        Some(None) => return Err(Problem::bad_request("`whole` must be true or false.")),
    };
    Ok(Asked { folder, of: text("db"), extent })
}
