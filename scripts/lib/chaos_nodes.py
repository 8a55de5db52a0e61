"""The nodes of `scripts/chaos`: three processes of one cluster and the faults that are done to them. Standard library only.

The schedule of faults is drawn from the seed before the first of them; `Faults` carries it out beside the clients. A node
has one fault at a time, different nodes may have theirs together. Everything that is done stands in a log with its time.
"""

import os
import pathlib
import signal
import subprocess
import threading
import time

import logs
import node
from cluster import Cluster, wait_until

HEARTBEAT_MS, SUSPECT_MS = 100, 1500
# The node whose data may lie on a small disk.
SMALL_DISK_NODE = 2
SMALL_DISK_MB, RESERVE_MB = 2500, 64
RESTART_LIMIT_S = 180
# What each kind does, how often it is drawn, and for how many seconds at least and at most.
KINDS = {
    "kill": (4, 0.2, 6.0),
    "pause": (3, 0.2, 1.0),
    "hang": (3, 2 * SUSPECT_MS / 1000, 7.0),
    "term": (1, 0.1, 3.0),
    "maintenance": (2, 2.0, 8.0),
    "disk": (1, 3.0, 6.0),
    "burst": (0, 0.2, 2.0),
}


def schedule(rng, seconds, kinds):
    """What happens when: (second, node, kind, duration) in order. Each kind comes once before one comes again."""
    deck, out, free, at = rng.sample(kinds, len(kinds)), [], [0.0] * 3, 1.0
    often = [kind for kind in kinds for _ in range(KINDS[kind][0])]
    while at < seconds - 4 and (deck or often):
        kind = deck.pop() if deck else rng.choice(often)
        able = [SMALL_DISK_NODE] if kind == "disk" else range(3)
        which = rng.choice([n for n in able if free[n] <= at] or list(able))
        begins = max(at, free[which])
        lasts = min(rng.uniform(*KINDS[kind][1:]), max(0.2, seconds - begins))
        if begins < seconds - 2:
            out.append((begins, which, kind, lasts))
            # A node that was away has some time to come back before its next fault.
            free[which] = begins + lasts + rng.uniform(2.0, 6.0)
        at += rng.uniform(0.5, 4.0)
    return sorted(out)


class Ring(Cluster):
    """Three nodes below a folder, each with a log of its own."""

    def __init__(self, folder, memory_mb, has_small_disk):
        settings = [
            f"cluster/heartbeat_ms={HEARTBEAT_MS}",
            f"cluster/suspect_ms={SUSPECT_MS}",
            f"settee/memory_mb={memory_mb}",
            f"settee/disk_reserve_mb={RESERVE_MB}",
            "log/level=info",
            node.quick_admin(),
        ]
        super().__init__(folder, settings)
        self.has_small_disk, self.began, self.lines = has_small_disk, time.monotonic(), []
        self.most_mb, self.most_together_mb, self.most_files, self.ended = [0.0] * 3, 0.0, [0] * 3, []
        # Nodes whose process is ended on purpose at the moment.
        self.may_end, self.over, self.problems = set(), threading.Event(), []
        self.start_lock = threading.Lock()

    def note(self, text):
        self.lines.append(f"{time.monotonic() - self.began:8.2f} s  {text}")

    def set_up_three(self, first):
        if self.has_small_disk:
            place = self.folder / f"n{SMALL_DISK_NODE + 1}"
            place.mkdir(parents=True)
            self.mount_small(place)
        self.run(3, f"adm:{node.PASSWORD}", first)
        self.began = time.monotonic()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def mount_small(self, place, *more):
        size = ",".join([f"size={SMALL_DISK_MB}m", *more])
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "settee-chaos", str(place)], check=True)

    def check_logs(self, nodes):
        """`panics` tells of them, as checks of their own."""

    # ---- what is looked at all the while ----

    def watch(self):
        """Memory and files of each node, and whether a process ended that nobody ended."""
        while not self.over.wait(0.1):
            together = 0.0
            for n, one in enumerate(self.nodes):
                process = self.processes.get(one["pid"])
                if process is None:
                    continue
                if process.poll() is not None:
                    if n not in self.may_end and one["pid"] not in self.ended:
                        self.ended.append(one["pid"])
                        self.problems.append(f"{self.short(one)} ended by itself with status {process.returncode}")
                        self.note(f"n{n + 1} ENDED BY ITSELF: {process.returncode}")
                    continue
                try:
                    together += node.usage(one["pid"])[1]
                    self.most_mb[n] = max(self.most_mb[n], node.peak_mb(one["pid"]))
                    self.most_files[n] = max(self.most_files[n], len(os.listdir(f"/proc/{one['pid']}/fd")))
                except (OSError, StopIteration, IndexError):
                    pass  # it has just ended
            self.most_together_mb = max(self.most_together_mb, together)

    def panics(self):
        """The panics of each node's log."""
        return {self.short(one): logs.panics(self.log_of(one)) for one in self.nodes}

    # ---- what is done to a node ----

    def signal(self, n, number):
        os.kill(self.nodes[n]["pid"], number)

    def end(self, n, number):
        """Ends the process and waits for that."""
        self.may_end.add(n)
        process = self.processes[self.nodes[n]["pid"]]
        process.send_signal(number)
        try:
            process.wait(RESTART_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"n{n + 1} did not stop within {RESTART_LIMIT_S} s of SIGTERM")
            process.kill()
            process.wait()

    def begin(self, n):
        """Starts the process again and waits until it answers anything."""
        with self.start_lock:
            self.start_node(self.nodes[n])
        self.may_end.discard(n)
        self.answers(n)

    def answers(self, n):
        client = node.Client(self.url(self.nodes[n]), timeout=5)

        def said():
            try:
                return bool(client.ask("GET", "/_up"))
            except (OSError, ValueError, node.http.client.HTTPException):
                return False
            finally:
                client.close()

        begun = time.monotonic()
        wait_until(f"n{n + 1} answers after a start", said, RESTART_LIMIT_S)
        self.note(f"n{n + 1} answers {time.monotonic() - begun:.2f} s after its start")

    def set(self, n, section, key, value):
        client = node.Client(self.url(self.nodes[n]), timeout=5)
        target = f"/_node/_local/_config/{section}/{key}"

        def done():
            try:
                return client.ask("PUT", target, value)[0] == 200
            except (OSError, ValueError, node.http.client.HTTPException):
                return False
            finally:
                client.close()

        wait_until(f"n{n + 1} takes {key} = {value}", done, 60)

    def disk_size(self, n, leave_mb):
        """Makes the small disk so small that this much is left of it; `None`: as large as it was."""
        place = self.folder / f"n{n + 1}"
        for more_mb in range(100):
            size = SMALL_DISK_MB * 1024
            if leave_mb is not None:
                told = os.statvfs(place)
                used = (told.f_blocks - told.f_bfree) * told.f_frsize
                size = min(size, used // 1024 + int((leave_mb + more_mb) * 1024))
            if subprocess.run(["mount", "-o", f"remount,size={size}k", str(place)], capture_output=True).returncode == 0:
                return
        # Each time the node had written more than that meanwhile.
        raise node.Failure(f"the disk of n{n + 1} cannot be made smaller")

    def is_up(self, n):
        client = node.Client(self.url(self.nodes[n]), timeout=10)
        try:
            return client.ask("GET", "/_up")[0] == 200
        except (OSError, ValueError, node.http.client.HTTPException):
            return False
        finally:
            client.close()

    def end_all(self):
        """Ends every process, whatever state it is in."""
        self.over.set()
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def drop_small_disk(self):
        if self.has_small_disk:
            place = self.folder / f"n{SMALL_DISK_NODE + 1}"
            subprocess.run(["umount", "-l", str(place)], check=False)

    def keep_small_disk(self):
        """The small disk goes with this process: its files are copied to where they outlive it."""
        if self.has_small_disk:
            place = self.folder / f"n{SMALL_DISK_NODE + 1}"
            subprocess.run(["cp", "-a", str(place), str(place) + "-kept"], check=False)
            self.drop_small_disk()
            place.rmdir()
            pathlib.Path(str(place) + "-kept").rename(place)


class Faults:
    """Carries the schedule out, each fault on a thread of its own."""

    def __init__(self, ring, plan, burst, rng):
        """`burst`: writes large documents by other nodes than the one that is away, and tells what it wrote."""
        self.ring, self.plan, self.write_burst, self.threads = ring, plan, burst, []
        self.full_mb = {at: rng.choice([0.0, 0.0, 20.0]) for at, *_ in plan}
        self.counts, self.nodes_busy, self.lock = {}, set(), threading.Lock()

    def play(self, seconds):
        """Returns when `seconds` are over and the last fault has ended. A burst needs the two other nodes and its own
        time: it begins when no other fault is under way, and the schedule waits for its end."""
        begun = time.monotonic()
        for fault in self.plan:
            time.sleep(max(0.0, begun + fault[0] - time.monotonic()))
            thread = threading.Thread(target=self.one, args=fault, daemon=True)
            self.threads.append(thread)
            if fault[2] == "burst":
                self.wait(self.threads[:-1])
                thread.start()
                self.wait([thread])
                begun = time.monotonic() - fault[0]
            else:
                thread.start()
        self.wait(self.threads)
        time.sleep(max(0.0, begun + seconds - time.monotonic()))

    def wait(self, threads):
        for thread in threads:
            thread.join()

    def one(self, at, n, kind, lasts):
        while self.busy(n):
            time.sleep(0.05)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.ring.note(f"n{n + 1} {kind} for {lasts:.2f} s")
        try:
            getattr(self, kind)(n, lasts, self.full_mb[at])
            self.ring.note(f"n{n + 1} {kind} is over")
        except (node.Failure, OSError, subprocess.SubprocessError) as error:
            self.ring.problems.append(f"n{n + 1} {kind}: {error}")
            self.ring.note(f"n{n + 1} {kind} FAILED: {error}")
        finally:
            with self.lock:
                self.nodes_busy.discard(n)

    def busy(self, n):
        """Takes the node for a fault, unless it has one."""
        with self.lock:
            if n in self.nodes_busy:
                return True
            self.nodes_busy.add(n)
            return False

    def kill(self, n, lasts, _):
        self.ring.end(n, signal.SIGKILL)
        time.sleep(lasts)
        self.ring.begin(n)

    def term(self, n, lasts, _):
        self.ring.end(n, signal.SIGTERM)
        time.sleep(lasts)
        self.ring.begin(n)

    def pause(self, n, lasts, _):
        self.ring.signal(n, signal.SIGSTOP)
        try:
            time.sleep(lasts)
        finally:
            self.ring.signal(n, signal.SIGCONT)

    hang = pause

    def maintenance(self, n, lasts, _):
        self.ring.set(n, "couchdb", "maintenance_mode", "true")
        time.sleep(lasts)
        self.ring.set(n, "couchdb", "maintenance_mode", "false")

    def disk(self, n, lasts, full_mb):
        """No room for a while: `disk_reserve_mb` is undercut, or nothing is left, after which a node is started anew."""
        self.ring.note(f"n{n + 1} has {full_mb:.0f} MB of disk left")
        self.ring.disk_size(n, full_mb)
        try:
            time.sleep(lasts)
        finally:
            self.ring.disk_size(n, None)
        time.sleep(1.5)
        if not self.ring.is_up(n):
            self.ring.note(f"n{n + 1} writes no more after that, and is started anew")
            self.ring.end(n, signal.SIGKILL)
            self.ring.begin(n)

    def burst(self, n, lasts, _):
        """The node is away while documents of nearly `max_document_size` are written by the others."""
        self.ring.end(n, signal.SIGKILL)
        try:
            written = self.write_burst(n)
        finally:
            time.sleep(lasts)
            self.ring.begin(n)
        self.ring.note(f"n{n + 1} missed {written}")
