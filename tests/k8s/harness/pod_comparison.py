# SPDX-License-Identifier: Apache-2.0
"""Each pod's own count beside the agent's numbers of that pod."""
from e2e.harness.comparison import differences, lost
from e2e.harness.waiting import wait_until


class OfPod:
    """The metrics of one pod: every look-up has its labels."""

    def __init__(self, metrics, labels):
        self._metrics = metrics
        self._labels = labels

    def series(self, name, **labels):
        return self._metrics.series(name, **{**self._labels, **labels})

    def by(self, name, label, **labels):
        return self._metrics.by(name, label, **{**self._labels, **labels})


def pod_differences(metrics, workload, tallies):
    tallies = tallies if isinstance(tallies, list) else [tallies]
    return [f"{workload}: {line}" for line in
            differences(tallies, OfPod(metrics, workload.labels()), workload.container)]


def check_exact_pods(agent, *pairs, losses=None, seconds=15):
    """`pairs` of (workload, tallies): all numbers equal, and nothing lost but `losses`.

    Names of a pod reach the agent through the API server, so they may come after its calls; the
    numbers may not be anything but equal once they are there.
    """

    def problems():
        metrics = agent.metrics()
        return metrics, [line for pair in pairs for line in pod_differences(metrics, *pair)]

    def equal():
        metrics, found = problems()
        return None if found else metrics

    def what():
        _, found = problems()
        return f"{len(found)} numbers differ:\n" + "\n".join(found[:40])

    metrics = wait_until(equal, what, seconds, interval=0.5)
    counted = {reason: value for (_, reason), value in lost(metrics).items()}
    assert counted == (losses or {}), f"lost: {counted}, expected {losses or {}}"
    return metrics
