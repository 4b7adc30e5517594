# SPDX-License-Identifier: Apache-2.0
"""Files and calls made to mislead, block or crash the agent."""
import json
import os
import secrets
import shutil
import signal
import struct
import subprocess
import time

import pytest

from harness.comparison import check_exact, differences
from harness.container import stub, workload_dir
from harness.waiting import wait_until

LIBRARIES = {"nccl": stub("libnccl.so.2"), "cudart": stub("libcudart.so.13")}
FAST = "scan_interval: 500ms\ndetach_grace: 1s\n"


def elf_header(**fields):
    """A 64-bit x86 shared object's header, with lies in it."""
    values = {"phoff": 64, "shoff": 0, "phentsize": 56, "phnum": 1, "shentsize": 64, "shnum": 0,
              "shstrndx": 0, **fields}
    return struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, values["phoff"],
                       values["shoff"], 0, 64, values["phentsize"], values["phnum"],
                       values["shentsize"], values["shnum"], values["shstrndx"])


def program_header(kind, flags, offset, address, size):
    return struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, 4096)


def dynamic(*pairs):
    return b"".join(struct.pack("<QQ", tag, value) for tag, value in (*pairs, (0, 0)))


HUGE = (1 << 64) - 8


def bad_files(good):
    """{name: content}; `good` is a real library."""
    two = elf_header(phnum=2) + program_header(1, 5, 0, 0, 4096)
    crafted = two + program_header(2, 4, 4096 - 256, 4096 - 256, 256)
    tables = dynamic((5, 64), (6, 64), (10, HUGE), (4, 512), (0x6ffffef5, 512))
    return {
        "empty": b"",
        "text": b"#!/bin/sh\necho no library\n" * 100,
        "only_magic": b"\x7fELF",
        "truncated_header": good[:40],
        "truncated_in_tables": good[:3000],
        "truncated_in_code": good[:len(good) // 2],
        "huge_program_headers": elf_header(phnum=65535) + bytes(8192),
        "program_headers_outside": elf_header(phoff=HUGE) + bytes(8192),
        "section_headers_outside": elf_header(shoff=HUGE, shnum=65535, shstrndx=65534) + bytes(8192),
        "segment_of_the_whole_address_space":
            elf_header() + program_header(1, 5, 0, 0, HUGE) + bytes(8192),
        "dynamic_outside": two + program_header(2, 4, HUGE, HUGE, HUGE) + bytes(8192),
        "hash_of_huge_size": (crafted.ljust(512, b"\0") + b"\xff" * 512).ljust(4096 - 256, b"\0")
            + tables.ljust(256, b"\0"),
        "hash_chain_in_a_loop": (crafted.ljust(512, b"\0") + struct.pack("<IIIIQ", 1, 1, 1, 0, HUGE)
            + struct.pack("<II", 1, 0)).ljust(4096 - 256, b"\0") + tables.ljust(256, b"\0"),
    }


class Mapper:
    """Maps files executable, in the host's root or in a container's."""

    def __init__(self, host, tmp_path, *files, lower=None, shared=None):
        self.ready = tmp_path / f"ready-{secrets.token_hex(4)}"
        command = [f"{workload_dir()}/map_files", self.ready, *files]
        if lower:
            label = secrets.token_hex(32)
            self.ready = shared / self.ready.name
            command = [f"{workload_dir()}/container_run", "--cgroup",
                       f"/ingero-e2e-{os.getpid()}/{label}", "--lower", lower, "--share",
                       f"{shared}:/out", "--work-parent", tmp_path, "--", "/usr/bin/map_files",
                       f"/out/{self.ready.name}", *files]
        self.process = subprocess.Popen([os.fspath(part) for part in command],
                                        stderr=subprocess.PIPE)
        host._started.append(self)
        wait_until(self._is_ready, "files mapped")
        self.pid = int(self.ready.read_text())

    def _is_ready(self):
        assert self.process.poll() is None, self.process.stderr.read()
        return self.ready.exists() and self.ready.stat().st_size > 0

    def kill(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.process.stderr.close()


def check_alive(agent):
    """Ready, and not ended."""
    assert agent.get("/readyz", timeout=5)[0] == 200
    assert agent.process.poll() is None, agent.stderr[-2000:]


def refusals_of(agent, pid_or_word):
    return [r for r in agent.state()["refusals"]
            if r["pid"] == pid_or_word or str(pid_or_word) in r["message"]]


def check_counts_others(host, agent):
    """A good library beside the bad ones is traced as ever."""
    container = host.container("allreduce", "--calls", 50)
    tally = host.run(agent, container)[0]
    problems = differences([tally], agent.metrics(), container.label, agent.state())
    assert not problems, "\n".join(problems)


def test_files_that_are_no_libraries_are_refused_with_a_reason(host, tmp_path):
    with open(LIBRARIES["nccl"], "rb") as file:
        contents = bad_files(file.read())
    paths = {}
    for name, content in contents.items():
        (tmp_path / name).mkdir()
        paths[name] = tmp_path / name / "libnccl.so.2"
        paths[name].write_bytes(content)
    agent = host.agent()
    before = agent.metrics().value("ingero_attach_failures_total")
    mapper = Mapper(host, tmp_path, *paths.values())
    # Good ELF files with nothing to trace are no failures: the others must all be told.
    silent = {"segment_of_the_whole_address_space", "section_headers_outside", "truncated_in_code",
              "program_headers_outside", "huge_program_headers", "hash_chain_in_a_loop"}

    def told():
        messages = " ".join(r["message"] for r in refusals_of(agent, mapper.pid))
        return [name for name in paths if f"/{name}/" in messages]

    wanted = set(paths) - silent
    wait_until(lambda: wanted <= set(told()), lambda: f"refused: {told()} of {sorted(wanted)}", 15)
    check_alive(agent)
    print("refused:", ", ".join(sorted(told())))
    for refusal in refusals_of(agent, mapper.pid):
        assert refusal["reason"] == "file_refused", refusal
    metrics = agent.metrics()
    assert metrics.value("ingero_attach_failures_total", reason="file_refused") - before \
        >= len(wanted)
    bad = [f for f in agent.state()["files"] if str(tmp_path) in f["path"] and f["probes"]
           and "truncated_in_code" not in f["path"]]
    assert not bad, bad
    check_counts_others(host, agent)
    assert agent.stop()[0] == 0


def test_a_sparse_file_of_4_gib_costs_no_time_and_no_memory(host, tmp_path):
    agent = host.agent()
    for name, head in (("hole", b""), ("elf", elf_header(phnum=65535, shoff=1 << 31, shnum=65535))):
        (tmp_path / name).mkdir()
        with open(tmp_path / name / "libnccl.so.2", "wb") as file:
            file.write(head)
            file.truncate(4 << 30)
    before = agent.metrics().value("process_resident_memory_bytes")
    mapper = Mapper(host, tmp_path, tmp_path / "hole/libnccl.so.2", tmp_path / "elf/libnccl.so.2")
    wait_until(lambda: len(refusals_of(agent, mapper.pid)) >= 1, "refused", 15)
    check_alive(agent)
    grown = agent.metrics().value("process_resident_memory_bytes") - before
    print(f"RSS grew by {grown / 1024:.0f} KiB;",
          *[r["message"] for r in refusals_of(agent, mapper.pid)], sep="\n  ")
    assert grown < 64 << 20
    check_counts_others(host, agent)


def test_a_path_with_newlines_and_control_characters_forges_no_line(host, tmp_path):
    agent = host.agent("--log-level", "debug")
    folder = tmp_path / "a\nINFO forged line\n\x1b[2J\x07\t\"\\{}"
    folder.mkdir()
    bad, good = folder / "libnccl.so.2", folder / "libnccl-good.so.2"
    bad.write_bytes(b"text")
    shutil.copy(LIBRARIES["nccl"], good)
    mapper = Mapper(host, tmp_path, bad, good)
    wait_until(lambda: refusals_of(agent, mapper.pid), "refused", 15)
    wait_until(lambda: any("libnccl-good" in f["path"] and f["probes"]
                           for f in agent.state()["files"]), "the good one attached", 15)
    check_alive(agent)
    metrics = agent.metrics()  # parsed strictly: a raw newline in a label would fail
    assert metrics.value("ingero_attach_failures_total", reason="file_refused") >= 1
    status, out, err = agent.stop()
    assert status == 0
    for text in (out, err, metrics.text):
        assert "\x1b" not in text and "\x07" not in text
        assert not any(line.startswith("INFO forged") for line in text.splitlines())


def replace_with(kind, path):
    os.unlink(path)
    if kind == "symlink to a host file":
        os.symlink(LIBRARIES["nccl"], path)
    elif kind == "symlink out of the root":
        os.symlink("../" * 20 + LIBRARIES["nccl"], path)
    elif kind == "magic link":
        os.symlink("/proc/self/root" + LIBRARIES["nccl"], path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
    elif kind == "device":
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    elif kind == "another library":
        shutil.copy(LIBRARIES["nccl"], path)
    elif kind == "nothing":
        pass


REPLACEMENTS = {"symlink to a host file": "open", "symlink out of the root": "open",
                "magic link": "open", "fifo": "open", "directory": "open", "device": "open",
                "another library": "identity", "nothing": "open"}


@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_a_path_replaced_after_the_mapping_is_refused_and_blocks_nothing(host, tmp_path, kind):
    """Only the path tells the way to the file (--open-method path), and the path lies."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shutil.copy(LIBRARIES["nccl"], shared / "libnccl.so.2")
    lower = host.root(f"{workload_dir()}/map_files:/usr/bin/map_files")
    mapper = Mapper(host, tmp_path, "/out/libnccl.so.2", lower=lower, shared=shared)
    replace_with(kind, shared / "libnccl.so.2")
    agent = host.agent("--open-method", "path")
    found = wait_until(lambda: refusals_of(agent, "/out/libnccl.so.2"), "refused", 10)
    print(kind, "->", found[0]["reason"], found[0]["message"])
    assert {r["reason"] for r in found} == {REPLACEMENTS[kind]}, found
    check_alive(agent)
    state = agent.state()
    touched = [f for f in state["files"] if f["path"] in ("/out/libnccl.so.2", LIBRARIES["nccl"])
               and f["probes"] and not any(p["libraries"] and f["path"] in p["libraries"]
                                           for p in state["processes"])]
    assert not touched, touched
    assert not [f for f in state["files"] if f["path"] == "/out/libnccl.so.2" and f["probes"]]
    assert agent.metrics().value("ingero_attach_failures_total", reason=REPLACEMENTS[kind]) >= 1
    assert mapper.process.poll() is None


def test_a_container_that_hides_its_path_hides_no_other_container(host, tmp_path):
    """Both map one lower file; the first puts a FIFO where the file was. With paths only, the agent
    must still find the file through the second."""
    lower = host.root(f"{workload_dir()}/map_files:/usr/bin/map_files",
                      f"{os.path.dirname(os.path.dirname(stub('x')))}:/stubs")
    shared = tmp_path / "shared"
    shared.mkdir()
    path = "/stubs/push/libnccl.so.2"
    mapper = Mapper(host, tmp_path, path, lower=lower, shared=shared)
    replace_with("fifo", f"/proc/{mapper.pid}/root{path}")
    config = tmp_path / "config.yaml"
    config.write_text(FAST)
    agent = host.agent("--open-method", "path", "--config", config)
    wait_until(lambda: refusals_of(agent, path), "refused", 10)
    container = host.container("allreduce", lower=lower)
    tally = host.run(agent, container)[0]
    check_exact(agent, (container, tally))


def test_map_files_reach_the_mapped_file_whatever_its_path_names_now(host, tmp_path):
    folder = tmp_path / "libs"
    folder.mkdir()
    libraries = {"nccl": str(folder / "libnccl.so.2"), "cudart": str(folder / "libcudart.so.13")}
    for kind, path in libraries.items():
        shutil.copy(LIBRARIES[kind], path)
    container = host.container("allreduce", lower=None, libraries=libraries)
    pid = container.wait_ready()
    replace_with("fifo", libraries["nccl"])
    replace_with("directory", libraries["cudart"])
    agent = host.agent("--open-method", "map_files")
    agent.wait_attached(pid, 2)
    container.start()
    tally = container.tally()
    check_exact(agent, (container, tally))


def test_forged_arguments_are_counted_and_poison_no_total(host, tmp_path):
    label = secrets.token_hex(32)
    agent = host.agent()
    folder = tmp_path / "forged"
    folder.mkdir()
    with subprocess.Popen([f"{workload_dir()}/container_run", "--cgroup",
                           f"/ingero-e2e-{os.getpid()}/{label}", "--no-root", "--",
                           f"{workload_dir()}/odd_calls", "forged", LIBRARIES["nccl"],
                           LIBRARIES["cudart"], stub("libcuda.so.1"), folder / "tally",
                           folder / "ready", folder / "start"]) as process:
        wait_until(lambda: (folder / "ready").exists() and (folder / "ready").read_text(), "ready")
        agent.wait_attached(int((folder / "ready").read_text()), 3)
        (folder / "start").touch()
        assert process.wait(30) == 0
    tally = json.loads((folder / "tally").read_text())
    metrics = agent.metrics()
    reasons = {labels["reason"]: value for labels, value in
               metrics.series("ingero_unattributed_calls_total") if value}
    print(reasons)
    problems = differences([tally], metrics, label, agent.state())
    assert not problems, "\n".join(problems)
    # Two sizes of AllReduce, two of AllGather over all ranks, two plain copies, two of 2D.
    assert reasons.get("forged_size") == 8, reasons
    assert reasons.get("unknown_datatype") == 2, reasons
    # The ids of InitRankScalable and five structures of copies.
    assert reasons.get("arguments_unreadable") == 6, reasons
    check_alive(agent)
    check_counts_others(host, agent)


class StallingFiles:
    """A mounted FUSE file system with one library, which stops answering when told to."""

    def __init__(self, host, tmp_path):
        self.folder, self.ready = tmp_path / "fuse", tmp_path / "fuse-ready"
        self.folder.mkdir()
        self.library = self.folder / "libnccl.so.2"
        self.process = subprocess.Popen([f"{workload_dir()}/stall_fuse", self.folder,
                                         LIBRARIES["nccl"], self.ready], stderr=subprocess.PIPE)
        host._started.append(self)
        wait_until(lambda: self.process.poll() is not None or self.ready.exists(), "mounted")
        if self.process.poll() is not None:
            pytest.skip(f"no FUSE here: {self.process.stderr.read()}")

    def stall(self):
        (self.ready.parent / (self.ready.name + ".stall")).touch()

    def kill(self):
        self.process.kill()  # whoever waits for it goes on with an error
        self.process.wait(10)
        self.process.stderr.close()
        subprocess.run(["umount", "-l", self.folder], check=False)


def test_a_file_system_that_stops_answering_stops_neither_the_agent_nor_others(host, tmp_path):
    files = StallingFiles(host, tmp_path)
    mapper = Mapper(host, tmp_path, files.library)
    files.stall()
    agent = host.agent()
    wait_until(lambda: refusals_of(agent, mapper.pid), "refused", 15)
    late = Mapper.__new__(Mapper)  # its open() never returns: only the server's end ends it
    late.process = subprocess.Popen([f"{workload_dir()}/map_files", tmp_path / "late",
                                     files.library], stderr=subprocess.PIPE)
    try:
        container = host.container("mixed")
        tally = host.run(agent, container)[0]
        check_exact(agent, (container, tally))
        assert {r["reason"] for r in refusals_of(agent, mapper.pid)} == {"file_system"}
        assert agent.metrics().value("ingero_attach_failures_total", reason="file_system") >= 1
        check_alive(agent)
        began = time.monotonic()
        assert agent.stop(signal.SIGTERM)[0] == 0
        assert time.monotonic() - began < 5
    finally:
        files.kill()
        late.process.kill()
        late.process.wait(10)
        late.process.stderr.close()


def test_library_copies_beyond_a_containers_share_leave_room_for_the_others(host, tmp_path):
    """338 copies under `ulimit -n 1024` took all descriptors; 4,096 took all indexes for good."""
    agent = host.agent(prefix=["prlimit", "--nofile=1024:1024"])
    copies = []
    for i in range(338):
        copies.append(tmp_path / f"libnccl-{i}.so.2")
        shutil.copy(LIBRARIES["nccl"], copies[-1])
    mapper = Mapper(host, tmp_path, *copies)
    wait_until(lambda: agent.metrics().value("ingero_attach_failures_total",
                                             reason="too_many_libraries"), "refused", 60)
    container = host.container("mixed")
    tally = host.run(agent, container)[0]
    check_exact(agent, (container, tally))
    held = [f for f in agent.state()["files"] if str(tmp_path) in f["path"] and f["probes"]]
    print(f"{len(held)} of {len(copies)} copies have probes")
    assert 0 < len(held) <= 64
    assert mapper.process.poll() is None
    assert agent.stop()[0] == 0


def big_library(folder, megabytes):
    """No section of ours is in it, but to know it all of its names have to be read."""
    strings = b"nccl" * (megabytes << 18)
    symbols = 64 + 2 * 56
    begin = symbols + 24
    end = begin + len(strings)
    table = dynamic((6, symbols), (5, begin), (10, len(strings)))
    path = folder / "libnccl.so.2"
    path.write_bytes(elf_header(phnum=2) + program_header(1, 5, 0, 0, end + len(table))
                     + program_header(2, 4, end, end, len(table)) + bytes(24) + strings + table)
    return path


def test_a_library_that_is_slow_to_look_into_and_grows_is_looked_into_less_and_less(host, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("scan_interval: 500ms\n")
    agent = host.agent("--config", config)
    folder = tmp_path / "big"
    folder.mkdir()
    path = big_library(folder, 120)
    mapper = Mapper(host, tmp_path, path)
    container = host.container("mixed", "--seconds", 6, "--rate", 100)
    agent.wait_attached(container.wait_ready(), 3)
    container.start()
    before = agent.metrics().value("process_cpu_seconds_total")
    for _ in range(10):
        with open(path, "ab") as file:
            file.write(b"x")
        time.sleep(0.6)
    check_exact(agent, (container, container.tally()))
    used = agent.metrics().value("process_cpu_seconds_total") - before
    reasons = {r["reason"] for r in refusals_of(agent, mapper.pid)}
    print(f"{used:.1f} s of processor time for ten versions; told: {reasons}")
    assert used < 8 and reasons
    check_alive(agent)
    assert agent.stop()[0] == 0
