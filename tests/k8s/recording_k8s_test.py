# SPDX-License-Identifier: Apache-2.0
"""Recordings of pods that a policy asks for: what is in them, how they end, how they are taken out."""
import glob
import json
import os
import shutil
import sqlite3
import subprocess

from e2e.harness.waiting import wait_until
from harness.kubectl import environment, execute, get, get_all, kubectl
from harness.kubernetes_agent import NAMESPACE, restart
from harness.pod_comparison import check_exact_pods
from policy_k8s_test import ONLY_POLICIES, in_namespace, policies, run_inside, wait_state
import pytest

assert policies  # a fixture

FOLDER = "/var/lib/ingero/recordings"
CALLS = "SELECT function, COUNT(*) FROM (SELECT function FROM nccl_events UNION ALL " \
        "SELECT function FROM cuda_events) GROUP BY function"


@pytest.fixture(autouse=True)
def no_recordings():
    """Other tests, or an earlier run, may have left some on the node."""
    for folder in glob.glob(f"{FOLDER}/test-*"):
        shutil.rmtree(folder)
    yield
    for folder in glob.glob(f"{FOLDER}/test-*"):
        shutil.rmtree(folder, ignore_errors=True)  # an agent may still write


def recording_of(agent, workload):
    for row in agent.state()["recordings"]:
        if (row["namespace"], row["pod"]) == (workload.namespace, workload.pod):
            return row
    return None


def wait_recording(agent, workload, state, seconds=15, **fields):
    """The recording, once it has the state and these fields."""
    return wait_until(
        lambda: (row := recording_of(agent, workload)) and row["state"] == state
        and all(row[key] == value for key, value in fields.items()) and row,
        lambda: f"{workload} {state}: {recording_of(agent, workload)}\n{agent.stderr[-2000:]}", seconds)


def record_workload(cluster, policies, image, scenario, options, **recording):
    """An agent, a pod that the policy "deep" has it record for ten minutes, and the recording; the pod's
    workload has not called yet."""
    agent = cluster.agent(*ONLY_POLICIES)
    policies.apply("deep", namespaceSelector=in_namespace(cluster),
                   recording={"duration": "10m", **recording})
    pod = cluster.workload(image, scenario, options, gpus=0)
    agent.wait_attached(pod.wait_ready(), len(image.libraries))
    return agent, pod, wait_recording(agent, pod, "Recording")


def copy_out(agent, file, path):
    """As docs/recording.md says."""
    with open(path, "wb") as out:
        done = subprocess.run(
            ["env", "kubectl", "-n", NAMESPACE, "exec", agent.name, "--", "ingero", "export", file,
             "--format", "sqlite"], env=environment(), stdout=out, stderr=subprocess.PIPE, check=False,
            timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def calls_by_function(*tallies):
    counts = {}
    for tally in tallies:
        for row in tally["functions"]:
            counts[row["function"]] = counts.get(row["function"], 0) + row["calls"]
    return {function: calls for function, calls in counts.items() if calls}


def test_a_policy_records_its_pod_whole_and_no_other(cluster, policies, tmp_path):
    agent = cluster.agent(*ONLY_POLICIES)
    policies.apply("all", namespaceSelector=in_namespace(cluster))
    policies.apply("deep", podSelector={"matchLabels": {"app": "train"}},
                   recording={"duration": "5m", "maxSize": "20Mi", "files": 2})
    image = cluster.stub_image()
    recorded = cluster.workload(image, "mixed", ["--calls", 4], labels={"app": "train"}, gpus=0)
    other = cluster.workload(image, "mixed", ["--calls", 3], name="other", gpus=0)
    for pod in (recorded, other):
        agent.wait_attached(pod.wait_ready(), len(image.libraries))
        wait_state(agent, pod, "traced")
    row = wait_recording(agent, recorded, "Recording")
    assert row["policies"] == ["deep"]
    assert recording_of(agent, other) is None
    tallies = [(pod, pod.tally()) for pod in (recorded, other) if not pod.start()]
    # The metrics are those of both.
    check_exact_pods(agent, *tallies)
    expected = calls_by_function(tallies[0][1])
    wait_recording(agent, recorded, "Recording", calls=sum(expected.values()), lost=0)
    metrics = agent.metrics()
    assert metrics.value("ingero_recorded_calls_total") == sum(expected.values())
    assert metrics.value("ingero_recording_lost_calls_total") == 0

    # In the pod, while the recording goes on: listed, asked, copied out.
    listed = json.loads(execute(agent.name, NAMESPACE, "ingero", "recordings", "--format", "json").stdout)
    assert [(r["namespace"], r["pod"], r["path"]) for r in listed] == [
        (cluster.namespace, recorded.pod, row["file"])]
    answer = execute(agent.name, NAMESPACE, "ingero", "query", row["file"], CALLS, "--format", "json")
    assert {r["function"]: r["COUNT(*)"] for r in json.loads(answer.stdout)} == expected
    copy = copy_out(agent, row["file"], tmp_path / "running.db")
    uid = get("pod", recorded.pod, cluster.namespace)["metadata"]["uid"]
    assert dict(copy.execute(CALLS).fetchall()) == expected
    assert copy.execute("SELECT ended_ns, selection FROM recording").fetchone() == (
        None, f"pod {cluster.namespace}/{recorded.pod} (uid {uid})")
    assert copy.execute("SELECT DISTINCT namespace, pod, container FROM containers").fetchall() == [
        (cluster.namespace, recorded.pod, recorded.container)]

    # What kubectl shows of it, and its proper end.
    node = wait_until(lambda: get("gtn", agent.pod["spec"]["nodeName"])["status"].get("recordings"),
                      "recordings in the node's report", 30)
    assert [(r["pod"], r["state"], r["file"]) for r in node] == [
        (recorded.pod, "Recording", row["file"])]
    policies.delete("deep")
    row = wait_recording(agent, recorded, "Ended")
    assert "no policy asks" in row["message"]
    ended = copy_out(agent, row["file"], tmp_path / "ended.db")
    assert dict(ended.execute(CALLS).fetchall()) == expected
    assert "no policy asks" in ended.execute("SELECT end_reason FROM recording").fetchone()[0]
    assert not os.path.exists(row["file"] + "-wal"), "one plain file"
    node = wait_until(lambda: [r for r in get("gtn", "node1")["status"]["recordings"]
                               if r["state"] == "Ended"], "its end in the node's report", 30)
    assert [(r["pod"], r["calls"], r["lost"]) for r in node] == [
        (recorded.pod, sum(expected.values()), 0)]


def test_sleeps_of_the_recorded_pods_threads_are_in_its_file_and_no_others(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES)
    policies.apply("all", namespaceSelector=in_namespace(cluster))
    policies.apply("deep", podSelector={"matchLabels": {"app": "train"}},
                   recording={"duration": "5m", "maxSize": "20Mi"})
    image = cluster.stub_image()
    pod = cluster.workload(image, "mixed", ["--calls", 1], labels={"app": "train"}, gpus=0)
    other = cluster.workload(image, "memcpy", ["--seconds", 300, "--rate", 20], name="other", gpus=0)
    for each in (pod, other):
        agent.wait_attached(each.wait_ready(), len(image.libraries))
        wait_state(agent, each, "traced")
    row = wait_recording(agent, pod, "Recording")
    other.start()
    tally = run_inside(cluster, pod, "memcpy", 1, image, "--calls", "40", "--rate", "20")
    wait_recording(agent, pod, "Recording", calls=sum(calls_by_function(tally).values()))

    def ask(sql):
        answer = execute(agent.name, NAMESPACE, "ingero", "query", row["file"], sql, "--format", "json")
        return json.loads(answer.stdout)[0]["n"]

    # It sleeps 50 ms before each call but the first, less by what it is late.
    sleeps = "SELECT COUNT(*) AS n FROM sched_events WHERE event = 'off_cpu' AND duration_ns < 60000000 " \
             "AND tid IN (SELECT tid FROM cuda_events)"
    wait_until(lambda: 20 <= ask(sleeps) <= 40, lambda: f"39 sleeps: {ask(sleeps)}")
    assert ask("SELECT COUNT(*) AS n FROM sched_events WHERE cgroup_id NOT IN "
               "(SELECT cgroup_id FROM cuda_events)") == 0


def test_a_new_agent_goes_on_with_the_next_file(cluster, policies):
    image = cluster.stub_image()
    agent, pod, first = record_workload(cluster, policies, image, "mixed", ["--calls", 1],
                                        maxSize="40Mi", files=4)
    before = run_inside(cluster, pod, "mixed", 1, image, "--calls", "3")
    wait_recording(agent, pod, "Recording", calls=sum(calls_by_function(before).values()))
    agent = restart().wait_ready()
    second = wait_recording(agent, pod, "Recording", files=2)
    assert second["started_unix_s"] == first["started_unix_s"]
    assert second["file"] != first["file"]
    agent.wait_attached(pod.pid(), len(image.libraries))
    after = run_inside(cluster, pod, "mixed", 2, image, "--calls", "5")
    wait_recording(agent, pod, "Recording", calls=sum(calls_by_function(after).values()))
    for row, tally in ((first, before), (second, after)):
        answer = execute(agent.name, NAMESPACE, "ingero", "query", row["file"], CALLS, "--format", "json")
        assert {r["function"]: r["COUNT(*)"] for r in json.loads(answer.stdout)} == calls_by_function(tally)


def test_what_does_not_fit_is_refused_and_said(cluster, policies):
    agent = cluster.agent(*ONLY_POLICIES, "config.recordings.budget=30MiB")
    policies.apply("deep", namespaceSelector=in_namespace(cluster),
                   recording={"duration": "5m", "maxSize": "20Mi", "files": 1})
    image = cluster.stub_image()
    pods = [cluster.workload(image, "mixed", ["--calls", 1], name=name, gpus=0) for name in "ab"]
    for pod in pods:
        agent.wait_attached(pod.wait_ready(), len(image.libraries))
        wait_state(agent, pod, "traced")

    def states():
        rows = [recording_of(agent, pod) for pod in pods]
        return all(rows) and sorted(row["state"] for row in rows)

    wait_until(lambda: states() == ["Recording", "Refused"], lambda: f"{states()}")
    refused = next(pod for pod in pods if recording_of(agent, pod)["state"] == "Refused")
    assert "recordings.budget" in recording_of(agent, refused)["message"]
    wait_until(lambda: any(e["reason"] == "RecordingRefused" for e in get_all("events")),
               "an event that says so", 30)
    # Room for it: the other one is no longer wanted.
    kept = next(pod for pod in pods if pod is not refused)
    kubectl("delete", "pod", kept.pod, "-n", cluster.namespace, "--grace-period=1")
    wait_recording(agent, refused, "Recording", 30)


def test_under_load_each_call_is_a_row_or_counted(cluster, policies):
    agent, pod, _ = record_workload(cluster, policies, cluster.stub_image(), "memcpy", ["--seconds", 8],
                                    maxSize="400Mi", files=8)
    pod.start()
    called = sum(calls_by_function(pod.tally()).values())
    policies.delete("deep")
    row = wait_recording(agent, pod, "Ended", 60)
    losses = agent.metrics().by("ingero_events_lost_total", "reason")
    print(f"{called} calls, {row['calls']} recorded in {row['files']} files of {row['bytes']} bytes, "
          f"lost {row['lost']} {losses}")
    ring = losses.get("call_stream_full", 0)
    assert row["calls"] + row["lost"] + ring == called
    assert row["bytes"] <= 400 << 20
