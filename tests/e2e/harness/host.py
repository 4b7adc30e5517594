# SPDX-License-Identifier: Apache-2.0
"""What one test starts on this machine, and its end."""
import itertools
import os
import secrets
import subprocess

from .agent import Agent
from .container import Container, stub, workload_dir

_BUILD_ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "workload", "container",
                           "build_root.sh")


def stubs(variant="push", cudart_variant=None, cuda=True):
    """The stub libraries as a container sees them that was built with `stub_root`."""
    found = {"nccl": f"/stubs/{variant}/libnccl.so.2",
             "cudart": f"/stubs/{cudart_variant or variant}/libcudart.so.13"}
    if cuda:
        found["cuda"] = f"/stubs/{variant}/libcuda.so.1"
    return found


class Host:
    def __init__(self, directory):
        self.directory = str(directory)
        self._started = []
        self._numbers = itertools.count(1)
        # Where nothing can build one.
        self._stub_root = os.environ.get("INGERO_STUB_ROOT")

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        for item in reversed(self._started):
            item.kill()
        if problem[0] is None:
            self._check_counters()

    def _check_counters(self):
        """In every test: no counter of any agent has fallen."""
        for recorder in filter(None, (getattr(item, "recorder", None) for item in self._started)):
            print(f"{recorder.name}: {recorder.scrapes} scrapes")
            assert not recorder.falls, f"{recorder.name} fell:\n{recorder.complaint()}"

    def agent(self, *flags, wait=True, **options):
        agent = Agent(self.directory, *flags, **options)
        self._started.append(agent)
        return agent.wait_ready() if wait else agent

    def root(self, *pairs):
        """A directory that containers share as the lower layer: SOURCE:DESTINATION pairs."""
        root = os.path.join(self.directory, f"root-{next(self._numbers)}")
        subprocess.run([_BUILD_ROOT, root, os.path.join(workload_dir(), "ingero_workload"), *pairs],
                       check=True, stdout=subprocess.DEVNULL)
        return root

    def stub_root(self):
        """The root with every stub library, made once per test."""
        if self._stub_root is None:
            self._stub_root = self.root(f"{os.path.dirname(os.path.dirname(stub('x')))}:/stubs")
        return self._stub_root

    def container(self, scenario, *options, libraries=None, lower="stubs", container_id=None,
                  cgroup=None, **more):
        """A workload, not yet calling. By default with the stubs in an overlay root of its own;
        lower=None: the host's root."""
        container_id = container_id or secrets.token_hex(32)
        cgroup = cgroup or f"/ingero-e2e-{os.getpid()}/{container_id}"
        libraries = libraries or stubs()
        if lower == "stubs":
            lower = self.stub_root()
        directory = os.path.join(self.directory, f"container-{next(self._numbers)}")
        container = Container(directory, cgroup, container_id, scenario, options,
                              libraries=libraries, lower=lower, **more)
        self._started.append(container)
        return container

    def run(self, agent, *containers, finish=True, seconds=60):
        """Probes first, then the calls of all at the same time. Returns the tallies, in order."""
        for container in containers:
            agent.wait_attached(container.wait_ready(), len(container.libraries))
        for container in containers:
            container.start()
        tallies = [container.tally(seconds) for container in containers]
        if finish:
            for container in containers:
                container.finish(seconds)
        return tallies
