# SPDX-License-Identifier: Apache-2.0
import os
import time


def patient(seconds):
    """That long on a machine as usual; an emulated one is slower, and says how much."""
    return seconds * float(os.environ.get("INGERO_PATIENCE", "1"))


def wait_until(condition, what, seconds=30.0, interval=0.05):
    """The first true value of `condition()`; an AssertionError that says what was waited for."""
    seconds = patient(seconds)
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            text = what() if callable(what) else what
            raise AssertionError(f"waited {seconds:g} s in vain: {text}")
        time.sleep(interval)
