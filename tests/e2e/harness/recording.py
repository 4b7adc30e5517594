# SPDX-License-Identifier: Apache-2.0
"""`ingero query` on recordings."""
import json
import os
import subprocess

from .agent import build_dir


def ingero(*arguments, **options):
    return subprocess.run([os.path.join(build_dir(), "ingero"), *map(str, arguments)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=120, **options)


def query(files, sql):
    """The rows as dictionaries."""
    files = files if isinstance(files, (list, tuple)) else [files]
    done = ingero("query", *files, sql, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def value(files, sql):
    return next(iter(query(files, sql)[0].values()))


def losses(file):
    """Calls that the file says were not recorded."""
    return {row["reason"]: row["count"]
            for row in query(file, "SELECT * FROM losses WHERE count <> 0 "
                                   "AND reason NOT IN ('host_events_lost', "
                                   "'host_event_stream_full')")}


def all_calls(file):
    return value(file, "SELECT (SELECT COUNT(*) FROM nccl_events) + "
                       "(SELECT COUNT(*) FROM cuda_events)")
