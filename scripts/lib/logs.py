#!/usr/bin/env python3
"""Panics in the logs of nodes: every script that starts a node fails where its log holds one. Standard library only.

usage: scripts/lib/logs.py LOG...     tells the panics of these files, exit status 1 where there is one
"""

import pathlib
import sys

PANIC = "panicked at"
TOLD = 3


def panics(path, begin=0):
    """The lines of a log, from byte `begin` on, that tell of a panic, each with the line behind it, which says what."""
    try:
        with open(path, "rb") as log:
            log.seek(begin)
            lines = log.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    behind = [*lines[1:], ""]
    return [f"{line} {after}".strip() for line, after in zip(lines, behind) if PANIC in line]


def told(found):
    """What a failed check says of panics."""
    return f"{len(found)} panics, the first: " + " | ".join(found[:TOLD])


def main():
    status = 0
    for path in map(pathlib.Path, sys.argv[1:]):
        if found := panics(path):
            print(f"{path}: {told(found)}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
