# SPDX-License-Identifier: Apache-2.0
"""A container image without a registry and without a build: one layer, made of a folder.

    image.py FOLDER NAME TAR PROGRAM [ARGUMENT]...      PROGRAM becomes the entry point

The tar is what `docker save` would write; `hack/cluster load` takes it.
"""
import hashlib
import io
import json
import os
import platform
import sys
import tarfile

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def _sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _of_root(entry):
    # Whoever assembled the folder: in the image everything is root's, and the same folder gives the
    # same image.
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def _write_layer(folder, path):
    with tarfile.open(path, "w") as layer:
        for name in sorted(os.listdir(folder)):
            layer.add(os.path.join(folder, name), arcname=name, filter=_of_root)


def write_image(folder, name, tar, entrypoint, environment=()):
    layer = f"{tar}.layer"
    _write_layer(folder, layer)
    digest = _sha256(layer)
    config = json.dumps({
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Env": list(environment)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name],
                            "Layers": [f"{digest}/layer.tar"]}]).encode()
    with tarfile.open(f"{tar}.new", "w") as image:
        image.add(layer, arcname=f"{digest}/layer.tar", filter=_of_root)
        for entry_name, data in ((config_name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(entry_name)
            entry.size = len(data)
            image.addfile(entry, io.BytesIO(data))
    os.remove(layer)
    os.rename(f"{tar}.new", tar)
    return tar


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    write_image(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
