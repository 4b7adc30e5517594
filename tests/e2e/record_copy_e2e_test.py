# SPDX-License-Identifier: Apache-2.0
"""`ingero export --format sqlite`: a copy of a recording through a pipe, also while it goes on."""
import contextlib
import hashlib
import os
import pathlib
import pty
import sqlite3
import subprocess
import tempfile

from harness.agent import build_dir
from harness.host import stubs
from harness.recording import all_calls, ingero, query, value
from harness.waiting import wait_until

INGERO = os.path.join(build_dir(), "ingero")


def copy(file, to, **options):
    """As `kubectl exec POD -- ingero export FILE --format sqlite > TO` does."""
    with open(to, "wb") as out:
        done = subprocess.run([INGERO, "export", file, "--format", "sqlite"], check=False,
                              stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                              text=True, timeout=60, **options)
    return done.returncode, done.stderr


def everything(file):
    """The rows of all tables, read by SQLite alone, of a file that needs no log."""
    with open(file, "rb") as content:
        assert content.read(20)[18:] == bytes([1, 1]), "write and read version: with a log"
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as base:
        assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = [name for name, in base.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return {name: base.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def start_recording(host, file, seconds=60):
    container = host.container("allreduce", "--seconds", seconds, "--rate", 5000,
                               libraries=stubs(cuda=False))
    agent = host.agent("--out", file, "--pid", container.wait_ready())
    agent.wait_attached(container.pid, 2)
    container.start()
    wait_until(lambda: all_calls(file) > 2000, "rows")
    return agent, container


def test_a_copy_made_while_it_is_recorded_is_whole_and_of_one_moment(host, tmp_path):
    file = tmp_path / "running.db"
    agent, container = start_recording(host, file)
    sizes = set()
    for number in range(5):
        target = tmp_path / f"copy{number}.db"
        before = wait_until(lambda: (now := all_calls(file)) not in sizes and now, "new rows")
        status, err = copy(file, target)
        after = all_calls(file)
        assert status == 0, err
        rows = everything(target)
        calls = len(rows["nccl_calls"])
        sizes.add(calls)
        assert before <= calls <= after
        assert value(target, "SELECT nccl_calls FROM recording") == calls, "not of one moment"
        assert query(target, "SELECT ended_ns, end_reason FROM recording") == [
            {"ended_ns": None, "end_reason": None}]
        assert ingero("report", target).returncode == 0
    assert len(sizes) == 5
    assert not [name for name in os.listdir(tmp_path) if "ingero-copy" in name]
    container.terminate()
    tally = container.tally()
    assert agent.stop()[0] == 0
    assert all_calls(file) == sum(row["calls"] for row in tally["functions"])


def test_a_copy_of_a_recording_that_has_ended_is_the_same_file(host, tmp_path):
    file, target, named = tmp_path / "ended.db", tmp_path / "copy.db", tmp_path / "named.db"
    container = host.container("mixed", "--calls", 50)
    agent = host.agent("--out", file, "--pid", container.wait_ready())
    host.run(agent, container)
    assert agent.stop()[0] == 0
    assert copy(file, target) == (0, "")
    assert everything(target) == everything(file)
    assert len(everything(target)["nccl_calls"]) > 500
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (file, target)]
    assert contents[0] == contents[1]
    assert ingero("export", file, "--format", "sqlite", "-o", named).returncode == 0
    assert named.read_bytes() == file.read_bytes()


def test_a_killed_recording_is_copied_with_what_its_log_has(host, tmp_path):
    file, target = tmp_path / "killed.db", tmp_path / "copy.db"
    agent, container = start_recording(host, file)
    agent.kill()
    container.terminate()
    assert os.path.getsize(f"{file}-wal") > 0
    calls = all_calls(file)
    assert copy(file, target) == (0, "")
    rows = everything(target)
    assert len(rows["nccl_calls"]) == calls > 2000
    assert not os.path.exists(f"{target}-wal")


@contextlib.contextmanager
def small_disk(size):
    """Not below /tmp, which the test hides."""
    path = tempfile.mkdtemp(prefix="ingero-copy-test-", dir="/run")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield pathlib.Path(path)
    finally:
        subprocess.run(["umount", "-l", path], check=True)
        os.rmdir(path)


def test_the_temporary_file_is_where_there_is_room_or_all_places_are_named(host, tmp_path):
    """As in the agent's pod, whose root file system is read-only: /tmp takes nothing."""
    with small_disk("24m") as disk, contextlib.ExitStack() as ended:
        file, target = disk / "running.db", tmp_path / "copy.db"
        agent, container = start_recording(host, file)
        ended.callback(agent.kill)
        ended.callback(container.kill)
        # By its descriptor: the checkout may itself be below /tmp.
        command = ["unshare", "--mount", "sh", "-c",
                   'exec 3<"$0" && mount -t tmpfs -o ro tmpfs /tmp && exec /proc/self/fd/3 "$@"',
                   INGERO, "export", file, "--format", "sqlite"]
        with open(target, "wb") as out:
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True,
                                  check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert len(everything(target)["nccl_calls"]) > 2000
        with open(disk / "filler", "wb") as filler:
            free = os.statvfs(disk)
            # The recording grows meanwhile: it may be faster to the last bytes.
            with contextlib.suppress(OSError):
                filler.write(bytes(free.f_bavail * free.f_frsize - (64 << 10)))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2 and done.stdout == ""
        assert f"{disk}: " in done.stderr and "bytes are free" in done.stderr
        assert "/tmp: Read-only file system" in done.stderr


def test_what_cannot_be_copied_is_said(host, tmp_path):
    file = tmp_path / "a.db"
    container = host.container("allreduce", "--calls", 50, libraries=stubs(cuda=False))
    agent = host.agent("--out", file)
    host.run(agent, container)
    assert agent.stop()[0] == 0
    content = file.read_bytes()
    two = ingero("export", file, file, "--format", "sqlite")
    assert two.returncode == 2 and "2 files are named" in two.stderr and two.stdout == ""
    onto_itself = ingero("export", file, "--format", "sqlite", "-o", file)
    assert onto_itself.returncode == 2 and "that is the recording itself" in onto_itself.stderr
    for command in (("export", file, "-o", file), ("report", file, "--html", "-o", file)):
        assert ingero(*command).returncode == 2, command
    assert file.read_bytes() == content
    assert ingero("export", file, "--format", "xml").stderr.endswith("perfetto or sqlite\n")
    (tmp_path / "text").write_text("x" * 10000)
    refused = ingero("export", tmp_path / "text", "--format", "sqlite", "-o", tmp_path / "o.db")
    assert refused.returncode == 2 and "not a database" in refused.stderr
    assert not (tmp_path / "o.db").exists()
    with small_disk("40k") as disk:
        full = ingero("export", file, "--format", "sqlite", "-o", disk / "o.db")
        assert full.returncode == 2 and "No space left" in full.stderr
        assert not (disk / "o.db").exists(), "half a copy"
    master, slave = pty.openpty()
    done = subprocess.run([INGERO, "export", file, "--format", "sqlite"], stdout=slave,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=30)
    assert done.returncode == 2 and "stdout is a terminal" in done.stderr
    os.close(slave)
    os.close(master)
    closed = subprocess.run(["sh", "-c", f"{INGERO} export {file} --format sqlite | head -c 10"],
                            capture_output=True, check=False, timeout=30)
    assert closed.stdout == b"SQLite for"


def test_damaged_files_are_refused_or_copied_as_they_are(host, tmp_path):
    file, target = tmp_path / "a.db", tmp_path / "o.db"
    container = host.container("mixed", "--calls", 5)
    agent = host.agent("--out", file)
    host.run(agent, container)
    assert agent.stop()[0] == 0
    good = file.read_bytes()
    log = os.urandom(32) + good[:8192]
    for name, content in {"empty": b"", "header": good[:100], "cut": good[:len(good) // 2],
                          "shuffled": good[:8192] + good[8192:][::-1],
                          "log": good[:18] + bytes([2, 2]) + good[20:],
                          "page size": good[:16] + bytes(2) + good[18:]}.items():
        path = tmp_path / name
        path.write_bytes(content)
        if name == "log":
            (tmp_path / "log-wal").write_bytes(log)
        done = ingero("export", path, "--format", "sqlite", "-o", target)
        assert done.returncode in (0, 2), (name, done)
        assert target.exists() == (done.returncode == 0), name
        assert path.read_bytes() == content, "nothing is written there"
        if done.returncode == 0:
            assert target.read_bytes()[100:] == content[100:], f"{name}, behind the header"
            target.unlink()
    assert done.returncode == 2, "a page size of nothing"
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path):
        assert ingero("export", path, "--format", "sqlite", "-o", target).returncode == 2, path
