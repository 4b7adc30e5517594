# SPDX-License-Identifier: Apache-2.0
"""kubectl and helm against the cluster of hack/cluster."""
import functools
import json
import os
import subprocess

import yaml

REPOSITORY = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
_HACK_CLUSTER = os.path.join(REPOSITORY, "hack", "cluster")


@functools.lru_cache(maxsize=None)
def environment():
    """The process's environment and what `hack/cluster env` adds to it."""
    printed = subprocess.run(["bash", "-c", 'eval "$("$0" env)" && env -0', _HACK_CLUSTER],
                             check=True, capture_output=True, text=True).stdout
    return dict(line.split("=", 1) for line in printed.split("\0") if line)


def run(*command, text_input=None, seconds=60, check=True):
    """The finished process. A failure names the command and what it said."""
    # Found by the path of that environment, not by ours.
    done = subprocess.run(["env", *map(str, command)], env=environment(), input=text_input or "",
                          capture_output=True, text=True, timeout=seconds, check=False)
    assert not check or done.returncode == 0, (
        f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
        f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def hack_cluster(*arguments, seconds=120):
    return run(_HACK_CLUSTER, *arguments, seconds=seconds).stdout


def containerd(*arguments, **more):
    """What containerd says of its images and containers, below Kubernetes."""
    return run("ctr", "--address", "/run/ingero-cluster/containerd.sock", "--namespace", "k8s.io",
               *arguments, **more).stdout


def kubectl(*arguments, **more):
    return run("kubectl", *arguments, **more).stdout


def helm(*arguments, **more):
    return run("helm", *arguments, **more).stdout


def apply(*objects):
    """Objects as dictionaries, or YAML as one text."""
    text = "\n---\n".join(o if isinstance(o, str) else yaml.safe_dump(o) for o in objects)
    kubectl("apply", "-f", "-", text_input=text)


def get(kind, name, namespace=None):
    """The object, None when there is none."""
    where = ["-n", namespace] if namespace else []
    text = kubectl("get", kind, name, *where, "-o", "json", "--ignore-not-found")
    return json.loads(text) if text.strip() else None


def get_all(kind, namespace=None, selector=""):
    where = ["-n", namespace] if namespace else ["-A"]
    return json.loads(kubectl("get", kind, *where, "-l", selector, "-o", "json"))["items"]


def logs(pod, namespace, *options):
    return kubectl("logs", pod, "-n", namespace, *options)


def execute(pod, namespace, *command, container=None, check=True):
    options = ["-c", container] if container else []
    return run("kubectl", "exec", pod, "-n", namespace, *options, "--", *command, check=check)


def why(pod, namespace):
    """What Kubernetes says of a pod that does not do what it should."""
    said = run("kubectl", "describe", "pod", pod, "-n", namespace, check=False).stdout
    said += run("kubectl", "logs", pod, "-n", namespace, "--all-containers", "--tail=20",
                check=False).stdout
    return said[-4000:]
