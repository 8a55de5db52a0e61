"""Scenes of the administration page: the first minute. Signing in and out, set-up, the first database, the account."""

import contextlib
import re

import node
from page_browser import scene


@scene("session", title="Signing in says what is wrong, out asks again; without a session the sign-in is shown and leads back")
def session(page):
    page.allow("status of 401")
    page.click("adm")
    page.click("Sign out")
    page.see("Sign in to settee")
    page.type("User name", "adm")
    page.type("Password", "wrong")
    page.press("Enter")
    page.see("Name or password is not right")
    page.shot("a wrong password")
    page.open("#/account")
    page.see("Sign in to settee")
    page.type("User name", "adm")
    page.type("Password", "pass")
    page.press("Enter")
    page.see("You are a server administrator")


@scene("welcome", title="A new node: what is to be done first, sample data by one press")
def welcome(page):
    for name in page.api("GET", "/_all_dbs"):
        if not name.startswith("_"):
            page.api("DELETE", "/" + name)
    page.go("#/setup")
    page.go("#/databases")
    page.see("Welcome")
    page.shot("the first steps")
    page.click("Make sample database")
    page.see("book-dune")
    page.check(page.api("GET", "/library")["doc_count"] == 58, "the sample has 58 documents")
    page.shot("sample data")
    page.check(page.api("GET", "/library/_design/library/_view/by_tag?group=true")["rows"], "its views have rows")


@scene("setup-single", title="A node is set up for itself")
def setup_single(page):
    page.go("#/databases")
    page.see("This node is not set up yet")
    page.click("Set up", nth=0)
    page.see("One node")
    page.shot("set-up: the choice")
    page.click("One node")
    page.click("Set up this node")
    page.see("This node is set up and works alone")
    page.shot("set-up: done")
    page.check(page.api("GET", "/_cluster_setup")["state"] == "single_node_enabled", "it is set up")
    page.check(page.look("/_users") is not None, "the system databases are there")
    page.go("#/databases")
    page.gone("This node is not set up yet")


@scene("account", title="Who am I, what may I do: an administrator, a member, a stranger; a new password")
def account(page):
    if page.look("/_users") is None:
        page.api("PUT", "/_users")
    user = {"name": "ada", "password": "first", "roles": ["readers"], "type": "user"}
    page.api("PUT", "/_users/org.couchdb.user:ada", user)
    page.api("PUT", "/shared?q=1")
    page.api("PUT", "/shared/_security", {"admins": {"roles": ["_admin"]}, "members": {"names": ["ada"], "roles": []}})
    page.api("PUT", "/secret?q=1")
    page.allow("status of 401", "status of 403")
    page.click("adm")
    page.click("Sign out")
    page.type("User name", "ada")
    page.type("Password", "first")
    page.press("Enter")
    page.see("You may not list the databases")
    page.type("Name", "shared")
    page.press("Enter")
    page.see("This database is empty")
    page.go("#/account")
    page.see("readers")
    page.shot("the account of a member")
    page.type("Name of a database", "shared")
    page.click("Look")
    page.see("Read documents")
    page.type("Name of a database", "secret")
    page.click("Look")
    page.see("You have no access to secret")
    page.see("only an administrator can change it")
    page.click("ada")
    page.click("Sign out")
    page.type("User name", "adm")
    page.type("Password", "pass")
    page.press("Enter")
    page.see("Create database")
    page.go("#/account")
    page.type("New password", "other")
    page.type("New password again", "others")
    page.click("Change password")
    page.see("The two are not equal")
    page.type("New password", "pass")
    page.type("New password again", "pass")
    page.click("Change password")
    page.see("Password changed")
    for name in ("shared", "secret"):
        page.api("DELETE", "/" + name)


@scene("jump", title="Ctrl+K goes to a database by the beginning of its name, with the keyboard alone")
def jump(page):
    page.api("PUT", "/jumped-to?q=1")
    page.go("#/databases")
    page.press("Control+k")
    page.see("Go to a database or page")
    page.type("Go to a database or page…", "jumped")
    page.see("jumped-to")
    page.shot("going anywhere")
    page.until("the database is offered", lambda: "jumped-to" in " ".join(page.text_of("[role=option]")))
    page.press("Enter")
    page.until("it is shown", lambda: page.js("return location.hash") == "#/db/jumped-to")
    page.see("This database is empty")
    page.api("DELETE", "/jumped-to")
    page.allow("status of 404")


@scene("theme", title="The colour scheme is chosen, and kept")
def theme(page):
    page.go("#/databases")
    light = page.js("return getComputedStyle(document.body.parentElement).backgroundColor")
    page.click("Colours")
    page.click("Dark")
    dark = page.js("return getComputedStyle(document.body.parentElement).backgroundColor")
    page.check(light != dark, "the background changes")
    page.browser.open("about:blank")
    page.open("#/databases")
    page.see("Databases")
    page.check(page.js("return getComputedStyle(document.body.parentElement).backgroundColor") == dark, "it is kept")
    page.click("Colours")
    page.click("As the system")
    page.check(page.js("return getComputedStyle(document.body.parentElement).backgroundColor") == light, "it follows the system again")


@scene("phone", title="On a phone the menu opens and closes; the first key press offers to skip to the content")
def phone(page):
    page.go("#/account")
    page.become("phone")
    page.click("Menu")
    page.click("Databases")
    page.see("Create database")
    page.until("the menu closes", lambda: page.js("return !document.body.classList.contains('side-open')"))
    page.become("light")
    page.js("document.activeElement.blur()")
    page.press("Tab", "Tab")
    page.js("document.querySelector('.skip').focus()")
    page.press("Enter")
    page.check(page.js("return document.activeElement.id") == "main", "the content has the focus")


@scene("offline", title="A node that does not answer is told in words, and asked again")
def offline(page):
    page.allow("ERR_INTERNET_DISCONNECTED")
    page.go("#/account")
    lost = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.cdp("Network.enable")
    page.cdp("Network.emulateNetworkConditions", offline=True, **lost)
    try:
        page.go("#/setup")
        page.see("The node did not answer")
        page.see("Check that the node runs")
        page.shot("a node that does not answer")
    finally:
        page.cdp("Network.emulateNetworkConditions", offline=False, **lost)
    page.click("Try again")
    page.gone("The node did not answer")


@scene("expired", title="A session that ends is told without losing what was typed")
def expired(page):
    if page.look("/papers") is None:
        page.api("PUT", "/papers")
    page.allow("status of 401")
    page.go("#/db/papers/new")
    page.paste("Text of New document", '{"_id": "typed"}')
    page.cdp("Network.clearBrowserCookies")
    page.click("Create document")
    page.see("Your session has ended")
    page.check(page.has('"_id": "typed"'), "the text is still there")
    page.shot("a session that ended")
    page.browser.open("about:blank")
    page.sign_in()


@scene("warnings", title="What is unsafe stands at the top: CORS for everybody, a public address, no TLS; each is put aside for a week", sets=("default", "phone"))
def warnings(page):
    options = {"chttpd/enable_cors": "true", "cors/origins": "*", "cors/credentials": "true", "chttpd/bind_address": "0.0.0.0", "chttpd/admin_only_all_dbs": "false"}

    def again():
        """The list of databases looks for what is unsafe."""
        page.go("#/account")
        page.go("#/databases")

    again()
    try:
        for name, value in options.items():
            page.api("PUT", "/_node/_local/_config/" + name, value)
        again()
        page.see("Every website may act for signed-in users")
        page.see("Other machines reach this node without TLS")
        page.see("Passwords may be of any kind")
        page.see("Anybody may list the databases")
        page.check(not page.has("What nodes tell each other"), "there is no other node")
        page.shot("warnings")
        page.click("Put aside for a week: Every website")
        page.gone("Every website may act")
        page.api("PUT", "/_node/_local/_config/ssl/enable", "false")
        page.api("PUT", "/_node/_local/_config/chttpd_auth/password_regexp", '["^.{8}"]')
        again()
        page.gone("Passwords may be of any kind")
        page.see("Other machines reach this node without TLS")
        page.check(not page.has("Every website may act"), "what was put aside is back")
        # A week and a day later.
        page.js("localStorage.setItem('settee.aside.cors', String(Date.now() - 8 * 24 * 3600 * 1000))")
        again()
        page.see("Every website may act for signed-in users")
    finally:
        for name in [*options, "ssl/enable", "chttpd_auth/password_regexp"]:
            page.client.ask("DELETE", "/_node/_local/_config/" + name)
        page.js("Object.keys(localStorage).filter((name) => name.startsWith('settee.aside.')).forEach((name) => localStorage.removeItem(name))")
    again()
    page.gone("Other machines reach this node without TLS")


@scene("setup-cluster", title="A cluster tells its members, a join token and how nodes are added", nodes=3)
def setup_cluster(page):
    page.go("#/setup")
    page.see("The cluster is set up")
    page.see("connected")
    page.click("Make a token")
    page.see("settee serve --data DIR")
    page.shot("a cluster: members and join token")
    # The port for the other nodes stays where it is until the next start.
    page.api("PUT", "/_node/_local/_config/cluster/bind_address", "0.0.0.0")
    page.go("#/databases")
    page.see("What nodes tell each other is not encrypted")
    page.api("DELETE", "/_node/_local/_config/cluster/bind_address")
    page.go("#/setup")
    page.gone("What nodes tell each other is not encrypted")


@contextlib.contextmanager
def elsewhere(page, url):
    """The browser at another node of this machine, whose session has the same cookie."""
    page.findings += page.noticed()
    base, page.base = page.base, url
    try:
        page.browser.open("about:blank")
        page.sign_in()
        yield
    finally:
        # A cookie of this node may be good at the other one, too, if both are of one cluster.
        page.js("return fetch('/_session', { method: 'DELETE' }).then(() => true)")
        page.browser.open("about:blank")
        found = page.noticed()
        page.base = base
        page.findings += found
        page.browser.open("about:blank")
        page.sign_in()


@scene("setup-from-nothing", title="Three fresh nodes become a cluster: one is enabled, one added over HTTP, one joins by a token, then it is finished; a fourth one joins on its own page")
def setup_from_nothing(page):
    ports = [node.free_port() for _ in range(3)]

    def fresh(name, port):
        own = node.Node([*page.node.extra, "--node", f"{name}@127.0.0.1", "--cluster-port", str(port), "--set", "cluster/bind_address=127.0.0.1"])
        return own

    with fresh("a", ports[0]) as first, fresh("b", ports[1]) as second, elsewhere(page, f"http://127.0.0.1:{first.port}"):
        page.go("#/setup")
        page.click("A cluster")
        page.type("Nodes", "3")
        # Taken over by the next start; an address of this machine alone is refused.
        page.type("Address to listen on", "127.0.0.1")
        page.allow("status of 500", "status of 400")
        page.click("Enable the cluster")
        page.see("requires a remote bind_address")
        page.type("Address to listen on", "127.0.0.2")
        page.click("Enable the cluster")
        page.see("2. Add the other nodes")
        page.type("Host", "127.0.0.1")
        page.type("Port", str(second.port))
        page.type("Its administrator", "adm")
        page.type("Password", "wrong")
        page.click("Add node")
        page.until("the mistake is told", lambda: page.js("return document.querySelector('.notice.error')?.innerText"))
        page.type("Password", node.PASSWORD)
        page.click("Add node")
        page.see("127.0.0.1 is a member now")
        page.see("b@127.0.0.1")
        page.shot("a cluster while it is set up")
        page.click("Make a token")
        page.see("settee serve --data DIR")
        token = re.search(r"--token (\S+)", " ".join(page.text_of(".command .code")))[1]
        third = fresh("c", ports[2])
        third.extra += ["--join", f"127.0.0.1:{ports[0]}", "--token", token]
        with third:
            page.see("c@127.0.0.1")
            page.see("3 members")
            page.click("Finish the set-up")
            page.see("3 nodes share administrators and keys", wait_s=40)
            page.shot("a cluster that is set up")
            page.click("Make a token")
            page.see("Join a cluster")
            address, token = (" ".join(page.text_of(f".command ~ .facts div:nth-child({n}) dd")) for n in (1, 2))
            with fresh("d", node.free_port()) as fourth, elsewhere(page, f"http://127.0.0.1:{fourth.port}"):
                page.go("#/setup")
                page.click("Join a cluster")
                page.type("Cluster port of a member", address)
                page.type("Token", token[:-1])
                page.allow("status of 400")
                page.click("Join")
                page.until("the mistake is told", lambda: page.js("return document.querySelector('.notice.error')?.innerText"))
                page.shot("a node that joins a cluster")
                page.type("Token", token)
                page.click("Join")
                page.see("This node is a member now")
                page.type("User name", "adm")
                page.type("Password", node.PASSWORD)
                page.press("Enter")
                page.until("signed in", lambda: not page.js("return !!document.querySelector('.login')"))
                page.go("#/setup")
                page.see("4 nodes share administrators and keys", wait_s=40)
