# SPDX-License-Identifier: Apache-2.0
"""`ingero query` and `ingero report` on a terminal: the line of progress, and what fits the width."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from harness.agent import build_dir
from harness.host import stubs

INGERO = os.path.join(build_dir(), "ingero")
# A row now and then, and no end.
ENDLESS = ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
           "SELECT i FROM n WHERE i % 200000 = 0")
PROGRESS = re.compile(rb"\r\d+ s, [\d,]+ rows so far; Ctrl-C ends it ")


class Terminal:
    def __init__(self, width=100):
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        self.data = b""

    def read_until(self, pattern, seconds=60):
        """Until the pattern is in what was written; None: until nobody can write any more."""
        end = time.monotonic() + seconds
        while not (pattern and pattern.search(self.data)):
            assert select.select([self._master], [], [], end - time.monotonic())[0], self.data[-500:]
            try:
                more = os.read(self._master, 65536)
            except OSError:  # the last writer has gone
                break
            self.data += more
        return self.data

    def screen(self):
        """The lines that stand there in the end."""
        lines, column = [""], 0
        for sign in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.|\n", self.data.decode(), re.DOTALL):
            if sign == "\r":
                column = 0
            elif sign == "\n":
                lines.append("")
                column = 0
            elif sign == "\x1b[K":
                lines[-1] = lines[-1][:column]
            elif not sign.startswith("\x1b"):
                lines[-1] = lines[-1][:column].ljust(column) + sign + lines[-1][column + 1:]
                column += 1
        return [line.rstrip() for line in lines if line.strip()]

    def close(self):
        os.close(self._master)


@pytest.fixture
def terminal():
    started = Terminal()
    yield started
    started.close()


@pytest.fixture
def recording(host, tmp_path):
    file = tmp_path / "x.db"
    agent = host.agent("--out", file)
    host.run(agent, host.container("mixed", "--calls", 5), host.container("errors"),
             host.container("allreduce", "--calls", 20, libraries=stubs(cuda=False)))
    assert agent.stop()[0] == 0
    return file


def start(terminal, *arguments, stdout=None):
    process = subprocess.Popen([INGERO, *map(str, arguments)], stdin=subprocess.DEVNULL,
                               stdout=stdout or terminal.slave, stderr=terminal.slave)
    os.close(terminal.slave)
    return process


def test_a_long_query_tells_how_far_it_is_and_leaves_nothing_of_that_behind(terminal, recording):
    process = start(terminal, "query", recording, ENDLESS, "--format", "csv")
    terminal.read_until(PROGRESS)
    process.send_signal(signal.SIGINT)
    terminal.read_until(None)
    assert process.wait(10) == 130
    lines = terminal.screen()
    assert lines[-1] == "ingero query: interrupted"
    assert lines[0] == "i" and len(lines) > 2
    assert lines[1:-1] == [str(number * 200000) for number in range(1, len(lines) - 1)]


def test_progress_is_for_the_terminal_and_never_in_what_goes_elsewhere(terminal, recording):
    process = start(terminal, "query", recording, ENDLESS, "--format", "csv", stdout=subprocess.PIPE)
    parts = []
    reader = threading.Thread(target=lambda: parts.append(process.stdout.read()))
    reader.start()
    terminal.read_until(PROGRESS)
    process.send_signal(signal.SIGINT)
    terminal.read_until(None)
    reader.join(30)
    process.stdout.close()
    assert process.wait(10) == 130
    assert terminal.screen() == ["ingero query: interrupted"]
    lines = parts[0].decode().splitlines()
    assert lines[0] == "i" and all(line.isdigit() for line in lines[1:]) and len(lines) > 1


def test_a_short_query_and_one_without_a_terminal_say_nothing_of_progress(terminal, recording):
    process = start(terminal, "query", recording, "SELECT 1 AS a")
    terminal.read_until(None)
    assert process.wait(10) == 0
    assert b"Ctrl-C" not in terminal.data and b"\x1b[K" not in terminal.data
    with subprocess.Popen([INGERO, "query", recording, ENDLESS], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as silent:
        timer = threading.Timer(4, silent.send_signal, [signal.SIGINT])
        timer.start()
        _, err = silent.communicate(timeout=60)
    assert err == b"ingero query: interrupted\n"


@pytest.mark.parametrize("width", [80, 130])
def test_the_report_fits_the_terminal_and_keeps_its_numbers(recording, width):
    terminal = Terminal(width)
    process = start(terminal, "report", recording)
    terminal.read_until(None)
    assert process.wait(30) == 0
    terminal.close()
    lines = terminal.screen()
    assert max(map(len, lines)) <= width
    titles = lines[lines.index("Slowest collective of each rank") + 2].split()
    assert titles[:2] == ["communicator", "rank"] and titles[-3:] == ["retransmits", "CPU", "wait"]
    assert ("mean" in titles) == (width == 130)
