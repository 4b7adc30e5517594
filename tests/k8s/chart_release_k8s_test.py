# SPDX-License-Identifier: Apache-2.0
"""Releases of the chart on the API server: installed, upgraded, uninstalled, and what becomes of CRDs and
policies. Agents run only where a test needs them: the others ask for a node that is not there."""
import json
import os
import re
import shutil
import time

import pytest
import yaml
from e2e.harness.waiting import wait_until
from harness.kubectl import REPOSITORY, get, get_all, helm, kubectl, run
from harness.kubernetes_agent import CHART, NAMESPACE, uninstall
from harness.pod_comparison import check_exact_pods

CRDS = os.path.join(REPOSITORY, "crds")
NAMES = ["gputracenodes.ingero.io", "gputracepolicies.ingero.io"]
NO_PODS = ["--set", "nodeSelector.ingero-test=none"]


def delete_everything():
    uninstall()
    run("kubectl", "delete", "crd", *NAMES, "--ignore-not-found", "--timeout=170s", seconds=180)


@pytest.fixture(autouse=True)
def fresh(cluster):  # pylint: disable=unused-argument
    """Neither release nor CRDs, before and after."""
    delete_everything()
    yield
    delete_everything()


def on_release(command, *options, home=None, check=True):
    # A home of its own: no discovery of another run is remembered.
    prefix = [f"HOME={home}"] if home else []
    chart = next((str(o) for o in options if os.path.isdir(str(o))), CHART)
    rest = [o for o in options if str(o) != chart]
    return run(*prefix, "helm", command, "ingero", chart, "-n", NAMESPACE, "--create-namespace"
               if command == "install" else "--timeout=2m", *NO_PODS, *rest, seconds=150, check=check)


def policy(name="training", **spec):
    kubectl("apply", "-f", "-", text_input=json.dumps(
        {"apiVersion": "ingero.io/v1alpha1", "kind": "GpuTracePolicy", "metadata": {"name": name},
         "spec": spec}))


def default_policy():
    return get("gputracepolicy", "default")


def test_install_on_a_cluster_without_the_crds_makes_the_default_policy(tmp_path):
    for number in range(3):
        on_release("install", home=tmp_path / str(number))
        assert default_policy()["spec"]["probes"]["nccl"]["enabled"] is True
        delete_everything()


def test_notes_name_commands_that_work():
    notes = on_release("install").stdout.split("NOTES:")[1]
    commands = re.findall(r"^  (kubectl .*?)(?:  +#.*)?$", notes, re.M)
    # How to label a node stands there too, as none is.
    assert len(commands) == 4 and commands.pop(0).startswith("kubectl label node NODE "), notes
    kubectl(*commands[1].split()[1:])
    for name in (word for c in commands for word in c.split() if word.startswith(("svc/", "daemonset/"))):
        kubectl("get", name, "-n", NAMESPACE)


def test_upgrades_change_the_default_policy_and_rollback_brings_it_back():
    on_release("install")
    on_release("upgrade")
    first = default_policy()["metadata"]["uid"]
    on_release("upgrade")
    assert default_policy()["metadata"]["uid"] == first, "made anew without need"
    for threshold in ("50ms", "20ms"):
        on_release("upgrade", "--set", f"defaultPolicy.spec.slowCallThreshold={threshold}")
        assert default_policy()["spec"]["slowCallThreshold"] == threshold
    helm("rollback", "ingero", "1", "-n", NAMESPACE)
    assert "slowCallThreshold" not in default_policy()["spec"]
    on_release("upgrade", "--set", "defaultPolicy.enabled=false")
    assert default_policy() is None
    on_release("upgrade")
    assert default_policy()


def older_chart(tmp_path):
    """This chart with CRDs of an earlier time: no limits, no slowCallThreshold, no column Reason."""
    chart = tmp_path / "older"
    shutil.copytree(CHART, chart)
    path = chart / "files" / "crds" / "gputracepolicies.yaml"
    crd = yaml.safe_load(path.read_text())
    version = crd["spec"]["versions"][0]
    for field in ("limits", "slowCallThreshold"):
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][field]
    version["additionalPrinterColumns"] = version["additionalPrinterColumns"][:-1]
    # The text that the template looks for begins a line.
    path.write_text("# older\n" + yaml.safe_dump(crd, sort_keys=False))
    return chart


def schema_has(field):
    crd = get("crd", "gputracepolicies.ingero.io")
    return field in crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"]


def test_helm_upgrade_upgrades_the_crds_and_policies_survive(tmp_path):
    on_release("install", older_chart(tmp_path))
    assert not schema_has("limits")
    policy(probes={"nccl": {"functions": ["ncclAll*"]}})
    before = get("gputracepolicy", "training")
    on_release("upgrade")
    assert schema_has("limits") and schema_has("slowCallThreshold")
    after = get("gputracepolicy", "training")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["probes"] == before["spec"]["probes"]
    policy(limits={"maxSeries": 7})
    assert get("gputracepolicy", "training")["spec"]["limits"] == {"maxSeries": 7}


def test_crds_and_policies_outlive_the_release_and_the_next_one_upgrades_them(tmp_path):
    on_release("install", older_chart(tmp_path))
    policy(probes={"cudaMemcpy": {"enabled": False}})
    uid = get("gputracepolicy", "training")["metadata"]["uid"]
    uninstall()
    assert [get("crd", name) is not None for name in NAMES] == [True, True]
    assert default_policy() is None
    on_release("install")
    assert schema_has("limits")
    assert get("gputracepolicy", "training")["metadata"]["uid"] == uid
    assert default_policy()


def everything():
    """(kind, namespace, name) of all objects, but those that come and go by themselves."""
    kinds = kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = [k for k in kinds if not k.startswith(("events", "leases", "componentstatuses",
                                                   "endpoint", "apiservices"))]
    rows = kubectl("get", ",".join(kinds), "-A", "--ignore-not-found", "-o",
                   r'jsonpath={range .items[*]}{.kind}{"\t"}{.metadata.namespace}{"\t"}'
                   r'{.metadata.name}{"\n"}{end}').splitlines()
    return {row for row in rows if "\ttest-" not in row and "Pod\t" not in row}


def test_uninstall_leaves_nothing_but_the_crds():
    run("kubectl", "create", "namespace", NAMESPACE, check=False)
    kubectl("wait", "--for=create", "serviceaccount/default", "configmap/kube-root-ca.crt", "-n",
            NAMESPACE, "--timeout=30s")
    before = everything()
    on_release("install", "--set", "dashboards.enabled=true")
    assert len(everything() - before) >= 11
    on_release("upgrade", "--set", "config.log_level=debug")
    uninstall()
    left = everything() - before
    assert left == {f"CustomResourceDefinition\t\t{name}" for name in NAMES}, left


def test_crds_that_kubectl_applied_can_be_taken_over(tmp_path):
    kubectl("apply", "-f", CRDS)
    kubectl("wait", "--for=condition=Established", "-f", CRDS)
    policy(limits={"maxSeries": 9})
    refused = on_release("install", check=False)
    assert refused.returncode != 0 and "invalid ownership metadata" in refused.stderr, refused.stderr
    run("helm", "uninstall", "ingero", "-n", NAMESPACE, "--ignore-not-found", check=False)
    on_release("install", "--set", "crds.install=false")
    uninstall()
    on_release("install", "--take-ownership", home=tmp_path)
    assert get("gputracepolicy", "training")["spec"]["limits"] == {"maxSeries": 9}
    on_release("upgrade")
    labels = get("crd", NAMES[1])["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_crds_that_are_not_to_be_kept_go_with_the_release():
    on_release("install", "--set", "crds.keep=false")
    uninstall()
    assert [get("crd", name) for name in NAMES] == [None, None]


def test_the_manifests_install_with_the_documented_commands():
    manifests = os.path.join(REPOSITORY, "manifests")
    try:
        kubectl("apply", "-f", f"{manifests}/crds.yaml")
        kubectl("wait", "--for=condition=Established", "-f", f"{manifests}/crds.yaml")
        made = kubectl("apply", "-f", f"{manifests}/ingero.yaml")
        assert "daemonset.apps/ingero" in made and "gputracepolicy.ingero.io/default" in made
        assert "unchanged" in kubectl("apply", "-f", f"{manifests}/ingero.yaml")
    finally:
        # A definition goes when the server has seen that none of its objects is left: minutes under load.
        for file in ("ingero.yaml", "crds.yaml"):
            run("kubectl", "delete", "-f", f"{manifests}/{file}", "--ignore-not-found", "--timeout=170s",
                seconds=180)


def test_helm_test_passes_where_agents_run(cluster):
    # Not with service.headless: that needs DNS, which this cluster has not.
    cluster.agent()
    done = run("helm", "test", "ingero", "-n", NAMESPACE, "--timeout", "90s", seconds=120)
    assert "Phase:          Succeeded" in done.stdout, done.stdout
    # The pod's log, which Helm prints.
    assert "ingero_build_info{" in done.stdout + done.stderr, done.stderr


def test_helm_test_fails_where_no_agent_answers(cluster):
    agent = cluster.agent()
    kubectl("patch", "service", "ingero", "-n", NAMESPACE, "-p",
            '{"spec": {"selector": {"app.kubernetes.io/instance": "nobody"}}}')
    try:
        wait_until(lambda: not any(
            piece.get("endpoints") for piece in
            get_all("endpointslices", NAMESPACE, "kubernetes.io/service-name=ingero")),
                   "a Service without endpoints")
        time.sleep(3)  # kube-proxy writes its rules once a second
        done = run("helm", "test", "ingero", "-n", NAMESPACE, "--timeout", "10s", seconds=60, check=False)
        assert done.returncode != 0, done.stdout
        assert agent.restarts() == 0
    finally:
        run("kubectl", "delete", "pod", "ingero-test", "-n", NAMESPACE, "--grace-period=1",
            "--ignore-not-found", check=False)


def test_the_unprivileged_agent_counts_exactly_and_check_says_what_is_missing(cluster):
    agent = cluster.agent("securityContext.privileged=false")
    workloads = [cluster.workload(cluster.stub_image(), "mixed", ["--calls", 3]),
                 cluster.workload(cluster.real_image(), options=["--calls", 5])]
    check_exact_pods(agent, *zip(workloads, cluster.run(agent, *workloads)))
    assert agent.restarts() == 0
    done = run("kubectl", "exec", agent.name, "-n", NAMESPACE, "--", "ingero", "check", check=False)
    print(done.stdout)
    assert "no CAP_SYS_ADMIN" in done.stdout, done.stdout + done.stderr
