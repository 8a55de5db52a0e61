"""Reads `docs/openapi.yaml`. Standard library only: not all of YAML, but block mappings and lists by indentation and
flow values on one line, which is what the file is written in."""

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILE = ROOT / "docs/openapi.yaml"
METHODS = {"get": "GET", "put": "PUT", "post": "POST", "delete": "DELETE", "x-copy": "COPY"}
WORDS = {"true": True, "false": False, "null": None}
TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\],]|[^,{}\[\]"]+)')


def scalar(text):
    text = text.strip()
    if text.startswith('"'):
        return json.loads(text)
    if text in WORDS:
        return WORDS[text]
    return int(text) if re.fullmatch(r"-?\d+", text) else text


class Flow:
    """A value on one line."""

    def __init__(self, text):
        self.tokens, self.at = TOKEN.findall(text), 0

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1].strip()

    def peek(self):
        return self.tokens[self.at].strip()

    def value(self):
        token = self.next()
        if token == "[":
            return self.many("]", self.value)
        if token == "{":
            return dict(self.many("}", self.member))
        return scalar(token)

    def many(self, end, one):
        out = []
        while self.peek() != end:
            out.append(one())
            if self.peek() == ",":
                self.next()
        self.next()
        return out

    def member(self):
        name = self.next()
        if name.startswith('"'):
            rest = self.next() if self.peek().startswith(":") else ":"
            name, rest = json.loads(name), rest[1:].strip()
        else:
            name, _, rest = name.partition(":")
            name, rest = name.strip(), rest.strip()
        return name, scalar(rest) if rest else self.value()


def lines_of(text):
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield len(line) - len(line.lstrip()), line.strip()


def block(lines, indent):
    """The mapping or list whose lines begin at this indentation; takes them from the front of `lines`."""
    out = None
    while lines and lines[0][0] == indent:
        _, text = lines[0]
        if text.startswith("- "):
            out = [] if out is None else out
            lines.pop(0)
            rest = text[2:]
            if rest.startswith(("{", "[")):
                out.append(Flow(rest).value())
            else:
                lines.insert(0, (indent + 2, rest))
                out.append(block(lines, indent + 2))
            continue
        out = {} if out is None else out
        lines.pop(0)
        name, rest = re.fullmatch(r'("(?:[^"\\]|\\.)*"|[^:]+(?::(?! |$)[^:]*)*):(?: (.*))?', text).groups()
        name = json.loads(name) if name.startswith('"') else name
        if rest is None:
            out[name] = block(lines, lines[0][0]) if lines and lines[0][0] > indent else None
        else:
            out[name] = Flow(rest).value() if rest[0] in "{[" else scalar(rest)
    return out


def read(path=FILE):
    """The description as dictionaries and lists."""
    lines = list(lines_of(path.read_text()))
    return block(lines, 0)


class Operation:
    """A method of a path, references resolved."""

    def __init__(self, description, path, method, item):
        def resolve(value):
            if isinstance(value, dict) and "$ref" in value:
                target = description
                for part in value["$ref"].split("/")[1:]:
                    target = target[part]
                return resolve(target)
            if isinstance(value, dict):
                return {name: resolve(one) for name, one in value.items()}
            return [resolve(one) for one in value] if isinstance(value, list) else value

        self.path, self.method = path, METHODS[method]
        self.tag = item["tags"][0]
        self.runs_user_code = bool(item.get("x-user-code"))
        self.effects = item.get("x-effects")
        parameters = [resolve(one) for one in item.get("parameters") or []]
        self.query = [(one["name"], schema_of(one)) for one in parameters if one["in"] == "query"]
        self.headers = [(one["name"], schema_of(one)) for one in parameters if one["in"] == "header"]
        content = resolve(item.get("requestBody") or {"content": {}})["content"]
        self.bodies = [(kind, one["schema"]) for kind, one in content.items()]
        self.in_path = re.findall(r"\{(\w+)\}", path)

    def __repr__(self):
        return f"{self.method} {self.path}"


def schema_of(parameter):
    """A parameter's schema; one whose value is JSON text has `x-json`."""
    if "content" in parameter:
        return {"x-json": parameter["content"]["application/json"]["schema"]}
    return parameter["schema"]


def operations():
    description = read()
    return [Operation(description, path, method, item)
            for path, methods in description["paths"].items() for method, item in methods.items()]
