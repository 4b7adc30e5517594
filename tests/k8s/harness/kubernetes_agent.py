# SPDX-License-Identifier: Apache-2.0
"""The agent as the chart installs it."""
import os

from e2e.harness.agent import Agent
from e2e.harness.waiting import wait_until

from .kubectl import REPOSITORY, get_all, helm, kubectl, logs, run

NAMESPACE = "ingero"
IMAGE = "localhost/ingero:test"
CHART = os.path.join(REPOSITORY, "helm", "ingero")
SELECTOR = "app.kubernetes.io/name=ingero,app.kubernetes.io/instance=ingero"


def install(*values, seconds=120):
    """A fresh agent, so that its counts and losses are of this test alone.

    `values` as helm's --set has them, such as "config.log_level=debug".
    """
    kubectl("delete", "pods", "-n", NAMESPACE, "-l", SELECTOR, "--grace-period=5",
            "--ignore-not-found")
    repository, _, tag = IMAGE.rpartition(":")
    # --take-ownership: CRDs may be there that an earlier test has applied without Helm.
    settings = [f"image.repository={repository}", f"image.tag={tag}", "image.pullPolicy=Never",
                *values]
    options = [text for setting in settings for text in ("--set", setting)]
    done = run("helm", "upgrade", "--install", "ingero", CHART, "-n", NAMESPACE,
               "--create-namespace", "--take-ownership", *options, "--wait", "--timeout", f"{seconds}s",
               seconds=seconds + 30, check=False)
    assert done.returncode == 0, f"helm: {done.stderr}\n{_what_pods_say()}"
    # A tenth of the agents may be unavailable, which rounded up is our only one: helm waits for none.
    rolled_out = run("kubectl", "rollout", "status", "daemonset/ingero", "-n", NAMESPACE,
                     f"--timeout={seconds}s", seconds=seconds + 30, check=False)
    assert rolled_out.returncode == 0, f"{rolled_out.stderr}\n{_what_pods_say()}"
    return KubernetesAgent().wait_ready()


def restart():
    """The agent in a new pod, not necessarily ready."""
    kubectl("delete", "pods", "-n", NAMESPACE, "-l", SELECTOR, "--grace-period=5")
    return KubernetesAgent().wait_serving()


def uninstall():
    helm("uninstall", "ingero", "-n", NAMESPACE, "--ignore-not-found", "--wait", seconds=120)


def _what_pods_say():
    said = run("kubectl", "describe", "pods", "-n", NAMESPACE, check=False).stdout[-3000:]
    return said + run("kubectl", "logs", "-n", NAMESPACE, "-l", SELECTOR, "--tail=40",
                      check=False).stdout


class KubernetesAgent(Agent):
    """Metrics, state and waiting are those of an agent on the host; its address is the pod's."""

    def __init__(self):  # pylint: disable=super-init-not-called
        self.refresh()

    def refresh(self):
        """The address may be another one after a restart of the node."""
        self.pod = wait_until(self._running_pod, lambda: f"one agent\n{_what_pods_say()}", 60)
        self.name = self.pod["metadata"]["name"]
        self.address = self.pod["status"]["podIP"]
        self.port = self.pod["spec"]["containers"][0]["ports"][0]["containerPort"]
        return self

    @staticmethod
    def _running_pod():
        """The one pod; None as long as an older one still ends."""
        pods = get_all("pods", NAMESPACE, SELECTOR)
        if len(pods) != 1 or "deletionTimestamp" in pods[0]["metadata"]:
            return None
        return pods[0] if pods[0]["status"].get("podIP") else None

    def wait_serving(self, seconds=30):
        """Until it answers, whatever it says."""

        def serving():
            try:
                return self.get("/healthz", timeout=5)[0] == 200
            except OSError:
                return False

        wait_until(serving, lambda: f"agent serves\n{_what_pods_say()}", seconds)
        return self

    def wait_ready(self, seconds=30):
        def ready():
            try:
                return self.get("/readyz", timeout=5)[0] == 200
            except OSError:
                return False

        wait_until(ready, lambda: f"agent ready\n{_what_pods_say()}", seconds)
        return self

    @property
    def stderr(self):
        return logs(self.name, NAMESPACE)

    def restarts(self):
        pod = self._running_pod()
        return pod["status"]["containerStatuses"][0]["restartCount"] if pod else None
