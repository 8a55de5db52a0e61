"""Chromium without a window, driven by chromedriver over its HTTP interface. Each has a profile of its own, which goes
with it."""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

FLAGS = ["--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync",
         # Containers have little shared memory.
         "--disable-dev-shm-usage"]


# Of a script in the page, and of a call: a busy machine takes long.
SCRIPT_S, CALL_S = 600, 660


class Failed(Exception):
    """The browser answered with an error."""


def found(*names):
    """The first of these programs that is there."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise SystemExit(f"{names[0]} is missing: scripts/setup installs it on Debian (chromium, chromium-driver)")


class Browser:
    def __init__(self, width=1280, height=900):
        program, driver = found("chromium", "chromium-browser", "google-chrome"), found("chromedriver")
        self.profile = tempfile.mkdtemp(prefix="settee-browser-")
        # A port of its own choice, which it tells.
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.driver = subprocess.Popen([driver, "--port=0"], text=True, **pipes)
        try:
            self.base = f"http://127.0.0.1:{self.port()}"
            root = ["--no-sandbox"] if os.geteuid() == 0 else []
            args = FLAGS + root + [f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]
            wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": args, "binary": program},
                      "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self.base += "/session/" + session["sessionId"]
            self.call("POST", "/timeouts", {"script": SCRIPT_S * 1000})
            # The page of a new tab asks for much.
            self.open("about:blank")
            self.news()
        except BaseException:
            self.end()
            raise

    def port(self):
        for line in self.driver.stdout:
            told = re.search(r"started successfully on port (\d+)", line)
            if told:
                return int(told[1])
        raise Failed("chromedriver did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("DELETE", "")
        except (Failed, OSError):
            pass
        self.end()

    def end(self):
        self.driver.terminate()
        self.driver.communicate()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, path, body=None):
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        ask = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(ask, timeout=CALL_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise Failed(json.load(error)["value"]["message"][:500]) from None

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, code, *args):
        """What a function body returns in the page."""
        return self.call("POST", "/execute/sync", {"script": code, "args": list(args)})

    def wait(self, code, *args):
        """What a function body, the last of whose arguments is to be called with it, gives."""
        return self.call("POST", "/execute/async", {"script": code, "args": list(args)})

    def resize(self, width, height):
        self.call("POST", "/window/rect", {"width": width, "height": height})
        self.frame()

    def frame(self):
        """Waits until the page was drawn."""
        self.wait("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def point(self, *steps):
        """Moves the pointer to (x, y) of the window, or presses it ("down", "up"), in this order."""
        actions = []
        for step in steps:
            if isinstance(step, str):
                actions.append({"type": "pointerDown" if step == "down" else "pointerUp", "button": 0})
            else:
                actions.append({"type": "pointerMove", "duration": 0, "x": round(step[0]), "y": round(step[1])})
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self.call("POST", "/actions", {"actions": [pointer]})
        self.frame()

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def news(self):
        """What was complained of since the last time, and the addresses that were asked for."""
        complaints, lines = ([line["message"] for line in self.call("POST", "/se/log", {"type": kind})]
                             for kind in ("browser", "performance"))
        lines = [json.loads(line)["message"] for line in lines]
        asked = [line["params"]["request"]["url"] for line in lines if line["method"] == "Network.requestWillBeSent"]
        return complaints, asked
