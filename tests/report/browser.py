"""Drive headless Chromium through its debugging pipe, with only the standard library of Python."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--mute-audio",
         "--disable-extensions", "--disable-component-update", "--disable-background-networking", "--disable-sync", "--no-default-browser-check",
         "--disable-features=Translate,OptimizationHints,MediaRouter", "--remote-debugging-pipe"]


def find():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Failed(Exception):
    pass


class Browser:
    """A page.  Lists collect the errors of the page, its console and its requests."""

    def __init__(self, path, flags=()):
        self.folder = tempfile.TemporaryDirectory(prefix="kvfate-browser-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.source, to_write = os.pipe()
        # The browser reads commands from 3 and writes answers to 4.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        command = [path, *FLAGS, f"--user-data-dir={self.folder.name}", *flags, "about:blank"]
        env = {**os.environ, "HOME": self.folder.name, "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(["/bin/bash", "-c", shell, "-", *command], pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.last, self.session = b"", 0, None
        self.console, self.errors, self.requests, self.events = [], [], [], []
        self.attach()

    def attach(self):
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            self.call("Browser.close", top=True)
        except (Failed, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.source)
        self.folder.cleanup()

    def message(self, limit):
        end = time.monotonic() + limit
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.source], [], [], left)[0]:
                raise Failed("the browser does not answer")
            data = os.read(self.source, 1 << 20)
            if not data:
                raise Failed("the browser is gone")
            self.buffer += data
        raw, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(raw)

    def note(self, message):
        name, p = message.get("method"), message.get("params", {})
        self.events.append(name)
        if name == "Runtime.consoleAPICalled":
            self.console.append((p["type"], " ".join(str(a.get("value", a.get("description"))) for a in p["args"])))
        elif name == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.errors.append(d["text"] + " " + str(d.get("exception", {}).get("description")))
        elif name == "Log.entryAdded" and "willReadFrequently" not in p["entry"]["text"]:  # the tests read pixels, the page does not
            self.errors.append(f"{p['entry']['level']}: {p['entry']['text']}")
        elif name == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"][:200])

    def call(self, method, top=False, limit=60, **params):
        self.last += 1
        command = {"id": self.last, "method": method, "params": params}
        if self.session and not top:
            command["sessionId"] = self.session
        os.write(self.to, json.dumps(command).encode() + b"\0")
        while True:
            m = self.message(limit)
            if m.get("id") == self.last:
                if "error" in m:
                    raise Failed(f"{method}: {m['error']}")
                return m["result"]
            self.note(m)

    def run(self, code, limit=60):
        """Return the value of an expression, which may use await."""
        r = self.call("Runtime.evaluate", expression=f"(async () => ({code}))()", awaitPromise=True, returnByValue=True, limit=limit)
        if "exceptionDetails" in r:
            raise Failed(f"{code[:300]}: {r['exceptionDetails'].get('exception', {}).get('description')}")
        return r["result"].get("value")

    def until(self, code, limit=30):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            value = self.run(code)
            if value:
                return value
            time.sleep(0.02)
        raise Failed(f"never true: {code[:300]}")

    def size(self, width, height, ratio=1, touch=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, path):
        self.console, self.errors, self.requests = [], [], []
        self.call("Page.navigate", url="file://" + os.path.abspath(path))

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def touch(self, kind, *points):
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)])

    def key(self, key, shift=False):
        more = {"modifiers": 8} if shift else {}
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def screenshot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def pdf(self, path):
        data = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        Path(path).write_bytes(base64.b64decode(data))
