# SPDX-License-Identifier: Apache-2.0
"""What the e2e tests share. Standard library and pytest only.

    host.agent(...)      -> Agent: a running `ingero trace`; metrics(), state(), stop()
    host.container(...)  -> Container: a workload in a cgroup (and overlay root) of its own
    host.run(agent, ...) : attach first, then calls, then the tallies
    check_exact(...)     : the agent's numbers are the workloads' own numbers
"""
