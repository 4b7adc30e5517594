#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the workload's results against numbers worked out here, by other formulas and code.

selftest_checks.py elf WORKLOAD_DIR | tally SCENARIO FILE [NAME=VALUE]...
"""
import json
import re
import subprocess
import sys
from pathlib import Path

TYPE_BYTES = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]
PER_RANK = {"ncclAllGather", "ncclReduceScatter", "ncclAlltoAll", "ncclGather", "ncclScatter"}
COLLECTIVES = ["ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBcast", "ncclBroadcast",
               "ncclReduce", "ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGather", "ncclScatter"]
DIRECTIONS = ["h2h", "h2d", "d2h", "d2d", "default"]


def expect(actual, wanted, what):
    if actual != wanted:
        sys.exit(f"selftest: {what}: is {actual}, should be {wanted}")


def api_table():
    """Names and families of the functions that the agent traces."""
    header = Path(__file__).resolve().parents[2] / "bpf" / "api_functions.h"
    return re.findall(r"^\tX\(\d+, (\w+), \w+, (\w+),", header.read_text(), re.MULTILINE)


def first_instruction(library, address):
    with open(library, "rb") as file:  # the stubs' text has file offset = address
        file.seek(address)
        return file.read(8)


def symbols(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True,
                         capture_output=True).stdout
    return {line.split()[2].split("@")[0]: (int(line.split()[0], 16), line.split()[1])
            for line in out.splitlines()}


def check_library(path, names, endbr):
    table = symbols(path)
    addresses = {}
    for name in names:
        if name not in table:
            sys.exit(f"selftest: {path} lacks {name}")
        address, kind = table[name]
        if address in addresses:
            sys.exit(f"selftest: {path}: {name} and {addresses[address]} share an address")
        addresses[address] = name
        code = first_instruction(path, address)
        expect(code[:4] == b"\xf3\x0f\x1e\xfa", endbr, f"{path}: {name} begins with endbr64")
        push = code[4 if endbr else 0]
        expect(push in (0x55, 0x41, 0x53), True, f"{path}: {name} pushes first ({code.hex()})")
        if name.startswith("nccl"):
            expect((kind, table["p" + name]), ("W", (address, "T")), f"{path}: alias of {name}")


def check_elf(directory):
    names = [name for name, _ in api_table()]
    nccl = [n for n in names if n.startswith("nccl") and n != "ncclAllToAll"]
    rccl = [n for n in names if n.startswith("nccl")
            and n != "ncclAlltoAll" and not re.fullmatch(r"nccl(?!Comm).*Config", n)]
    cudart = [n for n in names if n.startswith("cuda")]
    driver = [n for n in names if re.match(r"cu[A-Z]", n)]
    for variant in ("push", "endbr"):
        stubs = f"{directory}/stubs/{variant}"
        if not Path(stubs).is_dir():
            continue
        endbr = variant == "endbr"
        check_library(f"{stubs}/libnccl.so.2", nccl, endbr)
        check_library(f"{stubs}/libtorch_cuda.so", nccl, endbr)
        check_library(f"{stubs}/librccl.so.1", rccl, endbr)
        check_library(f"{stubs}/libcudart.so.13", cudart, endbr)
        check_library(f"{stubs}/libcuda.so.1", driver, endbr)
    check_library(f"{directory}/stubs/nested/libcudart.so.13", cudart, False)
    library = f"{directory}/stubs/push/libnccl.so.2"
    address = symbols(library)["ncclGetVersion"][0]
    with open(library, "rb") as file:
        file.seek(address)
        code = file.read(16)
    expect(b"\xc7\x07" + (22809).to_bytes(4, "little") in code, True, "ncclGetVersion is a store")
    expect(b"NCCL version 2.28.9+cuda13.0" in Path(library).read_bytes(), True, "version text")


class Result:
    def __init__(self, path):
        self.data = json.loads(Path(path).read_text())
        self.rows = {(r["function"], r["direction"]): r for r in self.data["functions"]}
        for row in self.data["functions"]:
            expect(sum(row["errors_by_code"].values()), row["errors"], f"errors of {row}")
            expect(row["errors"] <= row["calls"], True, f"more errors than calls in {row}")

    def row(self, function, direction="", calls=None, bytes=None, errors=0):
        row = self.rows.get((function, direction))
        if row is None:
            sys.exit(f"selftest: no row for {function} {direction}")
        name = f"{self.data['scenario']}: {function} {direction}"
        if calls is not None:
            expect(row["calls"], calls, f"{name} calls")
        if bytes is not None:
            expect(row["bytes"], bytes, f"{name} bytes")
        expect(row["errors"], errors, f"{name} errors")
        return row


def copy_sizes():
    """(function, twin suffix) -> bytes of one call in the direction of that number."""
    sizes = {}
    for name, formula in [("cudaMemcpy", lambda k: 4096 + k),
                          ("cudaMemcpyToSymbol", lambda k: 512 + k),
                          ("cudaMemcpyFromSymbol", lambda k: 512 + k),
                          ("cudaMemcpy2D", lambda k: (640 + k) * 48),
                          ("cudaMemcpy2DToArray", lambda k: (640 + k) * 48),
                          ("cudaMemcpy2DFromArray", lambda k: (640 + k) * 48),
                          ("cudaMemcpyToArray", lambda k: 768 + k),
                          ("cudaMemcpyFromArray", lambda k: 768 + k),
                          ("cudaMemcpy3D", lambda k: 64 * 32 * (4 + k))]:
        for full in (name, name + "_ptds", name + "Async", name + "Async_ptsz"):
            sizes[full] = formula
    for name, formula in [("cudaMemcpyArrayToArray", lambda k: 768 + k),
                          ("cudaMemcpy2DArrayToArray", lambda k: (640 + k) * 48)]:
        for full in (name, name + "_ptds"):
            sizes[full] = formula
    return sizes


def check_copies(result, rounds):
    seen = set()
    for name, formula in copy_sizes().items():
        for kind, direction in enumerate(DIRECTIONS):
            result.row(name, direction, rounds, rounds * formula(kind))
            seen.add(name)
    fixed = {"cudaMemcpyPeer": ("d2d", 2048), "cudaMemcpyPeerAsync": ("d2d", 2048),
             "cudaMemcpy3DPeer": ("d2d", 4096), "cudaMemcpy3DPeer_ptds": ("d2d", 4096),
             "cudaMemcpy3DPeerAsync": ("d2d", 4096), "cudaMemcpy3DPeerAsync_ptsz": ("d2d", 4096)}
    unknown = {"cudaMemcpyBatchAsync": 100 + 2000 + 30000, "cudaMemcpyWithAttributesAsync": 1536,
               "cudaMemcpy3DBatchAsync": 50 * 20 * 3 + 8 * 4 * 2,
               "cudaMemcpy3DWithAttributesAsync": 8 * 4 * 2,
               "cuMemcpyBatchAsync": 11700, "cuMemcpyBatchAsync_v2": 11700,
               "cuMemcpyWithAttributesAsync": 11000, "cuMemcpy3DWithAttributesAsync": 64,
               "cuMemcpy3DBatchAsync": 3064, "cuMemcpy3DBatchAsync_v2": 3064}
    for name, size in unknown.items():
        fixed[name] = fixed[name + "_ptsz"] = ("unknown", size)
    for name, suffix in (("cuMemcpyPeer", "_ptds"), ("cuMemcpyPeerAsync", "_ptsz")):
        fixed[name] = fixed[name + suffix] = ("d2d", 8192)
    for part, direction in (("HtoA", "h2d"), ("AtoH", "d2h"), ("DtoA", "d2d"), ("AtoD", "d2d"),
                            ("AtoA", "d2d")):
        for tail in ("_v2", "_v2_ptds", "Async_v2", "Async_v2_ptsz"):
            if "Async" not in tail or "H" in part:
                fixed[f"cuMemcpy{part}{tail}"] = (direction, 5120)
    for part, direction in (("HtoD", "h2d"), ("DtoH", "d2h"), ("DtoD", "d2d"), ("", "default")):
        version = "_v2" if part else ""
        for tail in (f"{version}", f"{version}_ptds", f"Async{version}", f"Async{version}_ptsz"):
            fixed[f"cuMemcpy{part}{tail}"] = (direction, 8192)
    for name, (direction, size) in fixed.items():
        result.row(name, direction, rounds, rounds * size)
        seen.add(name)
    for direction in ("h2d", "d2h", "d2d"):
        for name, size in (("2D", 6000), ("2DUnaligned", 6000), ("3D", 2100), ("3DPeer", 2100)):
            version = "" if "Peer" in name else "_v2"
            for tail in (version, f"{version}_ptds", f"Async{version}", f"Async{version}_ptsz"):
                if "Async" in tail and "Unaligned" in name:
                    continue
                result.row(f"cuMemcpy{name}{tail}", direction, rounds, rounds * size)
                seen.add(f"cuMemcpy{name}{tail}")
    traced = {name for name, family in api_table() if family == "API_CUDA_COPY"}
    expect(seen, traced, "copy functions called, against those traced")


def check_datatypes(result, nranks):
    elements = 1000 * sum(TYPE_BYTES)
    for name in COLLECTIVES:
        factor = nranks if name in PER_RANK else 1
        result.row(name, "", 12, elements * factor)
        if name not in ("ncclBcast", "ncclSend", "ncclRecv"):
            result.row(name + "Config", "", 12, elements * factor)


def check_errors(result, rounds):
    total = sum(r["calls"] for r in result.data["functions"])
    failed = sum(r["errors"] + sum(r["pending_by_code"].values()) for r in result.data["functions"])
    # A third of what runs while errors are injected: all but making and ending the communicator.
    expect(abs(failed / (total - 3) - 1 / 3) < 0.02, True, f"{failed} of {total} calls failed")
    codes = set()
    for row in result.data["functions"]:
        codes |= set(row["errors_by_code"])
    expect({"5", "1", "2", "3", "6", "700", "999", "35"} <= codes, True, f"codes seen: {codes}")
    expect("7" in codes or "600" in codes, False, "a pending result counted as an error")
    for name, formula in copy_sizes().items():
        for kind, direction in enumerate(DIRECTIONS):
            row = result.rows[(name, direction)]
            expect(row["bytes"], (rounds - row["errors"]) * formula(kind), f"{name} bytes")


def check_inits(result):
    comms = result.data["comms"]
    by = {}
    for comm in comms:
        by.setdefault(comm["created_by"], []).append((comm["rank"], comm["nranks"]))
    expect(by, {"ncclCommInitRank": [(2, 4), (0, 2), (1, 2)],
                "ncclCommInitRankConfig": [(5, 8), (3, 4)], "ncclCommInitRankScalable": [(11, 16)],
                "ncclCommInitAll": [(0, 3), (1, 3), (2, 3)],
                "ncclCommSplit": [(1, 2), (0, 3), (2, 5)], "ncclCommShrink": [(3, 6)],
                "ncclCommGrow": [(5, 10)]}, "ranks of the communicators")
    result.row("ncclAllGather", "", len(comms), 400 * sum(comm["nranks"] for comm in comms))
    result.row("ncclCommInitRank", "", 4, 0, errors=1)
    ids = [comm["id_hex"] for comm in comms[:3]]
    expect((len(set(ids)), len({i[:16] for i in ids})), (3, 1), "ids that share 8 bytes")


def check_tally(scenario, path, given):
    result = Result(path)
    number = {key: int(value) for key, value in (pair.split("=") for pair in given)}
    if scenario == "allreduce":
        calls = number["calls"] * number["threads"]
        result.row("ncclAllReduce", "", calls, calls * number["bytes"])
    elif scenario == "datatypes":
        check_datatypes(result, number["nranks"])
    elif scenario == "copies":
        check_copies(result, number["calls"])
    elif scenario == "errors":
        check_errors(result, number["calls"])
    elif scenario == "inits":
        check_inits(result)
    elif scenario == "nested":
        result.row("ncclBcast", "", 10, 40000)
        result.row("ncclBroadcast", "", 10, 40000)
        expect(result.row("ncclAllReduce", "", 10, 40000)["aliased"], 10, "calls by pncclX")
        result.row("cudaMemcpyAsync", "h2d", 10, 40960)
    elif scenario == "fork":
        expect(result.data["processes"], 5, "processes")
        result.row("cudaMemcpy", "h2d", 5, 5 * 4097)
    elif scenario == "forkstorm":
        expect(result.data["processes"], number["processes"] + 1, "processes")
        result.row("ncclAllReduce", "", 3 * number["processes"], 12000 * number["processes"])
    elif scenario == "exec":
        result.row("ncclAllReduce", "", 20, 80000)
        expect(len({comm["pid"] for comm in result.data["comms"]}), 1, "one pid over exec")
    elif scenario == "threads":
        expect(result.row("cudaMemcpyAsync", "h2d")["calls"], 4 * 10 * 51, "calls of 4 threads")
    elif scenario == "longjmp":
        expect(result.row("ncclAllReduce", "", 300)["unreturned"], 100, "calls left by longjmp")
    elif scenario == "seccomp":
        result.row("ncclAllReduce", "", 1000, 4000000)
    elif scenario == "mixed":
        expect(len([n for n in COLLECTIVES if (n, "") in result.rows]), 11, "collectives")


if __name__ == "__main__":
    if sys.argv[1] == "elf":
        check_elf(sys.argv[2])
    else:
        check_tally(sys.argv[2], sys.argv[3], sys.argv[4:])
