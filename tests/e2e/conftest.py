# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the e2e tests, and exit status 77 (CTest: skipped) when every test was skipped."""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness.host import Host  # noqa: E402


@pytest.fixture
def host(tmp_path):
    """Everything that a test starts; it ends when the test does."""
    if os.geteuid() != 0:
        pytest.skip("not root: the agent needs CAP_BPF and CAP_PERFMON")
    with Host(tmp_path) as started:
        yield started


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter.stats.get("skipped") and not reporter.stats.get("passed"):
        session.exitstatus = 77
