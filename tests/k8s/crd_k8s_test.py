# SPDX-License-Identifier: Apache-2.0
"""What the API server takes and refuses of policies and reports, and what kubectl shows of them."""
import json
import os
import re

import pytest
import yaml
from harness.kubectl import REPOSITORY, kubectl, run

CRDS = os.path.join(REPOSITORY, "crds")
POLICY, NODE = "gputracepolicies.ingero.io", "gputracenodes.ingero.io"


@pytest.fixture(autouse=True)
def crds(cluster):  # pylint: disable=unused-argument
    """The CRDs of this tree. They stay: deleting one deletes what other tests made."""
    # Not `kubectl apply`: they may be those of a release, whose marks stay.
    have = run("kubectl", "get", "crd", POLICY, NODE, check=False).returncode == 0
    if not have:
        kubectl("create", "-f", CRDS)
    kubectl("wait", "--for=condition=Established", f"crd/{POLICY}", f"crd/{NODE}", "--timeout=30s")


def policy(spec, name="schema-test"):
    return json.dumps({"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTracePolicy",
                       "metadata": {"name": name}, **({} if spec is None else {"spec": spec})})


def server_says(spec):
    """The object with its defaults, or the message of the refusal."""
    done = run("kubectl", "create", "--dry-run=server", "-o", "json", "-f", "-",
               text_input=policy(spec), check=False)
    return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr)


EXAMPLE = {
    "namespaceSelector": {"matchLabels": {"team": "research"}},
    "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["train"]}]},
    "nodeSelector": {"matchLabels": {"pool": "h100"}},
    "containers": {"include": ["*"], "exclude": ["istio-proxy"]},
    "probes": {"nccl": {"enabled": True, "functions": ["*"]}, "cudaMemcpy": {"enabled": True}},
    "slowCallThreshold": "50ms",
    "labels": {"podLabels": ["app", "job-name"], "podAnnotations": []},
    "limits": {"maxSeries": 5000},
}

DEFAULTS = {
    "containers": {"include": ["*"], "exclude": []},
    "probes": {"nccl": {"enabled": True, "functions": ["*"]}, "cudaMemcpy": {"enabled": True}},
    "labels": {"podLabels": [], "podAnnotations": []},
    "limits": {},
}


def expression(**more):
    return {"podSelector": {"matchExpressions": [{"key": "app", **more}]}}


def threshold(text):
    return {"slowCallThreshold": text}


NEEDS_VALUES = "matchExpressions[0].values: Invalid value: \"object\": " \
               "operators In and NotIn need at least one value"
TAKES_NO_VALUES = "operators Exists and DoesNotExist take no values"
DURATION = "spec.slowCallThreshold: Invalid value: \"string\": " \
           "must be a duration from 1us to 1h, such as 50ms or 1m30s"
FUNCTION = "spec.probes.nccl.functions[0]: Invalid value: \"string\": " \
           "must name an NCCL function such as ncclAllReduce or ncclAll*"

BAD = [
    (expression(operator="In"), NEEDS_VALUES),
    (expression(operator="NotIn", values=[]), NEEDS_VALUES),
    (expression(operator="Exists", values=["x"]), TAKES_NO_VALUES),
    (expression(operator="DoesNotExist", values=["x"]), TAKES_NO_VALUES),
    (expression(operator="Equals", values=["x"]),
     'Unsupported value: "Equals": supported values: "In", "NotIn", "Exists", "DoesNotExist"'),
    ({"podSelector": {"matchExpressions": [{"operator": "Exists"}]}}, "[0].key: Required value"),
    ({"namespaceSelector": {"matchLabels": {"team": 3}}}, "must be of type string"),
    *[({selector: {"matchLabels": {key: "x"}}},
       f"spec.{selector}.matchLabels: Invalid value: \"object\": must have keys of labels only, such as app")
      for selector in ("namespaceSelector", "podSelector", "nodeSelector")
      for key in ("a b", "-a", "", "A/b", "/b", "x" * 64, "a/")],
    ({"podSelector": {"matchLabels": {"app": "a b"}}},
     "must be the value of a label, such as train"),
    ({"podSelector": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}},
     "matchExpressions[0].key: Invalid value: \"string\": must be the key of a label"),
    (expression(operator="In", values=["ok", "not ok"]),
     "matchExpressions[0].values[1]: Invalid value: \"string\": must be the value of a label"),
    ({"nodeSelector": {"matchLabels": {f"key{i}": "x" for i in range(33)}}}, "at most 32"),
    (threshold("fast"), DURATION),
    (threshold("50"), DURATION),
    (threshold("0s"), DURATION),
    (threshold("-1s"), DURATION),
    (threshold("999ns"), DURATION),
    (threshold("61m"), DURATION),
    (threshold("9999h9999h9999h9999h"), DURATION),
    (threshold("999999999999999999h"), DURATION),
    (threshold(50), "spec.slowCallThreshold in body must be of type string"),
    ({"containers": {"include": []}}, "spec.containers.include in body should have at least 1 items"),
    ({"containers": {"include": ["A b"]}},
     "must be a container's name, where * and ? may stand for characters"),
    ({"containers": {"exclude": ["a", "a"]}}, 'spec.containers.exclude[1]: Duplicate value: "a"'),
    ({"containers": {"exclude": [f"c{i}" for i in range(65)]}}, "must have at most 64 items"),
    ({"probes": {"nccl": {"functions": ["AllReduce"]}}}, FUNCTION),
    ({"probes": {"nccl": {"functions": ["ncclAll Reduce"]}}}, FUNCTION),
    ({"probes": {"nccl": {"enabled": "yes"}}}, "must be of type boolean"),
    ({"probes": {"cuda": {"enabled": True}}}, 'unknown field "spec.probes.cuda"'),
    ({"labels": {"podLabels": ["a b"]}}, "must be the key of a label, such as app or "),
    ({"labels": {"podAnnotations": ["/x"]}}, "must be the key of an annotation, such as "),
    ({"labels": {"podLabels": [f"key{i}" for i in range(17)]}}, "must have at most 16 items"),
    ({"recording": {"name": "a b"}}, "must be letters, digits, -, _ and ., such as run-2"),
    ({"recording": {"duration": "169h"}}, "spec.recording.duration: Invalid value"),
    ({"recording": {"maxSize": "1Ki"}}, "must be a size such as 512Mi or 2Gi, at least 10Mi"),
    ({"recording": {"maxSize": "20MB"}}, "must be a size such as 512Mi or 2Gi, at least 10Mi"),
    ({"recording": {"files": 0}}, "should be greater than or equal to 1"),
    ({"recording": {"files": 65}}, "should be less than or equal to 64"),
    ({"limits": {"maxSeries": 0}}, "should be greater than or equal to 1"),
    ({"limits": {"maxSeries": 1000001}}, "should be less than or equal to 1000000"),
    ({"limits": {"maxSeries": "5000"}}, "must be of type integer"),
]

GOOD = [
    None,
    {},
    EXAMPLE,
    threshold("1us"),
    threshold("1h"),
    threshold("1.5ms"),
    threshold("1m30s"),
    expression(operator="Exists"),
    expression(operator="DoesNotExist", values=[]),
    expression(operator="NotIn", values=["a", ""]),
    {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "train", "A_b.c-d": "", "x": "A_1.b-c"}}},
    {"nodeSelector": {"matchLabels": {"a" * 63: "x" * 63, "x" * 253 + "/" + "a" * 63: "y"}}},
    {"probes": {"nccl": {"functions": ["ncclAll*", "*Reduce", "nccl?end"]}}},
    {"probes": {"nccl": {"enabled": False}, "cudaMemcpy": {"enabled": False}}},
    {"labels": {"podLabels": ["app.kubernetes.io/name", "a"], "podAnnotations": ["example.com/x_y.z"]}},
    {"limits": {"maxSeries": 1000000}},
    {"recording": {}},
    {"recording": {"name": "run-2", "duration": "1h30m", "maxSize": "10Mi", "files": 64}},
    {"recording": {"maxSize": "10MiB"}},
    {"recording": {"maxSize": "2GiB"}},
]


def test_bad_policies_are_refused_with_a_readable_message():
    wrong = []
    for spec, expected in BAD:
        made, message = server_says(spec)
        print(spec, "->", message.strip())
        if made or expected not in message or "evaluation error" in message:
            wrong.append((spec, message))
    assert not wrong, wrong


def test_good_policies_are_taken():
    refused = [(spec, message) for spec in GOOD if (message := server_says(spec)[1])]
    assert not refused, refused


def test_defaults_are_filled_in_as_documented():
    for spec in (None, {}):
        assert server_says(spec)[0]["spec"] == DEFAULTS
    assert server_says(EXAMPLE)[0]["spec"] == EXAMPLE
    made = server_says({"probes": {"nccl": {"enabled": False}}})[0]["spec"]
    assert made["probes"] == {"nccl": {"enabled": False, "functions": ["*"]},
                              "cudaMemcpy": {"enabled": True}}


def test_the_examples_and_the_pages_hold_policies_that_the_server_takes():
    folder = os.path.join(REPOSITORY, "manifests", "examples")
    done = kubectl("apply", "--dry-run=server", "-f", folder)
    assert done.count("(server dry run)") == len(os.listdir(folder)), done
    page = open(os.path.join(REPOSITORY, "docs", "policy.md"), encoding="utf-8").read()
    blocks = [b for b in re.findall(r"```yaml\n(.*?)```", page, re.S) if "GpuTracePolicy" in b]
    assert blocks
    for block in blocks:
        kubectl("apply", "--dry-run=server", "-f", "-", text_input=block)


def fields(schema, path=""):
    """(path, schema) of every field below."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
        if "items" in field:
            yield from fields(field["items"], f"{path}.{name}[]")


def test_every_field_is_described_with_an_example():
    poor = []
    for name in sorted(os.listdir(CRDS)):
        with open(os.path.join(CRDS, name), encoding="utf-8") as file:
            schema = yaml.safe_load(file)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            for path, field in fields(schema["properties"].get(part, {}), part):
                text = field.get("description", "")
                if not text or ("properties" not in field and "items" not in field
                                and "Example: " not in text):
                    poor.append((name, path))
    assert not poor, poor


def test_kubectl_explains_a_policy():
    tree = kubectl("explain", "gtp.spec", "--recursive")
    for line in ("namespaceSelector\t<Object>", "matchLabels\t<map[string]string>",
                 "enum: In, NotIn, Exists, DoesNotExist", "functions\t<[]string>",
                 "slowCallThreshold\t<string>", "maxSeries\t<integer>"):
        assert line in tree, (line, tree)
    assert "Example: 50ms" in kubectl("explain", "gtp.spec.slowCallThreshold")
    assert "written by the agents only" in \
        " ".join(kubectl("explain", "gtp.status").lower().split())
    assert "lostEvents" in kubectl("explain", "gtn.status")


NODE_STATUS = {
    "observedTime": "2026-11-21T12:00:00Z", "agentVersion": "0.1.0", "agentPod": "ingero-x7k2p",
    "kernel": "6.8.0-45-generic", "architecture": "x86_64", "method": "session",
    "cgroupHierarchy": "v2", "probes": 42, "files": 3, "pods": 8, "processes": 64, "series": 3150,
    "calls": 2 ** 60, "lostEvents": 17, "losses": [{"reason": "calls_map_full", "count": 17}],
    "configGeneration": "48213", "configHash": "9f86d081884c7d65", "configError": "",
    "policies": [{"name": "training", "observedGeneration": 3, "pods": 8, "processes": 64,
                  "ready": True, "reason": "AllTraced", "message": "8 pods are traced"}],
    "untraced": [{"namespace": "research", "pod": "train-0", "container": "train",
                  "reason": "NoLibraryMapped", "message": "nothing is mapped", "policy": "training"}],
    "recording": 1,
    "recordings": [{"namespace": "research", "pod": "train-0", "policies": ["training"],
                    "state": "Recording", "message": "", "file": "/var/lib/ingero/recordings/a.db",
                    "files": 4, "bytes": 2 ** 50, "calls": 2 ** 60, "lost": 3,
                    "startedAt": "2026-11-21T17:00:42Z", "endsAt": "2026-11-21T17:10:42Z"},
                   {"pod": "train-1", "state": "Refused", "message": "the budget is 0"}],
    "conditions": [{"type": "Ready", "status": "True", "reason": "Tracing", "message": "",
                    "observedGeneration": 0, "lastTransitionTime": "2026-11-21T12:00:00Z"}],
}
POLICY_STATUS = {
    "observedGeneration": 1, "nodes": 3, "pods": 24, "processes": 192, "ready": "3/3",
    "untraced": [{"node": "node1", "namespace": "research", "pod": "train-0", "container": "train",
                  "reason": "NoLibraryMapped", "message": "nothing is mapped"}],
    "conditions": [{"type": "Ready", "status": "False", "reason": "SomeUntraced", "message": "one",
                    "observedGeneration": 1, "lastTransitionTime": "2026-11-21T12:00:00Z"}],
}


def test_statuses_are_kept_whole_and_shown_in_columns():
    name = "schema-columns-test"
    report = {"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTraceNode", "metadata": {"name": name}}
    try:
        kubectl("apply", "-f", "-", text_input=policy({"nodeSelector": {"matchLabels": {"no": "node"}}},
                                                      name))
        kubectl("apply", "-f", "-", text_input=json.dumps(report))
        for kind, status in (("gtp", POLICY_STATUS), ("gtn", NODE_STATUS)):
            kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p",
                    json.dumps({"status": status}))
        assert json.loads(kubectl("get", "gtn", name, "-o", "json"))["status"] == NODE_STATUS
        head, row = kubectl("get", "gtn", name).splitlines()
        assert head.split() == ["NAME", "KERNEL", "METHOD", "PROBES", "PODS", "LOST", "CONFIG", "READY",
                                "AGE"]
        assert row.split()[:-1] == [name, "6.8.0-45-generic", "session", "42", "8", "17", "48213", "True"]
        head, row = kubectl("get", "gtn", name, "-o", "wide").splitlines()
        wide = dict(zip(head.split()[9:], row.split()[9:]))
        assert (wide["REASON"], wide["VERSION"], wide["RECORDING"]) == ("Tracing", "0.1.0", "1"), wide
        head, row = kubectl("get", "gtp", name, "-o", "wide").splitlines()
        assert head.split() == ["NAME", "NODES", "PODS", "PROCESSES", "READY", "AGE", "REASON"]
        # The elected agent may fold its own numbers in meanwhile, where one runs.
        assert len(row.split()) == 7, row
    finally:
        run("kubectl", "delete", "gtp,gtn", name, "--ignore-not-found", check=False)


def test_lists_of_a_status_are_bounded():
    name = "schema-bounds-test"
    report = {"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTraceNode", "metadata": {"name": name}}
    try:
        kubectl("apply", "-f", "-", text_input=json.dumps(report))
        for field, most, entry in (("untraced", 64, {"pod": "p", "reason": "R"}),
                                   ("policies", 512, {"name": "p"}),
                                   ("recordings", 32, {"pod": "p", "state": "Ended"}),
                                   ("losses", 64, {"reason": "r", "count": 1})):
            rows = [{k: f"{v}{i}" if k in ("name", "reason") else v for k, v in entry.items()}
                    for i in range(most + 1)]
            for count, taken in ((most, True), (most + 1, False)):
                done = run("kubectl", "patch", "gtn", name, "--subresource=status", "--type=merge",
                           "-p", json.dumps({"status": {field: rows[:count]}}), check=False)
                assert (done.returncode == 0) == taken, (field, count, done.stderr)
    finally:
        run("kubectl", "delete", "gtn", name, "--ignore-not-found", check=False)
