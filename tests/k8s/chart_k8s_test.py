# SPDX-License-Identifier: Apache-2.0
"""The chart before it is installed: what it renders, and what it refuses."""
import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from harness.chart import (KNOWN, OPERATOR, container_of, mounted, one, pod_of, rendered,
                           settings_of, with_values)
from harness.kubectl import REPOSITORY, kubectl, run
from harness.kubernetes_agent import CHART


def test_helm_lint_is_content():
    done = run("helm", "lint", "--strict", CHART)
    assert "0 chart(s) failed" in done.stdout and "WARNING" not in done.stdout, done.stdout


GPU = [{"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}]},
       {"matchExpressions": [{"key": "nvidia.com/gpu.count", "operator": "Exists"}]}]


def test_without_values_it_is_what_the_agent_expects():
    objects = rendered(*KNOWN)
    pod, container = pod_of(objects), container_of(objects)
    assert pod["hostPID"] is True and "hostNetwork" not in pod
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"] == GPU
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert container["args"] == ["agent", "--config-map=ingero-config", "--lease=ingero-leader",
                                 "--owner-cluster-role=ingero"]
    fields = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container["env"]}
    assert fields == {"NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name",
                      "POD_NAMESPACE": "metadata.namespace"}
    assert container["ports"] == [{"name": "metrics", "containerPort": 9090, "protocol": "TCP"}]
    assert container["securityContext"]["privileged"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert settings_of(objects) is None
    folder = "/var/lib/ingero/recordings"
    assert mounted(objects, "recordings") == (folder, folder, "DirectoryOrCreate")
    assert one(objects, "GpuTracePolicy")["spec"] == {}
    assert {o["kind"] for o in objects} == {
        "ServiceAccount", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
        "Service", "DaemonSet", "CustomResourceDefinition", "GpuTracePolicy", "Pod"}


def test_no_permission_is_wider_than_needed():
    objects = rendered(*KNOWN)
    rules = one(objects, "ClusterRole")["rules"] + one(objects, "Role")["rules"]
    text = json.dumps(rules)
    assert '"*"' not in text and "secrets" not in text
    # Reports of nodes that are gone, and nothing else.
    assert [rule["resources"] for rule in rules if "delete" in rule["verbs"]] == [["gputracenodes"]]
    for rule in one(objects, "Role")["rules"]:
        assert rule["verbs"] == ["create"] or rule["resourceNames"]


@pytest.mark.parametrize("monitor", ["PodMonitor", "ServiceMonitor"])
def test_monitors_and_rules_come_only_where_the_operator_is(tmp_path, monitor):
    kinds = sorted([monitor, "PrometheusRule"])
    values = with_values(tmp_path, {k[0].lower() + k[1:]: {"enabled": True} for k in kinds})
    assert not [o for o in rendered(*values) if o["kind"] in kinds]
    assert sorted(o["kind"] for o in rendered(*values, *OPERATOR) if o["kind"] in kinds) == kinds


def test_the_apparmor_field_is_left_out_where_the_server_has_none(tmp_path):
    values = with_values(tmp_path, {"securityContext": {"privileged": False}})
    assert "appArmorProfile" not in container_of(rendered(*values, "--kube-version", "1.29.5"))[
        "securityContext"]
    assert "appArmorProfile" in container_of(rendered(*values))["securityContext"]


ADMISSION = ["--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"]


def test_the_admission_policy_comes_only_where_the_server_has_the_api_and_the_node_in_tokens(tmp_path):
    values = with_values(tmp_path, {"admissionPolicy": {"enabled": True}})

    def kinds(*options):
        return sorted(o["kind"] for o in rendered(*values, *options) if "Admission" in o["kind"])

    assert kinds() == kinds("--kube-version", "1.29.5", *ADMISSION) == []
    assert kinds(*ADMISSION) == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]


@pytest.mark.parametrize("count", [0, 3])
def test_any_number_of_dashboards_is_rendered_as_it_is(tmp_path, count):
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("dashboards"))
    (chart / "dashboards").mkdir()
    board = {"title": "Pods", "templating": {"text": "{{ $labels.pod }} {{pod}} `x`"}, "big": 10 ** 12}
    for number in range(count):
        (chart / "dashboards" / f"data_Movement{number}.json").write_text(json.dumps(board, indent=2))
    objects = rendered("--set", "dashboards.enabled=true", chart=str(chart))
    boards = [o for o in objects if o["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    assert len(boards) == count
    for number, found in enumerate(boards):
        assert found["metadata"]["name"] == f"ingero-dashboard-data-movement{number}"
        assert json.loads(found["data"][f"data_Movement{number}.json"]) == board


def test_what_is_derived_is_what_the_script_makes():
    run(os.path.join(REPOSITORY, "hack", "render-manifests"), "--check")


def test_the_manifests_are_what_the_chart_installs(cluster):
    """As the API server sees both, without the marks of Helm."""
    if run("kubectl", "get", "gtp", check=False).returncode != 0:
        kubectl("create", "-f", os.path.join(REPOSITORY, "crds"))
        kubectl("wait", "--for=condition=Established", "-f", os.path.join(REPOSITORY, "crds"))
    with open(os.path.join(REPOSITORY, "manifests", "ingero.yaml"), encoding="utf-8") as file:
        plain = [o for o in yaml.safe_load_all(file) if o and o["kind"] != "Namespace"]
    chart = [o for o in rendered(*KNOWN, "--no-hooks", "--set", "crds.install=false")]

    def seen(objects):
        found = {}
        for made in objects:
            # Names that nobody has: the server must not answer with what is installed.
            text = json.dumps(made).replace('"namespace": "ingero"',
                                            f'"namespace": "{cluster.namespace}"')
            made = json.loads(text)
            key = (made["kind"], made["metadata"]["name"])
            made["metadata"]["name"] = "equality-test-" + made["metadata"]["name"]
            answer = json.loads(kubectl("create", "--dry-run=server", "-o", "json", "-f", "-",
                                        text_input=json.dumps(made)))
            for gone in ("uid", "creationTimestamp", "resourceVersion", "managedFields"):
                answer["metadata"].pop(gone, None)
            for gone in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
                answer["metadata"].get("labels", {}).pop(gone, None)
            if made["kind"] == "Service":
                answer["spec"].pop("clusterIP"), answer["spec"].pop("clusterIPs")
            found[key] = answer
        return found

    assert seen(plain) == seen(chart)


RULES = os.path.join(CHART, "files", "rules.yaml")


def test_promtool_takes_the_rules_and_each_fires_when_it_should():
    folder = os.path.dirname(os.path.abspath(__file__))
    for arguments in (["check", "rules", RULES], ["test", "rules", "chart_rules_test.yaml"]):
        done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_heading_in_the_page_that_its_runbook_url_leads_to():
    with open(os.path.join(REPOSITORY, "docs", "alerts.md"), encoding="utf-8") as file:
        headings = [line[3:] for line in file.read().splitlines() if line.startswith("## ")]
    with open(RULES, encoding="utf-8") as file:
        rules = [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]
    assert headings == [rule["alert"] for rule in rules]


def test_promtool_takes_the_rules_with_what_values_change(tmp_path):
    """The whole of an alert is the operator's to write, as Prometheus takes it."""
    values = with_values(tmp_path, {"prometheusRule": {
        "enabled": True, "force": True, "runbookUrl": "https://x.example/alerts.md",
        "alerts": {"IngeroAgentDown": {"severity": "critical", "for": "1h30m"}},
        "additionalRules": [{"record": "ingero:calls", "expr": "sum(gpu_nccl_collective_count)"},
                            {"alert": "Idle", "expr": "ingero:calls == 0", "keep_firing_for": "5m",
                             "annotations": {"summary": "{{ $labels.pod }} idles"}}]}})
    groups = one(rendered(*values), "PrometheusRule")["spec"]["groups"]
    assert [group["name"] for group in groups] == ["ingero", "ingero-additional"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    done = subprocess.run(["promtool", "check", "rules", str(tmp_path / "rules.yaml")], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_name_only_metrics_that_are_documented():
    with open(os.path.join(REPOSITORY, "docs", "metrics.md"), encoding="utf-8") as file:
        documented = set(re.findall(r"^\| `(\w+)` \|", file.read(), re.M))
    with open(RULES, encoding="utf-8") as file:
        rules = [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]
    used = {name for rule in rules for name in re.findall(r"\b(?:ingero|gpu)_\w+", rule["expr"])}
    assert used and used <= documented, used - documented
    with open(os.path.join(os.path.dirname(__file__), "chart_rules_test.yaml"), encoding="utf-8") as file:
        tried = {t["alertname"] for test in yaml.safe_load(file)["tests"]
                 for t in test["alert_rule_test"] if t.get("exp_alerts")}
    assert tried == {rule["alert"] for rule in rules}
