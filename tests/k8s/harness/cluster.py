# SPDX-License-Identifier: Apache-2.0
"""What one test starts in the cluster, and its end."""
import itertools
import json
import os
import secrets

from . import kubernetes_agent, workload_images
from .kubectl import apply, get, kubectl, run
from .workload import Workload, workload_container


class Cluster:
    def __init__(self, directory):
        self.directory = str(directory)
        self.namespace = f"test-{secrets.token_hex(3)}"
        self._numbers = itertools.count(1)

    def __enter__(self):
        kubectl("create", "namespace", self.namespace)
        # Pods wait for the account that the controller makes in a new namespace.
        kubectl("wait", "--for=create", "serviceaccount/default", "-n", self.namespace,
                "--timeout=30s")
        return self

    def __exit__(self, *problem):
        run("kubectl", "delete", "pods", "--all", "-n", self.namespace, "--grace-period=1",
            "--wait=false", check=False)
        run("kubectl", "delete", "namespace", self.namespace, "--wait=false", check=False)

    def agent(self, *values):
        return kubernetes_agent.install(*values)

    @staticmethod
    def stub_image():
        return workload_images.stub_image()

    @staticmethod
    def real_image(nccl="newest-nccl"):
        return workload_images.real_image(nccl)

    def pod(self, name, containers, *, init=(), labels=None, **spec):
        """A pod, which has a folder of this test as its volume `out`."""
        directory = os.path.join(self.directory, name)
        for container in [*init, *containers]:
            os.makedirs(os.path.join(directory, container["name"]), exist_ok=True)
        volumes = [{"name": "out", "hostPath": {"path": directory}}, *spec.pop("volumes", [])]
        apply({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": name, "namespace": self.namespace, "labels": labels or {}},
               "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                        "automountServiceAccountToken": False, "initContainers": list(init),
                        "containers": list(containers), "volumes": volumes, **spec}})

    def workload_of(self, pod, container, image):
        """One container of a pod that `pod` has made."""
        return Workload(self.namespace, pod, container,
                        os.path.join(self.directory, pod, container), image.libraries)

    def workload(self, image, scenario=None, options=(), *, name=None, container="workload",
                 labels=None, restart="Never", **more):
        """A pod with one workload, not yet calling."""
        name = name or f"workload-{next(self._numbers)}"
        self.pod(name, [workload_container(container, image, scenario, options, **more)],
                 labels=labels, restartPolicy=restart)
        return self.workload_of(name, container, image)

    def ephemeral_workload(self, pod, container, image, scenario=None, options=()):
        """One more container in a pod that runs, as `kubectl debug` adds it."""
        os.makedirs(os.path.join(self.directory, pod, container))
        running = get("pod", pod, self.namespace)
        running["spec"]["ephemeralContainers"] = [
            workload_container(container, image, scenario, options, gpus=0)]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/ephemeralcontainers"
        kubectl("replace", "--raw", path, "-f", "-", text_input=json.dumps(running))
        return self.workload_of(pod, container, image)

    @staticmethod
    def run(agent, *workloads):
        """Probes first, then the calls of all at the same time. Returns the tallies, in order."""
        for workload in workloads:
            agent.wait_attached(workload.wait_ready(), len(workload.libraries))
        for workload in workloads:
            workload.start()
        return [workload.tally() for workload in workloads]
