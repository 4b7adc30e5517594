# SPDX-License-Identifier: Apache-2.0
"""Each attach method gives the same numbers."""
import json
import signal
import socket
import subprocess
import time

from harness.comparison import Expected, check_exact
from harness.host import stubs
from harness.waiting import wait_until

# Perf events come and go one at a time on the whole host (the kernel's event_mutex), each after a
# grace period: an agent that starts while another one's probes are being removed waits for them.
PATIENCE = 150


def check_method(host, method, more=()):
    agent = host.agent("--attach-method", method, wait=False).wait_ready(PATIENCE)
    assert agent.state()["method"] == method
    few = stubs(cuda=False)
    containers = [host.container("mixed", "--calls", 3, libraries=few),
                  host.container("errors", libraries=few),
                  host.container("mixed", libraries={"nccl": stubs("endbr")["nccl"]}),
                  host.container("longjmp", "--calls", 10, libraries=few)]
    containers += [host.container(*arguments, **options) for arguments, options in more]
    tallies = host.run(agent, *containers)
    metrics, state = check_exact(agent, *zip(containers, tallies), losses={"no_return_seen": 10})
    attached = {labels["method"] for labels, value in metrics.series("ingero_probes_attached")
                if value}
    assert attached == {method}
    assert {file["method"] for file in state["files"] if file["probes"]} == {method}


EVERYWHERE = [(("mixed", "--calls", 2), {"libraries": stubs("endbr")}),
              (("nested",), {"libraries": stubs(cudart_variant="nested")})]


def test_session_links_count_exactly(host):
    check_method(host, "session", EVERYWHERE)


def test_multi_links_count_exactly(host):
    check_method(host, "multi", EVERYWHERE)


# Fewer files: see PATIENCE.
def test_perf_event_pairs_count_exactly(host):
    check_method(host, "perf")


def programs_of_probes():
    """Ids of the loaded programs that count calls, whoever holds them."""
    listed = json.loads(subprocess.run(["bpftool", "-j", "prog", "list"], check=True,
                                       capture_output=True, text=True).stdout)
    return {program["id"] for program in listed
            if program.get("name", "").startswith(("nccl_", "cuda_"))}


def test_an_agent_with_perf_probes_ends_at_once_and_its_probes_go_by_themselves(host):
    """The kernel takes them away one after the other, 0.15 s each; a pod has 30 s."""
    before = programs_of_probes()
    agent = host.agent("--attach-method", "perf", wait=False).wait_ready(PATIENCE)
    container = host.container("mixed", libraries=stubs(cuda=False))
    agent.wait_attached(container.wait_ready(), len(container.libraries), PATIENCE)
    assert programs_of_probes() - before
    begun = time.monotonic()
    assert agent.stop(signal.SIGTERM)[0] == 0
    took = time.monotonic() - begun
    assert took < 5, f"ended after {took:.1f} s"
    with socket.socket() as probe:  # what goes on has nothing else of the agent's
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", agent.port))
    wait_until(lambda: not programs_of_probes() - before, "the probes gone", PATIENCE)


def test_entry_probes_alone_count_calls_exactly_and_say_that_results_are_unknown(host):
    container = host.container("mixed", "--calls", 5, libraries=stubs(cuda=False))
    # --pid: calls of unknown result are counted for the whole host, this is about one process.
    agent = host.agent("--attach-method", "entry_only", "--pid", container.wait_ready(),
                       wait=False).wait_ready(PATIENCE)
    tally = host.run(agent, container)[0]
    expected = Expected([tally])
    assert expected.operations["nccl", "ncclBcast"] == 5  # goes through ncclBroadcast inside
    metrics = agent.metrics()
    counted = {(labels["source"], labels["operation"]): value for labels, value in
               metrics.series("gpu_cuda_operation_count_total", container=container.label)}
    assert counted == dict(expected.operations)
    assert metrics.value("ingero_unattributed_calls_total",
                         reason="result_unknown") == expected.calls
    assert not metrics.series("gpu_nccl_errors_total") and not metrics.series(
        "gpu_cuda_errors_total")
    assert agent.state()["method"] == "entry_only"
