# SPDX-License-Identifier: Apache-2.0
"""Pods with ingero_workload. A folder of the host is their /out: start, tally and end go through it."""
import glob
import json
import os

from e2e.harness.waiting import wait_until

from .kubectl import get, kubectl, why


def workload_container(name, image, scenario=None, options=(), *, gpus=1, start_file=True,
                       hold=True, **more):
    """The container's part of a pod; its files are in the folder /out/NAME."""
    out = f"/out/{name}"
    arguments = [text for kind, path in image.libraries.items() for text in (f"--{kind}", path)]
    arguments += ["--scenario", scenario or image.scenario, *map(str, options)]
    arguments += ["--tally", f"{out}/tally.json", "--ready-file", f"{out}/ready"]
    if start_file:
        arguments += ["--start-file", f"{out}/start"]
    if hold:
        arguments += ["--hold-file", f"{out}/finish"]
    part = {"name": name, "image": image.name, "imagePullPolicy": "Never", "args": arguments,
            "volumeMounts": [{"name": "out", "mountPath": "/out"}], **more}
    if gpus:
        part["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return part


class Workload:
    """One container of a pod, by the files in its folder and by the pod's status."""

    def __init__(self, namespace, pod, container, directory, libraries):
        self.namespace = namespace
        self.pod = pod
        self.container = container
        self.directory = directory
        self.libraries = libraries

    def __str__(self):
        return f"{self.namespace}/{self.pod}/{self.container}"

    def path(self, name):
        return os.path.join(self.directory, name)

    def labels(self):
        return {"namespace": self.namespace, "pod": self.pod, "container": self.container,
                "node": "node1"}

    def status(self):
        """This container's part of the pod's status; None before there is one."""
        pod = get("pod", self.pod, self.namespace)
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
            for status in (pod or {}).get("status", {}).get(kind, []):
                if status["name"] == self.container:
                    return status
        return None

    def _say_why(self, what):
        return lambda: f"{self}: {what}\n{why(self.pod, self.namespace)}"

    def wait_ready(self, seconds=60):
        """Until the workload has loaded its libraries and waits for its start."""
        wait_until(lambda: os.path.exists(self.path("ready")), self._say_why("ready"), seconds)
        return self.pid()

    def container_id(self):
        """As cgroups name it; the pod's status tells it some time after the start."""
        text = wait_until(lambda: (self.status() or {}).get("containerID"),
                          self._say_why("container id"))
        return text.rpartition("/")[2]

    def pid(self):
        """Of the workload's first process, as the host sees it; the cgroup names the container."""
        container_id = self.container_id()
        found = []
        for path in glob.glob("/proc/[0-9]*/cgroup"):
            try:
                with open(path, encoding="utf-8") as file:
                    if container_id in file.read():
                        found.append(int(path.split("/")[2]))
            except OSError:  # it ended meanwhile
                pass
        assert found, f"no process of {self} ({container_id})"
        return min(found)

    def start(self):
        open(self.path("start"), "w", encoding="utf-8").close()

    def finish(self):
        open(self.path("finish"), "w", encoding="utf-8").close()

    def tally(self, seconds=60):
        """The workload's own count, once its calls are done."""

        def read():
            try:
                with open(self.path("tally.json"), encoding="utf-8") as file:
                    return json.load(file)
            except (FileNotFoundError, json.JSONDecodeError):
                return None

        return wait_until(read, self._say_why("tally"), seconds)

    def wait_ended(self, seconds=60):
        def ended():
            return (self.status() or {}).get("state", {}).get("terminated")

        end = wait_until(ended, self._say_why("end"), seconds, interval=0.5)
        assert end["exitCode"] == 0, f"{self} ended with {end}"

    def delete(self):
        kubectl("delete", "pod", self.pod, "-n", self.namespace, "--grace-period=1",
                "--ignore-not-found")
