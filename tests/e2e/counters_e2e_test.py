# SPDX-License-Identifier: Apache-2.0
"""No counter ever falls. The recorder of the harness watches every agent of every test; here is what
made counters fall."""
import json
import os
import secrets
import subprocess

from harness.container import stub, workload_dir
from harness.waiting import wait_until

LIBRARIES = {"nccl": stub("libnccl.so.2"), "cudart": stub("libcudart.so.13")}
CALLS = "gpu_cuda_operation_count_total"
SEQUENCE = "gpu_nccl_communicator_collectives_total"


def small_budget(tmp_path, series):
    """Without waits for a processor: their series come by chance."""
    config = tmp_path / f"budget-{series}.yaml"
    config.write_text(f"max_series: {series}\nprobes:\n  scheduler: false\n")
    return config


def series_of(metrics, label):
    """Lines of a container but for those of single processes and communicators."""
    return sum(f'container="{label}"' in line for line in metrics.text.splitlines()
               if not line.startswith(("gpu_nccl_process_loaded", "gpu_nccl_communicator")))


def calls_of(tallies):
    return sum(row["calls"] for tally in tallies for row in tally["functions"])


def scrape_beyond(agent, last):
    """Until the recorder has seen what is there now."""
    wait_until(lambda: agent.recorder.scrapes > last + 1, "two more scrapes")


def test_other_keeps_what_containers_have_counted_that_get_series_of_their_own(host, tmp_path):
    agent = host.agent("--config", small_budget(tmp_path, 10000))
    first = host.container("memcpy")
    host.run(agent, first, finish=False)
    each = series_of(agent.metrics(), first.label)
    first.finish()
    agent.stop()
    # One line is missing for a second container beside "other": a process that ends makes room.
    agent = host.agent("--config", small_budget(tmp_path, 3 * each - 1))
    containers = [host.container("memcpy", "--calls", 10 + i) for i in range(4)]
    tallies = host.run(agent, *containers, finish=False)
    metrics = agent.metrics()
    assert metrics.value(CALLS) == calls_of(tallies), "the sum is what was counted"
    assert metrics.value(CALLS, container="other") > 0
    for container in containers:
        container.finish()
        scrape_beyond(agent, agent.recorder.scrapes)
    assert agent.metrics().value(CALLS) == calls_of(tallies)


def test_a_living_container_keeps_its_series_while_short_ones_come_and_go(host, tmp_path):
    agent = host.agent("--config", small_budget(tmp_path, 400))
    living = host.container("memcpy", "--seconds", 120, "--rate", 500)
    agent.wait_attached(living.wait_ready(), 3)
    living.start()
    wait_until(lambda: agent.metrics().value(CALLS, container=living.label), "its series")
    for _ in range(3):
        host.run(agent, *[host.container("mixed") for _ in range(2)])
        assert agent.metrics().value(CALLS, container=living.label) > 0
    assert agent.metrics().value(CALLS, container="other") > 0
    living.terminate()
    tally = living.tally()
    counted = agent.metrics().value(CALLS, container=living.label)
    assert counted == calls_of([tally]), "all of its calls in its own series"


def test_communicators_without_a_known_id_keep_what_an_ended_one_has_counted(host):
    def container(**more):
        return host.container("allreduce", "--seconds", 120, "--rate", 200, lower=None,
                              libraries=LIBRARIES, **more)

    short = container(run_options=["--keep-cgroup"])  # its end would end all in it
    long = container(cgroup=short.cgroup, container_id=short.label)
    for each in (short, long):  # the communicators are made before the agent comes
        each.wait_ready()
        each.start()
    agent = host.agent()
    for each in (short, long):
        agent.wait_attached(each.pid, 2)

    def counted():
        return agent.metrics().value(SEQUENCE, container=short.label, comm_id="")

    wait_until(lambda: counted() > 200, "collectives")
    short.terminate()
    short.finish()
    before = counted()
    wait_until(lambda: short.pid not in [p["pid"] for p in agent.state()["processes"]], "its end")
    scrape_beyond(agent, agent.recorder.scrapes)
    assert counted() >= before > 100
    long.terminate()
    long.finish()


def test_the_18th_job_of_a_day_has_series_as_the_first(host, tmp_path):
    """Without Kubernetes: what has ended leaves the budget."""
    config = tmp_path / "agent.yaml"
    config.write_text("max_series: 400\nseries_retention: 1s\nprobes:\n  scheduler: false\n")
    agent = host.agent("--config", config, "--kubernetes", "off", command="agent")
    keeper = host.container("memcpy")  # so that probes are in place
    agent.wait_attached(keeper.wait_ready(), 3)
    earlier = [host.container("mixed") for _ in range(2)]
    host.run(agent, *earlier)
    labels = [container.label for container in earlier]
    wait_until(lambda: not any(series_of(agent.metrics(), label) for label in labels),
               "series of ended containers gone", 15)
    last = host.container("memcpy", "--calls", 25)
    tally = host.run(agent, last, finish=False)[0]
    assert agent.metrics().value(CALLS, container=last.label) == calls_of([tally])
    last.finish()


def test_calls_of_short_jobs_below_a_cgroup_are_all_counted_and_printed(host, tmp_path):
    """Each job has a cgroup of its own, several levels down, which goes with it."""
    parent = f"/ingero-e2e-{os.getpid()}/{secrets.token_hex(4)}"
    agent = host.agent("--cgroup", parent, "--print", "--format", "json")
    keeper = host.container("allreduce", lower=None, libraries=LIBRARIES)
    keeper.wait_ready()
    wait_until(lambda: {f["path"] for f in agent.state()["files"] if f["probes"]} >=
               {os.path.realpath(path) for path in LIBRARIES.values()}, "probes in place")
    jobs = []
    for i in range(60):
        command = [f"{workload_dir()}/container_run", "--cgroup", f"{parent}/day/job-{i}/step-0/task",
                   "--no-root", "--", f"{workload_dir()}/ingero_workload", "--scenario", "allreduce",
                   "--calls", "3", "--tally", str(tmp_path / f"tally-{i}")]
        for kind, path in LIBRARIES.items():
            command += [f"--{kind}", path]
        jobs.append(subprocess.Popen(command))
        if len(jobs) % 4 == 0:
            assert [job.wait(30) for job in jobs[-4:]] == [0] * 4
    made = calls_of([json.loads((tmp_path / f"tally-{i}").read_text()) for i in range(60)])
    metrics = agent.metrics()
    series = metrics.series(CALLS)
    assert all(labels["container"].startswith(parent + "/day/job-") for labels, _ in series), series
    assert metrics.value(CALLS) == made
    keeper.kill()
    status, out, _ = agent.stop()
    assert status == 0
    assert len([line for line in out.splitlines() if line.startswith("{")]) == made
