#!/usr/bin/env python3
"""Packs a tar of very many entries, in two random orders, and measures the memory it takes.

    pack_scale_bench.py [--entries N] [--work DIR] [--check]

The tar (10,000,000 entries by default: 5,000 to a package of 125 folders, every fourth with content,
every fiftieth a hard link) comes through a pipe, so that layer-pack sees each byte once. The bounds:
peak memory within 512 MiB, and the same layer from both orders.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time

import harness

CHUNK_ENTRIES = 20_000
BLOCK = 512


def permutation(count, seed):
    """0 … count - 1 in a pseudo-random order: a full-period generator over the next power of two."""
    modulus = 1 << max(1, (count - 1).bit_length())
    at = seed % modulus
    for _ in range(modulus):
        at = (at * 1664525 + 1013904223) % modulus
        if at < count:
            yield at


def path_of(number):
    return b"usr/lib/package-%d/module-%d/source-file-%d.py" % (number // 5000, number // 40 % 125, number)


def header(name, kind, size, number, link=b""):
    """A ustar header. The sum of all bytes is taken with spaces in place of the checksum."""
    fields = (b"%s%s0000644\x000000000\x000000000\x00%011o\x00%011o\x00"
              % (name, bytes(100 - len(name)), size, 1_700_000_000 + number % 1000))
    rest = kind + link + bytes(100 - len(link)) + b"ustar\x0000"
    checksum = sum(fields) + 8 * 32 + sum(rest)
    return b"%s%06o\x00 %s%s" % (fields, checksum, rest, bytes(BLOCK - 156 - len(rest)))


def member(number):
    name = path_of(number)
    if number % 50 == 49:
        return header(name, b"1", 0, number - 1, path_of(number - 1))
    if number % 4:
        return header(name, b"0", 0, number)
    content = b"content of file %d\n" % number
    return header(name, b"0", len(content), number) + content + bytes(BLOCK - len(content))


def pack(count, seed, store):
    """Streams the tar into layer-pack; returns its layers and its usage."""
    start = time.monotonic()
    child = subprocess.Popen([harness.program("layer-pack"), "build", "-", "--store", f"file://{store}",
                              "--tag", "many:1", "--json"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    numbers = permutation(count, seed)
    while batch := list(itertools.islice(numbers, CHUNK_ENTRIES)):
        child.stdin.write(b"".join(map(member, batch)))
    child.stdin.write(bytes(2 * BLOCK))
    child.stdin.close()
    with child.stdout:
        answer = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"layer-pack ended with {child.returncode}")
    return json.loads(answer)["layers"], harness.Usage(
        time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description="Packs a tar of very many entries.")
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--work", default="/var/tmp/varve-pack-scale-bench")
    parser.add_argument("--check", action="store_true", help="fail when a bound is not met")
    arguments = parser.parse_args()
    report = harness.Report("pack_scale")
    layers = []
    with harness.scratch(arguments.work) as work:
        for seed in (1, 2):
            built, usage = pack(arguments.entries, seed, work / f"store-{seed}")
            layers.append(built)
            report.add(f"order {seed}", {
                "entries": arguments.entries, "layers": built, "wall_s_with_the_maker": usage.wall_s,
                "cpu_s": usage.cpu_s, "peak_mib": usage.peak_mib,
                "stored_bytes": harness.stored_bytes(work / f"store-{seed}")})
            report.bound(f"peak memory, order {seed}, MiB", usage.peak_mib, "<=", 512)
    report.bound("different layers from two orders", len(set(map(tuple, layers))), "<=", 1)
    return report.finish(arguments.check)


if __name__ == "__main__":
    sys.exit(main())
