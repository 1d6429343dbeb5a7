#!/usr/bin/env python3
"""Packs a tree in every way, and compares what comes out with what went in, path by path.

    pack_and_compare.py --layer-pack PROGRAM [--varvefs PROGRAM] [--tree NAME] [--shuffles N] [--work DIR]

One layer id must come from the directory (twice, into two stores), from a tar of it, and from that
tar shuffled N ways. The exported EROFS image must please fsck.erofs; the kernel's mount of it, the
exported tar and, with --varvefs, the lazy mount of image.erofs and tree/ on every transport must
equal the source in every attribute that compare_trees.py knows. A small image is also read with
store_reader.py, which knows the format from its man pages alone.

Trees: debian (>= 600 MB, make-debian-tree), small and hostile (make_trees.py; only directories can
hold all of hostile, hostile-tar is what survives GNU tar), big (all three versions of the Debian
tree beside 1 GiB of noise: a tar of 3 GB).
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import compare_trees
import kernel_mounts
import make_trees
import store_reader
import varvefs_client

NOISE_MIB = 1024
HOSTILE_ENTRIES = 100_000
HOSTILE_SPARSE_BYTES = 5 << 30
SECOND_READER_BYTES = 32 << 20  # it starts a process a chunk
DIFFERENCES_SHOWN = 20


class Check:
    """Runs the steps in one scratch folder and counts what failed."""

    def __init__(self, arguments, work):
        self.layer_pack = arguments.layer_pack
        self.varvefs = arguments.varvefs
        self.work = work
        self.failures = 0
        self.start = time.monotonic()

    def say(self, text):
        print(f"[{time.monotonic() - self.start:6.1f} s] {text}", flush=True)

    def expect(self, condition, text):
        self.say(f"{'ok' if condition else 'FAILED'}: {text}")
        self.failures += not condition

    def build(self, source, store):
        """Packs `source`; returns the ids of the image's layers."""
        done = subprocess.run([self.layer_pack, "build", source, "--store", f"file://{store}",
                               "--tag", "tree:test", "--json"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)["layers"]

    def export(self, store, flag, target):
        subprocess.run([self.layer_pack, "export", "tree:test", "--store", f"file://{store}", flag,
                        target], check=True, stdout=subprocess.DEVNULL)

    def compare(self, what, source, other, **options):
        left, right = compare_trees.tree_at(source), compare_trees.tree_at(other)
        found = list(compare_trees.differences(left, right, **options))
        for path, name, a, b in found[:DIFFERENCES_SHOWN]:
            print(f"    {os.fsdecode(path)!r}: {name}: {compare_trees.shown(name, a)} /"
                  f" {compare_trees.shown(name, b)}")
        right.close()
        self.expect(not found, f"{what}: {len(left.nodes)} paths, {len(found)} differences")

    @contextlib.contextmanager
    def erofs(self, image):
        """The kernel's mount of an image file."""
        target = self.work / "mnt"
        target.mkdir()
        kernel_mounts.mount(image, target, "erofs")
        try:
            yield target
        finally:
            kernel_mounts.unmount(target)
            target.rmdir()


def make_tree(kind, work):
    """The source tree: in `work`, or a cached one that must not be changed."""
    if kind == "small":
        make_trees.make_small(work / "source")
    elif kind.startswith("hostile"):
        make_trees.make_hostile(work / "source", HOSTILE_ENTRIES, HOSTILE_SPARSE_BYTES,
                                for_tar=kind == "hostile-tar")
    else:
        made = subprocess.run([SUPPORT / "make-debian-tree"], stdout=subprocess.PIPE, text=True,
                              check=True)
        versions = pathlib.Path(made.stdout.strip())
        if kind == "debian":
            return versions / "v1"
        (work / "source").mkdir()
        for version in ("v1", "v2", "v3"):
            subprocess.run(["cp", "-a", versions / version, work / "source"], check=True)
        make_trees.Maker(work / "source/noise", "big").file(
            "noise", b"".join(make_trees.random.Random(1).randbytes(1 << 20) for _ in range(NOISE_MIB)))
    return work / "source"


def check_sources(check, kind, source, shuffles):
    """One layer id from every kind of source; returns the store and the layers."""
    store = check.work / "store"
    expected = check.build(source, store)
    check.say(f"packed the directory: {expected}")
    again = check.work / "store-again"
    check.expect(check.build(source, again) == expected, "the directory again, into another store")
    shutil.rmtree(again)
    if kind == "hostile":  # GNU tar would lose some of it
        return store, expected
    tar = check.work / "source.tar"
    sparse = ["--sparse"] if kind == "hostile-tar" else []  # else its 5 GiB of holes are written out
    subprocess.run(["tar", "--format=posix", "--xattrs", "--acls", "--numeric-owner", *sparse,
                    "-C", source, "-cf", tar, "."], check=True)
    check.expect(check.build(tar, store) == expected, f"a tar of {tar.stat().st_size / 1e6:.0f} MB")
    shuffled = check.work / "shuffled.tar"
    for seed in range(shuffles):
        subprocess.run([SUPPORT / "shuffle_tar.py", str(seed), tar, shuffled], check=True)
        check.expect(check.build(shuffled, store) == expected, f"the tar, shuffled with seed {seed}")
        shuffled.unlink()
    tar.unlink()
    return store, expected


def check_exports(check, source, store, layers):
    image = check.work / "image.erofs"
    check.export(store, "--erofs", image)
    # erofs-utils 1.5 recurses into directories: a tree 1,000 deep needs more stack.
    fsck = subprocess.run(["prlimit", "--stack=unlimited", "fsck.erofs", image], capture_output=True, text=True, check=False)
    check.expect(fsck.returncode == 0, f"fsck.erofs accepts the image {fsck.stderr[-500:]}")
    with check.erofs(image) as mounted:
        check.compare("kernel mount of the exported image", source, mounted)
    if image.stat().st_size < SECOND_READER_BYTES:
        read = store_reader.read_image(store, layers[0])
        check.expect(read == image.read_bytes(), "a second reader of the store sees the same image")
    image.unlink()
    tar = check.work / "exported.tar"
    check.export(store, "--tar", tar)
    check.compare("exported tar", source, tar, sockets_differ=True)
    tar.unlink()


def check_lazy_mounts(check, source, store):
    transports = ["dev"]
    with open("/sys/module/fuse/parameters/enable_uring") as ring:
        transports += ["ring"] if ring.read().strip() == "Y" else []
    for transport in transports:
        with varvefs_client.Varvefs(check.varvefs, str(check.work / f"run-{transport}"),
                                    "--transport", transport) as server:
            check.expect(server.status["transport"] == transport, f"varvefs serves by {transport}")
            answer, mounts = varvefs_client.attach(server.connect(), f"file://{store}", "tree:test",
                                                   mounts=True)
            target = check.work / "mnt"
            target.mkdir()
            kernel_mounts.attach_mount(mounts[0], target)
            varvefs_client.close_all(mounts)
            check.compare(f"lazy mount of image.erofs by {transport}", source, target)
            kernel_mounts.unmount(target)
            target.rmdir()
            check.compare(f"tree/ by {transport}", source, answer["layers"][0]["tree"])


def main():
    parser = argparse.ArgumentParser(description="Packs a tree in every way and compares.")
    parser.add_argument("--layer-pack", required=True)
    parser.add_argument("--varvefs")
    parser.add_argument("--tree", default="debian", choices=("debian", "hostile", "hostile-tar", "small", "big"))
    parser.add_argument("--shuffles", type=int, default=3)
    parser.add_argument("--work", default="/var/tmp")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("SKIP: root: mounting needs it")
        return 77
    kernel_mounts.private_namespace()
    work = pathlib.Path(arguments.work, f"varve-pack-and-compare-{os.getpid()}")
    work.mkdir()
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    try:
        check = Check(arguments, work)
        source = make_tree(arguments.tree, work)
        check.say(f"the source is {source}")
        store, layers = check_sources(check, arguments.tree, source,
                                      arguments.shuffles)
        check_exports(check, source, store, layers)
        if arguments.varvefs:
            check_lazy_mounts(check, source, store)
        check.say(f"{check.failures} checks failed")
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", work], check=False)
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
