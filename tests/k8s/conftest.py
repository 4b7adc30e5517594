# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Kubernetes tests. A cluster that is not there is a failure, never a skip."""
import os
import sys

import pytest

# For e2e.harness, which is shared; `harness` is the folder beside this file.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness.cluster import Cluster  # noqa: E402
from harness.kubectl import run  # noqa: E402


@pytest.fixture
def cluster(tmp_path):
    """The running cluster, with a namespace of the test's own."""
    ready = run("kubectl", "get", "--raw", "/readyz", "--request-timeout=10s", check=False)
    if ready.returncode != 0:
        pytest.fail("no cluster; hint: sudo hack/test k8s, or hack/cluster up", pytrace=False)
    # pytest's folders are for their owner only; those of pods are not always root.
    os.chmod(tmp_path, 0o755)
    with Cluster(tmp_path) as started:
        yield started


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter.stats.get("skipped") and not reporter.stats.get("passed"):
        session.exitstatus = 77
