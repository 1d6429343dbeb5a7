#!/usr/bin/env python3
"""Sandboxes on real images through the real varvefs, which nobody started.

usage: launch_lifecycle.py VARVE LAYER_PACK

Packs a busybox tree with ids 70000 and 4294967294, lets eight first runs meet (one varvefs must
result), runs with statistics, adds a layer with ids of its own, keeps what a run wrote and packs it as a layer,
kills runs, mounts and unmounts the image. Nothing may be left at the end but what the test directory holds.
"""
import fcntl
import glob
import http.client
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

VARVE, LAYER_PACK = sys.argv[1:3]
PREFIX = "/var/tmp/varve-e2e-launch-"
failures = []


def check(condition, what):
    print(("ok   " if condition else "FAIL ") + what, flush=True)
    if not condition:
        failures.append(what)


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("varvefs")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Node:
    def __init__(self, directory):
        self.directory = directory
        self.store = "file://" + directory + "/store"
        self.run_dir = directory + "/run"

    def command(self, *args):
        return [VARVE, "run", "--run-dir", self.run_dir, "--state-dir", self.directory + "/state",
                "--store", self.store, *args]

    def run(self, *args):
        return subprocess.run(self.command(*args), capture_output=True, text=True, timeout=120)

    def pack(self, *args):
        return subprocess.run([LAYER_PACK, *args], capture_output=True, text=True, timeout=300)

    def status(self):
        connection = Connection(self.run_dir + "/control.sock")
        connection.request("GET", "/v1/status")
        return json.loads(connection.getresponse().read())


def make_tree(root):
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "ids"):
        os.makedirs(root + "/" + name)
    shutil.copy("/bin/busybox", root + "/bin/busybox")
    for applet in ("sh", "cat", "echo", "stat", "rm", "chmod", "true", "sleep", "ls"):
        os.symlink("busybox", root + "/bin/" + applet)
    for uid in (70000, 4294967294):
        path = f"{root}/ids/{uid}"
        with open(path, "w") as file:
            # Different contents: equal files share their blocks and are one in the statistics.
            file.write(f"content {uid}\n")
        os.chown(path, uid, uid)
        os.chmod(path, 0o600)
    # Data that nobody reads: it must not be fetched.
    with open(root + "/unread", "wb") as file:
        file.write(os.urandom(4 << 20))


def check_first_runs(node):
    runs = [subprocess.Popen(node.command("base:1", "--", "true")) for _ in range(8)]
    check([run.wait(timeout=120) for run in runs] == [0] * 8, "eight first runs at once succeed")
    pid = node.status()["pid"]
    check(node.run("base:1", "--", "true").returncode == 0 and node.status()["pid"] == pid,
          "one varvefs serves them and the next")


def check_statistics(node):
    path = node.directory + "/stats.json"
    run = node.run("--stats", path, "base:1", "--", "cat", "/ids/70000")
    with open(path) as file:
        stats = json.load(file)
    check(run.returncode == 0 and run.stdout == "content 70000\n", "a file of uid 70000 is read")
    check(stats["image_bytes"] > 4 << 20 and stats["ready_ms"] <= stats["exit_ms"], "figures are there")
    files = {entry["path"].lstrip("/") for layer in stats["layers"] for entry in layer["files"]}
    check("ids/70000" in files and "unread" not in files,
          f"they say which files were touched: {sorted(files)}")
    check(stats["fetched_bytes"] < 1 << 20, "what nobody reads is not fetched")
    # The layers have been attached before, so the attach itself is not in it.
    again = node.run("--stats", path, "base:1", "--", "true")
    with open(path) as file:
        check(again.returncode == 0 and json.load(file)["fetched_bytes"] <= stats["fetched_bytes"],
              "a run is told what it fetched itself")


def check_large_ids(node):
    for uid in (70000, 4294967294):
        script = (f"stat -c %u:%g /ids/{uid}; echo more >>/ids/{uid}; chmod 640 /ids/{uid}; "
                  f"cat /ids/{uid}; rm /ids/{uid}; ls /ids")
        run = node.run("base:1", "--", "sh", "-c", script)
        other = 4294967294 if uid == 70000 else 70000
        check(run.stdout == f"{uid}:{uid}\ncontent {uid}\nmore\n{other}\n",
              f"uid {uid} is read, written and deleted" + ("" if run.returncode == 0 else run.stderr))


def check_large_ids_of_a_layer_on_top(node):
    """The image knows nothing of the layer: what owns its files must be found in the layer."""
    uid, gid = 4294967290, 80000
    top = node.directory + "/top"
    os.makedirs(top + "/top")
    with open(top + "/top/file", "w") as file:
        file.write("content\n")
    os.chown(top + "/top", uid, uid)
    os.chown(top + "/top/file", uid, gid)
    built = node.pack("build", top, "--store", node.store, "--json")
    check(built.returncode == 0, "a layer is packed " + built.stderr)
    layer = json.loads(built.stdout)["new_layers"][0]["id"]
    script = "stat -c %u:%g /top/file /ids/70000; echo more >>/top/file; cat /top/file; rm /top/file; ls /top"
    run = node.run("--layer", layer, "base:1", "--", "sh", "-c", script)
    check(run.stdout == f"{uid}:{gid}\n70000:70000\ncontent\nmore\n" and run.returncode == 0,
          "large ids of a layer on top are read, written and deleted " + run.stdout + run.stderr)


def check_kept_files(node):
    run = node.run("--keep", "base:1", "--", "sh", "-c", "echo new >/etc/new; rm /unread")
    upper = run.stderr.strip().rpartition(" ")[2]
    packed = node.pack("diff", upper, "--base", "base:1", "--store", node.store, "--tag", "base:2")
    check(packed.returncode == 0, "kept files become a layer " + packed.stderr)
    run = node.run("base:2", "--", "sh", "-c", "cat /etc/new; ls /")
    check(run.stdout.startswith("new\n") and "unread" not in run.stdout, "the layer shows what was done")
    shutil.rmtree(os.path.dirname(upper))


def check_killed_run(node):
    run = subprocess.Popen(node.command("base:1", "--", "sh", "-c", "echo ready; sleep 1000"),
                           stdout=subprocess.PIPE, text=True)
    check(run.stdout.readline() == "ready\n", "a run is up")
    run.kill()
    run.stdout.read()  # Ends when every process of the sandbox is gone.
    run.wait()
    deadline = time.monotonic() + 30
    while node.status()["attachments"] != 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    check(node.status()["attachments"] == 0, "varvefs lets go of a killed run's image")
    check(node.run("base:1", "--", "true").returncode == 0, "the next run works")
    check(os.listdir(node.run_dir + "/sandboxes") == [] and os.listdir(node.directory + "/state") == [],
          "and has cleaned up after it")


def check_killed_run_that_keeps(node):
    """What was to be kept is not for the next run to remove, as nobody asked for that."""
    run = subprocess.Popen(node.command("--keep", "base:1", "--", "sh", "-c",
                                        "echo new >/etc/new; echo ready; sleep 1000"),
                           stdout=subprocess.PIPE, text=True)
    check(run.stdout.readline() == "ready\n", "a run that keeps its files is up")
    run.kill()
    run.stdout.read()
    run.wait()
    check(node.run("base:1", "--", "true").returncode == 0, "the next run works")
    kept = glob.glob(node.directory + "/state/*")
    check(os.listdir(node.run_dir + "/sandboxes") == [] and len(kept) == 1
          and os.path.basename(kept[0]).startswith("kept-"), f"only the kept files stay: {kept}")
    packed = node.pack("diff", kept[0] + "/upper", "--base", "base:1", "--store", node.store)
    check(packed.returncode == 0, "and can be packed " + packed.stderr)
    shutil.rmtree(kept[0])


def check_another_pid_namespace(node):
    """varvefs keeps a namespace for runs to come; the procfs in it shows the processes of here."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", *node.command("base:1", "--", "echo", "there")]
    for _ in range(2):
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        check(run.stdout == "there\n", "a run in a pid namespace of its own works " + run.stderr)
    check(node.run("base:1", "--", "true").returncode == 0, "and so does one outside again")


def check_mount(node):
    at = node.directory + "/at"
    os.mkdir(at)
    options = ["--run-dir", node.run_dir]
    for image, what in (("base:2", "an image of two layers"), ("base:1", "one of a single layer")):
        mounted = subprocess.run([VARVE, "mount", *options, "--store", node.store, image, at])
        is_there = os.path.exists(at + "/etc/new") if image == "base:2" else os.path.exists(at + "/unread")
        check(mounted.returncode == 0 and is_there, what + " is mounted")
        flags = os.statvfs(at).f_flag
        check(flags & os.ST_RDONLY and flags & os.ST_NOSUID and flags & os.ST_NODEV,
              "read-only, and neither set-user-id files nor devices count in it")
        if image == "base:2":
            check(not os.path.exists(at + "/unread"), "with its whiteout applied")
            check(subprocess.run([VARVE, "umount", *options, at]).returncode == 0, "and unmounted")
    for bad, told in (([*options, "base:1", node.directory + "/owner"], "is not a directory"),
                      (["--run-dir", "rel", "base:1", at], "--run-dir")):
        refused = subprocess.run([VARVE, "mount", "--store", node.store, *bad], capture_output=True, text=True)
        check(refused.returncode == 2 and told in refused.stderr, "refused: " + refused.stderr.strip())
    unmounted = subprocess.run([VARVE, "umount", *options, at])
    check(unmounted.returncode == 0 and os.listdir(at) == [], "and unmounted")
    check(node.status()["attachments"] == 0, "its attach is given back")
    crowd = [subprocess.Popen([VARVE, "mount", *options, "--store", node.store, "base:1", at],
                              stderr=subprocess.PIPE, text=True) for _ in range(8)]
    told = [process.communicate()[1] for process in crowd]
    check(sorted(process.returncode for process in crowd) == [0] + [4] * 7
          and sum("is mounted at" in text for text in told) == 7,
          "of many mounts at one directory at the same time one comes about " + "".join(told))
    check(node.status()["attachments"] == 1, "and holds the only attach")
    check(subprocess.run([VARVE, "umount", *options, at]).returncode == 0 and os.listdir(at) == []
          and node.status()["attachments"] == 0, "and one umount ends it")
    mounted = subprocess.run([VARVE, "mount", *options, "--store", node.store, "base:1", at])
    subprocess.run(["umount", at], check=True)
    os.rmdir(at)
    unmounted = subprocess.run([VARVE, "umount", *options, at + "/"])
    check(mounted.returncode == 0 and unmounted.returncode == 0 and node.status()["attachments"] == 0,
          "also when somebody has removed the directory")


def check_a_started_varvefs_leaves_no_zombie(node):
    run = subprocess.Popen(node.command("base:1", "--", "sh", "-c", "echo ready; cat"),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    check(run.stdout.readline() == "ready\n", "a run starts a varvefs")
    states = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                pid, rest = file.read().split(" (", 1)
        except OSError:
            continue  # Gone meanwhile.
        state, parent = rest.rpartition(") ")[2].split()[:2]
        if int(parent) == run.pid:
            states[pid] = state
    check(len(states) == 1 and "Z" not in states.values(), f"its one child is its sandbox: {states}")
    run.communicate()
    check(run.returncode == 0, "and ends well")


def check_a_started_varvefs_holds_nothing_of_its_caller(node):
    read_end, write_end = os.pipe()
    run = subprocess.run(node.command("base:1", "--", "true"), pass_fds=(write_end,), timeout=120)
    os.close(write_end)
    readable = select.select([read_end], [], [], 5)[0]
    check(run.returncode == 0 and readable and os.read(read_end, 1) == b"" and node.status()["pid"],
          "a varvefs that a run starts keeps no pipe of the run's caller open")
    os.close(read_end)


def check_a_varvefs_that_does_not_answer_yet_is_waited_for(node):
    """One that is starting, its starter killed, or that is ending: it has the lock, not the socket."""
    lock = open(node.run_dir + "/varvefs.lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    log = node.run_dir + "/varvefs.log"
    refusals = open(log).read().count("another varvefs runs")
    run = subprocess.Popen(node.command("base:1", "--", "true"), stderr=subprocess.PIPE, text=True)
    while run.poll() is None and open(log).read().count("another varvefs runs") == refusals:
        time.sleep(0.01)
    lock.close()
    error = run.communicate()[1]
    check(run.returncode == 0, "a run waits for a varvefs that does not answer yet " + error)


def end_varvefs(node):
    pid = node.status()["pid"]
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    check(not os.path.exists(f"/proc/{pid}"), "varvefs ends when it is told to")


def remove_stale():
    """Removes the directories of interrupted runs: those whose owner's lock is free."""
    for directory in glob.glob(PREFIX + "*"):
        try:
            with open(directory + "/owner") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with open("/proc/self/mountinfo") as mounts:
                    points = [line.split()[4] for line in mounts]
                # Their varvefs ends with its mount.
                for point in reversed([p for p in points if p.startswith(directory + "/")]):
                    subprocess.run(["umount", "-l", point], check=False)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # In use, or just being made.


def main():
    remove_stale()
    directory = tempfile.mkdtemp(prefix=os.path.basename(PREFIX), dir=os.path.dirname(PREFIX))
    owner = open(directory + "/owner.new", "w")
    fcntl.flock(owner, fcntl.LOCK_EX)
    os.rename(directory + "/owner.new", directory + "/owner")
    os.environ["XDG_CACHE_HOME"] = directory + "/cache"
    node = Node(directory)
    try:
        make_tree(directory + "/tree")
        built = node.pack("build", directory + "/tree", "--store", node.store, "--tag", "base:1")
        check(built.returncode == 0, "the tree is packed " + built.stderr)
        before = open("/proc/self/mountinfo").read().count(directory)
        check_first_runs(node)
        check_statistics(node)
        check_large_ids(node)
        check_large_ids_of_a_layer_on_top(node)
        check_kept_files(node)
        check_killed_run(node)
        check_killed_run_that_keeps(node)
        check_another_pid_namespace(node)
        check_mount(node)
        end_varvefs(node)
        check_a_started_varvefs_leaves_no_zombie(node)
        end_varvefs(node)
        check_a_started_varvefs_holds_nothing_of_its_caller(node)
        end_varvefs(node)
        check_a_varvefs_that_does_not_answer_yet_is_waited_for(node)
        end_varvefs(node)
        check(open("/proc/self/mountinfo").read().count(directory) == before, "no mount is left")
    finally:
        shutil.rmtree(directory)
    return 1 if failures else 0


sys.exit(main())
