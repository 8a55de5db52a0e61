"""Whether packages of npm's registry can be had here: the one rule for all steps and test programs that need some."""

import functools
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where this is, all packages of tests/clients are.
INSTALLED = ROOT / "tests" / "clients" / "node_modules" / ".package-lock.json"


@functools.cache
def registry_answers():
    ping = ["npm", "ping", "--fetch-retries=0", "--fetch-timeout=10000"]
    return subprocess.run(ping, cwd=ROOT / "tests" / "clients", capture_output=True).returncode == 0


def unavailable(installed=None):
    """Why packages cannot be had, or None. `installed`: a file that is there once they have been fetched."""
    if missing := [program for program in ("node", "npm") if not shutil.which(program)]:
        return f"not installed here: {', '.join(missing)}"
    if installed and installed.exists():
        return None
    return None if registry_answers() else "packages cannot be fetched: npm ping fails"
