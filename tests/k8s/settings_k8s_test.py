# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap of the settings: what is changed, torn, deleted and made again while the agent runs."""
import json
import time

import pytest
import yaml
from e2e.harness.waiting import wait_until
from harness.kubectl import apply, get, kubectl
from harness.kubernetes_agent import NAMESPACE, restart
from harness.pod_comparison import check_exact_pods
from policy_k8s_test import wait_state

NAME = "ingero-config"
# The pods of a policy-less cluster are what default_action says.
NO_POLICY = ["defaultPolicy.enabled=false"]


class Settings:
    """The ConfigMap, and what the agent makes of it."""

    def __init__(self, agent):
        self.agent = agent
        self.first = get("configmap", NAME, NAMESPACE)
        self.text = self.first["data"]["config.yaml"]

    def write(self, text):
        """The resourceVersion of the ConfigMap with that text."""
        return kubectl("patch", "configmap", NAME, "-n", NAMESPACE, "--type=merge", "-p",
                       json.dumps({"data": {"config.yaml": text}}), "-o",
                       "jsonpath={.metadata.resourceVersion}")

    def add(self, **more):
        return self.write(yaml.safe_dump({**(yaml.safe_load(self.text) or {}), **more}))

    def status(self):
        return self.agent.state()["config_status"]

    def wait_in_force(self, version, seconds=5):
        """Seconds from now until the agent has taken that version."""
        begin = time.monotonic()
        wait_until(lambda: self.status()["version"] == version,
                   lambda: f"settings {version}: {self.status()}", seconds, interval=0.02)
        return time.monotonic() - begin

    def wait_refused(self, *words, seconds=5):
        begin = time.monotonic()
        wait_until(lambda: not self.status()["accepted"]
                   and all(word in self.status()["error"] for word in words),
                   lambda: f"refused with {words}: {self.status()}", seconds, interval=0.02)
        return time.monotonic() - begin

    def in_force(self):
        return yaml.safe_load(self.agent.state()["config"])

    def successful(self):
        return self.agent.metrics().value("ingero_config_last_reload_successful")


def events():
    """{name: message} of the Events that say that settings were refused."""
    items = json.loads(kubectl("get", "events", "-n", NAMESPACE, "-o", "json", "--field-selector",
                               "reason=ConfigRejected,involvedObject.kind=ConfigMap,"
                               f"involvedObject.name={NAME}"))["items"]
    return {item["metadata"]["name"]: item["message"] for item in items}


@pytest.fixture
def settings(cluster):
    before = set(events())
    made = Settings(cluster.agent(*NO_POLICY))
    made.messages = lambda: [text for name, text in events().items() if name not in before]
    yield made
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        made.first["metadata"].pop(key, None)
    apply(made.first)


def node_config_error():
    return (get("gtn", "node1") or {}).get("status", {}).get("configError", "")


def test_an_edit_is_in_force_soon_and_needs_no_restart(cluster, settings):
    agent = settings.agent
    pod = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 1])
    agent.wait_attached(pod.wait_ready(), len(pod.libraries))
    wait_state(agent, pod, "traced")
    pod.start()
    pod.tally()
    wait_until(lambda: agent.metrics().value("gpu_cuda_operation_count_total", pod=pod.pod) > 0,
               "counted calls")
    taken = {}
    taken["log_level"] = settings.wait_in_force(settings.add(log_level="debug"))
    assert settings.in_force()["log_level"] == "debug"
    taken["max_series"] = settings.wait_in_force(settings.add(max_series=100))
    assert settings.in_force()["max_series"] == 100 and settings.in_force()["log_level"] == "info"
    version = settings.add(default_action="ignore")
    taken["default_action"] = settings.wait_in_force(version)
    wait_state(agent, pod, "untraced", 1)
    assert settings.successful() == 1
    wait_until(lambda: get("gtn", "node1")["status"]["configGeneration"] == version,
               "the version in the node's report", 10)
    print("s until in force, after kubectl came back:",
          {key: round(value, 3) for key, value in taken.items()})
    assert agent.restarts() == 0


def test_a_wrong_edit_leaves_the_last_good_one_in_force_and_is_told_everywhere(settings):
    good = settings.add(max_series=777)
    settings.wait_in_force(good)
    lines = [*yaml.safe_dump({"max_series": 777, "log_level": "info"}).splitlines(),
             "scan_interval: soon"]
    settings.write("\n".join(lines) + "\n")
    after = settings.wait_refused("scan_interval", "3")
    error = settings.status()["error"]
    print(f"refused {after:.3f} s after kubectl came back: {error}")
    assert "line 3" in error or ":3" in error, error
    assert settings.status()["version"] == good and settings.in_force()["max_series"] == 777
    assert settings.successful() == 0
    status, text = settings.agent.get("/readyz")
    assert status == 200 and "settings refused" in text
    wait_until(lambda: any("scan_interval" in message for message in settings.messages()),
               lambda: f"an Event: {settings.messages()}", 10)
    assert any("line 3" in m or ":3" in m for m in settings.messages()), settings.messages()
    wait_until(lambda: "scan_interval" in node_config_error(), "configError of the node", 10)
    settings.wait_in_force(settings.add(max_series=778))
    assert settings.successful() == 1
    wait_until(lambda: not node_config_error(), "no configError any more", 10)


def test_a_torn_a_deleted_and_a_new_config_map(settings):
    good = settings.add(max_series=779)
    settings.wait_in_force(good)
    whole = settings.text + "pod_labels: [app, job-name]\n"
    settings.write(whole[:whole.index("job-")])
    settings.wait_refused("line")
    print("torn:", settings.status()["error"])
    assert settings.in_force()["max_series"] == 779
    kubectl("delete", "configmap", NAME, "-n", NAMESPACE)
    settings.wait_refused("does not exist")
    assert settings.in_force()["max_series"] == 779 and settings.successful() == 0
    wait_until(lambda: any("does not exist" in message for message in settings.messages()),
               lambda: f"an Event: {settings.messages()}", 10)
    kubectl("create", "configmap", NAME, "-n", NAMESPACE, "--from-literal=other=x")
    settings.wait_refused("no key config.yaml")
    settings.wait_in_force(settings.write("max_series: 780\n"))
    assert settings.in_force()["max_series"] == 780 and settings.successful() == 1
    assert settings.agent.restarts() == 0


def test_the_listen_address_moves_and_comes_back(settings):
    agent = settings.agent
    home = agent.port

    def serves(port):
        agent.port = port
        try:
            return agent.get("/healthz", timeout=2)[0] == 200
        except OSError:
            return False

    settings.add(listen_address="192.0.2.1:9090")  # nobody's
    settings.wait_refused("192.0.2.1")
    settings.add(listen_address=":9091")
    begin = time.monotonic()
    wait_until(lambda: serves(9091), "the new port", 5, interval=0.02)
    moved = time.monotonic() - begin
    # The new one serves before the old one ends.
    wait_until(lambda: not serves(home), "the end of the old port", 5, interval=0.02)
    agent.port = 9091
    assert settings.successful() == 1
    version = settings.add(listen_address=f":{home}")
    wait_until(lambda: serves(home), "the old port", 5, interval=0.02)
    wait_until(lambda: not serves(9091), "the end of the new port", 5, interval=0.02)
    agent.port = home
    settings.wait_in_force(version)
    print(f"moved after {moved:.3f} s")
    assert agent.restarts() == 0


def test_what_needs_a_restart_is_told_and_is_in_force_after_it(cluster, settings):
    agent = settings.agent
    assert settings.in_force()["map_entries"] == 16384
    version = settings.add(map_entries=4096, max_series=9781)
    settings.wait_in_force(version)
    assert settings.status()["waiting_for_restart"] == ["map_entries"]
    assert agent.restarts() == 0
    settings.agent = agent = restart().wait_ready()
    # Told from its first answer on, and not taken back when the watch tells the same.
    wait_until(lambda: all(row["lists"] for row in agent.state()["watches"]), "all watches", 15)
    assert settings.in_force()["map_entries"] == 4096 and settings.in_force()["max_series"] == 9781
    status = settings.status()
    assert status["accepted"] and status["version"] == version, status
    assert status["waiting_for_restart"] == [], status
    assert "next start" not in agent.stderr and "starts without" not in agent.stderr, agent.stderr
    assert agent.stderr.count("map_entries") == 1, agent.stderr  # taken once
    pod = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 2])
    check_exact_pods(agent, (pod, cluster.run(agent, pod)[0]))
    settings.wait_in_force(settings.write(settings.text))
    assert settings.status()["waiting_for_restart"] == ["map_entries"]
    settings.agent = restart().wait_ready()
    assert settings.in_force()["map_entries"] == 16384
    assert settings.status()["waiting_for_restart"] == []


def test_an_address_that_is_nobodys_does_not_keep_a_restarted_agent_from_starting(settings):
    settings.add(listen_address="192.0.2.1:9090", map_entries=4096)
    settings.wait_refused("192.0.2.1")
    settings.agent = restart().wait_ready()
    settings.wait_refused("192.0.2.1")
    assert settings.in_force()["map_entries"] == 16384  # all of a text, or nothing of it
    assert settings.agent.restarts() == 0
    assert settings.agent.stderr.count("settings refused") == 1, settings.agent.stderr
    settings.wait_in_force(settings.write(settings.text))
