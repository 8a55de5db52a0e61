"""What clients of `scripts/chaos` were promised: every edit of every document with its outcome. Standard library only.

An edit is acknowledged (201, 202: its revision is in the tree from then on), refused (nothing of it is written) or unknown
(it is there once, or not). `Doc.judge` holds the tree of a document, as a node shows it, against that.
"""

import hashlib
import json
import threading

# The parent of an edit without a revision: none, or the tombstone that was there.
ANY = "any"


def generation(rev):
    return int(rev.partition("-")[0])


def digest(body):
    """Of what a client wrote, without what the node adds."""
    plain = {name: value for name, value in body.items() if not name.startswith("_")}
    return hashlib.md5(json.dumps(plain, sort_keys=True).encode()).hexdigest()


class Edit:
    """An acknowledged one."""

    __slots__ = ("parent", "deleted", "digest", "attachments", "status")

    def __init__(self, parent, deleted, body_digest, attachments, status):
        self.parent, self.deleted, self.digest = parent, deleted, body_digest
        # The MD5 of each attachment's bytes by its name; the status that acknowledged the edit.
        self.attachments, self.status = attachments, status


class Doc:
    """One document; its writers change it under `lock`."""

    __slots__ = ("db", "id", "pick", "lock", "acknowledged", "unknown", "last", "bytes")

    def __init__(self, db, name, pick):
        self.db, self.id, self.pick, self.lock = db, name, pick, threading.Lock()
        # Edits by revision; how many edits have an unknown outcome; the last one acknowledged; bytes of the largest body.
        self.acknowledged, self.unknown, self.last, self.bytes = {}, 0, None, 0

    def acknowledge(self, rev, edit):
        with self.lock:
            self.acknowledged[rev] = edit
            self.last = rev

    def doubt(self):
        with self.lock:
            self.unknown += 1

    def leaves_expected(self):
        """The leaves, where no outcome is unknown; `None` else."""
        if self.unknown:
            return None
        inner = set()
        for rev, edit in self.acknowledged.items():
            if edit.parent == ANY:
                below = [r for r, e in self.acknowledged.items() if e.deleted and generation(r) == generation(rev) - 1]
                inner.update(below)
            elif edit.parent:
                inner.add(edit.parent)
        return set(self.acknowledged) - inner

    def judge(self, leaves):
        """What is wrong with these leaves, one text each: every leaf a document with `_revisions`."""
        wrong, tree, tips = [], set(), set()
        for leaf in leaves:
            start, hashes = leaf["_revisions"]["start"], leaf["_revisions"]["ids"]
            tree.update(f"{start - n}-{name}" for n, name in enumerate(hashes))
            tips.add(leaf["_rev"])
            edit = self.acknowledged.get(leaf["_rev"])
            if edit is None:
                continue
            if bool(leaf.get("_deleted")) != edit.deleted:
                wrong.append(f"{leaf['_rev']} is {'' if leaf.get('_deleted') else 'not '}deleted")
            if edit.digest is not None and digest(leaf) != edit.digest:
                wrong.append(f"{leaf['_rev']} has another body than was written")
            found = set(leaf.get("_attachments", {}))
            if found != set(edit.attachments):
                wrong.append(f"{leaf['_rev']} has the attachments {sorted(found)}, not {sorted(edit.attachments)}")
        lost = set(self.acknowledged) - tree
        if lost:
            wrong.append(f"acknowledged and lost: {sorted(lost)}; the leaves are {sorted(tips)}")
        strange = tree - set(self.acknowledged)
        if len(strange) > self.unknown:
            wrong.append(f"{sorted(strange)} were never acknowledged, {self.unknown} edits are unknown")
        expected = self.leaves_expected()
        if expected is not None and not lost and tips != expected:
            wrong.append(f"the leaves are {sorted(tips)}, not {sorted(expected)}")
        return wrong


class Ledger:
    """All documents and databases that clients wrote."""

    def __init__(self, databases):
        self.databases, self.lock = {name: {} for name in databases}, threading.Lock()
        # Databases of the clients' own: True where one was made, False where it was deleted, None where nobody knows.
        self.made = {}
        self.counts, self.wrong = {}, []

    def new(self, db, name, pick=False):
        with self.lock:
            doc = self.databases[db][name] = Doc(db, name, pick)
        return doc

    def docs(self, db):
        """Those that have an acknowledged edit."""
        with self.lock:
            return {name: doc for name, doc in self.databases[db].items() if doc.acknowledged}

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def complain(self, what):
        """A wrong answer while clients worked."""
        with self.lock:
            self.wrong.append(what)
