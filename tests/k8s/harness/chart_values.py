# SPDX-License-Identifier: Apache-2.0
"""Values of the chart: what each does, and which are refused."""
import json

import yaml

from .chart import container_of, mounted, one, pod_of, settings_of

def node_labels_of(objects):
    """KEY=VALUES of each term by which nodes are chosen."""
    required = pod_of(objects)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [term["matchExpressions"][0] for term in required["nodeSelectorTerms"]]
    return [f"{term['key']}={','.join(term.get('values', []))}" for term in terms]


def rule_of(objects, alert):
    groups = one(objects, "PrometheusRule")["spec"]["groups"]
    return next(rule for group in groups for rule in group["rules"] if rule.get("alert") == alert)


# Every value, changed: (values, what must hold of the objects).
MATRIX = [
    ({"nameOverride": "probe"}, lambda o: one(o, "DaemonSet")["metadata"]["name"] == "ingero-probe"),
    ({"fullnameOverride": "eyes"}, lambda o: "--config-map=eyes-config" in container_of(o)["args"]),
    ({"namespaceOverride": "gpu"},
     lambda o: {x["metadata"]["namespace"] for x in o if "namespace" in x["metadata"]} == {"gpu"}
     and one(o, "ClusterRoleBinding")["subjects"][0]["namespace"] == "gpu"
     and one(o, "ClusterRole")["metadata"]["name"] == "ingero-gpu"),
    ({"commonLabels": {"team": "infra"}},
     lambda o: all(x["metadata"]["labels"]["team"] == "infra" for x in o)),
    ({"image": {"repository": "registry:5000/a/b", "tag": "1.2", "pullPolicy": "Never"}},
     lambda o: (container_of(o)["image"], container_of(o)["imagePullPolicy"])
     == ("registry:5000/a/b:1.2", "Never")),
    *[({"global": {"imageRegistry": "mirror:5000/x", "storageClass": "fast"},
        "image": {"repository": before, "tag": "1"}},
       lambda o, after=after: {container_of(o)["image"], one(o, "Pod")["spec"]["containers"][0]["image"]}
       == {f"mirror:5000/x/{after}:1"})
      for before, after in (("ghcr.io/ingero/ingero", "ingero/ingero"), ("localhost/a", "a"),
                            ("ingero", "ingero"), ("team/ingero", "team/ingero"))],
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
    ({"extraVolumes": [{"name": "more", "emptyDir": {}}],
      "extraVolumeMounts": [{"name": "more", "mountPath": "/more", "readOnly": True}]},
     lambda o: [v["name"] for v in pod_of(o)["volumes"]] == ["cgroup", "recordings", "more"]
     and container_of(o)["volumeMounts"][-1] == {"name": "more", "mountPath": "/more", "readOnly": True}),
    ({"gpuNodeLabels": ["nfd-nvidia", "nfd-amd"]},
     lambda o: node_labels_of(o) == [f"feature.node.kubernetes.io/pci-{device}.present=true" for device in (
         "10de", "0300_10de", "0302_10de", "1002", "0302_1002", "0380_1002", "1200_1002")]),
    ({"gpuNodeLabels": ["gpu-feature-discovery", "nfd-amd"]},
     lambda o: node_labels_of(o)[:3] == ["nvidia.com/gpu.present=true", "nvidia.com/gpu.count=",
                                         "feature.node.kubernetes.io/pci-1002.present=true"]),
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
    ({"podSecurityContext": {"seLinuxOptions": {"type": "spc_t"}, "supplementalGroups": [44]}},
     lambda o: container_of(o)["securityContext"]["privileged"] is True and pod_of(o)["securityContext"]
     == {"seLinuxOptions": {"type": "spc_t"}, "supplementalGroups": [44]}),
    ({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
     lambda o: container_of(o)["resources"]["limits"] == {"memory": "2Gi"}),
    ({"priorityClassName": ""}, lambda o: "priorityClassName" not in pod_of(o)),
    ({"priorityClassName": "", "resourceQuota": {"enabled": True}},
     lambda o: not any(x["kind"] == "ResourceQuota" for x in o)),
    ({"resourceQuota": {"enabled": True, "pods": 500}},
     lambda o: one(o, "ResourceQuota")["spec"] == {
         "hard": {"pods": "500"}, "scopeSelector": {"matchExpressions": [
             {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}}),
    ({"runtimeClassName": "runc"}, lambda o: pod_of(o)["runtimeClassName"] == "runc"),
    ({"minReadySeconds": 7}, lambda o: one(o, "DaemonSet")["spec"]["minReadySeconds"] == 7),
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
    ({"daemonSetAnnotations": {"a": "b"}},
     lambda o: one(o, "DaemonSet")["metadata"]["annotations"] == {"a": "b"}
     and "annotations" not in one(o, "DaemonSet")["spec"]["template"]["metadata"]),
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
    ({"rbac": {"aggregateRoles": True}},
     lambda o: sorted((role, rule["verbs"]) for x in o if x["kind"] == "ClusterRole"
                for role in ("view", "edit", "admin") for rule in x["rules"]
                if f"rbac.authorization.k8s.io/aggregate-to-{role}" in x["metadata"]["labels"])
     == [("edit", ["create", "update", "patch", "delete", "deletecollection"]),
         ("view", ["get", "list", "watch"])]),
    # It needs the API: chart_k8s_test.
    ({"admissionPolicy": {"enabled": True}},
     lambda o: not any("Admission" in x["kind"] for x in o)),
    ({"service": {"enabled": False}}, lambda o: not any(x["kind"] == "Service" for x in o)),
    ({"service": {"headless": True, "annotations": {"a": "b"}, "labels": {"c": "d"}}},
     lambda o: one(o, "Service")["spec"]["clusterIP"] == "None"),
    ({"service": {"internalTrafficPolicy": "Local"}},
     lambda o: one(o, "Service")["spec"]["internalTrafficPolicy"] == "Local"),
    ({"crds": {"install": False}},
     lambda o: not any(x["kind"] == "CustomResourceDefinition" for x in o)),
    ({"crds": {"keep": False}}, lambda o: "helm.sh/resource-policy" not in json.dumps(o)),
    ({"defaultPolicy": {"enabled": False}}, lambda o: not any(x["kind"] == "GpuTracePolicy" for x in o)),
    ({"defaultPolicy": {"spec": {
        "namespaceSelector": {"matchLabels": {"example.com/team": "research"}},
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["train"]}]},
        "nodeSelector": {}, "containers": {"include": ["*"], "exclude": ["istio-proxy"]},
        "probes": {"nccl": {"enabled": True, "functions": ["ncclAll*"]}, "cudaMemcpy": {"enabled": False}},
        "labels": {"podLabels": ["app"], "podAnnotations": []},
        "recording": {"name": "run-2", "duration": "1h30m", "maxSize": "2GiB", "files": 4}}}},
     lambda o: one(o, "GpuTracePolicy")["spec"]["recording"]["maxSize"] == "2GiB"),
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
    *[({name: {"enabled": True, "force": True, "namespace": "monitoring", "honorLabels": False,
               "interval": "", "scrapeTimeout": "", "sampleLimit": 20000, "labels": {"a": "b", "c": "d"},
               "additionalLabels": {"release": "prometheus", "c": "e"}}},
       lambda o, kind=kind, ends=ends: one(o, kind)["metadata"]["namespace"] == "monitoring"
       and {"a": "b", "c": "d", "release": "prometheus"}.items() <= one(o, kind)["metadata"]["labels"].items()
       and one(o, kind)["spec"]["sampleLimit"] == 20000
       and one(o, kind)["spec"]["namespaceSelector"] == {"matchNames": ["ingero"]}
       and {k: v for k, v in one(o, kind)["spec"][ends][0].items() if k != "relabelings"}
       == {"port": "metrics", "path": "/metrics", "honorLabels": False})
      for name, kind, ends in (("podMonitor", "PodMonitor", "podMetricsEndpoints"),
                               ("serviceMonitor", "ServiceMonitor", "endpoints"))],
    ({"prometheusRule": {
        "enabled": True, "force": True, "alerts": {"NcclErrors": {"severity": "page", "for": "90s"}},
        "runbookUrl": "https://runbooks.example/alerts.md",
        "additionalRules": [{"alert": "Idle", "expr": "x == 0", "for": "1h", "labels": {"severity": "info"},
                             "annotations": {"summary": "{{ $labels.pod }} idles"}}]}},
     lambda o: rule_of(o, "NcclErrors")["for"] == "90s"
     and rule_of(o, "NcclErrors")["labels"] == {"severity": "page"}
     and rule_of(o, "IngeroAgentDown")["labels"] == {"severity": "warning"}
     and rule_of(o, "IngeroAgentDown")["annotations"]["runbook_url"]
     == "https://runbooks.example/alerts.md#ingeroagentdown"
     and rule_of(o, "Idle")["annotations"] == {"summary": "{{ $labels.pod }} idles"}),
    ({"prometheusRule": {"enabled": True, "force": True, "labels": {"a": "b"},
                         "annotations": {"a": "b"}, "disabled": ["NcclErrors"]}},
     lambda o: "NcclErrors" not in json.dumps(one(o, "PrometheusRule"))
     and "IngeroAgentDown" in json.dumps(one(o, "PrometheusRule"))),
    ({"dashboards": {"enabled": True, "namespace": "grafana", "labels": {"x": "why"},
                     "annotations": {"folder": "GPU"}}},
     lambda o: all(x["metadata"]["labels"].items() >= {"x": "why", "grafana_dashboard": "1"}.items()
                   for x in o if "-dashboard-" in x["metadata"]["name"])),
    # What it asks, it asks a cluster: chart_cluster_k8s_test.
    ({"lookups": False}, lambda o: "At the last install" not in json.dumps(one(o, "Pod"))),
    ({"extraObjects": [{"apiVersion": "v1", "kind": "Secret",
                        "metadata": {"name": '{{ include "ingero.fullname" . }}-more'}},
                       "apiVersion: v1\nkind: Secret\nmetadata: {name: text-{{ .Release.Name }}}"]},
     lambda o: one(o, "Secret", "ingero-more") and one(o, "Secret", "text-ingero")),
]

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
    ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
     "each agent would be scraped twice"),
    ({"enabled": False}, "the value is for the condition of a parent chart"),
    ({"enabled": "yes"}, "enabled"),
    ({"prometheusRule": {"rules": []}}, "rules"),
    ({"prometheusRule": {"alerts": {"NcclError": {"for": "1m"}}}},
     "prometheusRule names the alert NcclError, which is none of the chart's; hint: they are IngeroAgentDown"),
    ({"prometheusRule": {"disabled": ["AgentDown"]}}, "names the alert AgentDown"),
    ({"prometheusRule": {"alerts": {"NcclErrors": {"expr": "1"}}}}, "'expr' not allowed"),
    ({"prometheusRule": {"alerts": {"NcclErrors": {"for": "soon"}}}}, "prometheusRule.alerts.NcclErrors.for"),
    ({"prometheusRule": {"runbookUrl": "docs/alerts.md"}}, "prometheusRule.runbookUrl"),
    ({"prometheusRule": {"additionalRules": [{"expr": "1"}]}}, "prometheusRule.additionalRules.0"),
    ({"podMonitor": {"sampleLimit": -1}}, "podMonitor.sampleLimit"),
    ({"serviceMonitor": {"namespace": "Prom"}}, "serviceMonitor.namespace"),
    ({"global": {"imageRegistry": "https://x"}}, "global.imageRegistry"),
    ({"namespaceOverride": "a.b"}, "namespaceOverride"),
    ({"gpuNodeLabels": []}, "gpuNodeLabels"),
    ({"gpuNodeLabels": ["amd"]}, "gpuNodeLabels.0"),
    ({"extraVolumes": [{"name": "cgroup", "emptyDir": {}}]}, "extraVolumes.0"),
    ({"extraVolumeMounts": [{"name": "x", "path": "/x"}]}, "'path' not allowed"),
    ({"podSecurityContext": {"runAsNonRoot": True}}, "'runAsNonRoot' not allowed"),
    ({"resourceQuota": {"pods": "many"}}, "resourceQuota.pods"),
    ({"runtimeClassName": "a b"}, "runtimeClassName"),
    ({"minReadySeconds": "10s"}, "minReadySeconds"),
    ({"service": {"internalTrafficPolicy": "Near"}}, "service.internalTrafficPolicy"),
    ({"rbac": {"aggregateRoles": "view"}}, "rbac.aggregateRoles"),
    ({"admissionPolicy": {"enforce": True}}, "'enforce' not allowed"),
    ({"daemonSetAnnotations": {"a": 1}}, "daemonSetAnnotations.a"),
    ({"lookups": "no"}, "lookups"),
    ({"extraObjects": {"kind": "Secret"}}, "extraObjects"),
    ({"dashboards": {"enabled": "no"}}, "dashboards.enabled"),
    ({"defaultPolicy": {"spec": {"probe": {}}}}, "'probe' not allowed"),
    ({"defaultPolicy": {"spec": {"probes": {"cuda": {"enabled": True}}}}},
     "at '/defaultPolicy/spec/probes': additional properties 'cuda' not allowed"),
    ({"defaultPolicy": {"spec": {"probes": {"nccl": {"enable": True}}}}}, "'enable' not allowed"),
    ({"defaultPolicy": {"spec": {"probes": {"nccl": {"enabled": "yes"}}}}},
     "defaultPolicy.spec.probes.nccl.enabled"),
    ({"defaultPolicy": {"spec": {"probes": {"nccl": {"functions": ["AllReduce"]}}}}},
     "defaultPolicy.spec.probes.nccl.functions.0"),
    ({"defaultPolicy": {"spec": {"slowCallThreshold": "fast"}}}, "defaultPolicy.spec.slowCallThreshold"),
    ({"defaultPolicy": {"spec": {"podSelector": {"matchLabels": {"a b": "c"}}}}}, "'a b' does not match"),
    ({"defaultPolicy": {"spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}},
     "matchExpressions/0/operator"),
    ({"defaultPolicy": {"spec": {"recording": {"maxSize": "20MB"}}}}, "defaultPolicy.spec.recording.maxSize"),
    ({"defaultPolicy": {"spec": {"limits": {"maxSeries": 0}}}}, "defaultPolicy.spec.limits.maxSeries"),
]
