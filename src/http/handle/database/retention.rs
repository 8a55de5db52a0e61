//! What a database keeps and lets go by time: `_time_seq` and `_auto_purge`, as in CouchDB after 3.5.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::auth::access::Class;
use crate::coordinator::{
    FeedOperations, Hindrance, Period, RepairOperations, Retention, SettingError, WriteOperations,
};
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::wire::iso_time::iso_time;

/// The one setting of `_auto_purge`.
const TTL: &str = "deleted_document_ttl";
/// What `_auto_purge` shows beside the setting. It is passed over where a client sends it back.
const EXTENSION: &str = "settee";

/// GET and DELETE `_time_seq`: how many changes there were from which time on, by range and node.
pub async fn time_seq(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    if request.verb == Verb::Delete {
        ctx.open(db, request, Class::DatabaseAdmin)?.feeds().clear_time_seq().await?;
        return Ok(Reply::ok(StatusCode::OK));
    }
    let told = ctx.open(db, request, Class::Member)?.feeds().time_seq().await?;
    let bins = |bins: Vec<(u64, u64)>| -> Vec<serde_json::Value> {
        bins.into_iter().map(|(time, changes)| json!([iso_time(Duration::from_secs(time)), changes])).collect()
    };
    let ranges: serde_json::Map<String, serde_json::Value> = told
        .into_iter()
        .map(|(range, nodes)| {
            let nodes = nodes.into_iter().map(|(node, times)| (node, json!(bins(times))));
            (range, serde_json::Value::Object(nodes.collect()))
        })
        .collect();
    Ok(Reply::value(StatusCode::OK, &json!({"time_seq": ranges})))
}

/// GET and PUT `_auto_purge`: how long tombstones are kept. GET shows what holds their collection back; with
/// `dry_run=true` also how many the next round would collect.
pub async fn auto_purge(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    if request.verb == Verb::Put {
        let database = ctx.open(db, &request, Class::DatabaseAdmin)?;
        request.require_json()?;
        let period = period(&request.json_object().await?)?;
        database.settings().set_auto_purge(period).await?;
        return Ok(Reply::ok(StatusCode::CREATED));
    }
    let database = ctx.open(db, &request, Class::Member)?;
    let dry_run = request.query.boolean("dry_run")?.unwrap_or(false);
    let retention = database.collection().retention(dry_run).await?;
    let mut out = json!({});
    if let Some(period) = &retention.setting {
        out[TTL] = json!(&**period);
    }
    out[EXTENSION] = extension(&retention);
    Ok(Reply::value(StatusCode::OK, &out))
}

/// What a body sets; `None`: what the node's configuration says is to count again.
fn period(body: &crate::document::json::Object) -> Result<Option<String>> {
    let mut period = None;
    for (name, value) in body.iter().filter(|(name, _)| *name != EXTENSION) {
        if name != TTL {
            return Err(Problem::bad_request("invalid auto purge property"));
        }
        let text = value.as_str().filter(|text| Period::parse(text).is_some());
        period = Some(text.ok_or(SettingError::IllegalPeriod)?);
    }
    Ok(period.map(str::to_owned))
}

fn extension(retention: &Retention) -> serde_json::Value {
    let from = match (retention.setting.is_some(), retention.age) {
        (true, _) => "database",
        (false, Some(_)) => "node",
        (false, None) => "none",
    };
    let held = |((reason, node), ranges): (&Hindrance, &Vec<String>)| {
        let mut out = json!({"reason": reason});
        if let Some(node) = node {
            out["node"] = json!(node);
        }
        if !ranges.is_empty() {
            out["ranges"] = json!(ranges);
        }
        out
    };
    let mut out = json!({
        "period": retention.age.map(|age| age.as_secs_f64()),
        "from": from,
        "tombstones": retention.tombstones,
        "held_back_by": retention.held_back_by.iter().map(held).collect::<Vec<_>>(),
    });
    if let Some((collectable, is_all)) = retention.collectable {
        out["collectable"] = json!(collectable);
        out["more"] = json!(!is_all);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    #[test]
    fn a_body_sets_one_period() {
        let read = |text: &str| {
            let value = json::parse(text.as_bytes()).unwrap();
            period(value.as_object().unwrap()).map_err(|problem| problem.reason.into_owned())
        };
        let of = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(read(r#"{"deleted_document_ttl":"3_hour","settee":{"from":"node"}}"#), of("3_hour"));
        assert_eq!(read(r#"{"deleted_document_ttl":"infinity"}"#), of("infinity"));
        assert_eq!(read("{}"), Ok(None));
        let ttl = Err("deleted_document_ttl must be a valid string".to_owned());
        for value in ["3", "\"3\"", "\"0_hour\"", "null", "\"-3_hour\""] {
            assert_eq!(read(&format!(r#"{{"deleted_document_ttl":{value}}}"#)), ttl, "{value}");
        }
        assert_eq!(read(r#"{"ttl":"3_hour"}"#), Err("invalid auto purge property".to_owned()));
    }
}
