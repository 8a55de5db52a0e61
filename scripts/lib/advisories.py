#!/usr/bin/env python3
"""Known weaknesses of dependencies, offline: `advisories.tsv`, and what writes it anew.

usage: scripts/lib/advisories.py FOLDER [--date YYYY-MM-DD]

FOLDER is a checkout of the RustSec advisory database (https://github.com/rustsec/advisory-db). Writes what it has about the
packages of Cargo.lock: one line for each advisory that was not withdrawn. `--date` is the day of the database, where the
folder is no clone that tells the day of its last commit. `scripts/licences` reads the table.
"""

import argparse
import datetime
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = pathlib.Path(__file__).with_name("advisories.tsv")
# Advisories that concern a version of Cargo.lock, each with the reason why it stays.
EXCEPTIONS = {
    "RUSTSEC-2024-0384": "`instant` is maintained no more; nothing is known to be wrong with it, and sled needs it",
    "RUSTSEC-2025-0057": "`fxhash` is maintained no more; nothing is known to be wrong with it, and sled needs it",
    "RUSTSEC-2025-0141": "`bincode` is maintained no more; nothing is known to be wrong with it, and only the simulator has it",
}
HEAD = """\
# Advisories about packages of Cargo.lock, as of {date}. Written by scripts/lib/advisories.py; do not edit.
# Facts from the RustSec advisory database (https://github.com/rustsec/advisory-db), which is dedicated to the public
# domain under CC0-1.0, but for those whose last column has another licence, with the advisory that it is for.
# Looked up: {names}
# id\tpackage\tdate\tkind\tversions that are not concerned\tlicence
"""
KEY = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")


def key(version):
    """What versions are compared by: a version before a release is below it. Also how many numbers were given."""
    major, minor, patch, before = KEY.fullmatch(version.strip()).groups()
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split(".")] if before else []
    numbers = [int(part) for part in (major, minor, patch) if part is not None]
    return (*(numbers + [0, 0])[:3], not before, parts), numbers


def meets(version, requirement):
    """Whether a version meets a requirement such as `>= 1.2.3, < 2` or `^0.3.1`."""
    found = key(version)[0]
    for one in requirement.split(","):
        sign, bound = re.fullmatch(r"\s*(>=|<=|>|<|=|\^|~)?\s*(\S+)\s*", one).groups()
        if bound == "*":
            continue
        low, numbers = key(bound)
        sign = sign or "^"
        if sign in "^~":
            # The first number that is not 0 must stay, or the second one of two.
            at = next((n for n, number in enumerate(numbers) if number), len(numbers) - 1) if sign == "^" else min(1, len(numbers) - 1)
            same = list(found[:at + 1]) == numbers[:at + 1]
            held = same and found >= low
        else:
            held = {">=": found >= low, "<=": found <= low, ">": found > low, "<": found < low, "=": found == low}[sign]
        if not held:
            return False
    return True


def locked():
    """Names and versions of the packages in Cargo.lock that come from a registry."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return sorted((package["name"], package["version"]) for package in packages if "source" in package)


def rows():
    """The table: what was looked up, of which day, and its lines as lists of columns."""
    lines = TABLE.read_text().splitlines()
    day = re.search(r"as of (\d{4}-\d{2}-\d{2})", lines[0]).group(1)
    names = next(line.split(": ", 1)[1].split() for line in lines if line.startswith("# Looked up: "))
    return set(names), day, [line.split("\t") for line in lines if not line.startswith("#")]


def check():
    """What is wrong with the locked versions, and what is to be said of the table: two lists of lines."""
    names, day, known = rows()
    concerned, used = [], set()
    for name, version in locked():
        for advisory, package, _, kind, safe, _ in known:
            if package != name or any(meets(version, one) for one in safe.split(" | ") if one):
                continue
            used.add(advisory)
            if advisory not in EXCEPTIONS:
                concerned.append(f"{advisory} concerns {name} {version} ({kind}); not: {safe or 'none'}")
    concerned += [f"{advisory} is an exception that concerns no locked version" for advisory in set(EXCEPTIONS) - used]
    age = (datetime.date.today() - datetime.date.fromisoformat(day)).days
    told = [f"advisories: {len(known)} about locked packages, as of {day} ({age} days ago), {len(concerned)} not accepted"]
    told += [f"  accepted: {advisory}: {why}" for advisory, why in sorted(EXCEPTIONS.items())]
    if later := sorted({name for name, _ in locked()} - names):
        told.append(f"  not in the table, which is older: {', '.join(later)}")
    return concerned, told


def read(path):
    """The facts of one advisory, None where it was withdrawn."""
    text = path.read_text()
    fields = tomllib.loads(text.split("```toml", 1)[1].split("```", 1)[0])
    advisory, versions = fields["advisory"], fields.get("versions", {})
    if "withdrawn" in advisory:
        return None
    kind = advisory.get("informational") or "/".join(advisory.get("categories", [])) or "vulnerability"
    safe = " | ".join(versions.get("patched", []) + versions.get("unaffected", []))
    licence = advisory.get("license", "CC0-1.0")
    licence += "" if licence == "CC0-1.0" else f" {advisory['url']}"
    return [advisory["id"], advisory["package"], str(advisory["date"]), kind, safe, licence]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--date")
    options = parser.parse_args()
    log = ["git", "-C", str(options.folder), "log", "-1", "--format=%cs"]
    day = options.date or subprocess.run(log, check=True, capture_output=True, text=True).stdout.strip()
    names = sorted({name for name, _ in locked()})
    found = [read(path) for name in names for path in sorted((options.folder / "crates" / name).glob("RUSTSEC-*.md"))]
    lines = ["\t".join(row) for row in found if row]
    TABLE.write_text(HEAD.format(date=day, names=" ".join(names)) + "".join(f"{line}\n" for line in lines))
    concerned, told = check()
    print("\n".join(told + concerned))
    return 1 if concerned else 0


if __name__ == "__main__":
    sys.exit(main())
