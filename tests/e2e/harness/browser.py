# SPDX-License-Identifier: Apache-2.0
"""One page of a real browser: Chromium without a window, steered over a pipe (DevTools protocol)."""
import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time


class Browser:
    """`requests` are the addresses that pages have asked for, `problems` what their consoles said."""

    def __init__(self, profile, width=1280, height=900):
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        command = [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu",
                   "--no-first-run", "--disable-background-networking", "--disable-component-update",
                   "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                   f"--window-size={width},{height}", "--remote-debugging-pipe", "about:blank"]
        # The protocol is spoken over the descriptors 3 and 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', *command],
            pass_fds=[to_browser, from_browser], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._waiting, self._session = 0, b"", None
        self.requests, self.problems = [], []
        target = next(target for target in self.send("Target.getTargets")["targetInfos"]
                      if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target["targetId"],
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def _read(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self._waiting:
            ready = select.select([self._from], [], [], max(0, end - time.monotonic()))[0]
            if not ready:
                raise TimeoutError("the browser says nothing")
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._waiting += more
        message, self._waiting = self._waiting.split(b"\0", 1)
        message = json.loads(message)
        method, values = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(values["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.problems.append(values["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning"):
            self.problems.append(str(values["args"]))
        return message

    def send(self, method, seconds=30, **values):
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(seconds)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def open(self, address, seconds=30):
        """Until the page and all that it needs is there."""
        self.send("Page.navigate", url=address)
        while self._read(seconds).get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, script, seconds=30):
        """The script's value, awaited when it is a promise."""
        answer = self.send("Runtime.evaluate", seconds, expression=script, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width, height=900):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        """`light` or `dark`, as the reader's system prefers it."""
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path, whole=True):
        """As PNG; `whole`: with what lies below the window's end."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        with contextlib.suppress(OSError):
            os.close(self._to)  # the browser ends when nobody can speak to it any more
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._from)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self.close()
