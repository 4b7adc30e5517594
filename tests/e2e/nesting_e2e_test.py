# SPDX-License-Identifier: Apache-2.0
"""One call of the user counts once, whatever it goes through and however it ends."""
import pytest

from harness.comparison import check_exact
from harness.host import stubs


def test_calls_that_libraries_make_among_themselves_are_not_counted(host):
    agent = host.agent()
    container = host.container("nested", "--calls", 20,
                               libraries=stubs("push", cudart_variant="nested"))
    tally = host.run(agent, container)[0]
    assert sum(row["aliased"] for row in tally["functions"]) == 40
    metrics, state = check_exact(agent, (container, tally))
    for file in state["files"]:
        symbols = [probe["symbol"] for probe in file["probes"]]
        assert not [symbol for symbol in symbols if symbol.startswith("pnccl")], symbols
    assert metrics.value("gpu_cuda_operation_count_total", source="driver",
                         container=container.label) == 0


def test_calls_left_by_longjmp_are_counted_and_reported(host):
    agent = host.agent()
    container = host.container("longjmp", "--calls", 100)
    tally = host.run(agent, container)[0]
    assert sum(row["unreturned"] for row in tally["functions"]) == 100
    metrics, _ = check_exact(agent, (container, tally), losses={"no_return_seen": 100})
    assert metrics.value("gpu_nccl_collective_count", op_type="ncclAllReduce",
                         container=container.label) == 400


def test_a_target_under_a_strict_seccomp_filter_survives_and_is_counted(host):
    agent = host.agent()
    container = host.container("seccomp")
    tally = host.run(agent, container)[0]  # asserts that the target ended with status 0
    metrics, state = check_exact(agent, (container, tally))
    assert metrics.value("gpu_nccl_collective_count", container=container.label) == 1000
    assert state["method"] in ("session", "multi", "perf")


@pytest.mark.parametrize("scenario", ["mixed", "nested", "errors", "copies", "datatypes"])
def test_functions_that_begin_with_endbr64_are_counted(host, scenario):
    agent = host.agent()
    container = host.container(scenario, libraries=stubs(
        "endbr", cudart_variant="nested" if scenario == "nested" else None))
    tally = host.run(agent, container, finish=False)[0]
    _, state = check_exact(agent, (container, tally))
    path = stubs("endbr")["nccl"]
    moved = [probe["moved"] for file in state["files"] if file["path"].endswith(path)
             for probe in file["probes"]]
    assert moved and all(moved), "entry probes stand behind endbr64"


def test_threads_that_call_at_the_same_time_are_all_counted(host):
    agent = host.agent()
    container = host.container("threads", "--threads", 8)
    tally = host.run(agent, container)[0]
    check_exact(agent, (container, tally))
