# SPDX-License-Identifier: Apache-2.0
"""What a person sees when something is wrong: one line with a hint, and an exit status."""
import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

from harness.agent import build_dir, free_port
from harness.waiting import wait_until

INGERO = os.path.join(build_dir(), "ingero")
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def run(*arguments, wrapper=(), seconds=30):
    return subprocess.run([*wrapper, INGERO, *map(str, arguments)], capture_output=True, text=True,
                          timeout=seconds, check=False, stdin=subprocess.DEVNULL)


def check_refused(result, *words):
    """One line on stderr, with each of the words and a hint; exit status 2; nothing on stdout."""
    assert result.returncode == 2, result
    assert result.stdout == "", result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("ingero"), lines[0]
    assert "hint: " in lines[0] and lines[0].split("hint: ")[1].strip(), lines[0]
    for word in words:
        assert word in lines[0], (word, lines[0])


@pytest.fixture
def as_nobody(tmp_path):
    """The agent where anybody may run it: a build folder can lie below a private one."""
    folder = f"/tmp/ingero-e2e-nobody-{os.getpid()}"
    os.makedirs(folder)
    os.chmod(folder, 0o755)
    shutil.copy(INGERO, folder)

    def run_as_nobody(*arguments):
        return subprocess.run([*NOBODY, f"{folder}/ingero", *arguments], capture_output=True,
                              text=True, timeout=30, check=False, stdin=subprocess.DEVNULL,
                              cwd="/")

    yield run_as_nobody
    shutil.rmtree(folder)


def test_not_root_is_said_in_one_line(as_nobody):
    check_refused(as_nobody("trace", "--duration", "1s"), "not root", "sudo", "CAP_BPF")
    check_refused(as_nobody("agent", "--duration", "1s"), "not root")


def test_a_port_in_use_is_said_in_one_line(host):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        check_refused(run("trace", "--prometheus", address, "--duration", "1s"), address,
                      "in use", "port")


def test_unknown_flags_and_commands_are_said_in_one_line():
    check_refused(run("trace", "--bogus"), "--bogus", "--help")
    check_refused(run("check", "--bogus"), "--bogus")
    check_refused(run("frobnicate"))
    check_refused(run())
    check_refused(run("trace", "--pid", "abc"), "--pid")
    check_refused(run("trace", "--attach-method", "magic"), "magic", "session")
    check_refused(run("trace", "--format", "xml"), "xml", "json")
    check_refused(run("trace", "--tally", "nothing"), "CONTAINER=FILE")


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "127.0.0.1:", "::1:9090",
                                     "300.1.1.1:80", "a b:80", "[::1:80", "127.0.0.1:-1",
                                     "127.0.0.1:80\nx"])
def test_a_bad_address_is_said_in_one_line(address):
    check_refused(run("trace", "--prometheus", address, "--duration", "1s"))


@pytest.mark.parametrize("duration", ["5parsecs", "-1s", "s", "1", "9999999999999h", "1s1"])
def test_a_bad_duration_is_said_in_one_line(duration):
    check_refused(run("trace", f"--duration={duration}"), "duration")


@pytest.mark.parametrize("text, words", [
    ("scan_intervall: 1s\n", ["scan_intervall", "did you mean scan_interval"]),
    ("scan_interval: 1\n", ["scan_interval", "not a duration"]),
    ("map_entries: 7\n", ["map_entries", "out of range", "64"]),
    ("scan_interval: [\n", ["YAML"]),
    ("just text\n", []),
    ("- a\n- b\n", []),
    ("\x00\x01\x02", []),
    ("a: &a [*a, *a]\n", []),
], ids=["unknown key", "bad value", "out of range", "no yaml", "scalar", "list", "binary", "alias"])
def test_a_bad_configuration_is_said_in_one_line(tmp_path, text, words):
    config = tmp_path / "config.yaml"
    config.write_bytes(text.encode())
    check_refused(run("trace", "--config", config, "--duration", "1s"), str(config), *words)


def test_a_missing_or_odd_configuration_file_is_said_in_one_line(tmp_path):
    check_refused(run("trace", "--config", "/nonexistent.yaml"), "/nonexistent.yaml", "No such file")
    check_refused(run("trace", "--config", tmp_path), str(tmp_path))
    os.mkfifo(tmp_path / "fifo")
    check_refused(run("trace", "--config", tmp_path / "fifo", seconds=10), "regular file")
    (tmp_path / "big").write_bytes(b"#" * (64 << 20))
    check_refused(run("trace", "--config", tmp_path / "big"), "longer than")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("mode", [[], ["--print"], ["--format", "json"]], ids=["table", "print", "json"])
def test_a_signal_ends_the_run_with_a_summary_and_status_0(host, number, mode):
    agent = host.agent(*mode)
    container = host.container("allreduce", "--calls", 3)
    host.run(agent, container)
    status, out, err = agent.stop(number, seconds=10)
    assert status == 0, (status, err)
    summary = err if mode else out
    assert "ncclAllReduce" in summary and "lost: 0" in summary, (out, err)


def test_an_empty_node_is_ready_and_says_what_it_waits_for(host):
    agent = host.agent()
    assert agent.get("/healthz")[0] == 200
    status, text = agent.get("/readyz")
    assert status == 200 and text.startswith("ready"), (status, text)
    if agent.state()["processes"]:
        pytest.skip("another process of this machine maps a traced library")
    assert "waiting" in text and "libnccl" in text, text
    assert agent.state()["waiting_for"], agent.state()
    status, out, err = agent.stop()
    assert status == 0, err
    assert "waiting: no process maps" in out and "no calls" in out, out


def test_the_end_of_a_pipe_ends_the_run(host):
    """`ingero trace --print | head`"""
    container = host.container("allreduce", "--seconds", 30, "--rate", 1000)
    container.wait_ready()
    with subprocess.Popen([INGERO, "trace", "--print"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        container.start()
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(15) == 0
        assert "lost: " in process.stderr.read()


def test_check_tells_root_that_it_works_and_nobody_what_is_missing(host, as_nobody):
    good = run("check")
    assert good.returncode == 0, good
    assert good.stdout.rstrip().endswith("ok: the agent works here"), good.stdout
    bad = as_nobody("check")
    assert bad.returncode == 2, bad
    assert "CAP_BPF" in bad.stdout and "CAP_PERFMON" in bad.stdout, bad.stdout
    assert "blocked" in bad.stdout.splitlines()[-1], bad.stdout


def test_check_json_is_for_programs(host, as_nobody):
    good = json.loads(run("check", "--json").stdout)
    bad = json.loads(as_nobody("check", "--json").stdout)
    assert good != bad
    assert "blocked" in json.dumps(bad), bad


def test_check_lists_the_libraries_of_each_process(host):
    container = host.container("allreduce")
    container.wait_ready()
    result = run("check")
    assert result.returncode == 0, result
    line = next(line for line in result.stdout.splitlines() if f" {container.pid} " in line)
    assert "nccl 2.28.9" in line and "cudart 13.0" in line, line


def test_a_kernel_without_btf_is_said_in_one_line(host, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    hide = ["unshare", "-m", "sh", "-c",
            f'mount --bind {empty} /sys/kernel/btf && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot hide /sys/kernel/btf in a mount namespace of its own")
    if any(os.path.exists(p) for p in (f"/boot/vmlinux-{os.uname().release}",
                                       f"/usr/lib/debug/boot/vmlinux-{os.uname().release}")):
        pytest.skip("libbpf finds another copy of the kernel's BTF on this host")
    check_refused(run("trace", "--duration", "1s", wrapper=hide), "BTF", "CONFIG_DEBUG_INFO_BTF")
    check = run("check", wrapper=hide)
    assert check.returncode == 2 and "CONFIG_DEBUG_INFO_BTF" in check.stdout, check
