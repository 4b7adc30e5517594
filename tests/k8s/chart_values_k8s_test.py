# SPDX-License-Identifier: Apache-2.0
"""Values of the chart: each does what it says, and what is wrong is refused by name."""
import copy
import os

import yaml
from harness.chart import KNOWN, rendered, template, with_values
from harness.chart_values import BAD_VALUES, MATRIX
from harness.kubectl import REPOSITORY, kubectl, run
from harness.kubernetes_agent import CHART


def leaves(values, path=()):
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, path + (key,))
    else:
        yield path


def test_every_value_does_what_it_says(tmp_path):
    wrong = []
    for values, holds in MATRIX:
        objects = rendered(*KNOWN, *with_values(tmp_path, values))
        if not holds(objects):
            wrong.append(values)
    assert not wrong, wrong


def test_every_value_is_in_the_table():
    with open(os.path.join(CHART, "values.yaml"), encoding="utf-8") as file:
        values = yaml.safe_load(file)
    tried = {path[:n] for case, _ in MATRIX for path in leaves(case) for n in range(1, len(path) + 1)}
    # Keys of maps that are the user's.
    own = {("nodeSelector", "kubernetes.io/os"), ("dashboards", "labels", "grafana_dashboard")}
    missing = set(leaves(values)) - tried - own
    assert not missing, missing


def test_the_server_takes_what_is_rendered_with_every_value(cluster, tmp_path):
    kubectl("apply", "-f", os.path.join(REPOSITORY, "crds"), "--dry-run=server")
    served = run("kubectl", "get", "gtp", check=False).returncode == 0
    if not served:
        kubectl("create", "-f", os.path.join(REPOSITORY, "crds"))
        kubectl("wait", "--for=condition=Established", "-f", os.path.join(REPOSITORY, "crds"))
    wrong = []
    for values, _ in [({}, None)] + MATRIX:
        values = copy.deepcopy(values)
        # The namespace of dashboards need not be there, nor the operator's CRDs.
        values.get("dashboards", {}).pop("namespace", None)
        objects = [o for o in rendered(*KNOWN, *with_values(tmp_path, values),
                                       namespace=cluster.namespace)
                   if not o["apiVersion"].startswith("monitoring.coreos.com/")]
        done = run("kubectl", "apply", "--dry-run=server", "-f", "-",
                   text_input=yaml.safe_dump_all(objects), check=False)
        # CRDs of a release cannot be applied without a remark, which is no error.
        if done.returncode != 0 or "unknown field" in done.stderr:
            wrong.append((values, done.stderr))
    assert not wrong, wrong


def test_bad_values_are_refused_and_named(tmp_path):
    wrong = []
    for values, expected in BAD_VALUES:
        done = template(*with_values(tmp_path, values), check=False)
        path = "'/" + expected.replace(".", "/")
        if done.returncode == 0 or not (expected in done.stderr or path in done.stderr):
            wrong.append((values, done.stderr))
    assert not wrong, wrong
