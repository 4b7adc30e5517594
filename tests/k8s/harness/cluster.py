# SPDX-License-Identifier: Apache-2.0
"""What one test starts in the cluster, and its end."""
import itertools
import os
import secrets

from . import kubernetes_agent, workload_images
from .kubectl import apply, kubectl, run
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
        """A pod whose volume `out` is a folder of this test; returns that folder."""
        directory = os.path.join(self.directory, name)
        os.makedirs(directory, exist_ok=True)
        # The stub's pod may run as anybody.
        os.chmod(directory, 0o777)
        apply({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": name, "namespace": self.namespace, "labels": labels or {}},
               "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                        "automountServiceAccountToken": False,
                        "initContainers": list(init), "containers": list(containers),
                        "volumes": [{"name": "out", "hostPath": {"path": directory}}], **spec}})
        return directory

    def _of_container(self, pod, directory, container, image):
        return Workload(self.namespace, pod, container, os.path.join(directory, container),
                        image.libraries)

    def workload(self, image, scenario=None, options=(), *, name=None, container="workload",
                 labels=None, **more):
        """A pod with one workload, not yet calling."""
        name = name or f"workload-{next(self._numbers)}"
        part = workload_container(container, image, container, scenario, options, **more)
        directory = self.pod(name, [part], labels=labels)
        return self._of_container(name, directory, container, image)

    def workloads_of(self, pod, directory, image, *containers):
        """Of a pod with several containers, made by `pod`."""
        return [self._of_container(pod, directory, name, image) for name in containers]

    @staticmethod
    def run(agent, *workloads):
        """Probes first, then the calls of all at the same time. Returns the tallies, in order."""
        for workload in workloads:
            agent.wait_attached(workload.wait_ready(), len(workload.libraries))
        for workload in workloads:
            workload.start()
        return [workload.tally() for workload in workloads]
