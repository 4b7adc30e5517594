# SPDX-License-Identifier: Apache-2.0
"""Tables that containers share: one that takes all it can get takes nothing from another."""
from harness.comparison import differences
from harness.program import Program
from harness.waiting import wait_until

SHARES = ("communicators_share_full", "streams_share_full", "errors_share_full")


def test_a_container_that_fills_the_shared_tables_takes_nothing_from_another(host, tmp_path):
    agent = host.agent()
    with Program(agent, tmp_path, "odd_calls", "greedy") as greedy:
        wait_until(lambda: greedy.tally_path.exists(), "all that it can get", 60)
        metrics = agent.metrics()
        for reason in SHARES:
            lost = metrics.value("ingero_events_lost_total", reason=reason)
            print(f"{reason}: {lost:g}")
            assert lost > 0, reason
        victims = [host.container("datatypes", "--nranks", 16, "--rank", 3),
                   host.container("errors")]
        tallies = host.run(agent, *victims, finish=False)
        metrics, state = agent.metrics(), agent.state()
        problems = [line for victim, tally in zip(victims, tallies)
                    for line in differences([tally], metrics, victim.label, state)]
        assert not problems, "\n".join(problems)
        lost = {reason: metrics.value("ingero_events_lost_total", reason=reason)
                for reason in ("communicators_map_full", "streams_map_full", "errors_map_full")}
        assert not any(lost.values()), lost
