"""What the benchmarks share: the machine, running a command, statistics, bounds, JSON.

Every benchmark runs its contestants interleaved, so that what disturbs the machine disturbs them
alike, and prints one JSON object on standard output; what it is doing goes to standard error.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def machine():
    """The facts of this machine that a figure means nothing without."""
    with open("/proc/cpuinfo") as cpuinfo:
        model = re.search(r"model name\s*: (.*)", cpuinfo.read())
    with open("/proc/meminfo") as meminfo:
        memory_kib = int(re.search(r"MemTotal:\s*(\d+)", meminfo.read()).group(1))
    return {
        "kernel": platform.release(),
        "cpu": model.group(1) if model else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_mib": memory_kib // 1024,
        "load_before": os.getloadavg()[0],
    }


def summary(samples):
    """n, median, p95, p99, smallest and largest of a list of numbers."""
    ordered = sorted(samples)

    def percentile(share):
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {"n": len(ordered), "median": statistics.median(ordered), "p95": percentile(0.95),
            "p99": percentile(0.99), "min": ordered[0], "max": ordered[-1]}


@dataclasses.dataclass
class Usage:
    """What a command cost. The peak is that of its largest process."""
    wall_s: float
    cpu_s: float
    peak_mib: float


def run_timed(command, sync_dir=None, check=True, **options):
    """Runs a command to its end and, with sync_dir, until that filesystem is on disk."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, **options)
    with child.stderr:
        errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if sync_dir is not None:
        sync_filesystem(sync_dir)
    wall = time.monotonic() - start
    if check and child.returncode != 0:
        raise RuntimeError(f"{command} ended with {child.returncode}: {errors.decode()[-2000:]}")
    return Usage(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def sync_filesystem(directory):
    subprocess.run(["sync", "-f", directory], check=True)


def drop_caches():
    """Empties the kernel's page, dentry and inode caches (needs root)."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as control:
        control.write("3")


def stored_bytes(path):
    """The bytes of all files at or below `path`."""
    path = pathlib.Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def warm(directory):
    """Reads every file below `directory`, so that it is in the page cache."""
    subprocess.run(f"tar -C '{directory}' -cf - . | cat > /dev/null", shell=True, check=True)


def program(name):
    """The built program: from $VARVE_BIN where it is there, else of the release build."""
    folders = [REPOSITORY / "build/release" / module
               for module in ("chunkstore/layer_pack", "fs", "launcher", "benchmarks")]
    if "VARVE_BIN" in os.environ:
        folders.insert(0, pathlib.Path(os.environ["VARVE_BIN"]))
    for folder in folders:
        if (folder / name).is_file():
            return str(folder / name)
    raise SystemExit(f"{name} is not built: cmake --workflow --preset release, or set VARVE_BIN")


def debian_tree():
    """The folder that holds v1, v2 and v3; made when it is missing."""
    made = subprocess.run([REPOSITORY / "tests/support/make-debian-tree"], check=True,
                          stdout=subprocess.PIPE, text=True)
    return pathlib.Path(made.stdout.strip())


@contextlib.contextmanager
def scratch(parent, keep=False):
    """An empty folder for one run, on the filesystem of `parent`; the caches of what it starts, too.

    Gone also when a signal that can be caught ends the run.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    folder = pathlib.Path(parent)
    if folder.exists():
        raise SystemExit(f"{folder} exists: remove it, or name another --work")
    folder.mkdir(parents=True)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    try:
        yield folder
    finally:
        if not keep:
            # Never into what a failure may have left mounted here.
            subprocess.run(["rm", "-rf", "--one-file-system", folder], check=False)


class Report:
    """Collects the results and bounds of one benchmark."""

    def __init__(self, name):
        self.document = {"benchmark": name, "machine": machine(), "results": {}, "bounds": []}

    def add(self, key, value):
        self.document["results"][key] = value

    def bound(self, what, measured, relation, limit):
        """Adds a stated bound: relation is ">=" or "<="."""
        met = measured >= limit if relation == ">=" else measured <= limit
        self.document["bounds"].append(
            {"what": what, "measured": round(measured, 4), "bound": f"{relation} {limit}", "met": met})
        say(f"{'met' if met else 'NOT MET'}: {what}: {measured:.3f} {relation} {limit}")

    def finish(self, check):
        """Prints the JSON; with check, the exit status says whether every bound was met."""
        self.document["machine"]["load_after"] = os.getloadavg()[0]
        print(json.dumps(self.document, indent=2))
        return 1 if check and not all(bound["met"] for bound in self.document["bounds"]) else 0
