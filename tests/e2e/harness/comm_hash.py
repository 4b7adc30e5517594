# SPDX-License-Identifier: Apache-2.0
"""comm_id_hash, worked out anew: splitmix64 folded over the 16 words of a unique id."""
import struct

_MASK = (1 << 64) - 1


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def id_hash(id_hex):
    data = bytes.fromhex(id_hex)
    assert len(data) == 128
    result = 0
    for word in struct.unpack("<16Q", data):
        result = splitmix64(result ^ word)
    return result


def hash_pair(a, b):
    return splitmix64(splitmix64(a) ^ b)


def split_hash(parent, number, color):
    """Child of the parent's Split call with this number (from 0)."""
    return hash_pair(parent, (number << 32) | (color & 0xFFFFFFFF))


def shrink_hash(parent, number):
    return hash_pair(parent ^ _MASK, number)
