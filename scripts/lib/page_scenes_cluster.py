"""Scenes of the cluster view: one node, and three of which one goes."""

import threading

import node
from page_browser import scene


@scene("cluster-alone", title="One node: its state, its charts, the place of a document")
def cluster_alone(page):
    page.client.ask("DELETE", "/place")
    page.api("PUT", "/place?q=8")
    page.api("PUT", "/place/here", {"a": 1})
    page.go("#/cluster")
    page.see("This node is alone")
    page.see("All replicas of all databases are in reach")
    page.shot("one node")
    page.go("#/db/place/place")
    page.type("Document id", "here")
    page.click("Find")
    page.see("“here” belongs to the range")
    told = page.look("/place/_shards/here")["range"]
    page.see(told)
    page.shot("the place of a document")
    page.go("#/cluster/charts")
    stop = threading.Event()

    def load():
        client = node.Client(page.client_url)
        while not stop.is_set():
            client.ask("GET", "/place/here")
        client.close()

    worker = threading.Thread(target=load)
    worker.start()
    try:
        page.until("points of requests", lambda: page.js(
            "return [...document.querySelectorAll('.chart')].filter((c) => c.querySelector('polyline').getAttribute('points').split(' ').length > 3).length >= 5"), 30)
    finally:
        stop.set()
        worker.join()
    page.shot("live charts")


@scene("cluster-three", title="Three nodes: the map of replicas, a node goes, what that means, it returns", nodes=3)
def cluster_three(page):
    page.api("PUT", "/orders?q=8&n=3")
    page.api("PUT", "/single?q=4&n=1")
    page.api("PUT", "/pairs?q=4&n=2")
    page.api("POST", "/orders/_bulk_docs", {"docs": [{"_id": f"order-{n}", "n": n} for n in range(300)]})
    nodes = page.cluster.nodes
    for one, zone in zip(nodes, ("east", "east", "west")):
        told = f"/_node/_local/_nodes/{one['name']}"
        page.api("PUT", told, {**page.look(told), "zone": zone})
    page.go("#/cluster")
    page.see("n3@127.0.0.1")
    zones = "return [...document.querySelectorAll('.node-card')].map((e) => /Zone\\s+(\\w+)/.exec(e.innerText)?.[1])"
    page.until("each node's zone", lambda: sorted(page.js(zones) or [], key=str) == ["east", "east", "west"])
    page.until("all nodes in sync", lambda: page.js("return [...document.querySelectorAll('.badge.ok')].filter((e) => e.innerText === 'in sync').length === 3"), 40)
    page.see("All replicas of all databases are in reach")
    page.shot("three nodes")
    page.go("#/cluster/map?db=orders")
    page.see("all in reach")
    page.type("Document id", "order-7")
    page.click("Find")
    page.see("“order-7” belongs to the range")
    told = "return [...document.querySelectorAll('tbody [title]')].filter((e) => e.title.startsWith(arguments[0])).length"
    page.until("each replica tells that it is in sync", lambda: page.js(told, "holds what the others hold; ") == 24)
    page.until("zones beside the nodes", lambda: page.text_of(".map-node .badge") == ["east", "east", "west"])
    page.shot("map of replicas")
    page.click("Compare replicas now")
    page.see("The replicas are being compared")
    # Another database by its name.
    page.type("Database", "pairs")
    page.click("Show")
    page.until("the map of another database", lambda: page.js("return document.querySelectorAll('.map-block:not(.absent)').length >= 8 && location.hash.includes('pairs')"))

    page.cluster.stop([nodes[2]])
    page.go("#/cluster")
    page.see("not in reach", 30)
    page.see("Writes to orders answer 201", 30)
    page.see("answer 503 now")
    page.shot("a node is down")
    page.go("#/cluster/map?db=orders")
    page.see("majority in reach")
    page.until("eight replicas are out of reach", lambda: page.js(told, "its node is not in reach") == 8)
    page.shot("map with a node down")
    page.cluster.stop([nodes[1]])
    page.go("#/cluster")
    page.see("Writes to orders answer 202 now", 30)
    status, answer = page.client.ask("PUT", "/orders/while-down", {"a": 1})
    page.check(status == 202, f"the node answers {status} {answer}, the page says 202")
    page.see("Members, replicas and ranges cannot be changed")
    page.see("until 1 more returns")
    status, answer = page.client.ask("PUT", "/_node/_local/_nodes/n9@127.0.0.1", {})
    page.check(status == 503, f"the node answers {status} {answer}, the page says 503")
    page.shot("a majority is down")
    for one in nodes[1:]:
        page.cluster.start_node(one)
    for one in nodes[1:]:
        page.cluster.serves(one)
    page.see("All replicas of all databases are in reach", 60)
    page.gone("Members, replicas and ranges cannot be changed")


# A replica as it is told while it is filled, in the answer of the node.
FILLING = """
const own = window.fetch;
window.__restore = () => { window.fetch = own; };
window.fetch = async (url, init) => {
  const answer = await own(url, init);
  if (!String(url).includes("/_cluster/replicas/")) return answer;
  const told = await answer.json(), replicas = told.ranges[0].replicas;
  Object.assign(replicas[1], { state: "not_in_sync", documents: replicas[0].documents - 30 });
  Object.assign(replicas[2], { state: "rebuilding", documents: 0 });
  return new Response(JSON.stringify({ ...told, in_sync: false }), { status: 200, headers: { "Content-Type": "application/json" } });
};"""


@scene("cluster-lag", title="A node misses writes and catches up; how far a replica is behind stands below it", nodes=3)
def cluster_lag(page):
    if page.look("/lagging") is not None:
        page.api("DELETE", "/lagging")
    page.api("PUT", "/lagging?q=2&n=3")
    nodes, told = page.cluster.nodes, "return [...document.querySelectorAll('tbody [title]')].filter((e) => e.title.startsWith(arguments[0])).length"
    page.go("#/cluster/map?db=lagging")
    page.until("each replica tells that it is in sync", lambda: page.js(told, "holds what the others hold; ") == 6)
    page.cluster.stop([nodes[2]])
    page.until("two replicas are out of reach", lambda: page.js(told, "its node is not in reach") == 2)
    for batch in range(5):
        page.api("POST", "/lagging/_bulk_docs", {"docs": [{"batch": batch, "n": n} for n in range(200)]})
    page.cluster.start_node(nodes[2])
    page.cluster.serves(nodes[2])

    def equal():
        rows = [one["replicas"] for one in page.look("/_cluster/replicas/lagging")["ranges"]]
        return all(len(held) == 3 and len({row.get("documents") for row in held}) == 1 for held in rows)

    page.until("all replicas hold the same", equal)
    page.until("each replica tells that it is in sync again", lambda: page.js(told, "holds what the others hold; ") == 6)
    page.check(not page.has(" behind"), "a replica in sync is said to be behind")
    page.js(FILLING)
    try:
        page.go("#/cluster")
        page.go("#/cluster/map?db=lagging")
        page.see("30 behind")
        page.until("bars of two replicas", lambda: page.js("return document.querySelectorAll('.replica-lag progress').length") == 2)
        page.shot("replicas that are behind")
    finally:
        page.js("window.__restore()")
    page.go("#/cluster")


# A rebalance as it is told while it works, in the answer of the node.
UNDER_WAY = """
const own = window.fetch;
window.__restore = () => { window.fetch = own; };
window.fetch = async (url, init) => {
  const answer = await own(url, init);
  if (!String(url).endsWith("/_cluster/rebalance") || init.method !== "GET") return answer;
  const told = await answer.json(), begun = new Date(Date.now() - 60000).toISOString();
  told.requests = [{ node: "n1@127.0.0.1", start_time: begun, moves_begun: 3, moves_planned: 5 }];
  told.moves = [{ db: "moved", range: "00000000-1fffffff", from: "n3@127.0.0.1", to: "n2@127.0.0.1" }];
  return new Response(JSON.stringify(told), { status: 200, headers: { "Content-Type": "application/json" } });
};"""


@scene("cluster-rebalance", title="A plan is shown, a node is emptied, ranges are split", nodes=3)
def cluster_rebalance(page):
    page.api("PUT", "/moved?q=4&n=1")
    page.api("POST", "/moved/_bulk_docs", {"docs": [{"n": n} for n in range(200)]})
    page.go("#/cluster/rebalance")
    page.see("No rebalance is under way.")
    page.tick("n3@127.0.0.1")
    page.click("Show plan")
    page.see("would move")
    page.shot("the plan of a rebalance")
    page.click("Begin")
    page.see("The rebalance begins")

    def emptied():
        shards = page.look("/moved/_shards")["shards"]
        return all("n3@127.0.0.1" not in held for held in shards.values())

    page.until("the node holds nothing of the database", emptied, 60)
    page.check(page.look("/moved")["doc_count"] == 200, "documents are gone")
    page.see("No rebalance is under way.")
    page.js(UNDER_WAY)
    try:
        page.see("3 moves begun, 5 left")
        page.see("2 of 8 moves done")
        page.check(page.js("return document.querySelector('progress').value") == 0.25, "the bar stands elsewhere")
        page.shot("a rebalance under way")
        page.click("End")
        page.see("The rebalance ends")
    finally:
        page.js("window.__restore()")
    page.see("No rebalance is under way.")
    page.go("#/cluster/map?db=moved")
    page.click("Split ranges")
    page.see("Each range becomes two")
    page.click("Split ranges")
    page.see("begun")
    page.until("eight ranges", lambda: len(page.look("/moved/_shards")["shards"]) == 8, 60)
    page.until("eight rows", lambda: page.js("return document.querySelectorAll('main tbody tr').length === 8"))
    page.shot("split ranges")
    page.go("#/cluster/charts")
    page.choose("Node", "n2@127.0.0.1")
    page.until("points of another node", lambda: page.js("return document.querySelector('.chart polyline').getAttribute('points').split(' ').length > 1"), 20)


@scene("operate-three", title="Configuration and log of another node, an administrator on all", nodes=3)
def operate_three(page):
    page.go("#/config")
    page.choose("Node", "n2@127.0.0.1")
    page.type("Find an option", "settee/node")
    page.see("n2@127.0.0.1")
    page.go("#/users")
    page.click("Server administrators")
    page.click("New administrator")
    page.type("Name", "second")
    page.type("Password", "other-word")
    page.click("Save")
    page.see("Administrator second is stored on 3 nodes")
    for name in ("n1", "n2", "n3"):
        page.check("second" in page.look(f"/_node/{name}@127.0.0.1/_config/admins"), f"not on {name}")
    page.go("#/log")
    page.choose("Node", "n3@127.0.0.1")
    page.see("Level")
    # A node takes snapshots of databases of which it holds a replica of every range.
    for db in page.api("GET", "/_all_dbs"):
        if not db.startswith("_"):
            page.api("DELETE", "/" + db)
    page.allow("status of 403")
    page.go("#/snapshots")
    page.choose("Node", "n2@127.0.0.1")
    page.see("Snapshots are off on this node")
    page.type("Folder on the node", str(page.scratch / "snapshots-n2"))
    page.click("Set folder")
    page.see("There is no snapshot yet")
    page.see("open the page at n2@127.0.0.1 for that")
    page.click("Take snapshot")
    page.type("Folder", "daily")
    page.see("Every database is taken")
    page.check(not page.has("One database by its name"), "a database is asked for that this page cannot take on another node")
    page.click("Take snapshot")
    page.see("Snapshot taken")
    page.until("databases in the list", lambda: page.text_of("tbody th"))
    page.see("open the page at n2@127.0.0.1 for that")
    page.check("Restore" not in " ".join(page.text_of("tbody button")), "what lies on another node is offered to be restored here")
    page.shot("snapshots of another node")
