# SPDX-License-Identifier: Apache-2.0
import time


def wait_until(condition, what, seconds=30.0, interval=0.05):
    """The first true value of `condition()`; an AssertionError that says what was waited for."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            text = what() if callable(what) else what
            raise AssertionError(f"waited {seconds:g} s in vain: {text}")
        time.sleep(interval)
