#!/usr/bin/env python3
"""Makes layer-pack fail in the ways that sources and machines do, and looks at what is left.

    layer_pack_failures.py LAYER_PACK [unittest arguments]

Whatever fails must end with a message that names the path and a non-zero status, publish nothing,
and leave a store that `verify` finds clean and the next build can use. And what need not fail must
not: with little memory, what does not fit is spilled and the layer stays the same.
"""

import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

LAYER_PACK = None
PUBLISHED = ("refs", "images", "layers", "placements")
RUN_TIMEOUT_S = 300
NOBODY = 65534
MEMORY_MAX_BYTES = 512 << 20


# A process's peak counts what its parent held when it was started, so a small parent starts it.
MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


class FailureTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir="/var/tmp", prefix="varve-failures-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.folder.chmod(0o777)
        self.store = self.folder / "store"
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")

    def start(self, *arguments, **options):
        program = LAYER_PACK
        if "user" in options:
            # The build may lie where only root can go, as below /root.
            program = self.folder / "layer-pack"
            shutil.copy(LAYER_PACK, program)
        return subprocess.Popen([program, *arguments, "--store", f"file://{self.store}"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def run_tool(self, *arguments, **options):
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=RUN_TIMEOUT_S)
        return process.returncode, out, err

    def succeeds(self, *arguments, **options):
        status, out, err = self.run_tool(*arguments, **options)
        self.assertEqual(0, status, err)
        return out

    def published(self):
        return sorted(str(path.relative_to(self.store)) for kind in PUBLISHED
                      for path in (self.store / kind).rglob("*") if path.is_file())

    def expect_clean_store(self, published=()):
        self.assertEqual(sorted(published), self.published())
        self.assertIn(" 0 faults", self.succeeds("verify"))

    def source(self, name="source"):
        source = self.folder / name
        source.mkdir()
        source.chmod(0o755)
        return source

    def mount(self, name, options):
        """A tmpfs with the options, as a directory of this test."""
        point = self.folder / name
        point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "varve-test", point], check=True)
        self.addCleanup(subprocess.run, ["umount", point], check=True)
        return point


class Sources(FailureTest):
    def test_an_unreadable_file_or_directory_is_named(self):
        for number, kind in enumerate(("file", "directory")):
            with self.subTest(kind):
                source = self.source(f"source{number}")
                (source / "readable").write_text("x")
                if kind == "file":
                    (source / "secret").write_text("s")
                else:
                    (source / "secret").mkdir()
                (source / "secret").chmod(0)
                status, _, err = self.run_tool("build", source, "--tag", "a", user=NOBODY,
                                               group=NOBODY, extra_groups=[])
                self.assertEqual(5, status, err)
                self.assertIn("secret", err)
                self.assertIn("Permission denied", err)
                self.expect_clean_store()

    def test_a_file_that_changes_is_named(self):
        source = self.source()
        rng = random.Random(1)
        for number in range(8):
            (source / f"file{number}").write_bytes(rng.randbytes(16 << 20))
        stop = threading.Event()

        def change():
            with open(source / "file7", "ab") as file:
                while not stop.is_set():
                    file.write(b"x")
                    file.flush()
                    time.sleep(0.001)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            status, _, err = self.run_tool("build", source, "--tag", "a")
        finally:
            stop.set()
            thread.join()
        self.assertEqual(2, status, err)
        self.assertIn("file7", err)
        self.expect_clean_store()
        self.succeeds("build", source, "--tag", "a")

    def test_a_missing_source_makes_no_store(self):
        status, _, err = self.run_tool("build", self.folder / "nothing")
        self.assertEqual(3, status)
        self.assertIn("nothing", err)
        self.assertFalse(self.store.exists())


class Places(FailureTest):
    """Directories for temporary files and for the index of chunks that are full or read-only."""

    def fill(self, point):
        with open(point / "fill", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def test_a_full_directory_for_temporary_files_is_named_and_nothing_is_published(self):
        source = self.source()
        (source / "f").write_text("x")
        full = self.mount("full", "size=64k")
        self.fill(full)
        self.succeeds("build", source, "--tag", "a", env=os.environ | {"TMPDIR": str(full)})
        before = self.published()
        (source / "f").write_text("y")
        for arguments in (("build", source, "--base", "a"), ("flatten", "a"),
                          ("export", "a", "--erofs", self.folder / "out")):
            status, _, err = self.run_tool(*arguments, "--temp-dir", full)
            self.assertEqual(10, status, err)
            self.assertIn(str(full), err)
            self.expect_clean_store(before)

    def test_builds_do_without_an_index_that_cannot_be_written(self):
        source = self.source()
        (source / "f").write_bytes(random.Random(6).randbytes(1 << 20))
        source.chmod(0o755)
        layers = json.loads(self.succeeds("build", source, "--json"))["layers"]
        read_only = self.mount("read-only", "size=64k,ro")
        full = self.mount("full", "size=64k")
        self.fill(full)
        unwritable = self.source("unwritable")
        subprocess.run(["chmod", "-R", "a+rwX", self.store], check=True)
        homeless = {name: value for name, value in os.environ.items()
                    if name not in ("HOME", "XDG_CACHE_HOME")}
        nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        for name, options in {
                "read-only": {"env": os.environ | {"XDG_CACHE_HOME": str(read_only)}},
                "full": {"env": os.environ | {"XDG_CACHE_HOME": str(full)}},
                "unwritable": {"env": os.environ | {"XDG_CACHE_HOME": str(unwritable)}, **nobody},
                "no home": {"env": homeless, **nobody}}.items():
            with self.subTest(name):
                status, out, err = self.run_tool("build", source, "--json", **options)
                self.assertEqual(0, status, err)
                self.assertEqual(layers, json.loads(out)["layers"])
                self.assertEqual(1, err.count("without an index"), err)


class FullDisk(FailureTest):
    """Out of room, or of inodes, at each of the steps by which a store grows."""

    def test_whatever_step_meets_a_full_disk_it_is_said_and_space_heals_it(self):
        rng = random.Random(9)
        source = self.source()
        for number in range(20):
            (source / f"file{number}").write_bytes(rng.randbytes(20_000))
        disk = self.mount("disk", "size=64m")
        self.store = disk / "store"
        layers = json.loads(self.succeeds("build", source, "--tag", "a", "--json"))["layers"]
        for limit in [f"size=64m,nr_inodes={count}" for count in range(3, 30, 2)] + \
                     [f"size={size}k" for size in range(16, 520, 36)]:
            with self.subTest(limit):
                subprocess.run(["umount", disk], check=True)
                subprocess.run(["mount", "-t", "tmpfs", "-o", limit, "varve-test", disk], check=True)
                status, _, err = self.run_tool("build", source, "--tag", "a")
                if status != 0:
                    self.assertEqual(10, status, err)
                    self.assertIn("No space left", err)
                subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=1000", disk], check=True)
                if (self.store / "varve-store").exists():
                    self.assertIn(" 0 faults", self.succeeds("verify"))
                built = json.loads(self.succeeds("build", source, "--tag", "a", "--json"))
                self.assertEqual(layers, built["layers"])


class Interruptions(FailureTest):
    def test_a_build_that_is_killed_publishes_nothing_and_hinders_nobody(self):
        source = self.source()
        rng = random.Random(2)
        for number in range(24):
            (source / f"file{number}").write_bytes(rng.randbytes(8 << 20))
        process = self.start("build", source, "--tag", "a")
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            packs = self.store / "packs"
            if packs.exists() and any(path.is_file() for path in packs.rglob("*")):
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertEqual(-signal.SIGKILL, process.returncode, "the build was over too soon")
        self.expect_clean_store()
        self.succeeds("build", source, "--tag", "a")
        self.assertIn(" 0 faults", self.succeeds("verify"))

    def test_commands_killed_at_any_moment_leave_a_store_that_every_command_can_use(self):
        rng = random.Random(8)
        self.store = self.mount("disk", "size=256m") / "store"
        for name, count in (("source", 60), ("other", 30)):
            source = self.source(name)
            for number in range(count):
                (source / f"file{number}").write_bytes(rng.randbytes(rng.randrange(1, 300_000)))
        begin = time.monotonic()
        layers = json.loads(self.succeeds("build", self.folder / "source", "--json"))["layers"]
        duration_s = time.monotonic() - begin
        shutil.rmtree(self.store)
        commands = (("build", self.folder / "source", "--tag", "a"),
                    ("build", self.folder / "other", "--tag", "b", "--base", "a"),
                    ("flatten", "b", "--tag", "c"), ("gc", "--grace", "0"))
        for round in range(20):
            # Two at a time, of which at least one is killed.
            running = [self.start(*rng.choice(commands)) for _ in range(2)]
            time.sleep(rng.random() * duration_s)
            for process in running[:rng.randrange(1, 3)]:
                process.kill()
            for process in running:
                process.communicate(timeout=RUN_TIMEOUT_S)
                # 3: an image or the store is not there yet.
                self.assertIn(process.returncode, (0, 3, -signal.SIGKILL), process.args)
            if (self.store / "varve-store").exists():
                self.assertIn(" 0 faults", self.succeeds("verify"), f"round {round}")
            if round % 5 == 4:
                built = json.loads(self.succeeds(*commands[0], "--json"))
                self.assertEqual(layers, built["layers"])
                self.succeeds("gc", "--grace", "0")

    def test_an_export_that_fails_leaves_no_file(self):
        source = self.source()
        (source / "f").write_bytes(random.Random(3).randbytes(4 << 20))
        self.succeeds("build", source, "--tag", "a")
        for pack in [path for path in (self.store / "packs").rglob("*") if path.is_file()]:
            with open(pack, "r+b") as file:
                file.seek(1 << 20)
                file.write(b"damage")
        target = self.folder / "target"
        target.mkdir()
        for flag in ("--tar", "--erofs"):
            status, _, err = self.run_tool("export", "a", flag, target / "out")
            self.assertEqual(6, status, err)
            self.assertEqual([], os.listdir(target))
        self.assertEqual(6, self.run_tool("verify")[0])

    def test_an_output_nobody_reads_is_an_error(self):
        source = self.source()
        for number in range(300):
            (source / f"{number:0100}").write_text("")
        (source / "f").write_bytes(random.Random(4).randbytes(4 << 20))
        self.succeeds("build", source, "--tag", "a")
        for arguments in (("cat", "a", "f"), ("ls", "a"), ("tree", "a", "--json"), ("ls",),
                          ("export", "a", "--tar", "-"), ("export", "a", "--erofs", "-")):
            process = self.start(*arguments)
            process.stdout.close()
            err = process.stderr.read()
            self.assertGreater(process.wait(timeout=RUN_TIMEOUT_S), 0, err)
            process.stderr.close()
            self.assertIn("standard output", err)
            self.assertIn("Broken pipe", err)


class Memory(FailureTest):
    ENTRIES = 150_000

    def make_tar(self, order):
        """Many small files with long names, entries in the given order."""
        path = self.folder / "many.tar"
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
            for number in order:
                info = tarfile.TarInfo(f"{'d' * 40}{number % 97}/{'n' * 60}{number}")
                content = f"content of {number}\n".encode() * (number % 40)
                info.size, info.mtime = len(content), 1_600_000_000 + number
                tar.addfile(info, io.BytesIO(content))
        return path

    def build(self, path, *options):
        """Layer ids and peak resident bytes."""
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, LAYER_PACK, "build", path, "--json", "--store",
             f"file://{self.store}", *options],
            capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)["layers"], int(done.stderr.splitlines()[-1]) << 10

    def test_spilling_keeps_the_layer_and_the_bound(self):
        order = list(range(self.ENTRIES))
        plain, peak = self.build(self.make_tar(order))
        self.assertLess(peak, MEMORY_MAX_BYTES)
        random.Random(5).shuffle(order)
        spilled, low_peak = self.build(self.make_tar(order), "--memory-max", "128M")
        self.assertEqual(plain, spilled)
        self.assertLess(low_peak, 128 << 20)


def main():
    global LAYER_PACK
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LAYER_PACK = os.path.abspath(sys.argv.pop(1))
    if os.geteuid() != 0:
        print("SKIP: root: becoming another user needs it")
        return 77
    unittest.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
