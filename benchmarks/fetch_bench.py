#!/usr/bin/env python3
"""What one cold command fetches of an image, and what an edit adds to a store.

    fetch_bench.py [--rounds N] [--work DIR] [--check] [--skip-run]

Fetch: `varve run` of a python import on the cold Debian image. Fetched are stored bytes moved from
the store, touched are the image's pages asked for through FUSE, read-ahead included; used are the
pages that the same command touches in a calibration run with read-ahead 0. Bounds: fetched at most
5 % of the image's stored bytes, and at most 2.5 x the bytes used.

Edits: a second version with 300 edited small files, spread evenly, stores at most 4 x their
compressed size plus its metadata region; one with 64 bytes changed inside a file of at least 1 MiB
stores at most 2 chunks more. Chunks and bytes are counted from the store's objects by
tests/support/store_reader.py.
"""

import argparse
import json
import os
import subprocess
import sys

import harness

sys.path.insert(0, str(harness.REPOSITORY / "tests/support"))
import kernel_mounts
import store_reader
import varvefs_client

COMMAND = ["python3", "-c", "import json, asyncio, http.server"]
EDITS = 300
SMALL_FILE_BYTES = range(256, 64 << 10)
LARGE_FILE_BYTES = 1 << 20
FILES_SHOWN = 10


def build(source, store, tag):
    """Packs a tree and returns the id of its layer."""
    done = subprocess.run([harness.program("layer-pack"), "build", source, "--store",
                           f"file://{store}", "--tag", tag, "--json"], check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)["layers"][-1]


def compressed_size(data):
    return len(subprocess.run(["zstd", "-3", "-c", "-q"], input=data, check=True,
                              stdout=subprocess.PIPE).stdout)


def plain_files(tree, sizes):
    """The regular files of the tree with one name and such a size, in bytewise order of path."""
    found = []
    for path in sorted(tree.rglob("*"), key=os.fsencode):
        if path.is_file() and not path.is_symlink():
            status = path.lstat()
            if status.st_nlink == 1 and status.st_size in sizes:
                found.append(path)
    return found


def edit_small_files(tree):
    """Puts a line into the middle of 300 small files; returns their compressed size in all."""
    files = plain_files(tree, SMALL_FILE_BYTES)
    edited = 0
    for i in range(EDITS):
        path = files[i * len(files) // EDITS]
        data = path.read_bytes()
        data = data[:len(data) // 2] + b"# edited\n" + data[len(data) // 2:]
        path.write_bytes(data)
        edited += compressed_size(data)
    return edited


def edit_large_file(tree):
    """Changes 64 bytes in the middle of the first large file and keeps its time: only data moves."""
    path = plain_files(tree, range(LARGE_FILE_BYTES, 1 << 40))[0]
    status = path.stat()
    with open(path, "r+b") as out:
        out.seek(status.st_size // 2)
        out.write(b"\x5a" * 64)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return path


def measure_edits(report, tree, store, work):
    """Packs an edited copy of the tree twice and counts what each adds to the store."""
    copy = work / "edited"
    subprocess.run(["cp", "-a", tree, copy], check=True)
    before = store_reader.read_chunks(store)
    compressed = edit_small_files(copy)
    harness.say(f"edited {EDITS} files, {compressed / 1e3:.0f} kB compressed")
    layer = store_reader.read_layer(store, build(copy, store, "tree:edited"))
    after = store_reader.read_chunks(store)
    added = sum(after[chunk].stored_size for chunk in after.keys() - before.keys())
    metadata = sum(after[chunk].stored_size for chunk in set(layer.metadata_chunks()))
    report.add("300_small_edits", {
        "files_compressed_bytes": compressed, "metadata_stored_bytes": metadata,
        "added_bytes": added, "added_chunks": len(after.keys() - before.keys()),
        "added_over_compressed": (added - metadata) / compressed})
    report.bound("bytes stored for 300 small edits over 4 x compressed + metadata",
                 added / (4 * compressed + metadata), "<=", 1.0)
    path = edit_large_file(copy)
    build(copy, store, "tree:large-edit")
    last = store_reader.read_chunks(store)
    report.add("large_edit", {"file": str(path.relative_to(copy)), "bytes": path.stat().st_size,
                              "added_chunks": len(last.keys() - after.keys()),
                              "added_bytes": sum(last[chunk].stored_size
                                                 for chunk in last.keys() - after.keys())})
    report.bound("chunks stored for an edit in a large file", len(last.keys() - after.keys()), "<=", 2)


def layer_stats(connection, layer):
    stats, _ = connection.call("GET", f"/v1/stats?layer={layer}")
    return stats["layers"][0] if "layers" in stats else stats


def used_bytes(store, layer, work):
    """The bytes of the pages that the command uses: what it touches with read-ahead 0."""
    target = work / "mnt"
    target.mkdir(exist_ok=True)
    with varvefs_client.Varvefs(harness.program("varvefs"), str(work / "run-used")) as server:
        connection = server.connect()
        before = kernel_mounts.backing_devices()
        answer, mounts = varvefs_client.attach(connection, f"file://{store}", "tree:1", mounts=True)
        kernel_mounts.attach_mount(mounts[0], target)
        varvefs_client.close_all(mounts)
        of_image = kernel_mounts.backing_device_of(answer["layers"][0]["path"])
        for device in kernel_mounts.backing_devices() - before | {of_image}:
            kernel_mounts.set_read_ahead(device, 0)
        before = layer_stats(connection, layer)["touched_bytes"]
        subprocess.run(["chroot", target, *COMMAND], check=True)
        used = layer_stats(connection, layer)["touched_bytes"] - before
        files, _ = connection.call("GET", f"/v1/stats/files?layer={layer}")
        kernel_mounts.unmount(target)
    subprocess.run(["rm", "-rf", work / "run-used"], check=True)
    return used, files


def measure_run(report, store, layer, stored, work, rounds):
    used, files = used_bytes(store, layer, work)
    runs = []
    for number in range(rounds):
        stats_file = work / "stats.json"
        run_dir = work / f"run-{number}"
        harness.drop_caches()
        with varvefs_client.Varvefs(harness.program("varvefs"), str(run_dir)):
            subprocess.run([harness.program("varve"), "run", "--run-dir", run_dir, "--stats", stats_file,
                            "--store", f"file://{store}", "tree:1", "--", *COMMAND], check=True)
        runs.append(json.loads(stats_file.read_text()))
        subprocess.run(["rm", "-rf", run_dir], check=True)
        harness.say(f"run {number + 1}: fetched {runs[-1]['fetched_bytes']} of "
                    f"{runs[-1]['stored_bytes']} bytes, touched {runs[-1]['touched_bytes']}")
    summaries = {key: harness.summary([run[key] for run in runs])
                 for key in ("touched_bytes", "fetched_bytes", "ready_ms", "exit_ms")}
    fetched = summaries["fetched_bytes"]["median"]
    report.add("python_import", {
        "stored_bytes": stored, "used_bytes": used, **summaries,
        "fetched_share": fetched / stored, "fetched_over_used": fetched / used,
        "most_touched_files": sorted(
            files["files"], key=lambda file: -file["touched_bytes"])[:FILES_SHOWN]})
    report.bound("share of the stored bytes fetched by a python import", fetched / stored, "<=", 0.05)
    report.bound("fetched over used bytes of a python import", fetched / used, "<=", 2.5)


def main():
    parser = argparse.ArgumentParser(description="What a cold command fetches, and an edit stores.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default="/var/tmp/varve-fetch-bench")
    parser.add_argument("--check", action="store_true", help="fail when a bound is not met")
    parser.add_argument("--skip-run", action="store_true", help="only the edits")
    arguments = parser.parse_args()
    report = harness.Report("fetch")
    kernel_mounts.private_namespace()
    with harness.scratch(arguments.work) as work:
        tree, store = harness.debian_tree() / "v1", work / "store"
        layer = build(tree, store, "tree:1")
        stored = store_reader.stored_bytes(store_reader.read_layer(store, layer),
                                           store_reader.read_chunks(store))
        if not arguments.skip_run:
            measure_run(report, store, layer, stored, work, arguments.rounds)
        measure_edits(report, tree, store, work)
    return report.finish(arguments.check)


if __name__ == "__main__":
    sys.exit(main())
