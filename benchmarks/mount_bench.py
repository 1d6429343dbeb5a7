#!/usr/bin/env python3
"""Mounts one Debian tree with varvefs and with its peers, and times what programs do with it.

    mount_bench.py [--rounds N] [--only NAME,...] [--operations NAME,...] [--work DIR] [--check]

Contestants: the kernel's EROFS on the exported, uncompressed image (native) and on two made with
mkfs.erofs -zlz4hc, with its default clusters of 4 KiB (native-lz4hc) and with those of 64 KiB
(native-lz4hc-64k); squashfuse_ll; and varvefs by each transport, through the kernel's EROFS on
image.erofs (varve-ring, varve-dev) and through its own tree view (tree-ring, tree-dev).

Each operation is timed on a fresh mount by a fresh server with dropped caches (cold), and then
five times again (warm): attach+mount, find with stat, full read, opening 5,000 files, 3,200 random
reads of 4 KiB by 16 threads, 3,200 such reads by each of them (random-many), a python import, and
git status in a clone. Warm random reads, of which 3,200 take 2 ms, read the same pages
sixty-four times over (random-many: four times). Contestants take turns.

The bounds, for both transports: metadata and warm data at least 0.9 x native; cold data at least
0.6 x native lz4hc, of each cluster size, and faster than squashfuse; attach and mount within 15 ms.
stored_bytes is what the tree takes in each form.

A cold random read has to decompress and verify a whole chunk, where native lz4hc decompresses one
cluster and verifies nothing. What that alone costs on all CPUs is measured by chunk_decode_bench and
reported beside the figure, as random_cold_bound. random-many shows what becomes of that cost when
each chunk is read several times: `chunks` is how many were decoded for its reads.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import harness

sys.path.insert(0, str(harness.REPOSITORY / "tests/support"))
import kernel_mounts
import varvefs_client

READERS = 16
RANDOM_READS = 3200
MANY_RANDOM_READS = READERS * RANDOM_READS
OPENS = 5000
WARM_RUNS = 5
# So many that one sample takes 50 ms or more.
WARM_RANDOM_READS = 64 * RANDOM_READS
IMPORTS = "import json, asyncio, http.server"
READY_TIMEOUT_S = 20
# Name of a contestant -> what mkfs.erofs is told beside the compressor.
LZ4HC_OPTIONS = {"native-lz4hc": [], "native-lz4hc-64k": ["-C65536"]}


class KernelErofs:
    """The kernel's EROFS on an image file."""

    def __init__(self, image):
        self.image = image

    def serve(self, target):
        pass

    def mount(self, target):
        kernel_mounts.mount(self.image, target, "erofs")
        return target

    def unmount(self, target):
        kernel_mounts.unmount(target)

    def end(self):
        pass

    def fetched_chunks(self):
        return None


class Squashfuse:
    """squashfuse_ll in the foreground; its start is part of its mount."""

    def __init__(self, image):
        self.image = image

    def serve(self, target):
        pass

    def mount(self, target):
        device = target.stat().st_dev
        self.child = subprocess.Popen(["squashfuse_ll", "-f", self.image, target])
        deadline = time.monotonic() + READY_TIMEOUT_S
        while target.stat().st_dev == device:
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("squashfuse_ll did not mount")
            time.sleep(0.0002)
        return target

    def unmount(self, target):
        kernel_mounts.unmount(target)
        self.child.wait(READY_TIMEOUT_S)

    def end(self):
        pass

    def fetched_chunks(self):
        return None


class Varvefs:
    """varvefs by one transport, through one of its two views. The server runs before the mount."""

    def __init__(self, store, transport, view):
        self.store, self.transport, self.view = store, transport, view

    def serve(self, target):
        self.server = varvefs_client.Varvefs(
            harness.program("varvefs"), str(target) + ".run", "--transport", self.transport)
        self.server.__enter__()
        if self.server.status["transport"] != self.transport:
            raise RuntimeError(f"varvefs serves by {self.server.status['transport']}")

    def mount(self, target):
        self.connection = self.server.connect()
        with_mounts = self.view == "image"
        answer, mounts = varvefs_client.attach(
            self.connection, f"file://{self.store}", "tree:bench", mounts=with_mounts)
        if not with_mounts:
            return pathlib.Path(answer["layers"][0]["tree"])
        kernel_mounts.attach_mount(mounts[0], target)
        varvefs_client.close_all(mounts)
        return target

    def unmount(self, target):
        if self.view == "image":
            kernel_mounts.unmount(target)

    def end(self):
        self.server.stop()

    def fetched_chunks(self):
        """How many chunks it decoded so far."""
        return self.connection.call("GET", "/v1/stats")[0]["total"]["fetched_chunks"]


def reader(*arguments):
    """Runs tree_reader and returns what it printed."""
    done = subprocess.run([harness.program("tree_reader"), *map(str, arguments)], check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def timed(command):
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {"seconds": time.monotonic() - start}


def operations(file_list, random_reads_min=0):
    """Name -> function of the mounted root that returns at least "seconds".

    Random pages are read again until there are `random_reads_min` reads.
    """
    def random(root, pages):
        passes = max(1, random_reads_min // pages)
        return reader("--list-first", file_list, "random", root, READERS, pages, passes)

    return {
        "find": lambda root: reader("find", root),
        "read": lambda root: reader("--list-first", file_list, "cat", root, 1),
        "open": lambda root: reader("--list-first", file_list, "open", root, OPENS),
        "random": lambda root: random(root, RANDOM_READS),
        "random-many": lambda root: random(root, MANY_RANDOM_READS),
        "python": lambda root: timed(["chroot", root, "python3", "-c", IMPORTS]),
        "git": lambda root: timed(["git", "-c", "safe.directory=*", "--no-optional-locks", "-C",
                                   root / "srv/clone", "status", "--porcelain"]),
    }


def prepare_tree(work):
    """The Debian tree, with a git clone of a part of it in srv/clone."""
    tree = work / "tree"
    subprocess.run(["cp", "-a", harness.debian_tree() / "v1", tree], check=True)
    clone = tree / "srv/clone"
    clone.mkdir()
    subprocess.run(["cp", "-a", tree / "usr/include", tree / "usr/lib/python3.11", clone], check=True)
    git = ["git", "-C", clone, "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    # A copy has other inode numbers and ctimes than the index holds, as every checkout in an image.
    for key, value in (("core.trustctime", "false"), ("core.checkStat", "minimal")):
        subprocess.run([*git, "config", key, value], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)
    return tree


def prepare(names, tree, work):
    """Packs the tree in each form that is needed; returns name -> contestant."""
    store = work / "store"
    if set(names) - {"squashfuse", *LZ4HC_OPTIONS}:
        layer_pack = harness.program("layer-pack")
        url = f"file://{store}"
        subprocess.run([layer_pack, "build", tree, "--store", url, "--tag", "tree:bench"],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([layer_pack, "export", "tree:bench", "--store", url, "--erofs",
                        work / "native.erofs"], check=True, stdout=subprocess.DEVNULL)
    for name in LZ4HC_OPTIONS.keys() & set(names):
        subprocess.run(["mkfs.erofs", "--quiet", "-zlz4hc", *LZ4HC_OPTIONS[name],
                        work / f"{name}.erofs", tree], check=True, stdout=subprocess.DEVNULL)
    if "squashfuse" in names:
        subprocess.run(["mksquashfs", tree, work / "tree.sqfs", "-comp", "zstd",
                        "-Xcompression-level", "3", "-noappend", "-no-progress", "-quiet"], check=True,
                       stdout=subprocess.DEVNULL)
    every = {
        "native": KernelErofs(work / "native.erofs"),
        **{name: KernelErofs(work / f"{name}.erofs") for name in LZ4HC_OPTIONS},
        "squashfuse": Squashfuse(work / "tree.sqfs"),
        "varve-ring": Varvefs(store, "ring", "image"),
        "varve-dev": Varvefs(store, "dev", "image"),
        "tree-ring": Varvefs(store, "ring", "tree"),
        "tree-dev": Varvefs(store, "dev", "tree"),
    }
    return {name: every[name] for name in names}


def add_stored_bytes(report, contestants):
    """What the tree takes on disk in each form; the views of varvefs share one store."""
    forms = {"varve" if isinstance(contestant, Varvefs) else name:
             contestant.store if isinstance(contestant, Varvefs) else contestant.image
             for name, contestant in contestants.items()}
    report.add("stored_bytes", {name: harness.stored_bytes(path) for name, path in forms.items()})


def measure_once(contestant, cold, warm, target, samples):
    """One operation, cold and warm, on a fresh mount; adds to samples[state]."""
    target.mkdir()
    contestant.serve(target)
    try:
        harness.drop_caches()
        start = time.monotonic()
        root = contestant.mount(target)
        (root / "usr").stat()
        samples["mount"].append({"seconds": time.monotonic() - start})
        try:
            harness.drop_caches()
            chunks = contestant.fetched_chunks()
            samples["cold"].append(cold(root))
            if chunks is not None:
                samples["cold"][-1]["chunks"] = contestant.fetched_chunks() - chunks
            for _ in range(WARM_RUNS):
                samples["warm"].append(warm(root))
        finally:
            contestant.unmount(target)
    finally:
        contestant.end()
        subprocess.run(["rm", "-rf", f"{target}.run"], check=True)
        target.rmdir()


def measure(contestants, chosen, file_list, work, rounds):
    """operation -> contestant -> state -> list of samples; mounts are an operation of their own."""
    cold, warm = operations(file_list), operations(file_list, WARM_RANDOM_READS)
    found = {operation: {name: {"mount": [], "cold": [], "warm": []} for name in contestants}
             for operation in chosen}
    for round_number in range(rounds):
        for operation in chosen:
            for name, contestant in contestants.items():
                samples = found[operation][name]
                measure_once(contestant, cold[operation], warm[operation], work / "mnt", samples)
                harness.say(f"round {round_number + 1} {operation} {name}:"
                            f" cold {samples['cold'][-1]['seconds'] * 1000:.1f} ms,"
                            f" warm {samples['warm'][-1]['seconds'] * 1000:.1f} ms")
    return found


def median_s(found, operation, name, state):
    return harness.summary([sample["seconds"] for sample in found[operation][name][state]])["median"]


def add_results(report, found, contestants):
    for operation, by_name in found.items():
        report.add(operation, {name: {state: {
            key: harness.summary([sample[key] for sample in samples[state]])
            for key in samples[state][0]} for state in ("cold", "warm")}
            for name, samples in by_name.items()})
    report.add("attach+mount", {name: harness.summary(
        [sample["seconds"] for by_name in found.values() for sample in by_name[name]["mount"]])
        for name in contestants})


def add_random_bound(report, found, contestants, work):
    """What decoding the chunks that the random reads hit takes all CPUs, beside what was measured."""
    names = [name for name in found.get("random", {}) if name.startswith("varve-")]
    if not names:
        return
    done = subprocess.run([harness.program("chunk_decode_bench"), f"file://{work / 'store'}",
                           "tree:bench"], check=True, stdout=subprocess.PIPE)
    decode = json.loads(done.stdout)
    bounds = {"decode": decode}
    for name in names:
        samples = found["random"][name]["cold"]
        bound_s = (harness.summary([sample["chunks"] for sample in samples])["median"]
                   * decode["chunk_us"] / 1e6)
        bounds[name] = {"bound_seconds": bound_s,
                        "measured_over_bound": median_s(found, "random", name, "cold") / bound_s}
        for peer in LZ4HC_OPTIONS.keys() & contestants.keys():
            bounds[name][f"speed_over_{peer}_at_most"] = (
                median_s(found, "random", peer, "cold") / bound_s)
        harness.say(f"{name} random cold: {bounds[name]}")
    report.add("random_cold_bound", bounds)


def add_bounds(report, found, contestants):
    metadata = [("find", "cold"), ("find", "warm"), ("open", "cold"), ("open", "warm"), ("git", "warm")]
    warm = [("read", "warm"), ("random", "warm"), ("python", "warm")]
    cold = [("read", "cold"), ("random", "cold"), ("python", "cold")]
    for name in ("varve-ring", "varve-dev"):
        if name not in contestants:
            continue
        for peer, limit, pairs in (("native", 0.9, metadata + warm),
                                   *((peer, 0.6, cold) for peer in LZ4HC_OPTIONS),
                                   ("squashfuse", 1.0, cold)):
            for operation, state in pairs:
                if operation in found and peer in contestants:
                    report.bound(f"{name} {operation} {state}, speed over {peer}",
                                 median_s(found, operation, peer, state)
                                 / median_s(found, operation, name, state), ">=", limit)
        mounts = report.document["results"]["attach+mount"][name]
        report.bound(f"{name} attach+mount, ms", mounts["median"] * 1000, "<=", 15)


def main():
    parser = argparse.ArgumentParser(description="Times what programs do with a mounted tree.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="native,native-lz4hc,native-lz4hc-64k,squashfuse,"
                                          "varve-ring,varve-dev,tree-ring,tree-dev")
    parser.add_argument("--operations", default="find,read,open,random,random-many,python,git")
    parser.add_argument("--work", default="/var/tmp/varve-mount-bench")
    parser.add_argument("--check", action="store_true", help="fail when a bound is not met")
    arguments = parser.parse_args()
    report = harness.Report("mount")
    kernel_mounts.private_namespace()
    with harness.scratch(arguments.work) as work:
        tree = prepare_tree(work)
        contestants = prepare(arguments.only.split(","), tree, work)
        file_list = work / "files"
        reader("--list-first", file_list, "open", tree, 1)
        found = measure(contestants, arguments.operations.split(","), file_list, work,
                        arguments.rounds)
        add_random_bound(report, found, contestants, work)
        add_stored_bytes(report, contestants)
    add_results(report, found, contestants)
    add_bounds(report, found, contestants)
    return report.finish(arguments.check)


if __name__ == "__main__":
    sys.exit(main())
