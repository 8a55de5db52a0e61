#!/usr/bin/env python3
"""Lints or tests the packages that differ from the main branch, for `scripts/test quick`.

usage: scripts/lib/changed.py clippy | test

A package counts as changed when a file below it differs from the last commit that `origin/main` (or `main`) has in
common with this one, or is not committed. Nothing changed: nothing is run.
"""

import subprocess
import sys

FOLDERS = {"settee-sim": ("sim/",), "settee-conformance": ("conformance/",), "settee": ("src/", "tests/", "examples/")}
# Folders of `src/` that are packages of their own; settee uses them.
WITHIN = {"settee-document": "src/document/", "settee-search": "src/search/"}


def lines(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.splitlines() if not done.returncode else []


def changed():
    base = (lines("git", "merge-base", "HEAD", "origin/main") or lines("git", "merge-base", "HEAD", "main") or ["HEAD"])[0]
    files = lines("git", "diff", "--name-only", base) + lines("git", "ls-files", "--others", "--exclude-standard")
    if any(file in ("Cargo.toml", "Cargo.lock") for file in files):
        return [*WITHIN, *FOLDERS]
    folders = {**{name: (folder,) for name, folder in WITHIN.items()}, **FOLDERS}
    return [name for name in folders if any(file.startswith(folders[name]) for file in files)]


def main():
    code = 0
    for package in changed():
        simulator = ["--features", "sim"] if package == "settee-sim" else []
        if sys.argv[1] == "clippy":
            command = ["cargo", "clippy", "-p", package, "--all-targets", "--locked", *simulator, "--", "-D", "warnings"]
            code |= subprocess.run(command).returncode
        else:
            command = ["python3", "scripts/lib/run_tests.py", "-p", package, "--lib", *simulator]
            code |= subprocess.run(command).returncode
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
