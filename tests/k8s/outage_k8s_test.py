# SPDX-License-Identifier: Apache-2.0
"""Parts of Kubernetes that go away while the agent counts."""
import contextlib
import time

from attribution_k8s_test import keep_attached
from e2e.harness.waiting import wait_until
from harness.audit import Audit
from harness.kubectl import apply, get, hack_cluster, kubectl, run
from harness.kubernetes_agent import NAMESPACE
from harness.pod_comparison import check_exact_pods
from policy_k8s_test import calls

AWAY_SECONDS = 60


@contextlib.contextmanager
def without(part):
    hack_cluster("stop-part", part)
    try:
        yield
    finally:
        hack_cluster("start-part", part)


@contextlib.contextmanager
def without_api_server(part="apiserver"):
    with without(part):
        yield
    wait_reachable()
    begin_anew()


def wait_reachable():
    """The API server's Service as pods see it. kube-proxy has taken its end out and puts it back when its
    own watch is back, for which it waits long; a proxy that starts does so at once."""
    with without("proxy"):
        pass

    def connects():
        # Pods' connections take another way than those of the host.
        return run("nsenter", "-t", pid_of_agent(), "-n", "timeout", "1", "bash", "-c",
                   "exec 3<>/dev/tcp/10.96.0.1/443", check=False).returncode == 0

    wait_until(connects, "the API server's Service", 60)


def pid_of_agent():
    found = run("pgrep", "-f", "^ingero agent --config-map").stdout.split()
    assert len(found) == 1, found
    return found[0]


def begin_anew():
    """After attempts in vain the other parts wait for up to a minute; those that start do not."""
    for part in ("controller-manager", "scheduler", "kubelet"):
        with without(part):
            pass


def check_outage(cluster, part, outage=without):
    """Calls that are made during the outage are counted under the pod's name, by the same agent."""
    agent = cluster.agent()
    workload = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 4])
    agent.wait_attached(workload.wait_ready(), len(workload.libraries))
    restarts = agent.restarts()
    with outage(part):
        workload.start()
        tally = workload.tally()
        check_exact_pods(agent, (workload, tally))
        assert agent.get("/readyz")[0] == 200
    check_exact_pods(agent, (workload, tally))
    assert agent.restarts() == restarts
    later = cluster.workload(cluster.stub_image(), "mixed", ["--calls", 3])
    tallies = cluster.run(agent, later)
    check_exact_pods(agent, (workload, tally), (later, tallies[0]))


def test_calls_are_counted_while_the_api_server_is_away(cluster):
    check_outage(cluster, "apiserver", without_api_server)


def test_calls_are_counted_while_the_kubelet_is_away(cluster):
    check_outage(cluster, "kubelet")


def test_calls_are_counted_while_containerd_is_away(cluster):
    check_outage(cluster, "containerd")


def test_calls_are_counted_while_etcd_is_away(cluster):
    check_outage(cluster, "etcd", without_api_server)


def watches(agent):
    return {row["what"]: row for row in agent.state()["watches"]}


def leave_behind(cluster):
    """A server that starts knows no change from before: 410 Gone for who has not seen the last one."""
    kubectl("create", "configmap", "later", "-n", cluster.namespace, "--from-literal=a=b")


def check_labels_come(cluster, agent, image):
    """A pod that is made now has its labels soon after its first call; seconds until then. Another one
    keeps the probes of its image in place."""
    workload = cluster.workload(image, "memcpy", ["--calls", 20], start_file=False)
    workload.wait_ready(120)
    begin = time.monotonic()
    tally = workload.tally()
    wait_until(lambda: calls(agent, workload) > 0, "calls under the pod's name", 10, interval=0.1)
    taken = time.monotonic() - begin
    check_exact_pods(agent, (workload, tally))
    return taken


def test_metrics_never_stop_while_the_api_server_is_away_for_a_minute(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    workload = cluster.workload(image, "memcpy", ["--seconds", AWAY_SECONDS + 15, "--rate", 500])
    agent.wait_attached(workload.wait_ready(), len(image.libraries))
    workload.start()
    wait_until(lambda: calls(agent, workload) > 0, "counted calls")
    counted, slowest = [], 0.0
    leave_behind(cluster)
    lists = {what: row["lists"] for what, row in watches(agent).items()}
    with without("apiserver"):
        cpu = agent.metrics().value("process_cpu_seconds_total")
        failures = sum(row["failures"] for row in watches(agent).values())
        end = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < end:
            begin = time.monotonic()
            counted.append(calls(agent, workload))
            slowest = max(slowest, time.monotonic() - begin)
            assert agent.get("/readyz")[0] == 200
            time.sleep(max(0.0, 1 - (time.monotonic() - begin)))
        used = (agent.metrics().value("process_cpu_seconds_total") - cpu) / AWAY_SECONDS
        failures = sum(row["failures"] for row in watches(agent).values()) - failures
    wait_reachable()
    back = time.monotonic()
    wait_until(lambda: all(row["lists"] > lists[what] for what, row in watches(agent).items()),
               lambda: f"all listed anew: {watches(agent)}", 15)
    synced = time.monotonic() - back
    begin_anew()
    taken = check_labels_come(cluster, agent, image)
    said = [line for line in agent.stderr.splitlines() if line.split()[1:2] in (["warn"], ["error"])]
    print(f"{len(counted)} scrapes, the slowest {slowest:.3f} s; {used * 100:.2f} % of a core; "
          f"{failures} attempts in vain of {len(watches(agent))} watches; {len(said)} log lines; "
          f"all objects known anew {synced:.1f} s after the return; "
          f"labels {taken:.2f} s after the first call")
    assert all(b > a for a, b in zip(counted, counted[1:])), counted
    # Five watches, 1.25 to 2.5 s between attempts once the pause has grown.
    assert failures < 5 * (AWAY_SECONDS / 1.25 + 8)
    assert len(said) < 40, "\n".join(said)
    check_exact_pods(agent, (workload, workload.tally()))
    assert agent.restarts() == 0


def test_watches_whose_place_is_no_longer_known_list_anew(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    keep_attached(cluster, agent, image)
    wait_until(lambda: all(row["watches"] for row in watches(agent).values()), "all watch")
    before = watches(agent)
    leave_behind(cluster)
    with without_api_server():
        pass
    wait_until(lambda: any(row["expired"] > before[what]["expired"]
                           for what, row in watches(agent).items()),
               lambda: f"410 Gone: {watches(agent)}", 30)
    check_labels_come(cluster, agent, image)
    after = watches(agent)
    print({what: (row["expired"], row["lists"]) for what, row in after.items()})
    for what, row in after.items():
        if row["expired"] > before[what]["expired"]:
            assert row["lists"] > before[what]["lists"], (what, row)
    assert agent.restarts() == 0


def test_watches_that_are_cut_go_on_where_they_were(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    keep_attached(cluster, agent, image)
    wait_until(lambda: all(row["watches"] for row in watches(agent).values()), "all watch")
    before = watches(agent)
    inside = pid_of_agent()
    cut = run("nsenter", "-t", inside, "-n", "ss", "-K", "state", "established", "dport", "=", ":443")
    print(cut.stdout)
    wait_until(lambda: all(row["watches"] > before[what]["watches"]
                           for what, row in watches(agent).items()),
               lambda: f"all watch again: {before} {watches(agent)}", 10)
    taken = check_labels_come(cluster, agent, image)
    after = watches(agent)
    assert {what: row["lists"] for what, row in after.items()} == {
        what: row["lists"] for what, row in before.items()}, "resumed, not listed"
    assert taken < 5


def test_a_rotated_token_is_taken_and_a_revoked_one_is_no_end(cluster):
    agent = cluster.agent()
    image = cluster.stub_image()
    keep_attached(cluster, agent, image)
    account = get("serviceaccount", "ingero", NAMESPACE)
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        account["metadata"].pop(key)
    audit = Audit()
    wait_until(audit.requests, "a request of the agent", 20)
    first = audit.requests()[-1]["credential"]
    # Tokens name the account's UID: all that were given out are void now.
    kubectl("delete", "serviceaccount", "ingero", "-n", NAMESPACE)
    apply(account)
    wait_until(lambda: "401" in agent.state()["reports"]["lease_error"],
               lambda: f"401: {agent.state()['reports']}", 40, interval=0.5)
    assert agent.get("/readyz")[0] == 200 and agent.metrics().value("process_cpu_seconds_total") > 0
    # A kubelet that starts asks for a new token and puts it into the pod's file.
    with without("kubelet"):
        pass
    fresh = Audit()
    wait_until(lambda: any(request["credential"] != first and request["code"] < 300
                           for request in fresh.requests()), "requests with another token", 60)
    wait_until(lambda: not agent.state()["reports"]["lease_error"]
               and all(not row["last_error"] for row in watches(agent).values()),
               lambda: f"no error: {watches(agent)} {agent.state()['reports']}", 15)
    assert check_labels_come(cluster, agent, image) < 5
    assert agent.restarts() == 0
