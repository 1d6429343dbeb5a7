#!/usr/bin/env python3
"""Makes deterministic trees for tests: the same arguments make the same tree, times included.

    make_trees.py small DIR
    make_trees.py hostile DIR [--entries N] [--sparse-bytes N] [--for-tar]

small    about 80 paths of ordinary kinds, a few MB; needs no root.
hostile  what a packer meets at the edges: every file type, names of 255 bytes and in no encoding,
         hard links of every type, xattrs, ACLs, capabilities, ids and times at the limits, sparse
         files and zero runs, a directory of N entries (100,000), deep paths. Needs root and a
         filesystem with xattrs, e.g. ext4.
"""

import argparse
import os
import random
import socket
import stat
import struct
import sys

EPOCH_NS = 1_700_000_000 * 10**9
KIB = 1 << 10
MIB = 1 << 20
UNIT = 64 * KIB  # what an image may store as a hole


class Maker:
    """Makes paths below `root` and remembers the times to set when all is there."""

    def __init__(self, root, seed):
        self.root = os.fsencode(root)
        self.random = random.Random(seed)
        self.times = {}
        os.makedirs(self.root)
        os.chmod(self.root, 0o755)

    def path(self, name):
        return os.path.join(self.root, os.fsencode(name))

    def directory(self, name, mode=0o755):
        os.makedirs(self.path(name), exist_ok=True)
        os.chmod(self.path(name), mode)
        return name

    def file(self, name, content=b"", mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "wb") as out:
            out.write(content)
        os.chmod(path, mode)
        return name

    def noise(self, size):
        """Bytes that do not compress."""
        return self.random.randbytes(size)

    def text(self, size):
        """Bytes that compress like source code."""
        words = [b"return ", b"if (", b"varve", b"layer", b" = ", b";\n", b"  ", b"chunk", b"(", b")"]
        return b"".join(self.random.choices(words, k=size // 4))[:size].ljust(size, b"\n")

    def special(self, name, kind, device=0, mode=0o644):
        os.mknod(self.path(name), kind | mode, device)
        os.chmod(self.path(name), mode)
        return name

    def socket(self, name):
        """Binds in the current directory: a socket's address holds only 107 bytes of path."""
        before = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            os.chdir(os.path.dirname(self.path(name)))
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(os.path.basename(name))
        finally:
            os.fchdir(before)
            os.close(before)
        os.chmod(self.path(name), 0o755)
        return name

    def link(self, name, to):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        os.link(self.path(to), self.path(name), follow_symlinks=False)

    def symlink(self, name, target):
        os.symlink(target, self.path(name))
        return name

    def xattr(self, name, key, value):
        os.setxattr(self.path(name), key, value, follow_symlinks=False)

    def mtime(self, name, ns):
        self.times[self.path(name)] = ns

    def settle(self):
        """Sets every mtime: the remembered ones, and the epoch everywhere else."""
        pending = [self.root]
        while pending:
            path = pending.pop()
            ns = self.times.get(path, EPOCH_NS)
            os.utime(path, ns=(ns, ns), follow_symlinks=False)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                pending.extend(os.path.join(path, name) for name in os.listdir(path))


def make_small(root):
    make = Maker(root, "small")
    for i in range(40):
        make.file(f"usr/lib/module{i:02}.py", make.text(200 + 731 * i))
    for i in range(6):
        make.file(f"usr/share/doc/p{i}/copyright", b"the same in every package\n" * 20)
    make.file("usr/bin/tool", make.noise(300 * KIB), 0o755)
    make.file("usr/lib/libbig.so.1", make.text(2 * MIB) + make.noise(MIB))
    make.file("etc/empty")
    make.file("etc/shadow", b"root:*:\n", 0o600)
    make.symlink("usr/lib/libbig.so", "libbig.so.1")
    make.symlink("bin", "usr/bin")
    make.link("usr/bin/tool-link", "usr/bin/tool")
    make.directory("tmp", 0o1777)
    make.directory("var/empty")
    make.mtime("etc/shadow", EPOCH_NS + 123_456_789)
    make.settle()


def hostile_types(make, for_tar):
    make.directory("types")
    make.file("types/file", b"x")
    make.file("types/empty")
    make.special("types/fifo", stat.S_IFIFO)
    if not for_tar:
        make.socket("types/socket")
    make.special("types/null", stat.S_IFCHR, os.makedev(1, 3), 0o666)
    make.special("types/big-minor", stat.S_IFCHR, os.makedev(4095, 1048575))
    make.special("types/loop0", stat.S_IFBLK, os.makedev(7, 0), 0o660)
    make.symlink("types/symlink", "file")
    make.symlink("types/dangling", "/nowhere/at/all")
    make.symlink("types/long-target", "t/" * 2000 + "x" * 95)
    make.symlink("types/non-utf8-target", b"\xff\xfe/\x01")
    for mode in (0o0, 0o4755, 0o2755, 0o1644, 0o7777, 0o200):
        make.file(f"types/mode-{mode:04o}", b"m", mode)
    make.directory("types/sticky", 0o1777)
    make.directory("types/closed", 0o0)


def hostile_names(make):
    make.directory("names")
    make.file("names/" + "n" * 255, b"255")
    make.directory("names/" + "d" * 255)
    make.file(b"names/" + b"\xff" * 255, b"255 bytes of no encoding")
    make.file(b"names/" + bytes(set(range(1, 256)) - {ord("/")}), b"every byte")
    for name in ("!", "-", "-rf", "..a", ".a", "...", "0", " ", "a b", "a\nb", "a\\b", "\u00e9", "e\u0301"):
        make.file("names/" + name, name.encode())
    make.directory("dirs/empty")
    for i in range(2000):
        make.directory(f"dirs/many/d{i}")
    for depth in range(1, 1001):
        make.directory("deep/" + "/".join("d" * depth))
    make.file("deep/" + "/".join("d" * 1000) + "/bottom", b"deep")
    make.file("/".join(["long"] + ["l" * 200] * 18 + ["end"]), b"far")


def hostile_links(make, for_tar):
    make.directory("links")
    sources = [make.file("links/file", b"linked"), make.symlink("links/symlink", "file")]
    if not for_tar:
        sources += [make.special("links/fifo", stat.S_IFIFO), make.socket("links/socket"),
                    make.special("links/device", stat.S_IFCHR, os.makedev(1, 5))]
    for source in sources:
        make.link(source + ".second", source)
        make.link("a-links-elsewhere/" + source.split("/")[1], source)
    make.file("links/hundred", make.noise(200 * KIB))
    for i in range(99):
        make.link(f"links/hundred.{i:02}", "links/hundred")


def hostile_xattrs(make):
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *entry) for entry in (
            (0x01, 7, 0xFFFFFFFF), (0x02, 5, 1234), (0x04, 5, 0xFFFFFFFF), (0x10, 5, 0xFFFFFFFF),
            (0x20, 4, 0xFFFFFFFF)))
    capability = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw+ep
    make.directory("xattrs")
    make.xattr(make.file("xattrs/acl", b"a"), "system.posix_acl_access", acl)
    make.directory("xattrs/acl-directory")
    make.xattr("xattrs/acl-directory", "system.posix_acl_default", acl)
    make.xattr(make.file("xattrs/ping", b"p", 0o755), "security.capability", capability)
    make.file("xattrs/user", b"u")
    make.xattr("xattrs/user", "user.plain", b"value")
    make.xattr("xattrs/user", "user.empty", b"")
    make.xattr("xattrs/user", b"user.\xff\x01", b"\x00\xff")
    make.xattr("xattrs/user", "user." + "n" * 250, b"name of 255 bytes")
    make.xattr(make.file("xattrs/large"), "user.large", make.noise(3000))
    make.xattr(make.symlink("xattrs/symlink", "user"), "trusted.on-a-symlink", b"yes")
    make.xattr(make.special("xattrs/fifo", stat.S_IFIFO), "trusted.on-a-fifo", b"yes")
    make.xattr("xattrs", "trusted.on-a-directory", b"yes")
    for i in range(100):
        make.xattr(make.file(f"xattrs/shared.{i:02}", b"s"), "user.shared", b"the same everywhere")


def hostile_owners_and_times(make):
    for owner in (0, 1, 65534, 65535, 65536, 70000, 2**31, 4294967294):
        name = make.file(f"owners/uid-{owner}", b"o")
        os.chown(make.path(name), owner, 0)
        name = make.file(f"owners/gid-{owner}", b"o")
        os.chown(make.path(name), 0, owner)
    os.chown(make.path(make.file("owners/setuid", b"o")), 70000, 70000)
    os.chmod(make.path("owners/setuid"), 0o6755)
    for seconds in (-2**31, -1, 0, 1, 2**31 - 1, 2**31, 2**33):
        for ns in (0, 1, 999_999_999):
            make.mtime(make.file(f"times/{seconds}.{ns}", b"t"), seconds * 10**9 + ns)


def write_at(make, name, size, pieces):
    """A file of `size` bytes with holes, except for the (offset, bytes) of `pieces`."""
    make.file(name)
    with open(make.path(name), "r+b") as out:
        out.truncate(size)
        for offset, data in pieces:
            out.seek(offset)
            out.write(data)


def hostile_contents(make, sparse_bytes):
    block = make.noise(4 * KIB)
    make.directory("sparse")
    write_at(make, "sparse/huge", sparse_bytes,
             [(0, block), (sparse_bytes // 2 + 123, block), (sparse_bytes - 4096, block)])
    write_at(make, "sparse/all-hole", MIB, [])
    write_at(make, "sparse/odd-size", MIB + 17, [(UNIT * 3, block)])
    zeros = {"aligned": (UNIT, UNIT), "short": (UNIT, UNIT - 1), "shifted": (UNIT + 1, 2 * UNIT),
             "long": (2 * UNIT, 40 * UNIT), "not-a-whole-unit": (UNIT // 2, UNIT)}
    for name, (before, run) in zeros.items():
        make.file(f"sparse/zeros-{name}", make.noise(before) + bytes(run) + make.noise(3 * UNIT))
    make.file("sparse/zeros-at-the-end", make.noise(UNIT) + bytes(2 * UNIT))
    make.file("sparse/zeros-only", bytes(3 * UNIT + 5))
    for size in (1, 4095, 4096, 4097, 128 * KIB - 1, 128 * KIB, 128 * KIB + 1, 512 * KIB, MIB + 1):
        make.file(f"sizes/{size}", make.noise(size))
    large, small = make.noise(3 * MIB), make.text(5000)
    for i in range(3):
        make.file(f"sizes/same-large.{i}", large)
        make.file(f"sizes/same-small.{i}", small)
    make.file("sizes/shifted-large", b"shift" + large)


def make_hostile(root, entries, sparse_bytes, for_tar=False):
    make = Maker(root, "hostile")
    hostile_types(make, for_tar)
    hostile_names(make)
    hostile_links(make, for_tar)
    hostile_xattrs(make)
    hostile_owners_and_times(make)
    hostile_contents(make, sparse_bytes)
    folder = make.path(make.directory("many"))
    for i in range(entries):
        os.close(os.open(os.path.join(folder, b"entry-%07d" % i), os.O_CREAT | os.O_WRONLY, 0o644))
    make.settle()


def main():
    parser = argparse.ArgumentParser(description="Makes deterministic trees for tests.")
    parser.add_argument("kind", choices=("small", "hostile"))
    parser.add_argument("directory", help="must not exist")
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--sparse-bytes", type=int, default=5 << 30)
    parser.add_argument("--for-tar", action="store_true",
                        help="leave out what GNU tar loses: sockets, hard links of special files")
    arguments = parser.parse_args()
    os.umask(0o022)
    if arguments.kind == "small":
        make_small(arguments.directory)
    else:
        make_hostile(arguments.directory, arguments.entries, arguments.sparse_bytes,
                     arguments.for_tar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
