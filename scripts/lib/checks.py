#!/usr/bin/env python3
"""The checks of settee: what each is, what it needs, and in what order they run.

usage: scripts/test [quick | long | STEP ...] [--list] [--port P]

Without a word: everything that a change must pass. `quick`: format, lints and unit tests of what changed. `long`: all
of that and what takes a night. STEP: these alone, with the builds that they need (`--list` names them).

One cargo build runs at a time, with a low priority. Beside it run one step that computes and two that mostly wait.
Each step ends with its duration, the processor time that it took, and its own summary; the output of a step is in
target/checks/STEP.log, and of a step that failed its end is printed with the command that repeats it. A step that cannot
run here (no browser, no network) is reported as left out. Last line: `N passed, M failed, K skipped`.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import npm

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOGS = ROOT / "target" / "checks"
# How many steps of each kind run at once.
ROOM = {"build": 1, "compute": 1, "wait": 2}
PASSED = re.compile(r"(\d+) pass(?:ed)?, (\d+) fail(?:ed)?(?:, (\d+) skip(?:ped)?)?")


class Step:
    """One check: `kind` is a key of ROOM, `after` the steps that must have passed, `needs` programs that it starts and
    folders that it reads, `behind` steps that must have ended where they run at all, `packages` whether it takes packages
    from npm's registry: True, or a file that is there once it has them."""

    def __init__(self, name, kind, command, after=(), needs=(), sets=("default",), behind=(), packages=None):
        self.name, self.kind, self.command = name, kind, command
        self.after, self.needs, self.sets, self.behind = after, needs, sets, behind
        self.packages = packages
        self.state, self.counts, self.said = "waiting", (0, 0, 0), ""
        # Of the clock, and of the processors by all processes that the step waited for.
        self.seconds, self.processor = 0.0, 0.0

    def unavailable(self):
        """Why it cannot run here, or None."""
        missing = [need for need in self.needs if not (os.path.exists(need) if need[0] == "/" else shutil.which(need))]
        if missing:
            return f"not installed here: {', '.join(missing)}"
        return npm.unavailable(self.packages if isinstance(self.packages, pathlib.Path) else None) if self.packages else None

    def run(self, port):
        """Runs the command; sets state, counts and what it said last."""
        started = time.monotonic()
        command = self.command.replace("PORT", str(port))
        if self.kind == "build":
            command = f"nice -n 10 {command}" if not command.startswith("!") else command[1:]
        log = LOGS / f"{self.name}.log"
        with log.open("w") as out:
            shell = subprocess.Popen(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, env={**PROGRAMS, **os.environ},
                                     stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            _, status, used = os.wait4(shell.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.seconds, self.processor = time.monotonic() - started, used.ru_utime + used.ru_stime
        lines = log.read_text(errors="replace").strip().splitlines()
        totals = [PASSED.fullmatch(line.strip()) for line in lines]
        totals = [tuple(int(n or 0) for n in found.groups()) for found in totals if found]
        # A step without a count of its own is one check.
        self.counts = totals[-1] if totals else (0, 1, 0) if code else (1, 0, 0)
        if code and not self.counts[1]:
            self.counts = (self.counts[0], 1, self.counts[2])
        self.said = "{} passed, {} failed, {} skipped".format(*self.counts) if totals else (lines or [""])[-1][:90]
        self.state = "failed" if code else "passed"


# What users get is built by `scripts/release`; the steps test the same code with all its assertions.
TESTS = "python3 scripts/lib/run_tests.py"
BUILD = f"{TESTS} --lint --profile testing --build target/checks"
SIMULATOR = "target/node/settee-sim"
# The optimised programs, which steps `node` and `simulator` build.
PROGRAMS = {"SETTEE": "settee", "SETTEE_BENCH": "settee-bench", "SETTEE_CONFORMANCE": "settee-conformance",
            "SETTEE_SIM": "settee-sim"}
PROGRAMS = {variable: str(ROOT / "target" / "node" / program) for variable, program in PROGRAMS.items()}


def default_steps():
    """What every change must pass, in the order in which steps start where nothing else decides."""
    node, simulator, both = ("node",), ("simulator",), ("node", "simulator")
    return [
        Step("format", "build", "cargo fmt --all -- --check"),
        Step("browser", "wait", "bash scripts/setup"),
        Step("licences", "wait", "python3 scripts/licences"),
        Step("configuration-page", "wait", "python3 scripts/configuration-page --check"),
        Step("build", "build", f"{BUILD}/tests.json"),
        Step("tests", "compute", f"{TESTS} --built target/checks/tests.json", ("build",)),
        Step("node", "build", "bash scripts/lib/build-optimised node", ("build",)),
        # After the tests: both builds leave their programs in the same place.
        Step("sim-build", "build", f"{BUILD}/sim-tests.json --features sim", behind=("tests",)),
        Step("simulator", "build", "bash scripts/lib/build-optimised simulator", ("sim-build",)),
        Step("sim-tests", "compute", f"{TESTS} --built target/checks/sim-tests.json --but seeds", ("sim-build",)),
        # These have the simulator run whole plans, and take the optimised one.
        Step("sim-plans", "compute", f"{TESTS} --built target/checks/sim-tests.json --only seeds", simulator),
        Step("seeds", "compute", f"{SIMULATOR} run --seeds ${{SEEDS:-300}}", simulator),
        Step("cluster-seeds", "compute", f"{SIMULATOR} run --cluster --seeds ${{CLUSTER_SEEDS:-50}}", simulator),
        Step("two-clusters", "compute", f"{SIMULATOR} run --scene two-clusters --seeds ${{PAIR_SEEDS:-10}}", simulator),
        Step("planted", "compute", f"{SIMULATOR} planted --known sim/board.json", simulator),
        Step("cases", "compute", f"{SIMULATOR} cases --seeds ${{CASE_SEEDS:-2}}", simulator),
        Step("conformance", "wait", "bash scripts/conformance PORT", node),
        Step("conformance-follow", "wait", "bash scripts/conformance PORT --follow", node),
        Step("conformance-faults", "wait", "python3 scripts/conformance-faults", node),
        Step("outer", "wait", f"{SIMULATOR} outer 4 5 6 --binary $SETTEE --port PORT", both),
        Step("kill9", "wait", "python3 scripts/kill9 --rounds ${KILLS:-10}", node),
        Step("chaos", "wait",
             "python3 scripts/chaos --seconds ${CHAOS_SECONDS:-60} --port PORT ${CHAOS_SEED:+--seed $CHAOS_SEED}", node),
        Step("fuzz", "compute", "python3 scripts/fuzz --ms ${FUZZ_MS:-500} --built target/checks/sim-tests.json", ("sim-build",)),
        # One seed, so that a change is not held up by what another one did; `fuzz-http-long` draws its seed.
        Step("fuzz-http", "wait",
             "python3 scripts/fuzz-http --seconds ${FUZZ_HTTP_SECONDS:-20} --seed ${FUZZ_HTTP_SEED:-1}", node),
        Step("iso-codes", "wait", "python3 scripts/load-iso-codes", node, ("/usr/share/iso-codes/json",)),
        Step("timeline-browser", "wait", "python3 scripts/timeline-browser", (*both, "browser"), ("chromium", "chromedriver")),
        Step("browser-pouchdb", "wait", "python3 scripts/browser-pouchdb", (*node, "browser"),
             ("chromium", "chromedriver"), packages=npm.INSTALLED),
        Step("page-browser", "wait", "python3 scripts/page-browser", (*node, "browser"), ("chromium", "chromedriver")),
        Step("backup-s3", "wait", "python3 scripts/backup-s3 --port PORT", node,
             packages=ROOT / "target" / "s3rver" / "node_modules" / ".bin" / "s3rver"),
    ]


def quick_steps():
    """While one works on a change."""
    return [
        Step("quick-tests", "build", "!python3 scripts/lib/changed.py", (), (), ("quick",)),
    ]


def long_steps():
    """What takes a night."""
    node, simulator, both = ("node",), ("simulator",), ("node", "simulator")

    def step(name, kind, command, after=(), needs=(), packages=None):
        return Step(name, kind, command, after, needs, ("long",), packages=packages)

    return [
        step("doc-tests", "build", "cargo test --profile testing --workspace --locked --doc"),
        step("dist", "build", "bash scripts/release"),
        step("conformance-dist", "wait", "SETTEE=target/dist/release/settee bash scripts/conformance PORT", (*node, "dist")),
        step("fauxton", "wait", "python3 scripts/page-browser fauxton --no-axe --no-pictures", (*node, "browser"),
             ("chromium", "chromedriver"), ROOT / "target" / "fauxton" / "index.html"),
        step("page-scale", "wait", "python3 scripts/page-browser scale-databases scale-documents --no-pictures", (*node, "browser"),
             ("chromium", "chromedriver")),
        step("page-phone", "wait", "python3 scripts/page-browser --form phone --no-pictures --no-axe", (*node, "browser"),
             ("chromium", "chromedriver")),
        step("pouchdb-server", "wait", "bash scripts/conformance-pouchdb-server PORT", node, packages=True),
        step("outer-pouchdb-server", "wait", "bash scripts/outer-pouchdb-server", both, packages=True),
        step("conformance-cluster", "wait", "bash scripts/conformance-cluster", node),
        step("conformance-cluster-faults", "wait", "python3 scripts/conformance-cluster-faults --rounds 10", node),
        step("bitrot", "wait", "python3 scripts/bitrot --rounds 100 --docs 200", node),
        step("full-disk", "wait", "python3 scripts/full-disk", node),
        step("fuzz-long", "compute",
             "python3 scripts/fuzz --ms ${LONG_FUZZ_MS:-300000} --built target/checks/sim-tests.json", ("sim-build",)),
        step("fuzz-http-long", "wait", "python3 scripts/fuzz-http --seconds ${LONG_FUZZ_HTTP_SECONDS:-3600}", node),
        step("hostile", "wait", "python3 scripts/hostile", node),
        step("kill9-long", "wait", "python3 scripts/kill9 --rounds 200", node),
        step("seeds-long", "compute", f"{SIMULATOR} run --seeds ${{LONG_SEEDS:-5000}} --from 1001", simulator),
        step("cluster-seeds-long", "compute",
             f"{SIMULATOR} run --cluster --seeds ${{LONG_CLUSTER_SEEDS:-1000}} --from 1001", simulator),
        step("planted-shrink", "compute", f"{SIMULATOR} planted --shrink", simulator),
        step("migrate", "wait", "python3 scripts/migrate --port PORT", node, packages=True),
        step("backup-s3-every", "wait", "python3 scripts/backup-s3 --every --docs 6000 --port PORT", node,
             packages=ROOT / "target" / "s3rver" / "node_modules" / ".bin" / "s3rver"),
        step("package", "wait", "python3 scripts/package-test", node, ("dpkg-deb",)),
        step("monitoring", "wait", "python3 scripts/monitoring-check", node, ("prometheus", "promtool")),
        # Its seed is drawn and printed, like that of `chaos`.
        step("chaos-long", "wait", "python3 scripts/chaos --seconds ${LONG_CHAOS_SECONDS:-600} --port PORT", node),
        step("soak", "wait", "python3 scripts/soak --seconds ${SOAK_SECONDS:-300}", node),
        step("large-documents", "wait", "python3 scripts/large-documents --within 60", node),
        step("random-updates", "wait", "python3 scripts/random-updates", node),
        step("many-databases", "wait", "python3 scripts/many-databases", node),
        step("load-million", "wait", "python3 scripts/load-million", node),
    ]


def steps():
    """All steps."""
    return default_steps() + quick_steps() + long_steps()


def chosen(words):
    """The steps for these words, with the steps that they need."""
    every = {step.name: step for step in steps()}
    if not words:
        names = [name for name, step in every.items() if "default" in step.sets]
    elif words == ["quick"]:
        names = ["format", *(name for name, step in every.items() if "quick" in step.sets)]
    elif words == ["long"]:
        names = [name for name, step in every.items() if step.sets != ("quick",)]
    else:
        names = words
        unknown = [name for name in names if name not in every]
        if unknown:
            sys.exit(f"no step is called {', '.join(unknown)}; there are {', '.join(every)}")
    wanted = set(names)
    while True:
        more = {need for name in wanted for need in every[name].after} - wanted
        if not more:
            break
        wanted |= more
    return [step for name, step in every.items() if name in wanted]


def report(step, started):
    state = {"passed": "ok", "failed": "FAILED", "left out": "LEFT OUT"}[step.state]
    print(f"{time.monotonic() - started:6.0f} s  {state:8} {step.name:20} {step.seconds:6.1f} s {step.processor:6.1f} s cpu  {step.said}",
          flush=True)
    if step.state == "failed":
        log = LOGS / f"{step.name}.log"
        if log.exists():
            print("\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-60:]))
        print(f"    repeat: scripts/test {step.name}    all of its output: {log.relative_to(ROOT)}", flush=True)


class Runner:
    """Starts steps as their needs and the room of their kind allow; reports each as it ends."""

    def __init__(self, wanted, port):
        self.wanted, self.port = wanted, port
        self.started = time.monotonic()
        self.changed = threading.Condition()

    def leave_out(self, step, why):
        step.state, step.said, step.counts = "left out", why, (0, 0, 1)
        report(step, self.started)

    def settle(self):
        """Leaves out what cannot run any more."""
        state = {step.name: step.state for step in self.wanted}
        for step in self.wanted:
            if step.state != "waiting":
                continue
            lost = [need for need in step.after if state[need] in ("failed", "left out")]
            if lost:
                self.leave_out(step, f"needs {', '.join(lost)}")
            elif all(state[need] == "passed" for need in step.after) and (why := step.unavailable()):
                self.leave_out(step, why)
            state[step.name] = step.state

    def startable(self):
        state = {step.name: step.state for step in self.wanted}
        running = [step.kind for step in self.wanted if step.state == "running"]
        for step in self.wanted:
            ready = all(state[need] == "passed" for need in step.after)
            ready = ready and not any(state.get(before) in ("waiting", "running") for before in step.behind)
            if step.state == "waiting" and ready and running.count(step.kind) < ROOM[step.kind]:
                return step
        return None

    def work(self, step, port):
        step.run(port)
        with self.changed:
            report(step, self.started)
            self.changed.notify_all()

    def run(self):
        with self.changed:
            while True:
                self.settle()
                step = self.startable()
                if step:
                    step.state = "running"
                    port = self.port + 10 * self.wanted.index(step)
                    threading.Thread(target=self.work, args=(step, port), daemon=True).start()
                elif any(step.state == "running" for step in self.wanted):
                    self.changed.wait()
                else:
                    break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "15084")))
    options = parser.parse_args()
    if options.list:
        for step in steps():
            print(f"{step.name:20} {'/'.join(step.sets):8} {step.command.lstrip('!')}")
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    wanted = chosen(options.words)
    runner = Runner(wanted, options.port)
    runner.run()
    totals = [sum(step.counts[at] for step in wanted) for at in range(3)]
    processor = sum(step.processor for step in wanted)
    print(f"\n{len(wanted)} steps in {time.monotonic() - runner.started:.0f} s, {processor:.0f} s of processors")
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 1 if totals[1] or any(step.state == "failed" for step in wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
