# SPDX-License-Identifier: Apache-2.0
"""Kernels other than the one at hand, booted in an emulator by hack/matrix: no root, no KVM."""
import os
import subprocess

_MATRIX = os.path.join(os.path.dirname(__file__), "..", "..", "hack", "matrix")


def matrix(*arguments):
    run = subprocess.run([_MATRIX, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, errors="replace")
    print(run.stdout[-12000:])
    assert run.returncode == 0, f"hack/matrix {' '.join(arguments)}: exit status {run.returncode}"
    return run.stdout


def test_each_program_loads_on_linux_6_1():
    assert "LOADED" in matrix("load", "6.1")


def test_each_program_loads_on_linux_6_12():
    assert "LOADED" in matrix("load", "6.12")


def test_each_program_loads_on_linux_6_18():
    assert "LOADED" in matrix("load", "6.18")


def test_each_program_loads_on_linux_7():
    assert "LOADED" in matrix("load", "7")


def test_each_program_loads_on_linux_6_12_for_arm64():
    assert "LOADED" in matrix("load", "arm64-6.12")


def test_calls_that_are_preempted_inside_the_programs_are_counted_exactly_on_linux_7():
    assert "WRONG 0" in matrix("stress", "7", "preempt=full", "seconds=3")
