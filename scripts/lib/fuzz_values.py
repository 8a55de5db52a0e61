"""Draws requests from the description of the interface: values that fit, values that nearly do, and bytes that do not."""

import json
import string
import urllib.parse

DATABASES = ["fuzz-a", "fuzz-p"]
# Databases that may be made and deleted.
PASSING = ["fuzz-x", "fuzz-y", "fuzz-z/1", "_fuzz", "Fuzz", "fuzz-" + "n" * 300]
DOCUMENTS = ["a", "b", "c", "part:1", "part:2", "with space", "süß", "slash/id", "gone", "conflicted", "att"]
STRANGE_TEXTS = [
    "", " ", "\u0000", "\u00e9" * 40, "a" * 3000, "%", "%zz", "../../etc/passwd", "_x", "_design/", "_local/", "_local/x",
    "null", "{}", "[]", "-1", "1-", "1-abc", "0-0", "99999999999999999999-a", "1-" + "a" * 32, "\ud83d\ude00", "'", '"', "\\",
    "\r\n", "*", "?", "(", "[a-z", "^(a+)+$", "undefined", "NaN", "Infinity", "now", "0", "true", "_doc_ids", "_selector",
    "_view", "_design", "fuzz/even", "fuzz/fails", "fuzz/none", "fuzz", "\ufffe", "\u202e", "lastseq", "9" * 400,
]
NUMBERS = [0, 1, -1, 2, 10, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -2**63, 10**40, 0.5, -0.0, 1e300, 1e-300]
FIELDS = ["_id", "_rev", "n", "tags", "name", "nested.a", "nested.a.b", "", "missing", "$x", "a.b\\.c"]
OPERATORS = ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$all", "$size", "$exists", "$type", "$mod", "$regex",
             "$elemMatch", "$allMatch", "$keyMapMatch", "$and", "$or", "$nor", "$not", "$beginsWith", "$text", "$none"]
QUERIES = ["*:*", "n:1", "name:a*", "name:[a TO b]", "name:\"a b\"~2", "(a OR b) AND NOT c", "name:/a.*/", "a~1", "+a -b",
           "_id:a", "((((", "name:", "a^2", "\\", "[* TO *]", "name:{a TO *}", "AND", "a" * 500, "* *", "/(a+)+$/"]


class Values:
    """What requests are made of."""

    def __init__(self, rng):
        self.rng = rng
        # Revisions and sequences that answers told of.
        self.revs, self.seqs, self.bookmarks = ["1-967a00dff5e02add41819138abb3284d"], ["0", "now"], ["nil"]

    def learn(self, text):
        """Remembers a revision, a sequence or a bookmark of an answer."""
        for name, known in (('"rev":"', self.revs), ('"_rev":"', self.revs), ('"seq":"', self.seqs), ('seq":"', self.seqs),
                            ('"bookmark":"', self.bookmarks)):
            at = text.find(name)
            if at >= 0:
                value = text[at + len(name):].split('"', 1)[0]
                if len(value) < 4000 and value not in known:
                    known.append(value)
                    del known[:-30]

    def chance(self, share):
        return self.rng.random() < share

    def text(self):
        kind = self.rng.random()
        if kind < 0.4:
            return self.rng.choice(STRANGE_TEXTS)
        if kind < 0.6:
            return self.rng.choice(DOCUMENTS)
        if kind < 0.7:
            return self.mutated_text(self.rng.choice(self.revs + self.seqs + self.bookmarks))
        return "".join(self.rng.choice(string.printable) for _ in range(self.rng.randrange(12)))

    def mutated_text(self, text):
        """One of a few small changes."""
        if not text or self.chance(0.3):
            return text
        at, kind = self.rng.randrange(len(text)), self.rng.randrange(4)
        if kind == 0:
            return text[:at] + text[at + 1:]
        if kind == 1:
            return text[:at] + self.rng.choice(string.printable) + text[at + 1:]
        return text[:at] if kind == 2 else text[:at] + text[at:] * 2

    def any(self, depth=0):
        """Any JSON value."""
        kind = self.rng.randrange(6 if depth < 4 else 4)
        if kind == 0:
            return self.text()
        if kind == 1:
            return self.rng.choice(NUMBERS)
        if kind < 4:
            return self.rng.choice([None, True, False, {}, []])
        if kind == 4:
            return [self.any(depth + 1) for _ in range(self.rng.randrange(4))]
        return {self.text(): self.any(depth + 1) for _ in range(self.rng.randrange(4))}

    def selector(self, depth=0):
        out = {}
        for _ in range(self.rng.randrange(3)):
            name = self.rng.choice(FIELDS + OPERATORS)
            if name in ("$and", "$or", "$nor"):
                out[name] = [self.selector(depth + 1) for _ in range(self.rng.randrange(3))] if depth < 4 else []
            elif name.startswith("$") and self.chance(0.5):
                out[name] = self.selector(depth + 1) if depth < 4 else {}
            elif self.chance(0.5):
                out[name] = {self.rng.choice(OPERATORS): self.any(3)}
            else:
                out[name] = self.any(3)
        return out

    def document(self):
        doc = {self.rng.choice(["n", "name", "tags", "nested", self.text()]): self.any(2) for _ in range(self.rng.randrange(4))}
        if self.chance(0.7):
            doc["_id"] = self.rng.choice(DOCUMENTS) if self.chance(0.8) else self.text()
        if self.chance(0.4):
            doc["_rev"] = self.rng.choice(self.revs) if self.chance(0.8) else self.any(3)
        if self.chance(0.1):
            doc[self.rng.choice(["_deleted", "_attachments", "_revisions", "_conflicts", "_bad", "_expires"])] = self.any(2)
        if self.chance(0.1):
            doc["_attachments"] = {self.text(): {"data": self.rng.choice(["YQ==", "!", ""]), "content_type": self.text()}}
        if self.chance(0.05):
            doc["_revisions"] = {"start": self.rng.choice(NUMBERS), "ids": [self.text() for _ in range(2)]}
        return doc

    def of(self, schema, name="", depth=0):
        """A value for a schema; one in ten is of another kind."""
        if self.chance(0.1) or depth > 5:
            return self.any(3)
        if name == "selector":
            return self.selector()
        if name in ("q", "query"):
            return self.rng.choice(QUERIES)
        if "enum" in schema:
            return self.rng.choice(schema["enum"])
        if schema.get("additionalProperties") is True:
            return self.document()
        kind = schema.get("type")
        if kind == "string":
            return self.named_text(name)
        if kind == "integer":
            return self.rng.choice(NUMBERS[:10]) if self.chance(0.5) else self.rng.randrange(20)
        if kind == "boolean":
            return self.chance(0.5)
        if kind == "array":
            return [self.of(schema["items"], name, depth + 1) for _ in range(self.rng.randrange(4))]
        if kind == "object" and "properties" in schema:
            needed = schema.get("required", [])
            return {one: self.of(inner, one, depth + 1) for one, inner in schema["properties"].items()
                    if self.chance(0.95 if one in needed else 0.3)}
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return {self.named_text("id"): self.of(schema["additionalProperties"], "rev", depth + 1)
                    for _ in range(self.rng.randrange(3))}
        return self.any(1)

    def named_text(self, name):
        if self.chance(0.15):
            return self.text()
        if name in ("rev", "revs"):
            return self.mutated_text(self.rng.choice(self.revs))
        if name in ("since", "since_seq"):
            return self.mutated_text(self.rng.choice(self.seqs))
        if name == "bookmark":
            return self.mutated_text(self.rng.choice(self.bookmarks))
        if name in ("id", "docid", "startkey_docid", "endkey_docid", "doc_ids"):
            return self.rng.choice(DOCUMENTS)
        if name == "filter":
            return self.rng.choice(["fuzz/even", "fuzz/fails", "_doc_ids", "_selector", "_view", "_design", "fuzz/none"])
        if name in ("open_revs", "atts_since"):
            return self.rng.choice(["all", json.dumps([self.rng.choice(self.revs)]), "[]", "[1]", "{}"])
        if name == "Range":
            return self.rng.choice(["bytes=0-1", "bytes=-1", "bytes=5-", "bytes=9-2", "bytes=0-0,2-3", "x", "bytes=" + "0-1," * 30])
        if name == "counts":
            return json.dumps([self.rng.choice(FIELDS)])
        return self.rng.choice(["fuzz/even", "running", "json", "a", "1", "text"])

    def segment(self, name):
        """A value for a parameter of the path."""
        known = {
            "db": DATABASES * 6 + PASSING[:3] + ["_users", "none"],
            "docid": DOCUMENTS, "doc": DOCUMENTS, "ddoc": ["fuzz", "fuzz", "fuzz", "search", "none"], "partition": ["part", "x"],
            "view": ["all", "fails", "reduced", "none"], "other": ["fuzz"], "index": ["words", "none"],
            "function": ["plain", "fails", "slow", "none"], "attachment": ["a.txt", "b.bin", "c/d.txt"],
            "node": ["_local"], "section": ["fuzz", "log"], "key": ["fuzz", "level"], "type": ["json", "text"],
            "name": ["n-index", "none"], "replicator": ["_replicator"], "below": ["couchdb", "rebalance", "x"], "job": ["1", "x"],
            "file": ["index.html", "x"], "path": ["a", "b/c"],
        }[name]
        text = self.rng.choice(known)
        if self.chance(0.06):
            text = self.rng.choice(STRANGE_TEXTS)
        quoted = urllib.parse.quote(text.encode("utf-8", "surrogatepass"), safe="" if self.chance(0.7) else "/")
        return quoted if self.chance(0.98) else quoted + self.rng.choice(["%", "%FF", "%00", "/", "?"])

    def query_value(self, schema, name):
        if "x-json" in schema:
            value = self.any(3) if self.chance(0.8) else self.rng.choice(DOCUMENTS)
            return json.dumps(value) if self.chance(0.9) else self.text()
        value = self.of(schema, name)
        return value if isinstance(value, str) else json.dumps(value)
