#!/usr/bin/env python3
"""Cold reads through varvefs, both transports and both views, beside the kernel's own EROFS.

    fs_read_bench.py --varvefs PROGRAM --store URL --image REF --native IMAGE_FILE [--rounds N]

Each round runs every contestant once, on a fresh mount with dropped caches: the whole of the large
files sequentially, then 4 KiB at random places of them. IMAGE_FILE is an EROFS image of the same
tree (mkfs.erofs -zlz4hc), mounted through a loop device. As root.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import harness

sys.path.insert(0, str(harness.REPOSITORY / "tests" / "support"))

import varvefs_client  # noqa: E402

LARGE_BYTES_MIN = 256 << 10
READ_BYTES = 1 << 20
PAGE_BYTES = 4096
# The bound of cold data: a share of what native lz4hc reaches.
SEQUENTIAL_SHARE_MIN = 0.6


def large_files(root):
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                size = os.path.getsize(path)
                if size >= LARGE_BYTES_MIN:
                    found.append((os.path.relpath(path, root), size))
    return sorted(found)


def sequential_mb_s(root, files):
    buffer = bytearray(READ_BYTES)
    count = 0
    start = time.monotonic()
    for path, _ in files:
        with open(os.path.join(root, path), "rb", buffering=0) as file:
            while size := file.readinto(buffer):
                count += size
    return count / 1e6 / (time.monotonic() - start)


def random_us(root, files, count, seed):
    chooser = random.Random(seed)
    weights = [size for _, size in files]
    times = []
    for path, size in chooser.choices(files, weights, k=count):
        descriptor = os.open(os.path.join(root, path), os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        offset = chooser.randrange(size // PAGE_BYTES) * PAGE_BYTES
        start = time.monotonic_ns()
        os.pread(descriptor, PAGE_BYTES, offset)
        times.append((time.monotonic_ns() - start) / 1000)
        os.close(descriptor)
    return times


class Native:
    def __init__(self, image, work):
        self.image, self.root = image, os.path.join(work, "native")
        os.makedirs(self.root)

    def __enter__(self):
        subprocess.run(["mount", "-t", "erofs", "-o", "ro,loop", self.image, self.root], check=True)
        return self.root

    def __exit__(self, *_):
        subprocess.run(["umount", self.root], check=True)


class Varve:
    def __init__(self, arguments, transport, view, work):
        self.arguments, self.transport, self.view = arguments, transport, view
        self.work = work
        self.server = None
        self.descriptors = []

    def __enter__(self):
        run_dir = tempfile.mkdtemp(dir=self.work)
        os.rmdir(run_dir)
        self.server = varvefs_client.Varvefs(self.arguments.varvefs, run_dir, "--transport",
                                             self.transport).__enter__()
        start = time.monotonic()
        answer, self.descriptors = varvefs_client.attach(
            self.server.connect(), self.arguments.store, self.arguments.image, mounts=True)
        self.attach_ms = (time.monotonic() - start) * 1000
        if self.view == "tree":
            return answer["layers"][-1]["tree"]
        return f"/proc/self/fd/{self.descriptors[-1]}"

    def __exit__(self, *_):
        varvefs_client.close_all(self.descriptors)
        self.server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--varvefs", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--native", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as work:
        contestants = {"native_lz4hc": Native(arguments.native, work)}
        for transport in ("ring", "dev"):
            for view in ("kernel", "tree"):
                contestants[f"{transport}_{view}"] = Varve(arguments, transport, view, work)
        found = {name: {"sequential_mb_s": [], "random_us": [], "attach_ms": []}
                 for name in contestants}
        for round_number in range(arguments.rounds):
            for name, contestant in contestants.items():
                harness.say(f"round {round_number + 1}: {name}")
                harness.drop_caches()
                with contestant as root:
                    files = large_files(root)
                    found[name]["sequential_mb_s"].append(sequential_mb_s(root, files))
                    if isinstance(contestant, Varve):
                        found[name]["attach_ms"].append(contestant.attach_ms)
                harness.drop_caches()
                with contestant as root:
                    found[name]["random_us"] += random_us(root, files, arguments.samples,
                                                          round_number)
        results = {name: {what: harness.summary(samples) for what, samples in figures.items()
                          if samples} for name, figures in found.items()}
        native = results["native_lz4hc"]["sequential_mb_s"]["median"]
        shares = {name: figures["sequential_mb_s"]["median"] / native
                  for name, figures in results.items()}
        print(json.dumps({
            "machine": harness.machine(), "results": results, "sequential_share_of_native": shares,
            "bounds": {"sequential_share_min": SEQUENTIAL_SHARE_MIN,
                       "kept": all(shares[name] >= SEQUENTIAL_SHARE_MIN
                                   for name in ("ring_kernel", "dev_kernel"))}}, indent=2))


if __name__ == "__main__":
    main()
