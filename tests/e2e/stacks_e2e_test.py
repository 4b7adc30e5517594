# SPDX-License-Identifier: Apache-2.0
"""Calls inside calls that do not belong to them: from signal handlers, on other stacks, behind a longjmp.
Each counts once, and no program is harmed."""
import pytest

from harness.comparison import check_exact
from harness.program import run_program

ROUNDS, INNER = 20, 3


def check(host, tmp_path, scenario, losses, **libraries):
    agent = host.agent()
    container, tally = run_program(agent, tmp_path, "stack_calls", scenario, **libraries)
    check_exact(agent, (container, tally), losses=losses)


def test_calls_of_a_signal_handler_inside_a_call_count_on_their_own(host, tmp_path):
    check(host, tmp_path, "signal", {})


def test_calls_on_a_higher_signal_stack_harm_nobody_and_count_at_their_entry(host, tmp_path):
    check(host, tmp_path, "signal_above", {"other_stack": ROUNDS * INNER})


@pytest.mark.parametrize("where", ["above", "below"])
def test_calls_beside_a_coroutine_that_was_left_inside_a_call_count_at_their_entry(host, tmp_path,
                                                                                 where):
    check(host, tmp_path, f"coroutine_{where}", {"other_stack": ROUNDS * INNER})


def test_coroutines_that_leave_each_other_inside_calls_live_and_are_counted(host, tmp_path):
    check(host, tmp_path, "coroutines", {"other_stack": ROUNDS})


@pytest.mark.parametrize("where", ["jump_deeper", "jump_up"])
def test_calls_behind_a_longjmp_are_counted_wherever_the_stack_stands(host, tmp_path, where):
    check(host, tmp_path, where, {"no_return_seen": ROUNDS})


def test_calls_that_a_library_makes_behind_a_longjmp_are_counted(host, tmp_path):
    check(host, tmp_path, "jump_library", {"no_return_seen": ROUNDS}, nccl="libtorch_cuda.so")
