# SPDX-License-Identifier: Apache-2.0
"""The chart before it is installed: what it renders, and what it refuses."""
import copy
import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from harness.kubectl import REPOSITORY, kubectl, run
from harness.kubernetes_agent import CHART

OPERATOR = ["--api-versions", "monitoring.coreos.com/v1"]
KNOWN = ["--api-versions", "ingero.io/v1alpha1/GpuTracePolicy"]


def template(*options, namespace="ingero", chart=CHART, check=True):
    # Helm's own idea of the version is not that of a cluster, and depends on how Helm was built.
    return run("helm", "template", "ingero", chart, "-n", namespace, "--kube-version", "1.30.0",
               *options, check=check)


def rendered(*options, **more):
    return [o for o in yaml.safe_load_all(template(*options, **more).stdout) if o]


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


# Every value, changed: (values, what must hold of the objects).
MATRIX = [
    ({"nameOverride": "probe"}, lambda o: one(o, "DaemonSet")["metadata"]["name"] == "ingero-probe"),
    ({"fullnameOverride": "eyes"}, lambda o: "--config-map=eyes-config" in container_of(o)["args"]),
    ({"commonLabels": {"team": "infra"}},
     lambda o: all(x["metadata"]["labels"]["team"] == "infra" for x in o)),
    ({"image": {"repository": "registry:5000/a/b", "tag": "1.2", "pullPolicy": "Never"}},
     lambda o: (container_of(o)["image"], container_of(o)["imagePullPolicy"])
     == ("registry:5000/a/b:1.2", "Never")),
    ({"image": {"digest": "sha256:" + "0" * 64}},
     lambda o: container_of(o)["image"].endswith("@sha256:" + "0" * 64)),
    ({"imagePullSecrets": [{"name": "pull"}]},
     lambda o: pod_of(o)["imagePullSecrets"] == [{"name": "pull"}]),
    ({"config": {"log_level": "debug", "max_series": 1000000, "probes": {"cuda": False}}},
     lambda o: yaml.safe_load(one(o, "ConfigMap")["data"]["config.yaml"])
     == {"log_level": "debug", "max_series": 1000000, "probes": {"cuda": False}}),
    ({"config": {"pod_labels": ["app", "job-*"], "duration_buckets": ["1ms", "1.024ms"]}},
     lambda o: yaml.safe_load(one(o, "ConfigMap")["data"]["config.yaml"])["pod_labels"]
     == ["app", "job-*"]),
    ({"port": 9191},
     lambda o: container_of(o)["ports"][0]["containerPort"] == 9191
     and yaml.safe_load(one(o, "ConfigMap")["data"]["config.yaml"]) == {"listen_address": ":9191"}),
    ({"port": 9191, "config": {"listen_address": "[::]:9191"}},
     lambda o: '[::]:9191' in one(o, "ConfigMap")["data"]["config.yaml"]),
    ({"recordings": {"enabled": False}},
     lambda o: "recordings" not in json.dumps([pod_of(o)["volumes"], container_of(o)["volumeMounts"]])
     and settings_of(o) == {"recordings": {"budget": "0"}}),
    ({"recordings": {"enabled": False}, "config": {"recordings": {"keep_free_percent": 5}}},
     lambda o: settings_of(o) == {"recordings": {"keep_free_percent": 5, "budget": "0"}}),
    ({"recordings": {"hostPath": "/data/recordings"}, "config": {"recordings": {"budget": "64GiB"}}},
     lambda o: mounted(o, "recordings") == ("/data/recordings", "/data/recordings", "DirectoryOrCreate")
     and settings_of(o) == {"recordings": {"directory": "/data/recordings", "budget": "64GiB"}}),
    ({"recordings": {"hostPath": "/data"}, "config": {"recordings": {"directory": "/data/a/b"}}},
     lambda o: mounted(o, "recordings") == ("/data", "/data", "DirectoryOrCreate")
     and settings_of(o) == {"recordings": {"directory": "/data/a/b"}}),
    ({"extraArgs": ["--attach-method=perf"]},
     lambda o: container_of(o)["args"][-1] == "--attach-method=perf"),
    ({"extraEnv": [{"name": "TZ", "value": "UTC"}]},
     lambda o: container_of(o)["env"][-1] == {"name": "TZ", "value": "UTC"}),
    ({"gpuNodesOnly": False}, lambda o: "affinity" not in pod_of(o)),
    ({"nodeSelector": {"pool": "h100"}}, lambda o: pod_of(o)["nodeSelector"]["pool"] == "h100"),
    ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
     lambda o: set(pod_of(o)["affinity"]) == {"nodeAffinity", "podAntiAffinity"}),
    ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
     lambda o: list(pod_of(o)["affinity"]["nodeAffinity"])
     == ["preferredDuringSchedulingIgnoredDuringExecution"]),
    ({"tolerations": []}, lambda o: "tolerations" not in pod_of(o)),
    ({"hostNetwork": True},
     lambda o: pod_of(o)["hostNetwork"] and pod_of(o)["dnsPolicy"] == "ClusterFirstWithHostNet"),
    ({"networkPolicy": {"enabled": True}},
     lambda o: one(o, "NetworkPolicy")["spec"] == {
         "podSelector": one(o, "DaemonSet")["spec"]["selector"], "policyTypes": ["Ingress"],
         "ingress": [{"from": [{"namespaceSelector": {}}],
                      "ports": [{"port": "metrics", "protocol": "TCP"}]}]}),
    ({"networkPolicy": {"enabled": True, "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}},
     lambda o: one(o, "NetworkPolicy")["spec"]["ingress"][0]["from"]
     == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
    ({"networkPolicy": {"enabled": True}, "hostNetwork": True},
     lambda o: not any(x["kind"] == "NetworkPolicy" for x in o)),
    ({"dnsPolicy": "Default"}, lambda o: pod_of(o)["dnsPolicy"] == "Default"),
    ({"securityContext": {"privileged": False}},
     lambda o: container_of(o)["securityContext"] == {
         "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
         "runAsUser": 0, "runAsGroup": 0,
         "capabilities": {"drop": ["ALL"], "add": ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH",
                                                   "CHECKPOINT_RESTORE", "LEASE"]},
         "appArmorProfile": {"type": "Unconfined"}, "seccompProfile": {"type": "RuntimeDefault"}}),
    ({"securityContext": {"privileged": False, "capabilities": ["BPF", "SYS_ADMIN"]}},
     lambda o: "allowPrivilegeEscalation" not in container_of(o)["securityContext"]),
    ({"securityContext": {"privileged": False, "appArmorProfile": {"type": "RuntimeDefault"},
                          "seccompProfile": {"type": "Unconfined"}}},
     lambda o: container_of(o)["securityContext"]["seccompProfile"] == {"type": "Unconfined"}),
    ({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
     lambda o: container_of(o)["resources"]["limits"] == {"memory": "2Gi"}),
    ({"priorityClassName": ""}, lambda o: "priorityClassName" not in pod_of(o)),
    ({"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}},
     lambda o: one(o, "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}),
    ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}},
     lambda o: one(o, "DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}),
    ({"terminationGracePeriodSeconds": 60},
     lambda o: pod_of(o)["terminationGracePeriodSeconds"] == 60),
    ({"livenessProbe": {"initialDelaySeconds": 1, "periodSeconds": 2, "timeoutSeconds": 3,
                        "failureThreshold": 4}},
     lambda o: container_of(o)["livenessProbe"]["failureThreshold"] == 4),
    ({"readinessProbe": {"periodSeconds": 2, "timeoutSeconds": 1, "failureThreshold": 4}},
     lambda o: container_of(o)["readinessProbe"]["failureThreshold"] == 4),
    ({"podAnnotations": {"a": "b"}},
     lambda o: one(o, "DaemonSet")["spec"]["template"]["metadata"]["annotations"] == {"a": "b"}),
    ({"podLabels": {"a": "b", "app.kubernetes.io/name": "other"}},
     lambda o: one(o, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
     == {"a": "b", "app.kubernetes.io/name": "ingero", "app.kubernetes.io/instance": "ingero"}),
    ({"serviceAccount": {"name": "eyes", "annotations": {"a": "b"}}},
     lambda o: one(o, "ServiceAccount", "eyes")["metadata"]["annotations"] == {"a": "b"}
     and pod_of(o)["serviceAccountName"] == "eyes"),
    ({"serviceAccount": {"create": False}}, lambda o: pod_of(o)["serviceAccountName"] == "default"),
    ({"rbac": {"create": False}}, lambda o: not any("Role" in x["kind"] for x in o)),
    ({"service": {"enabled": False}}, lambda o: not any(x["kind"] == "Service" for x in o)),
    ({"service": {"headless": True, "annotations": {"a": "b"}, "labels": {"c": "d"}}},
     lambda o: one(o, "Service")["spec"]["clusterIP"] == "None"),
    ({"crds": {"install": False}},
     lambda o: not any(x["kind"] == "CustomResourceDefinition" for x in o)),
    ({"crds": {"keep": False}}, lambda o: "helm.sh/resource-policy" not in json.dumps(o)),
    ({"defaultPolicy": {"enabled": False}}, lambda o: not any(x["kind"] == "GpuTracePolicy" for x in o)),
    ({"defaultPolicy": {"spec": {"limits": {"maxSeries": 100}, "slowCallThreshold": "5ms"}}},
     lambda o: one(o, "GpuTracePolicy")["spec"]["limits"] == {"maxSeries": 100}),
    *[({name: {"enabled": True, "force": True, "interval": "30s", "scrapeTimeout": "5s",
               "labels": {"release": "prometheus"}, "annotations": {"a": "b"},
               "relabelings": [{"action": "labeldrop", "regex": "x"}],
               "metricRelabelings": [{"action": "drop", "regex": "y", "sourceLabels": ["z"]}]}},
       lambda o, kind=kind, ends=ends: one(o, kind)["spec"][ends][0] == {
           "port": "metrics", "path": "/metrics", "honorLabels": True, "interval": "30s",
           "scrapeTimeout": "5s",
           "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"],
                            "targetLabel": "node"}, {"action": "labeldrop", "regex": "x"}],
           "metricRelabelings": [{"action": "drop", "regex": "y", "sourceLabels": ["z"]}]})
      for name, kind, ends in (("podMonitor", "PodMonitor", "podMetricsEndpoints"),
                               ("serviceMonitor", "ServiceMonitor", "endpoints"))],
    ({"prometheusRule": {"enabled": True, "force": True, "labels": {"a": "b"},
                         "annotations": {"a": "b"}, "disabled": ["NcclErrors"]}},
     lambda o: "NcclErrors" not in json.dumps(one(o, "PrometheusRule"))
     and "IngeroAgentDown" in json.dumps(one(o, "PrometheusRule"))),
    ({"dashboards": {"enabled": True, "namespace": "grafana", "labels": {"x": "why"},
                     "annotations": {"folder": "GPU"}}},
     lambda o: all(x["metadata"]["labels"].items() >= {"x": "why", "grafana_dashboard": "1"}.items()
                   for x in o if "-dashboard-" in x["metadata"]["name"])),
]


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


# (values, what the message has: a path, which Helm writes with slashes, or a text).
BAD_VALUES = [
    ({"nonsense": 1}, "nonsense"),
    ({"image": {"pullPolicy": "Sometimes"}}, "image.pullPolicy"),
    ({"image": {"repository": ""}}, "image.repository"),
    ({"image": {"tag": 1.5}}, "image.tag"),
    ({"image": {"digest": "latest"}}, "image.digest"),
    ({"image": {"name": "x"}}, "name"),
    ({"port": 0}, "port"),
    ({"port": "9090"}, "port"),
    ({"port": 9191, "config": {"listen_address": ":9090"}}, "config.listen_address is :9090, but port is"),
    ({"config": {"log_level": "loud"}}, "config.log_level"),
    ({"config": {"log_levle": "debug"}}, "log_levle"),
    ({"config": {"scan_interval": 10}}, "config.scan_interval"),
    ({"config": {"scan_interval": "10 seconds"}}, "config.scan_interval"),
    ({"config": {"max_series": 1}}, "config.max_series"),
    ({"config": {"pod_labels": [1]}}, "config.pod_labels"),
    ({"config": {"probes": {"nccl": "on"}}}, "config.probes.nccl"),
    ({"config": "log_level: debug"}, "config"),
    ({"config": {"recordings": {"budget": "a lot"}}}, "config.recordings.budget"),
    ({"config": {"recordings": {"directory": "here"}}}, "config.recordings.directory"),
    ({"config": {"recordings": {"directory": "/var/lib/ingero/recordings-too"}}},
     "config.recordings.directory is /var/lib/ingero/recordings-too, which is not in recordings.hostPath"),
    ({"recordings": {"enabled": False}, "config": {"recordings": {"budget": "4GiB"}}},
     "config.recordings.budget is 4GiB, but recordings.enabled is false"),
    ({"recordings": {"hostPath": "recordings"}}, "recordings.hostPath"),
    ({"recordings": {"hostPath": "/var/../etc"}}, "recordings.hostPath"),
    ({"recordings": {"enabled": "yes"}}, "recordings.enabled"),
    ({"recordings": {"budget": "4GiB"}}, "budget"),
    ({"gpuNodesOnly": "yes"}, "gpuNodesOnly"),
    ({"hostNetwork": "true"}, "hostNetwork"),
    ({"networkPolicy": {"enabled": True, "from": ["prometheus"]}}, "networkPolicy.from.0"),
    ({"tolerations": [{"operator": "Is"}]}, "tolerations.0.operator"),
    ({"tolerations": {"key": "x"}}, "tolerations"),
    ({"affinity": {"nodes": {}}}, "nodes"),
    ({"securityContext": {"capabilities": ["CAP_BPF"]}}, "securityContext.capabilities.0"),
    ({"securityContext": {"runAsUser": 1000}}, "runAsUser"),
    ({"securityContext": {"seccompProfile": {"type": "none"}}}, "securityContext.seccompProfile.type"),
    ({"resources": {"limits": {"memory": "lots"}}}, "resources.limits.memory"),
    ({"resources": {"limit": {"memory": "1Gi"}}}, "limit"),
    ({"updateStrategy": {"type": "Recreate"}}, "updateStrategy"),
    ({"updateStrategy": {"rollingUpdate": {"maxUnavailable": "half"}}}, "updateStrategy"),
    ({"terminationGracePeriodSeconds": -1}, "terminationGracePeriodSeconds"),
    ({"livenessProbe": {"periodSeconds": 0}}, "livenessProbe.periodSeconds"),
    ({"podLabels": {"a": 1}}, "podLabels.a"),
    ({"podLabels": {"a b": "c"}}, "'a b' does not match"),
    ({"commonLabels": {"a": "b c"}}, "commonLabels.a"),
    ({"extraArgs": ["verbose"]}, "extraArgs.0"),
    ({"extraEnv": [{"value": "x"}]}, "extraEnv.0"),
    ({"serviceAccount": {"name": "Ingero"}}, "serviceAccount.name"),
    ({"service": {"type": "NodePort"}}, "type"),
    ({"podMonitor": {"interval": "often"}}, "podMonitor.interval"),
    ({"serviceMonitor": {"enabled": True, "force": True}, "service": {"enabled": False}},
     "serviceMonitor.enabled needs service.enabled"),
    ({"prometheusRule": {"rules": []}}, "rules"),
    ({"dashboards": {"enabled": "no"}}, "dashboards.enabled"),
    ({"defaultPolicy": {"spec": {"probe": {}}}}, "probe"),
]


def test_bad_values_are_refused_and_named(tmp_path):
    wrong = []
    for values, expected in BAD_VALUES:
        done = template(*with_values(tmp_path, values), check=False)
        path = "'/" + expected.replace(".", "/")
        if done.returncode == 0 or not (expected in done.stderr or path in done.stderr):
            wrong.append((values, done.stderr))
    assert not wrong, wrong


def test_monitors_and_rules_come_only_where_the_operator_is(tmp_path):
    kinds = ["PodMonitor", "ServiceMonitor", "PrometheusRule"]
    values = with_values(tmp_path, {k[0].lower() + k[1:]: {"enabled": True} for k in kinds})
    assert not [o for o in rendered(*values) if o["kind"] in kinds]
    assert sorted(o["kind"] for o in rendered(*values, *OPERATOR) if o["kind"] in kinds) == sorted(kinds)


def test_the_apparmor_field_is_left_out_where_the_server_has_none(tmp_path):
    values = with_values(tmp_path, {"securityContext": {"privileged": False}})
    assert "appArmorProfile" not in container_of(rendered(*values, "--kube-version", "1.29.5"))[
        "securityContext"]
    assert "appArmorProfile" in container_of(rendered(*values))["securityContext"]


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
