//! What a database keeps and lets go by time: `_time_seq` and `_auto_purge`, as in CouchDB after 3.5.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use crate::auth::access::Class;
use crate::coordinator::{
    AutoPurge, ExpiryOutlook, FeedOperations, Hindrance, Period, RepairOperations, Retention, SettingError,
    WriteOperations,
};
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::wire::iso_time::iso_time;

/// The setting of `_auto_purge` that CouchDB has.
const TTL: &str = "deleted_document_ttl";
/// Our own: the member of documents that says when they end.
const EXPIRES_AT: &str = "expires_at";
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

/// GET and PUT `_auto_purge`: how long tombstones are kept, and which member says when documents end. GET shows what
/// holds the collection and the deletion back; with `dry_run=true` also how many would go now.
pub async fn auto_purge(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    if request.verb == Verb::Put {
        let database = ctx.open(db, &request, Class::DatabaseAdmin)?;
        request.require_json()?;
        let wanted = wanted(&request.json_object().await?)?;
        database.settings().set_retention(wanted).await?;
        // Here at once, on the other nodes soon.
        ctx.coordinator.keep_expiring();
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
    if let Some(outlook) = database.expiry().outlook(dry_run).await? {
        out[EXPIRES_AT] = json!(&*outlook.member);
        out[EXTENSION]["expiry"] = expiry(&outlook);
    }
    Ok(Reply::value(StatusCode::OK, &out))
}

/// What a body sets. Without a period that of the node's configuration counts again; without a member nothing expires.
fn wanted(body: &crate::document::json::Object) -> Result<AutoPurge> {
    let mut wanted = AutoPurge::default();
    for (name, value) in body.iter().filter(|(name, _)| *name != EXTENSION) {
        let text = value.as_str().map(str::to_owned);
        match name {
            TTL => {
                let period = text.filter(|text| Period::parse(text).is_some());
                wanted.period = Some(period.ok_or(SettingError::IllegalPeriod)?);
            }
            EXPIRES_AT => wanted.expires_at = Some(text.ok_or(SettingError::IllegalMember)?),
            _ => return Err(Problem::bad_request("invalid auto purge property")),
        }
    }
    Ok(wanted)
}

fn hindrances(held_back_by: &BTreeMap<Hindrance, Vec<String>>) -> serde_json::Value {
    let told = |((reason, node), ranges): (&Hindrance, &Vec<String>)| {
        let mut out = json!({"reason": reason});
        if let Some(node) = node {
            out["node"] = json!(node);
        }
        if !ranges.is_empty() {
            out["ranges"] = json!(ranges);
        }
        out
    };
    held_back_by.iter().map(told).collect()
}

fn expiry(outlook: &ExpiryOutlook) -> serde_json::Value {
    let mut out = json!({"next": outlook.next, "held_back_by": hindrances(&outlook.held_back_by)});
    if let Some((due, unreadable)) = outlook.counted {
        out["due"] = json!(due);
        out["unreadable"] = json!(unreadable);
    }
    out
}

fn extension(retention: &Retention) -> serde_json::Value {
    let from = match (retention.setting.is_some(), retention.age) {
        (true, _) => "database",
        (false, Some(_)) => "node",
        (false, None) => "none",
    };
    let mut out = json!({
        "period": retention.age.map(|age| age.as_secs_f64()),
        "from": from,
        "tombstones": retention.tombstones,
        "held_back_by": hindrances(&retention.held_back_by),
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
    fn a_body_sets_a_period_and_a_member() {
        let read = |text: &str| {
            let value = json::parse(text.as_bytes()).unwrap();
            wanted(value.as_object().unwrap()).map_err(|problem| problem.reason.into_owned())
        };
        let of = |text: &str| Ok(AutoPurge { period: Some(text.to_owned()), ..AutoPurge::default() });
        assert_eq!(read(r#"{"deleted_document_ttl":"3_hour","settee":{"from":"node"}}"#), of("3_hour"));
        assert_eq!(read(r#"{"deleted_document_ttl":"infinity"}"#), of("infinity"));
        assert_eq!(read("{}"), Ok(AutoPurge::default()));
        let ends = AutoPurge { expires_at: Some("ends".to_owned()), ..AutoPurge::default() };
        assert_eq!(read(r#"{"expires_at":"ends"}"#), Ok(ends));
        assert!(read(r#"{"expires_at":null}"#).is_err());
        let ttl = Err("deleted_document_ttl must be a valid string".to_owned());
        for value in ["3", "\"3\"", "\"0_hour\"", "null", "\"-3_hour\""] {
            assert_eq!(read(&format!(r#"{{"deleted_document_ttl":{value}}}"#)), ttl, "{value}");
        }
        assert_eq!(read(r#"{"ttl":"3_hour"}"#), Err("invalid auto purge property".to_owned()));
    }
}
