#!/usr/bin/env python3
"""Compares two trees path by path and prints every difference.

    compare_trees.py [--ignore ATTRIBUTE]... [--sockets-differ] LEFT RIGHT

LEFT and RIGHT are directories or uncompressed tars. Compared are, for each path: type, mode, uid,
gid, mtime (nanoseconds), size (not of directories), links (the number of hard links, not of
directories, and which paths share the inode), rdev, xattrs (names and values, ACLs included), the
target of a symlink, and the content. With --sockets-differ a socket may be missing on one side: tar
has none.

Exit status: 0 no difference, 1 differences, 2 a tree cannot be read.
"""

import argparse
import base64
import collections
import decimal
import os
import stat
import struct
import sys
import tarfile

ATTRIBUTES = ("type", "mode", "uid", "gid", "mtime", "size", "links", "same_inode_as", "rdev",
              "xattrs", "target", "content")
READ_BYTES = 1 << 20

TYPES = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink",
    stat.S_IFCHR: "character device", stat.S_IFBLK: "block device", stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


class Node:
    """The attributes of one path. `inode` is equal for the names of one hard-linked inode."""

    __slots__ = ("type", "mode", "uid", "gid", "mtime", "size", "links", "same_inode_as", "rdev",
                 "xattrs", "target", "inode", "member")

    def __init__(self):
        self.size = self.links = self.same_inode_as = self.rdev = self.target = self.member = None
        self.xattrs = {}


class DirectoryTree:
    """A tree on a mounted filesystem."""

    def __init__(self, root):
        self.root = os.fsencode(root)
        self.nodes = {}
        pending = [b""]
        while pending:
            path = pending.pop()
            node = self.nodes[path] = self.node_of(path)
            if node.type == "directory":
                prefix = path + b"/" if path else b""
                pending.extend(prefix + name for name in os.listdir(self.full(path)))

    def full(self, path):
        return os.path.join(self.root, path) if path else self.root

    def node_of(self, path):
        full = self.full(path)
        status = os.lstat(full)
        node = Node()
        node.type = TYPES[stat.S_IFMT(status.st_mode)]
        node.mode = stat.S_IMODE(status.st_mode)
        node.uid, node.gid, node.mtime = status.st_uid, status.st_gid, status.st_mtime_ns
        node.inode = (status.st_dev, status.st_ino)
        if node.type != "directory":
            node.size, node.links = status.st_size, status.st_nlink
        if node.type.endswith("device"):
            node.rdev = (os.major(status.st_rdev), os.minor(status.st_rdev))
        if node.type == "symlink":
            node.target = os.readlink(full)
        for name in os.listxattr(full, follow_symlinks=False):
            node.xattrs[os.fsencode(name)] = os.getxattr(full, name, follow_symlinks=False)
        return node

    def open(self, path):
        return open(self.full(path), "rb", buffering=0)

    def close(self):
        pass


class TarTree:
    """A tree in an uncompressed tar; of a path that comes twice the last entry counts."""

    def __init__(self, path):
        self.tar = tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape")
        self.nodes = {}
        links = {}
        for member in self.tar:
            if member.islnk():
                links[clean(member.name)] = clean(member.linkname)
            else:
                self.nodes[clean(member.name)] = self.node_of(member)
        for name, target in links.items():
            self.nodes[name] = self.nodes[target]
        names = collections.Counter(id(node) for node in self.nodes.values())
        for node in self.nodes.values():
            node.inode = id(node)
            if node.type != "directory":
                node.links = names[id(node)]

    def node_of(self, member):
        node = Node()
        node.member = member
        node.type = tar_type(member)
        node.mode = stat.S_IMODE(member.mode)
        node.uid, node.gid, node.mtime = member.uid, member.gid, tar_mtime(member)
        if node.type == "file":
            node.size = member.size
        elif node.type == "symlink":
            node.target = raw(member.linkname)
            node.size = len(node.target)
        elif node.type != "directory":
            node.size = 0
        if node.type.endswith("device"):
            node.rdev = (member.devmajor, member.devminor)
        node.xattrs = tar_xattrs(member.pax_headers)
        return node

    def open(self, path):
        return self.tar.extractfile(self.nodes[path].member)

    def close(self):
        self.tar.close()


def raw(text):
    return text.encode("utf-8", "surrogateescape")


def clean(name):
    """A tar's name as a path below the root: "./a/" is "a", "./" and "." are ""."""
    return b"/".join(part for part in raw(name).split(b"/") if part not in (b"", b"."))


def tar_type(member):
    if member.isdir():
        return "directory"
    if member.issym():
        return "symlink"
    if member.ischr():
        return "character device"
    if member.isblk():
        return "block device"
    if member.isfifo():
        return "fifo"
    return "file"


def tar_mtime(member):
    exact = member.pax_headers.get("mtime")
    if exact is None:
        return int(member.mtime) * 10**9
    return int((decimal.Decimal(exact) * 10**9).to_integral_value(decimal.ROUND_FLOOR))


def tar_xattrs(headers):
    """The xattrs of a PAX header, in star's, libarchive's and GNU tar's spellings."""
    xattrs = {}
    for key, value in headers.items():
        if key.startswith("LIBARCHIVE.xattr."):
            xattrs.setdefault(raw(key.removeprefix("LIBARCHIVE.xattr.")),
                              base64.b64decode(value + "=" * (-len(value) % 4)))
        elif key.startswith("SCHILY.xattr."):
            xattrs[raw(key.removeprefix("SCHILY.xattr."))] = raw(value)
        elif key in ("SCHILY.acl.access", "SCHILY.acl.default"):
            acl = acl_from_text(value)
            # An access ACL of three entries says what the mode says: no filesystem stores it.
            if key.endswith("default") or len(acl) > 4 + 3 * 8:
                xattrs[b"system.posix_acl_" + raw(key.removeprefix("SCHILY.acl."))] = acl
    return xattrs


def acl_from_text(text):
    """The xattr value (version 2, little endian) of an ACL in text form with numeric ids."""
    tags = {("user", False): 0x01, ("user", True): 0x02, ("group", False): 0x04,
            ("group", True): 0x08, ("mask", False): 0x10, ("other", False): 0x20}
    entries = []
    for item in text.replace("\n", ",").split(","):
        item = item.split("#")[0].strip()
        if not item:
            continue
        # libarchive appends the numeric id as a fourth field when it also writes a name.
        kind, who, bits, *numeric = item.split(":")
        identity = int(numeric[0] if numeric else who) if who else 0xFFFFFFFF
        permissions = sum(bit for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if letter in bits)
        entries.append((tags[kind, bool(who)], permissions, identity))
    entries.sort(key=lambda entry: (entry[0], entry[2]))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def name_first_links(nodes):
    """Sets same_inode_as of every node with several names to the bytewise first of them."""
    first = {}
    for path in sorted(nodes):
        node = nodes[path]
        if node.type != "directory":
            node.same_inode_as = first.setdefault(node.inode, path)


def same_bytes(left, right):
    """Whether two open files hold the same; returns the offset of the first different block."""
    offset = 0
    while True:
        a, b = left.read(READ_BYTES), right.read(READ_BYTES)
        while len(a) < len(b) and (more := left.read(len(b) - len(a))):
            a += more
        while len(b) < len(a) and (more := right.read(len(a) - len(b))):
            b += more
        if a != b:
            return offset
        if not a:
            return None
        offset += len(a)


def shown(attribute, value):
    if attribute == "mode":
        return oct(value)
    if attribute == "xattrs":
        return str({name: data[:32] for name, data in value.items()})
    return repr(value) if isinstance(value, bytes) else str(value)


def differences(left, right, ignore=(), sockets_differ=False):
    """Yields (path, attribute, left value, right value), paths in bytewise order."""
    name_first_links(left.nodes)
    name_first_links(right.nodes)
    compared = [name for name in ATTRIBUTES if name not in ignore and name != "content"]
    for path in sorted(left.nodes.keys() | right.nodes.keys()):
        a, b = left.nodes.get(path), right.nodes.get(path)
        if a is None or b is None:
            if not (sockets_differ and (a or b).type == "socket"):
                yield path, "exists", a is not None, b is not None
            continue
        for name in compared:
            if getattr(a, name) != getattr(b, name):
                yield path, name, getattr(a, name), getattr(b, name)
        if ("content" not in ignore and a.type == b.type == "file" and a.size == b.size and a.size
                and (a.same_inode_as == path or b.same_inode_as == path)):
            with left.open(path) as one, right.open(path) as other:
                offset = same_bytes(one, other)
            if offset is not None:
                yield path, "content", f"differs in the MiB at {offset}", "see left"


def tree_at(path):
    return DirectoryTree(path) if os.path.isdir(path) else TarTree(path)


def main():
    parser = argparse.ArgumentParser(description="Compares two trees path by path.")
    parser.add_argument("--ignore", action="append", default=[], choices=ATTRIBUTES)
    parser.add_argument("--sockets-differ", action="store_true")
    parser.add_argument("left")
    parser.add_argument("right")
    arguments = parser.parse_args()
    try:
        left, right = tree_at(arguments.left), tree_at(arguments.right)
        count = 0
        for path, name, a, b in differences(left, right, arguments.ignore,
                                            arguments.sockets_differ):
            count += 1
            print(f"{os.fsdecode(path) or '/'!r}: {name}: {shown(name, a)} / {shown(name, b)}")
        left.close()
        right.close()
    except (OSError, tarfile.TarError, KeyError) as error:
        print(f"compare_trees: {error!r}", file=sys.stderr)
        return 2
    print(f"{len(left.nodes)} and {len(right.nodes)} paths compared, {count} differences")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
