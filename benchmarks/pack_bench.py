#!/usr/bin/env python3
"""Packs one Debian tree, and three versions of it, with layer-pack and with its peers.

    pack_bench.py [--rounds N] [--only NAME,...] [--work DIR] [--check]

Shown for each: wall time with the data on disk (sync counted for all), CPU time, the peak memory of
the largest process, stored bytes; with cold caches and with warm ones, interleaved. The bounds:
layer-pack, as it comes, is at least 1.4 x (cold) and 1.2 x (warm) as fast as the fastest peer at zstd
level 3, one version is no larger than squashfs's (at that level) and three versions no larger than
casync's. As it comes its compression is a little faster and weaker than level 3: varve-level-3 is
layer-pack with just that level, without a bound.
"""

import argparse
import shutil
import sys

import harness

VERSIONS = ("v1", "v2", "v3")
LEVEL_3_PEERS = ("tar.zst", "squashfs")


def commands(names):
    """Name -> function (tree, output folder, version) -> shell command, for the chosen contestants.

    Every version goes into the same folder, so that what deduplicates can.
    """
    every = {
        "varve": lambda tree, out, version:
            f"{harness.program('layer-pack')} build {tree} --store file://{out} --tag tree:{version}",
        "varve-level-3": lambda tree, out, version:
            f"{harness.program('layer-pack')} build {tree} --store file://{out} --tag tree:{version}"
            " --level 3",
        "tar.zst": lambda tree, out, version:
            f"tar --format=posix --xattrs --acls --numeric-owner -C {tree} -cf - . |"
            f" zstd -3 -T0 -q -o {out}/{version}.tar.zst",
        "squashfs": lambda tree, out, version:
            f"mksquashfs {tree} {out}/{version}.sqfs -comp zstd -Xcompression-level 3"
            " -noappend -no-progress -quiet",
        "erofs-lz4hc": lambda tree, out, version:
            f"mkfs.erofs --quiet -zlz4hc {out}/{version}.erofs {tree}",
        "casync": lambda tree, out, version:
            f"casync make --store={out}/store.castr {out}/{version}.caidx {tree}",
    }
    return {name: every[name] for name in names}


def pack(command, tree, out, version):
    return harness.run_timed(["bash", "-o", "pipefail", "-c", command(tree / version, out, version)],
                             sync_dir=out)


def measure_speed(contestants, tree, work, rounds):
    """Name -> "cold" or "warm" -> list of usages of packing v1; and name -> stored bytes."""
    usages = {name: {"cold": [], "warm": []} for name in contestants}
    stored = {}
    for round_number in range(rounds):
        for state in ("cold", "warm"):
            for name, command in contestants.items():
                out = work / "out"
                out.mkdir()
                harness.sync_filesystem(out)
                harness.drop_caches() if state == "cold" else harness.warm(tree / "v1")
                usage = pack(command, tree, out, "v1")
                usages[name][state].append(usage)
                stored[name] = harness.stored_bytes(out)
                harness.say(f"round {round_number + 1} {state} {name}: {usage.wall_s:.2f} s,"
                            f" {usage.cpu_s:.2f} s CPU, {stored[name] / 1e6:.1f} MB")
                shutil.rmtree(out)
    return usages, stored


def measure_versions(contestants, tree, work):
    """Name -> usages and stored bytes after each of the three versions, packed one after another."""
    found = {}
    for name, command in contestants.items():
        out = work / "out"
        out.mkdir()
        steps = []
        for version in VERSIONS:
            usage = pack(command, tree, out, version)
            steps.append({"version": version, "wall_s": usage.wall_s, "cpu_s": usage.cpu_s,
                          "stored_bytes_so_far": harness.stored_bytes(out)})
        found[name] = steps
        harness.say(f"three versions {name}: {steps[-1]['stored_bytes_so_far'] / 1e6:.1f} MB")
        shutil.rmtree(out)
    return found


def add_bounds(report, usages, stored, versions):
    if "varve" not in usages:
        return
    peers = [name for name in LEVEL_3_PEERS if name in usages]
    for state, limit in (("cold", 1.4), ("warm", 1.2)):
        if peers:
            median = {name: harness.summary([usage.wall_s for usage in usages[name][state]])["median"]
                      for name in ["varve", *peers]}
            fastest = min(peers, key=median.get)
            report.bound(f"speed over the fastest zstd-3 peer ({fastest}), {state}",
                         median[fastest] / median["varve"], ">=", limit)
    if "squashfs" in stored:
        report.bound("stored bytes over squashfs, one version",
                     stored["varve"] / stored["squashfs"], "<=", 1.0)
    if "casync" in versions:
        report.bound("stored bytes over casync, three versions",
                     versions["varve"][-1]["stored_bytes_so_far"]
                     / versions["casync"][-1]["stored_bytes_so_far"], "<=", 1.0)
    peak = max(usage.peak_mib for state in usages["varve"].values() for usage in state)
    report.bound("peak memory, MiB", peak, "<=", 512)


def main():
    parser = argparse.ArgumentParser(description="Packs a Debian tree with layer-pack and its peers.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="varve,varve-level-3,tar.zst,squashfs,erofs-lz4hc,casync")
    parser.add_argument("--work", default="/var/tmp/varve-pack-bench")
    parser.add_argument("--check", action="store_true", help="fail when a bound is not met")
    arguments = parser.parse_args()
    report = harness.Report("pack")
    contestants = commands(arguments.only.split(","))
    tree = harness.debian_tree()
    with harness.scratch(arguments.work) as work:
        usages, stored = measure_speed(contestants, tree, work, arguments.rounds)
        versions = measure_versions(contestants, tree, work)
    for name in contestants:
        report.add(name, {
            "stored_bytes": stored[name],
            "three_versions": versions[name],
            **{state: {field: harness.summary([getattr(usage, field) for usage in usages[name][state]])
                       for field in ("wall_s", "cpu_s", "peak_mib")}
               for state in ("cold", "warm")}})
    add_bounds(report, usages, stored, versions)
    return report.finish(arguments.check)


if __name__ == "__main__":
    sys.exit(main())
