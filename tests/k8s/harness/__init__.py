# SPDX-License-Identifier: Apache-2.0
"""What the Kubernetes tests share, on top of e2e/harness. Standard library, PyYAML and pytest.

    cluster.agent()        -> KubernetesAgent: the chart, installed; metrics(), state(), stop()
    cluster.namespace      a namespace of the test's own, gone when the test ends
    cluster.workload(...)  -> Workload: a pod with ingero_workload, which keeps its own count
    cluster.run(agent, ..) : probes first, then calls, then the tallies
    check_exact_pods(...)  : the agent's numbers of each pod are the workload's own
"""
