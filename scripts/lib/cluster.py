"""A cluster of nodes on this machine: what scripts/cluster starts and stops, and what scripts that measure one start for
themselves. Standard library only.

The nodes are n1@127.0.0.1, n2@127.0.0.1 .. on loopback, their data and logs below one folder; cluster.json there says
what they are. They outlive the program that starts them unless it stops them.
"""

import functools
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import tempfile
import time

import logs
import node

START_LIMIT_S = 180
STOP_LIMIT_S = 180


class Given(Exception):
    """What the caller asks for cannot be done."""


def wait_until(what, done, limit_s=START_LIMIT_S):
    until = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > until:
            raise node.Failure(f"{what}: not within {limit_s} s")
        time.sleep(0.05)


class Cluster:
    """The cluster of a folder, running or not."""

    def __init__(self, folder, settings=()):
        """`settings`: of all nodes, as for `--set`."""
        self.folder, self.settings = pathlib.Path(folder).absolute(), list(settings)
        self.file = self.folder / "cluster.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else None
        self.processes = {}

    @functools.cached_property
    def binary(self):
        """Found once: all nodes run the same program, and no start waits for a build."""
        return node.binary().resolve()

    @property
    def nodes(self):
        return self.known["nodes"]

    def url(self, one):
        return f"http://{self.known['admin']}@127.0.0.1:{one['port']}"

    def clients(self):
        return [node.Client(self.url(one)) for one in self.nodes]

    def short(self, one):
        return one["name"].split("@")[0]

    def alive(self, one):
        """Whether the process of a node still runs; another process may have its number by now."""
        if one["pid"] in self.processes:
            self.processes[one["pid"]].poll()
        try:
            command = pathlib.Path(f"/proc/{one['pid']}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return str(self.folder / self.short(one)).encode() in command

    def plan(self, count, admin, first):
        """A new cluster; HTTP ports from `first` on, if it is given, and the others behind those."""
        ports = [first + n for n in range(2 * count)] if first else []
        self.known = {"admin": admin or f"admin:{secrets.token_hex(8)}", "ready": False, "nodes": []}
        for n in range(count):
            self.plan_node(*ports[n::count])

    def plan_node(self, *ports):
        """One node more: its ports for HTTP and for the others, or free ones."""
        taken = {one[kind] for one in self.nodes for kind in ("port", "cluster_port")}
        while len(ports) < 2:
            free = node.free_port()
            if free not in taken.union(ports):
                ports += (free,)
        name = f"n{len(self.nodes) + 1}@127.0.0.1"
        self.nodes.append({"name": name, "port": ports[0], "cluster_port": ports[1], "pid": 0})
        return self.nodes[-1]

    def save(self):
        self.file.touch(mode=0o600)
        self.file.write_text(json.dumps(self.known, indent=1))

    def start_node(self, one):
        """Starts a node in the background; see `serves`."""
        short = self.short(one)
        command = [str(self.binary), "serve", "--data", str(self.folder / short), "--node", one["name"]]
        command += ["--bind", "127.0.0.1", "--port", str(one["port"]), "--cluster-port", str(one["cluster_port"])]
        command += ["--admin", self.known["admin"], *(part for setting in self.settings for part in ("--set", setting))]
        with open(self.log_of(one), "ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        one["pid"] = process.pid
        self.processes[process.pid] = process
        self.save()

    def serves(self, one):
        """Waits until a node that was started answers."""
        client, process = node.Client(self.url(one)), self.processes[one["pid"]]

        def answers():
            if process.poll() is not None:
                raise node.Failure(f"{one['name']} ended with {process.returncode}, see {self.log_of(one)}")
            try:
                return client.ask("GET", "/_up")[0] == 200
            except OSError:
                return False

        wait_until(f"{one['name']} serves", answers)
        client.close()

    def set_up(self):
        """Makes one cluster of nodes of which some stand alone, as an operator would."""
        clients = self.clients()
        name, password = self.known["admin"].split(":", 1)
        enable = {
            "action": "enable_cluster",
            "bind_address": "127.1",
            "username": name,
            "password": password,
            "node_count": min(len(self.nodes), 3),
        }
        for client in clients:
            if client.must("GET", "/_cluster_setup")["state"] == "cluster_disabled":
                client.must("POST", "/_cluster_setup", enable)
        members = clients[0].must("GET", "/_membership")["cluster_nodes"]
        for one in self.nodes[1:]:
            if one["name"] not in members:
                add = {"action": "add_node", "host": "127.0.0.1", "port": one["port"]}
                clients[0].must("POST", "/_cluster_setup", {**add, "username": name, "password": password})
        if clients[0].must("GET", "/_cluster_setup")["state"] != "cluster_finished":
            clients[0].must("POST", "/_cluster_setup", {"action": "finish_cluster"})

    def connected(self):
        """Waits until all nodes know all and are connected."""

        def everywhere():
            seen = [client.must("GET", "/_membership") for client in clients]
            return all(len(one["all_nodes"]) == len(one["cluster_nodes"]) == len(clients) for one in seen)

        clients = self.clients()
        wait_until("all nodes connected", everywhere)

    def run(self, count, admin=None, first=None):
        """Starts the nodes: those of the folder, or so many new ones, which it sets up as one cluster."""
        if self.known and len(self.nodes) != count:
            raise Given(f"{self.folder} holds a cluster of {len(self.nodes)} nodes")
        if self.known and any(self.alive(one) for one in self.nodes):
            raise Given(f"the cluster in {self.folder} runs already: scripts/cluster stop --data {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.known:
            self.plan(count, admin, first)
        for one in self.nodes:
            one["log_begin"] = self.log_of(one).stat().st_size if self.log_of(one).exists() else 0
            self.start_node(one)
        for one in self.nodes:
            self.serves(one)
        if not self.known["ready"]:
            if count > 1:
                self.set_up()
            self.known["ready"] = True
            self.save()
        self.connected()

    def add(self):
        """Starts one node more and makes it a member."""
        one = self.plan_node()
        self.start_node(one)
        self.serves(one)
        self.set_up()
        self.connected()
        return one

    def stop(self, nodes=None):
        """Ends the nodes in order, all or some, and waits for them."""
        nodes = [one for one in self.nodes if self.alive(one) and (nodes is None or one in nodes)]
        for one in nodes:
            os.kill(one["pid"], signal.SIGTERM)
        wait_until("all nodes stopped", lambda: not any(self.alive(one) for one in nodes), STOP_LIMIT_S)
        self.check_logs(nodes)

    def log_of(self, one):
        return self.folder / f"{self.short(one)}.log"

    def check_logs(self, nodes):
        """A panic since the cluster was started is a failure of whatever was done with it."""
        for one in nodes:
            if found := logs.panics(self.log_of(one), one.get("log_begin", 0)):
                raise node.Failure(f"{one['name']}: {logs.told(found)}, see {self.log_of(one)}")


class Own(Cluster):
    """A cluster of our own in a new folder, for a block; its data go with it."""

    def __init__(self, count, first=None):
        super().__init__(tempfile.mkdtemp(prefix="settee-"), ["log/level=warning"])
        self.count, self.first = count, first

    def __enter__(self):
        try:
            self.run(self.count, f"adm:{node.PASSWORD}", self.first)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            if self.known:
                self.stop()
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    def usage(self):
        """CPU seconds so far and the resident memory in MB, of all nodes that run."""
        each = [node.usage(one["pid"]) for one in self.nodes if self.alive(one)]
        return sum(cpu for cpu, _ in each), sum(mb for _, mb in each)
