# SPDX-License-Identifier: Apache-2.0
"""`--config FILE`: an edit takes effect without a restart, and a bad one changes nothing."""
import os
import subprocess
import time

from harness.agent import build_dir, free_port
from harness.waiting import wait_until

RELOADED = "ingero_config_last_reload_successful"


def write(path, text):
    """As an editor saves: a new file takes the old one's place."""
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    os.replace(path.with_suffix(".new"), path)


def value(agent, name):
    return agent.metrics().value(name)


def follow(host, tmp_path, text):
    file = tmp_path / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return host.agent("--config", file, command="agent"), file


def test_probes_that_are_switched_off_and_on_count_exactly_the_spans_between(host, tmp_path):
    agent, file = follow(host, tmp_path, "")
    container = host.container("mixed", "--seconds", 60, "--rate", 200)
    agent.wait_attached(container.wait_ready(), 3)
    container.start()

    def copies():
        return value(agent, "gpu_memcpy_duration_ms_count")

    def collectives():
        return value(agent, "gpu_nccl_collective_count")

    wait_until(lambda: copies() > 20 and collectives() > 20, "calls of both kinds")
    write(file, "probes: {cuda: false}\n")
    started = time.monotonic()
    wait_until(lambda: "cuda: false" in agent.state()["config"], "the new settings", 5)
    print(f"in force and seen after {time.monotonic() - started:.2f} s")
    frozen, before = copies(), collectives()
    wait_until(lambda: collectives() > before + 50, "collectives that go on")
    assert copies() == frozen
    write(file, "probes: {cuda: true}\n")
    wait_until(lambda: copies() > frozen, "copies again")


def test_a_bad_edit_leaves_the_last_good_settings_in_force_and_says_why(host, tmp_path):
    agent, file = follow(host, tmp_path, "max_series: 500\n")
    assert value(agent, RELOADED) == 1
    write(file, "max_series: 500\nscan_intervall: 1s\n")
    wait_until(lambda: value(agent, RELOADED) == 0, "the refusal", 5)
    status = agent.state()["config_status"]
    assert not status["accepted"]
    assert "settings.yaml:2" in status["error"] and "scan_interval?" in status["error"]
    assert "max_series: 500" in agent.state()["config"]
    assert "settings refused" in agent.get("/readyz")[1]
    file.unlink()
    time.sleep(0.3)
    assert value(agent, RELOADED) == 0, "a file that is gone is no good file"
    write(file, "max_series: 600\n")
    wait_until(lambda: value(agent, RELOADED) == 1, "good settings", 5)
    assert "max_series: 600" in agent.state()["config"]


def test_the_log_level_changes_while_the_agent_runs(host, tmp_path):
    agent, file = follow(host, tmp_path, "log_level: error\n")
    container = host.container("memcpy", "--seconds", 30, "--rate", 10)
    agent.wait_attached(container.wait_ready(), 3)
    assert "attached" not in agent.stderr
    write(file, "log_level: debug\n")
    wait_until(lambda: "log_level: debug" in agent.state()["config"], "the new level", 5)
    other = host.container("memcpy", "--seconds", 30, "--rate", 10)
    agent.wait_attached(other.wait_ready(), 3)
    container.start()
    other.start()
    wait_until(lambda: "settings of" in agent.stderr, "the change in the log", 5)


def test_the_listen_address_moves_and_a_taken_one_is_refused(tmp_path):
    first, second, taken = free_port(), free_port(), free_port()
    file = tmp_path / "settings.yaml"
    file.write_text(f"listen_address: 127.0.0.1:{first}\n", encoding="utf-8")

    def answers(port, path="/healthz"):
        return subprocess.run(["curl", "-sf", "-m", "5", f"http://127.0.0.1:{port}{path}"],
                              capture_output=True, text=True, check=False).stdout

    with open(tmp_path / "log", "wb") as log, subprocess.Popen(
            [os.path.join(build_dir(), "ingero"), "agent", "--config", str(file)],
            stderr=log) as agent, subprocess.Popen(
                ["python3", "-m", "http.server", "--bind", "127.0.0.1", str(taken)],
                stdout=log, stderr=log) as squatter:
        try:
            wait_until(lambda: answers(first), "the first address")
            write(file, f"listen_address: 127.0.0.1:{second}\n")
            wait_until(lambda: answers(second), "the second address", 10)
            wait_until(lambda: not answers(first), "the first one closed", 10)
            write(file, f"listen_address: 127.0.0.1:{taken}\n")
            wait_until(lambda: RELOADED + " 0" in answers(second, "/metrics"), "the refusal", 10)
        finally:
            agent.terminate()
            squatter.terminate()
