# SPDX-License-Identifier: Apache-2.0
"""The ground that the other tests stand on: the node, and the agent's image in a pod."""
import gzip
import json
import tarfile

import pytest
from e2e.harness.waiting import wait_until
from harness.kubectl import containerd, get, logs, why
from harness.kubernetes_agent import IMAGE


@pytest.fixture(scope="module", name="image_tar")
def fixture_image_tar(tmp_path_factory):
    """The image as the cluster has it."""
    tar = tmp_path_factory.mktemp("image") / "ingero.tar"
    containerd("images", "export", tar, IMAGE)
    return tar


def run_agent_image(cluster, name, *arguments):
    """(exit code, output) of the image in a pod that sees the host's processes and cgroups."""
    cluster.pod(name, [{
        "name": "ingero", "image": IMAGE, "imagePullPolicy": "Never", "args": list(arguments),
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "cgroup", "mountPath": "/sys/fs/cgroup", "readOnly": True}],
    }], hostPID=True, volumes=[{"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup"}}])

    def end():
        statuses = get("pod", name, cluster.namespace)["status"].get("containerStatuses", [{}])
        return statuses[0].get("state", {}).get("terminated")

    ended = wait_until(end, lambda: why(name, cluster.namespace), 60, interval=0.3)
    return ended["exitCode"], logs(name, cluster.namespace)


def test_the_node_is_ready_and_has_gpus(cluster):  # pylint: disable=unused-argument
    node = get("node", "node1")
    conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"


def test_the_image_runs_ingero_version_in_a_pod(cluster):
    code, output = run_agent_image(cluster, "version", "version")
    assert code == 0 and output.startswith("ingero "), (code, output)


def test_ingero_check_in_a_privileged_pod_says_that_the_agent_works(cluster):
    code, output = run_agent_image(cluster, "check", "check")
    print(output)
    assert code == 0, output
    assert "the agent works here" in output.splitlines()[-1], output


def test_the_image_is_small(image_tar):
    with tarfile.open(image_tar) as image:
        layers = json.load(image.extractfile("manifest.json"))[0]["Layers"]
        compressed = sum(len(gzip.compress(image.extractfile(layer).read(), 6))
                         for layer in layers)
    print(f"{compressed / 1e6:.1f} MB compressed")
    assert compressed < 60e6


def test_the_image_says_what_it_is(image_tar):
    with tarfile.open(image_tar) as image:
        manifest = json.load(image.extractfile("manifest.json"))[0]
        config = json.load(image.extractfile(manifest["Config"]))
    labels = config["config"]["Labels"]
    for name in ("title", "description", "source", "licenses", "version", "revision"):
        assert labels.get(f"org.opencontainers.image.{name}"), (name, labels)
    assert labels["org.opencontainers.image.revision"] != "unknown"
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/ingero"]
    # Nothing of the builder but the program came along.
    assert not [text for text in config["config"].get("Env", []) if not text.startswith("PATH=")]
