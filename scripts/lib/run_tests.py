#!/usr/bin/env python3
"""Builds the test programs of the workspace with cargo and runs several of them at once.

usage: scripts/lib/run_tests.py [--build LIST | --built LIST] [--lint] [--only NAME | --but NAME] [--threads N] [--at-once N]
                                [cargo arguments, e.g. --features sim]

--build LIST: builds only, and writes to the file LIST which programs there are.
--built LIST: runs those, without cargo, so that it does not wait for another build that holds cargo's lock.
--only NAME, --but NAME: runs the program of this name alone, or all others.
--lint: clippy compiles the workspace. It is the compiler with more lints, so that no other pass is needed for them.

`cargo test` runs one program after the other, with one thread per processor. Most tests of settee wait for a disk, a
socket or a clock, so this runs three programs at once with eight threads each. Prints a line per program; of a
program that fails, its output and the command that repeats it. Last line: `N passed, M failed, K skipped`.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import npm

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
# What takes longest starts first.
FIRST = ["settee", "seeds", "clients", "replication", "scripts", "cluster"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def programs(arguments, lint):
    """Builds, without a warning; the test programs as (name, path, folder of the package), with the longest first."""
    environment = dict(os.environ)
    if lint:
        # As `cargo clippy` does it for a check.
        environment["RUSTC_WORKSPACE_WRAPPER"] = shutil.which("clippy-driver") or sys.exit("clippy-driver is not installed")
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-diagnostic-rendered-ansi"]
    if "-p" not in arguments:
        command.append("--workspace")
    build = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
    found, warnings = [], 0
    for line in build.stdout:
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-message":
            print(message["message"]["rendered"], file=sys.stderr)
            warnings += message["message"]["level"] == "warning"
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            target, folder = message["target"], os.path.dirname(message["manifest_path"])
            name = target["name"] if target["kind"] != ["bin"] else target["name"] + " (program)"
            found.append((name, message["executable"], folder))
    if build.wait():
        sys.exit(build.returncode)
    if warnings:
        sys.exit(f"{warnings} warnings")
    return sorted(found, key=lambda one: FIRST.index(one[0]) if one[0] in FIRST else len(FIRST))


def run(program, threads):
    name, path, folder = program
    started = time.monotonic()
    # Snapshots: a difference fails, nothing is written, and no cargo is called to find them.
    snapshots = {"INSTA_UPDATE": "no", "INSTA_WORKSPACE_ROOT": str(ROOT)}
    environment = {**os.environ, **snapshots, "CARGO_MANIFEST_DIR": folder, "RUST_TEST_THREADS": str(threads)}
    done = subprocess.run([path], cwd=folder, env=environment, capture_output=True, text=True, errors="replace")
    return name, path, folder, done, time.monotonic() - started


def left_out(name):
    """Why a test program cannot run here, or None: `clients` takes packages from npm's registry, once."""
    return npm.unavailable(npm.INSTALLED) if name == "clients" else None


def main():
    parser = argparse.ArgumentParser()
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--build", metavar="LIST", type=pathlib.Path)
    which.add_argument("--built", metavar="LIST", type=pathlib.Path)
    parser.add_argument("--lint", action="store_true")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--only", metavar="NAME")
    some.add_argument("--but", metavar="NAME")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=3)
    options, arguments = parser.parse_known_args()
    found = json.loads(options.built.read_text()) if options.built else programs(arguments, options.lint)
    if options.build:
        options.build.write_text(json.dumps(found))
        print(f"{len(found)} test programs built")
        return 0
    found = [one for one in found if one[0] == (options.only or one[0]) and one[0] != options.but]
    totals = [0, 0, 0]
    for name, why in [(name, why) for name, *_ in found if (why := left_out(name))]:
        print(f"{name}: LEFT OUT: {why}", flush=True)
        found = [one for one in found if one[0] != name]
        totals[2] += 1
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        runs = [pool.submit(run, program, options.threads) for program in found]
        for done in concurrent.futures.as_completed(runs):
            name, path, folder, result, seconds = done.result()
            counts = [int(n) for n in (RESULT.findall(result.stdout) or [("0", "1", "0")])[-1]]
            if result.returncode and not counts[1]:
                counts[1] = 1
            totals = [a + b for a, b in zip(totals, counts)]
            if sum(counts):
                print(f"{name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped, {seconds:.1f} s", flush=True)
            if result.returncode:
                print(f"{result.stdout}\n{result.stderr}\nrepeat: cd {folder} && {path}", flush=True)
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 1 if totals[1] or not totals[0] else 0


if __name__ == "__main__":
    sys.exit(main())
