# SPDX-License-Identifier: Apache-2.0
"""Watches that no counter of an agent ever falls."""
import http.client
import threading
import time

_INTERVAL = 0.05  # 20 times a second
# A large page is asked for less often: at most this share of the time goes into asking and reading.
_SHARE = 0.1
_KINDS = ("counter", "histogram")  # every line of a histogram is one: _bucket, _sum, _count
_SHOWN = 20


class CounterRecorder(threading.Thread):
    """Scrapes /metrics of an agent that has just been started until it is stopped.

    What a series has once shown it must never show less of, also when it was gone in between: only a
    new agent begins anew.
    """

    def __init__(self, address, port):
        super().__init__(name=f"counters of :{port}", daemon=True)
        self.scrapes = 0
        self.falls = {}  # series: (before, after)
        self._address, self._port = address, port
        self._seen = {}  # series as written: value as written
        self._ending = threading.Event()
        self._connection = None

    def run(self):
        pause = _INTERVAL
        while not self._ending.wait(pause):
            begin = time.monotonic()
            text = self._scrape()
            if text is not None:
                self._read(text)
                self.scrapes += 1
            spent = time.monotonic() - begin
            pause = max(_INTERVAL - spent, spent * (1 / _SHARE - 1), 0)
        self._close()

    def stop(self):
        self._ending.set()
        self.join(5)  # longer than a scrape may take

    def complaint(self):
        """What fell, as text; empty: nothing did."""
        lines = [f"{series}: {before} -> {after}"
                 for series, (before, after) in list(self.falls.items())[:_SHOWN]]
        if len(self.falls) > _SHOWN:
            lines.append(f"and {len(self.falls) - _SHOWN} more")
        return "\n".join(lines)

    def _scrape(self):
        """One connection for all, so that the agent's descriptors stay what they are."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._address, self._port, timeout=3)
            self._connection.request("GET", "/metrics")
            answer = self._connection.getresponse()
            body = answer.read()
            return body.decode() if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            self._close()  # not there yet, busy, stopped, or gone
            return None

    def _close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, text):
        counts = False
        seen = self._seen
        for line in text.splitlines():
            if line.startswith("#"):
                if line.startswith("# TYPE "):
                    counts = line.rsplit(" ", 1)[1] in _KINDS
                continue
            if not counts:
                continue
            series, _, value = line.rpartition(" ")
            before = seen.get(series)
            if before == value:
                continue
            if before is not None and float(value) < float(before):
                self.falls.setdefault(series, (before, value))
            seen[series] = value
