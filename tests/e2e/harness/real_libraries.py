# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own libraries, put into the cache by hack/fetch-libraries."""
import glob
import os

import pytest

_CACHE = os.path.join(os.environ.get("INGERO_CACHE", "/var/cache/ingero"), "libraries")


def _folder(name):
    """`name` is a folder's name, or newest-nccl and newest-cudart by the stamp."""
    try:
        with open(os.path.join(_CACHE, "stamp"), encoding="utf-8") as file:
            return dict(line.split() for line in file).get(name, name)
    except FileNotFoundError:
        return name


def find(name):
    """(path, version by the folder's name); skips the test when the library is not there."""
    folder = _folder(name)
    pattern = "libnccl.so.2" if "nccl" in name else "libcudart.so*"
    found = sorted(path for path in glob.glob(os.path.join(_CACHE, folder, "**", pattern),
                                              recursive=True) if os.path.isfile(path))
    if not found:
        pytest.skip(f"no {pattern} of {name} in {_CACHE}; hint: hack/fetch-libraries")
    return os.path.realpath(found[0]), folder.rpartition("-")[2]
