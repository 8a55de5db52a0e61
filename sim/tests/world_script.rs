//! Functions of design documents on the simulated host: seeded, and stopped by their steps, not by the clock.
#![cfg(feature = "sim")]

use std::net::{IpAddr, Ipv4Addr};

use settee::config::Config;
use settee::document::id::DocId;
use settee::document::json::{self, Value};
use settee::document::render::StoredRevision;
use settee::document::revision::Revision;
use settee::script::{Program, ScriptError, Scripts};
use settee::world::Env;
use settee_sim::world::{SimWorld, run_seed};

fn program(map: &str) -> Program {
    let text = format!("{{\"views\":{{\"v\":{{\"map\":{}}}}}}}", serde_json::Value::from(map));
    let body = json::parse(text.as_bytes()).unwrap().to_vec().into();
    let rev = Revision::parse("1-967a00dff5e02add41819138abb3284d").unwrap();
    Program::new("db", &DocId::new("_design/d"), &StoredRevision { rev, deleted: false, body, attachments: Vec::new() })
}

async fn map(scripts: &Scripts, source: &str) -> Result<String, ScriptError> {
    let mut rows = scripts.map(&program(source), &[source], vec!["{}".to_owned(); 2]).await?;
    let all = rows.remove(0).remove(0);
    Ok(String::from_utf8(Value::Array(all).to_vec()).unwrap())
}

async fn scripted(env: Env) -> String {
    let scripts = Scripts::new(&env, &Config::in_memory(&env, Vec::new()));
    let drawn = map(&scripts, "function(doc){ emit([Date.now(), new Date(), Math.random(), Math.random()]); }").await;
    let endless = map(&scripts, "function(doc){ var n = 0; for (;;) n++; }").await;
    assert_eq!(endless, Err(ScriptError::Timeout));
    let after = map(&scripts, "function(doc){ emit(1); }").await;
    assert_eq!(after.as_deref(), Ok("[[1,null]]"));
    drawn.unwrap()
}

async fn one(world: SimWorld) -> String {
    let node = world.node("n1", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    node.spawn(scripted(node.env())).await.unwrap()
}

#[test]
fn functions_see_the_same_in_each_run_of_a_seed() {
    let runs: Vec<_> = [1, 1, 2].into_iter().map(|seed| run_seed(seed, one)).collect();
    assert_eq!(runs[0].value, runs[1].value);
    assert_eq!(runs[0].trace_hash, runs[1].trace_hash);
    assert_ne!(runs[0].value, runs[2].value, "another seed draws other numbers");
}
