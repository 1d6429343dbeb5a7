#!/usr/bin/env python3
"""Resident memory of varvefs with 1, 100 and 1,000 layers attached, idle and after a full read.

    memory_bench.py [--layers N,N,...] [--work DIR] [--check]

The first layer is the Debian tree, the others are small trees that differ in one file. Counted is
RssAnon, the process's private memory. Idle: attached and mounted. After a full read: every file of
the Debian tree was read through the mount. The bound: an attached idle layer adds at most 64 KiB,
from the first to the last.
"""

import argparse
import subprocess
import sys

import harness

sys.path.insert(0, str(harness.REPOSITORY / "tests/support"))
import kernel_mounts
import make_trees
import varvefs_client


def build(source, store, tag):
    subprocess.run([harness.program("layer-pack"), "build", source, "--store", f"file://{store}",
                    "--tag", tag], check=True, stdout=subprocess.DEVNULL)


def make_layers(store, count, work):
    """The Debian tree as layer:0, and count - 1 small layers; returns their names."""
    build(harness.debian_tree() / "v1", store, "layer:0")
    make_trees.make_small(work / "small")
    for i in range(1, count):
        (work / "small/etc/number").write_text(f"{i}\n")
        build(work / "small", store, f"layer:{i}")
        if i % 100 == 0:
            harness.say(f"packed {i} small layers")
    return [f"layer:{i}" for i in range(count)]


def measure(names, counts, store, work):
    """Resident KiB by number of layers attached, idle, and then after a full read."""
    found = {}
    target = work / "mnt"
    target.mkdir()
    with varvefs_client.Varvefs(harness.program("varvefs"), str(work / "run")) as server:
        found["none"] = server.resident_kib()
        connection = server.connect()
        for number, name in enumerate(names, start=1):
            _, mounts = varvefs_client.attach(connection, f"file://{store}", name, mounts=True)
            if number == 1:
                kernel_mounts.attach_mount(mounts[0], target)
            varvefs_client.close_all(mounts)
            if number in counts:
                found[f"{number} idle"] = server.resident_kib()
                harness.say(f"{number} layers: {found[f'{number} idle']} KiB")
        subprocess.run([harness.program("tree_reader"), "cat", target, "2"], check=True,
                       stdout=subprocess.DEVNULL)
        found[f"{len(names)} after a full read"] = server.resident_kib()
        kernel_mounts.unmount(target)
    return found


def main():
    parser = argparse.ArgumentParser(description="Resident memory of varvefs by attached layers.")
    parser.add_argument("--layers", default="1,100,1000")
    parser.add_argument("--work", default="/var/tmp/varve-memory-bench")
    parser.add_argument("--check", action="store_true", help="fail when the bound is not met")
    arguments = parser.parse_args()
    counts = sorted(int(count) for count in arguments.layers.split(","))
    report = harness.Report("memory")
    kernel_mounts.private_namespace()
    with harness.scratch(arguments.work) as work:
        names = make_layers(work / "store", counts[-1], work)
        found = measure(names, counts, work / "store", work)
    report.add("resident_kib", found)
    first, last = counts[0], counts[-1]
    if last > first:
        report.bound("memory of an idle layer, KiB",
                     (found[f"{last} idle"] - found[f"{first} idle"]) / (last - first), "<=", 64)
    return report.finish(arguments.check)


if __name__ == "__main__":
    sys.exit(main())
