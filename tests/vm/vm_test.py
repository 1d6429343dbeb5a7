#!/usr/bin/env python3
"""Varve on another kernel, on a host that has cgroup v2 only: a virtual machine, emulated.

usage: vm_test.py SERIES META_PACKAGE VARVE VARVEFS LAYER_PACK [ONLY]

Boots the kernel of Debian's META_PACKAGE with a small disk that holds the three programs, busybox
and a store, and runs the checks of guest/ there, or those whose names begin with ONLY. SERIES
(6.1) tells the checks which kernel it is. Needs no root. Ends with status 0 when the guest has
said `ok` for every check, with its console on stdout; 77 where there is no emulator or no kernel.
"""
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading

sys.dont_write_bytecode = True
import guest_disk
import guest_kernel

DEADLINE_S = 300
EMULATOR = "qemu-system-x86_64"
BUSYBOX = "/bin/busybox"
LAYERS_OF_MANY = 110


def skip(feature, why):
    print(f"SKIP: {feature}: {why}")
    sys.exit(77)


def add(tar, name, **attributes):
    data = attributes.pop("data", b"")
    entry = tarfile.TarInfo(name)
    entry.mode = 0o755 if attributes.get("type", tarfile.REGTYPE) == tarfile.DIRTYPE else 0o644
    entry.mtime = 1700000000
    entry.size = len(data)
    for attribute, value in attributes.items():
        setattr(entry, attribute, value)
    tar.addfile(entry, io.BytesIO(data))


def write_base(path):
    """busybox, two users, a file of uid 70000, data that nothing else reads."""
    with tarfile.open(path, "w") as tar:
        for name in ("bin", "dev", "etc", "ids", "proc", "sys", "tmp", "var", "var/lib"):
            add(tar, name, type=tarfile.DIRTYPE)
        add(tar, "tmp", type=tarfile.DIRTYPE, mode=0o1777)
        with open(BUSYBOX, "rb") as file:
            add(tar, "bin/busybox", mode=0o755, data=file.read())
        for applet in subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True,
                                     text=True).stdout.split():
            if applet != "busybox":
                add(tar, "bin/" + applet, type=tarfile.SYMTYPE, linkname="busybox")
        add(tar, "etc/passwd", data=b"root:x:0:0::/:/bin/sh\n")
        add(tar, "ids/70000", uid=70000, gid=70000, mode=0o640, data=b"content\n")
        add(tar, "unread", data=bytes(range(250)) * 8000)


class Store:
    def __init__(self, layer_pack, directory, work):
        self.layer_pack = layer_pack
        self.url = "file://" + directory
        self.directory = directory
        self.work = work

    def run(self, *words):
        done = subprocess.run([self.layer_pack, *words, "--store", self.url], capture_output=True,
                              text=True, env=os.environ | {"XDG_CACHE_HOME": f"{self.work}/cache"})
        if done.returncode != 0:
            sys.exit(f"layer-pack {' '.join(words)}: {done.stderr}")
        return done.stdout

    def build(self, files, tag, *words):
        """A layer of `files`, a dictionary of names and contents; returns its id."""
        path = self.work + "/layer.tar"
        with tarfile.open(path, "w") as tar:
            for name, data in files.items():
                add(tar, name, data=data)
        return re.search(r"^layer +([0-9a-f]{64})", self.run("build", path, "--tag", tag, *words),
                         re.MULTILINE)[1]

    def fill(self):
        write_base(self.work + "/base.tar")
        self.run("build", self.work + "/base.tar", "--tag", "base:1")
        self.build({"etc/one": b"one\n", "etc/two": b"one\n"}, "two:1", "--base", "base:1")
        self.build({"etc/two": b"two\n"}, "three:1", "--base", "two:1")
        layers = [self.build({f"many/{i}": b"x", "top": b"%d\n" % i, "count": b"%d\n" % i}, "layer:1")
                  for i in range(1, LAYERS_OF_MANY + 1)]
        self.run("compose", "base:1", *layers, "--tag", "many:1")


def command(kernel, work, series, only):
    line = f"console=ttyS0 panic=-1 quiet loglevel=3 varve.series={series} varve.only={only}"
    return [EMULATOR, "-M", "q35", "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2",
            "-m", "768", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", "stdio", "-kernel", kernel + "/vmlinux", "-initrd", work + "/initramfs",
            "-append", line, "-drive", f"id=disk,file={work}/disk,format=raw,if=none,cache=unsafe",
            "-device", "virtio-blk-pci,drive=disk"]


def boot(words):
    """The console of the guest, printed as it comes; the guest has until the deadline."""
    guest = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace")
    timer = threading.Timer(DEADLINE_S, guest.kill)
    timer.start()
    lines = []
    try:
        for line in guest.stdout:
            lines.append(line.strip())
            print(lines[-1], flush=True)
    finally:
        timer.cancel()
        guest.kill()
        guest.wait()
    return lines


def judge(lines):
    passed = [line for line in lines if line.startswith("ok ")]
    failed = [line for line in lines if line.startswith("not ok ")]
    end = [re.fullmatch(r"done (\d+) checks", line) for line in lines]
    counts = [int(found[1]) for found in end if found]
    if len(counts) != 1 or counts[0] != len(passed) + len(failed) or counts[0] == 0:
        return f"the guest did not come to its end: {len(passed)} passed, {len(failed)} failed"
    return f"{len(failed)} of {counts[0]} checks failed" if failed else None


def main():
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    series, meta_package, *programs = sys.argv[1:6]
    only = sys.argv[6] if len(sys.argv) == 7 else ""
    if shutil.which(EMULATOR) is None:
        skip("qemu", EMULATOR + " is not installed")
    try:
        kernel = guest_kernel.fetch(meta_package)
    except guest_kernel.NoKernel as error:
        skip("kernel-packages", error)
    # Told to end, it still ends the guest and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    work = tempfile.mkdtemp(prefix="varve-vm-", dir="/var/tmp")
    try:
        root = work + "/root"
        guest_disk.make_tree(root, BUSYBOX, [*programs, "/usr/bin/unshare"])
        Store(programs[2], root + "/store", work).fill()
        guest_disk.write_disk(work + "/disk", root, 512)
        guest_disk.write_initramfs(work + "/initramfs", kernel, BUSYBOX)
        fault = judge(boot(command(kernel, work, series, only)))
    finally:
        shutil.rmtree(work)
    if fault:
        sys.exit(fault)


if __name__ == "__main__":
    main()
