# SPDX-License-Identifier: Apache-2.0
"""Makes the calls of DIRECTORY/script.json one by one: for tests that need a certain order.

script.json: {"libraries": {kind: path}, "calls": [[kind, function, argument...], ...]}; an argument
is a number, null, "comm" (the communicator of the last ncclCommInitAll) or "comm out".
tally.json: [{"function", "before_unix_ns", "after_unix_ns", "result"}], in order.
"""
import ctypes
import json
import os
import sys
import time


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def main():
    directory = sys.argv[1]
    with open(os.path.join(directory, "script.json"), encoding="utf-8") as file:
        script = json.load(file)
    libraries = {kind: ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
                 for kind, path in script["libraries"].items()}
    comm = ctypes.c_uint64(0)

    def argument(value):
        if value == "comm out":
            return ctypes.byref(comm)
        if value == "comm":
            return ctypes.c_uint64(comm.value)
        return ctypes.c_uint64(value or 0)

    open(os.path.join(directory, "ready"), "w", encoding="utf-8").close()
    wait_for(os.path.join(directory, "start"))
    made = []
    for kind, name, *values in script["calls"]:
        function = getattr(libraries[kind], name)
        arguments = [argument(value) for value in values]
        before = time.time_ns()
        result = function(*arguments)
        made.append({"function": name, "before_unix_ns": before, "after_unix_ns": time.time_ns(),
                     "result": result})
    fresh = os.path.join(directory, "tally.json.new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(made, file)
    os.rename(fresh, os.path.join(directory, "tally.json"))
    wait_for(os.path.join(directory, "finish"))


main()
