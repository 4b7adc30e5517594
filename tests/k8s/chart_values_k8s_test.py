# SPDX-License-Identifier: Apache-2.0
"""Values of the chart: each does what it says, and what is wrong is refused by name."""
import copy
import json
import os
import shutil

import pytest
import yaml
from harness.chart import (KNOWN, OPERATOR, container_of, loaded, one, pod_of, rendered, template,
                           with_values)
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


def refusal(objects):
    """What the API server has against them; empty: nothing."""
    done = run("kubectl", "apply", "--dry-run=server", "-f", "-",
               text_input=yaml.safe_dump_all(objects), check=False)
    # CRDs of a release cannot be applied without a remark, which is no error.
    return done.stderr if done.returncode != 0 or "unknown field" in done.stderr else ""


def test_the_server_takes_what_is_rendered_with_every_value(cluster, tmp_path):
    kubectl("apply", "-f", os.path.join(REPOSITORY, "crds"), "--dry-run=server")
    served = run("kubectl", "get", "gtp", check=False).returncode == 0
    if not served:
        kubectl("create", "-f", os.path.join(REPOSITORY, "crds"))
        kubectl("wait", "--for=condition=Established", "-f", os.path.join(REPOSITORY, "crds"))
    cases, different = [], {}
    for values, _ in [({}, None)] + MATRIX:
        values = copy.deepcopy(values)
        # Other namespaces need not be there, nor the operator's CRDs.
        values.get("dashboards", {}).pop("namespace", None)
        values.pop("namespaceOverride", None)
        objects = [o for o in rendered(*KNOWN, *with_values(tmp_path, values),
                                       namespace=cluster.namespace)
                   if not o["apiVersion"].startswith("monitoring.coreos.com/")]
        cases.append((values, objects))
        different.update((json.dumps(o, sort_keys=True), o) for o in objects)
    print(f"{len(cases)} sets of values make {len(different)} different objects")
    text = refusal(different.values())  # at once: each case renders mostly the same
    if text:
        wrong = [(values, found) for values, objects in cases if (found := refusal(objects))]
        raise AssertionError(wrong or text)


def test_bad_values_are_refused_and_named(tmp_path):
    wrong = []
    for values, expected in BAD_VALUES:
        done = template(*with_values(tmp_path, values), check=False)
        path = "'/" + expected.replace(".", "/")
        if done.returncode == 0 or not (expected in done.stderr or path in done.stderr):
            wrong.append((values, done.stderr))
    assert not wrong, wrong


# Without them there is nothing to render: refused by name. A strategy without its type is none.
NEEDED = {"image", "image.repository", "image.pullPolicy", "port", "gpuNodeLabels", "recordings.hostPath",
          "resourceQuota.pods", "securityContext", "securityContext.privileged", "updateStrategy.type"}


def every_path(values, path=()):
    for key, value in values.items():
        yield path + (key,)
        if isinstance(value, dict):
            yield from every_path(value, path + (key,))


def nulls_in(thing, path=""):
    """Paths of nulls in an object."""
    if thing is None:
        yield path
    for key, value in thing.items() if isinstance(thing, dict) else enumerate(
            thing if isinstance(thing, list) else ()):
        yield from nulls_in(value, f"{path}.{key}")


def test_null_takes_any_value_away_or_is_refused_by_name(tmp_path):
    with open(os.path.join(CHART, "values.yaml"), encoding="utf-8") as file:
        values = yaml.safe_load(file)
    switched_on = {name: {"enabled": True} for name, value in values.items()
                   if isinstance(value, dict) and value.get("enabled") is False}
    del switched_on["serviceMonitor"]
    (tmp_path / "on.yaml").write_text(json.dumps(switched_on))
    wrong, refused = [], set()
    for path in every_path(values):
        nothing = None
        for key in reversed(path):
            nothing = {key: nothing}
        done = template(*KNOWN, *OPERATOR, "-f", tmp_path / "on.yaml", *with_values(tmp_path, nothing),
                        check=False)
        if done.returncode != 0:
            assert "missing property" in done.stderr and f"'{path[-1]}'" in done.stderr, done.stderr
            refused.add(".".join(path))
            continue
        wrong += [(path, made["kind"], found) for made in loaded(done.stdout)
                  if (found := list(nulls_in(made)))]
    assert not wrong and refused == NEEDED, (wrong, refused ^ NEEDED)


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe"])
def test_a_probe_that_is_null_is_left_out_and_an_empty_one_is_not(tmp_path, probe):
    assert probe in container_of(rendered(*with_values(tmp_path, {probe: {}})))
    container = container_of(rendered(*with_values(tmp_path, {probe: None})))
    assert probe not in container and "resources" in container
    assert {"livenessProbe", "readinessProbe"} - set(container) == {probe}


def test_a_grace_period_of_nothing_is_not_none(tmp_path):
    name = "terminationGracePeriodSeconds"
    assert pod_of(rendered(*with_values(tmp_path, {name: 0})))[name] == 0
    assert name not in pod_of(rendered(*with_values(tmp_path, {name: None})))


def umbrella(tmp_path, values):
    """A parent chart that has this one as a dependency under a condition."""
    chart = tmp_path / "umbrella"
    if not chart.exists():
        shutil.copytree(CHART, chart / "charts" / "ingero")
    (chart / "Chart.yaml").write_text(json.dumps(
        {"apiVersion": "v2", "name": "umbrella", "version": "0.1.0",
         "dependencies": [{"name": "ingero", "version": ">=0", "condition": "ingero.enabled"}]}))
    (chart / "values.yaml").write_text(json.dumps(values))
    return str(chart)


def test_a_parent_chart_turns_it_on_and_off_by_a_condition(tmp_path):
    shared = {"storageClass": "fast", "labels": {"of": "others"}, "imageRegistry": "mirror.example"}
    on = umbrella(tmp_path, {"global": shared, "ingero": {"enabled": True, "livenessProbe": None}})
    objects = rendered(chart=on)
    # The release is called ingero too.
    assert one(objects, "DaemonSet")["metadata"]["name"] == "ingero"
    assert "livenessProbe" not in container_of(objects)
    assert container_of(objects)["image"].startswith("mirror.example/ingero/ingero:")
    assert rendered("--set", "ingero.enabled=false", chart=on) == []
    assert one(rendered(chart=umbrella(tmp_path, {})), "DaemonSet")
