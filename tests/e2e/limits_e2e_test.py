# SPDX-License-Identifier: Apache-2.0
"""Full tables: totals stay exact, and what they cannot hold is counted."""
from harness.comparison import check_exact, differences


def test_what_a_full_counting_map_cannot_hold_is_counted_call_by_call(host, tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text("map_entries: 64\n")
    agent = host.agent("--config", config)
    # 2 containers x 51 processes x 2 functions at least: three times what the map holds. All of them
    # live at the same time, and the parent goes on after them.
    containers = [host.container("fork", "--processes", 50, "--calls", 3,
                                 environment=[f"STUB_{library}_BUSY_NS=20000"])
                  for library in ("NCCL", "CUDART")]
    tallies = host.run(agent, *containers, seconds=120)
    assert sum(tally["processes"] for tally in tallies) == 102
    metrics = agent.metrics()
    folded = metrics.value("ingero_unattributed_calls_total", reason="process_folded")
    lost = metrics.value("ingero_events_lost_total", reason="calls_map_full")
    print(f"process_folded {folded:g}, calls_map_full {lost:g}")
    assert folded + lost > 0
    counted = metrics.value("gpu_cuda_operation_count_total", container=containers[0].label) + \
        metrics.value("gpu_cuda_operation_count_total", container=containers[1].label)
    made = sum(row["calls"] for tally in tallies for row in tally["functions"])
    assert counted + lost == made, (counted, lost, made)


def test_a_counting_map_that_is_full_folds_processes_and_keeps_the_totals_of_containers(host, tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text("map_entries: 64\n")
    agent = host.agent("--config", config)
    containers = [host.container("forkstorm", "--processes", 50, "--concurrency", 50, environment=[
        "STUB_CUDART_BUSY_NS=30000000"]) for _ in range(2)]
    tallies = host.run(agent, *containers)
    metrics, state = agent.metrics(), agent.state()
    problems = [line for container, tally in zip(containers, tallies)
                for line in differences([tally], metrics, container.label, state)]
    assert not problems, "\n".join(problems)
    folded = metrics.value("ingero_unattributed_calls_total", reason="process_folded")
    lost = {labels["reason"]: value for labels, value in metrics.series("ingero_events_lost_total")
            if value}
    print(f"process_folded {folded:g}, lost {lost}")
    assert folded > 0 and not lost, (folded, lost)
