# SPDX-License-Identifier: Apache-2.0
"""What the chart renders, as objects."""
import json

import yaml

from .kubectl import run
from .kubernetes_agent import CHART

OPERATOR = ["--api-versions", "monitoring.coreos.com/v1"]
KNOWN = ["--api-versions", "ingero.io/v1alpha1/GpuTracePolicy"]


def template(*options, namespace="ingero", chart=CHART, check=True):
    # Helm's own idea of the version is not that of a cluster, and depends on how Helm was built.
    return run("helm", "template", "ingero", chart, "-n", namespace, "--kube-version", "1.30.0",
               *options, check=check)


def loaded(text):
    """All objects in it; by libyaml, where PyYAML has it: the CRDs are long."""
    return [o for o in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if o]


def rendered(*options, **more):
    return loaded(template(*options, **more).stdout)


def one(objects, kind, name=None):
    found = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    assert len(found) == 1, (kind, name, [(o["kind"], o["metadata"]["name"]) for o in objects])
    return found[0]


def pod_of(objects):
    return one(objects, "DaemonSet")["spec"]["template"]["spec"]


def container_of(objects):
    return pod_of(objects)["containers"][0]


def settings_of(objects):
    return yaml.safe_load(one(objects, "ConfigMap")["data"]["config.yaml"])


def mounted(objects, name):
    """Where in the container, what of the node, and what it must be; writable."""
    mount = next(m for m in container_of(objects)["volumeMounts"] if m["name"] == name)
    volume = next(v for v in pod_of(objects)["volumes"] if v["name"] == name)["hostPath"]
    assert not mount.get("readOnly"), mount
    return mount["mountPath"], volume["path"], volume["type"]


def with_values(tmp_path, values):
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps(values))
    return ["-f", str(path)]
