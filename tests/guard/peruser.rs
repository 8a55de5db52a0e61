//! `[couch_peruser]`: databases that come and go with their users.

use crate::served::{ADMIN, Served};

const USERS: &str = "/_users/org.couchdb.user:";

fn user(name: &str) -> String {
    format!(r#"{{"name":"{name}","type":"user","roles":[],"password":"pw"}}"#)
}

fn exists(served: &Served, db: &str) -> bool {
    served.ask(ADMIN, "GET", db, "").status == 200
}

#[test]
fn a_database_comes_with_its_user_and_lets_the_user_out_again() {
    let served = Served::start(&["couch_peruser/enable=true", "couch_peruser/q=2"]);
    served.must("PUT", &format!("{USERS}ann%C3%A9"), &user("anné"));
    let db = "/userdb-616e6ec3a9";
    served.until("the database", || exists(&served, db));
    assert_eq!(served.must("GET", db, "").json()["cluster"]["q"], 2);
    let names = |served: &Served| {
        let security = served.must("GET", &format!("{db}/_security"), "").json();
        (security["admins"]["names"].clone(), security["members"]["names"].clone())
    };
    assert_eq!(names(&served), (serde_json::json!(["anné"]), serde_json::json!(["anné"])));
    assert_eq!(served.ask("anné:pw", "PUT", &format!("{db}/_design/mine"), "{}").status, 201);
    served.must("PUT", &format!("{USERS}bob"), &user("bob"));
    served.until("the other database", || exists(&served, "/userdb-626f62"));
    assert_eq!(served.ask("bob:pw", "GET", db, "").status, 403);
    let rev = served.must("GET", &format!("{USERS}ann%C3%A9"), "").json()["_rev"].clone();
    let target = format!("{USERS}ann%C3%A9?rev={}", rev.as_str().expect("a revision"));
    served.must("DELETE", &target, "");
    served.until("the user is taken out", || names(&served).0 == serde_json::json!([]));
    assert!(exists(&served, db), "it stays without delete_dbs");
    served.runtime.block_on(served.node.stop());
}

#[test]
fn the_option_counts_from_the_moment_it_is_set_for_all_users() {
    let served = Served::start(&["couch_peruser/delete_dbs=true"]);
    served.must("PUT", &format!("{USERS}old"), &user("old"));
    assert!(!exists(&served, "/userdb-6f6c64"));
    served.set("couch_peruser", "database_prefix", "u_");
    served.set("couch_peruser", "enable", "true");
    served.until("the database of an older user", || exists(&served, "/u_6f6c64"));
    let rev = served.must("GET", &format!("{USERS}old"), "").json()["_rev"].clone();
    served.must("DELETE", &format!("{USERS}old?rev={}", rev.as_str().expect("a revision")), "");
    served.until("the database goes with its user", || !exists(&served, "/u_6f6c64"));
    served.set("couch_peruser", "enable", "false");
    served.must("PUT", &format!("{USERS}new"), &user("new"));
    served.set("couch_peruser", "enable", "true");
    served.until("a user of the time between", || exists(&served, "/u_6e6577"));
    served.runtime.block_on(served.node.stop());
}
