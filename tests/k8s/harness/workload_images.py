# SPDX-License-Identifier: Apache-2.0
"""Images of workloads, made of a folder and put into the cluster once."""
import glob
import hashlib
import os
import subprocess
import tempfile

from e2e.harness.container import stub, workload_dir
from e2e.harness.host import stubs
from e2e.harness.real_libraries import find

from .image import write_image
from .kubectl import containerd, hack_cluster

_BUILD_ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "workload", "container",
                           "build_root.sh")
_PROGRAM = "/usr/bin/ingero_workload"


def _fingerprint(pairs):
    """Of what goes into an image: the same files, not rebuilt, need no new image."""
    digest = hashlib.sha256()
    for pair in pairs:
        source, _, destination = pair.partition(":")
        digest.update(destination.encode())
        inside = [source]
        if os.path.isdir(source):
            inside = glob.glob(os.path.join(source, "**"), recursive=True)
        for path in sorted(inside):
            status = os.stat(path)
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _ensure(name, *pairs):
    program = os.path.join(workload_dir(), "ingero_workload")
    image = f"localhost/ingero-{name}:{_fingerprint([f'{program}:{_PROGRAM}', *pairs])}"
    if image not in containerd("images", "ls", "-q").split():
        with tempfile.TemporaryDirectory() as directory:
            root = os.path.join(directory, "root")
            subprocess.run([_BUILD_ROOT, root, program, *pairs], check=True,
                           stdout=subprocess.DEVNULL)
            hack_cluster("load", write_image(root, image, os.path.join(directory, "image.tar"),
                                             [_PROGRAM]))
    return image


class WorkloadImage:
    """`libraries` maps nccl, cudart, cuda to paths in the image; `scenario` suits them."""

    def __init__(self, name, libraries, scenario):
        self.name = name
        self.libraries = libraries
        self.scenario = scenario


def stub_image():
    """Every stub library. Their symbols are the real ones, their results are chosen by the test."""
    return WorkloadImage(_ensure("stubs", f"{os.path.dirname(os.path.dirname(stub('x')))}:/stubs"),
                         stubs(), "mixed")


def real_image(nccl="newest-nccl"):
    """NVIDIA's own libnccl, where a wheel has it."""
    path, _ = find(nccl)
    inside = "/usr/lib/python3/site-packages/nvidia/nccl/lib/libnccl.so.2"
    return WorkloadImage(_ensure(nccl, f"{path}:{inside}"), {"nccl": inside}, "real")
