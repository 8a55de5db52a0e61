#!/usr/bin/env python3
"""Lints and tests the packages that differ from the main branch, for `scripts/test quick`.

usage: scripts/lib/changed.py

A package counts as changed when a file below it differs from the last commit that `origin/main` (or `main`) has in
common with this one, or is not committed. Its unit tests are compiled by clippy, so that lints cost no pass of their own;
its other programs (integration tests, examples) are linted where one of them has changed. Nothing changed: nothing is run.
Last line: `N passed, M failed, K skipped`.
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
    """The packages, and those of them of which more than the library has changed."""
    base = (lines("git", "merge-base", "HEAD", "origin/main") or lines("git", "merge-base", "HEAD", "main") or ["HEAD"])[0]
    files = lines("git", "diff", "--name-only", base) + lines("git", "ls-files", "--others", "--exclude-standard")
    if any(file in ("Cargo.toml", "Cargo.lock") for file in files):
        return [*WITHIN, *FOLDERS], []
    folders = {**{name: (folder,) for name, folder in WITHIN.items()}, **FOLDERS}
    packages = [name for name in folders if any(file.startswith(folders[name]) for file in files)]
    beside = [file for file in files if file.endswith(".rs") and ("tests/" in file or "examples/" in file)]
    # `src/index/tests/` and its like are part of the library.
    beside = [file for file in beside if not file.startswith("src/") and "/src/" not in file]
    return packages, [name for name in packages if any(file.startswith(folders[name]) for file in beside)]


def main():
    packages, beside = changed()
    code = 0
    for package in beside:
        code |= cargo("clippy", package, "--all-targets", "--", "-D", "warnings")
    if packages:
        command = ["python3", "scripts/lib/run_tests.py", "--lint", "--lib"]
        code |= subprocess.run([*command, *arguments(packages)]).returncode
    else:
        print("1 passed, 0 failed, 0 skipped" if not code else "0 passed, 1 failed, 0 skipped")
    return 1 if code else 0


def cargo(what, package, *more):
    return subprocess.run(["cargo", what, "--locked", *arguments([package]), *more]).returncode


def arguments(packages):
    simulator = ["--features", "settee-sim/sim"] if "settee-sim" in packages else []
    return [*(part for package in packages for part in ("-p", package)), *simulator]


if __name__ == "__main__":
    sys.exit(main())
