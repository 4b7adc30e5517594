# SPDX-License-Identifier: Apache-2.0
"""Counts belong to the container that made the calls, whatever file its overlay shows."""
import os
import re

from harness.comparison import check_exact


def test_three_overlay_mounts_of_one_file_are_counted_each_for_its_own_container(host):
    agent = host.agent()
    containers = [host.container("allreduce", "--calls", 100 * i, "--bytes", 4096 * i)
                  for i in (1, 2, 3)]
    tallies = host.run(agent, *containers)
    check_exact(agent, *zip(containers, tallies))
