#!/usr/bin/env python3
"""Feeds layer-pack tars that users of comparable systems met, and tars that nobody should accept.

    hostile_tars.py LAYER_PACK [unittest arguments]

A good one must come out as it went in (read back from the exported tar). A bad one must end with a
non-zero status and a message that names the path, and must leave nothing published in the store.
"""

import gzip
import io
import lzma
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import compare_trees
import kernel_mounts

LAYER_PACK = None
PUBLISHED = ("refs", "images", "layers", "placements")
RUN_TIMEOUT_S = 120
SPECIAL = {"dir": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE, "link": tarfile.LNKTYPE,
           "char": tarfile.CHRTYPE, "fifo": tarfile.FIFOTYPE}


def entry(name, content=b"", kind=None, target="", **attributes):
    """One member of a tar: (header, content)."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o755 if kind == "dir" else 0o644
    info.type = SPECIAL.get(kind, tarfile.REGTYPE)
    info.linkname = target
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


def tar_of(*members, style=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=style, errors="surrogateescape") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def with_raw_name(tar, old, new):
    """Replaces a member's name of the same length, in a tar whose headers tarfile would not write."""
    header = tar.index(old.ljust(100, b"\0"))
    block = bytearray(tar[header:header + 512])
    block[:len(old)] = new
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return tar[:header] + bytes(block) + tar[header + 512:]


class HostileTarTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        self.store = self.folder / "store"
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")

    def run_tool(self, *arguments):
        return subprocess.run([LAYER_PACK, *arguments, "--store", f"file://{self.store}"],
                              capture_output=True, timeout=RUN_TIMEOUT_S, check=False)

    def build(self, data, name="source.tar"):
        source = self.folder / name
        source.write_bytes(data)
        return self.run_tool("build", source, "--tag", "hostile:1")

    def packed(self, *members, **options):
        """Packs the members; returns path -> node of the exported tar."""
        return self.packed_bytes(tar_of(*members, **options))

    def packed_bytes(self, data, name="source.tar"):
        done = self.build(data, name)
        self.assertEqual(0, done.returncode, done.stderr.decode(errors="replace"))
        exported = self.folder / "exported.tar"
        exported.unlink(missing_ok=True)
        done = self.run_tool("export", "hostile:1", "--tar", exported)
        self.assertEqual(0, done.returncode, done.stderr.decode(errors="replace"))
        tree = compare_trees.TarTree(exported)
        self.addCleanup(tree.close)
        self.contents = {path: tree.open(path).read() for path, node in tree.nodes.items()
                         if node.type == "file"}
        return tree.nodes

    def refused(self, data, *named):
        """The build must fail, name these texts, and publish nothing."""
        done = self.build(data)
        message = done.stderr.decode(errors="replace")
        self.assertGreater(done.returncode, 0, f"accepted or died by a signal: {message}")
        for text in named:
            self.assertIn(text, message)
        left = [str(path) for kind in PUBLISHED for path in (self.store / kind).rglob("*")
                if path.is_file()]
        self.assertEqual([], left)


class GoodTars(HostileTarTest):
    def test_every_spelling_of_the_root_is_one_root(self):
        nodes = self.packed(entry("./", kind="dir", mode=0o700), entry(".", kind="dir", mode=0o711),
                            entry("./a", b"x"), entry("b", b"y"))
        self.assertEqual({b"", b"a", b"b"}, set(nodes))
        self.assertEqual(0o711, nodes[b""].mode)

    def test_a_hard_link_may_come_before_its_target(self):
        nodes = self.packed(entry("a", kind="link", target="z"), entry("z", b"linked"))
        self.assertEqual(2, nodes[b"a"].links)
        self.assertEqual(b"linked", self.contents[b"a"])

    def test_hard_links_of_hard_links_are_one_inode(self):
        nodes = self.packed(entry("a", b"1"), entry("b", kind="link", target="a"),
                            entry("c", kind="link", target="./b"))
        self.assertEqual(3, nodes[b"c"].links)

    def test_a_hard_linked_fifo_and_symlink_stay_what_they_are(self):
        nodes = self.packed(entry("f", kind="fifo"), entry("g", kind="link", target="f"),
                            entry("s", kind="symlink", target="f"),
                            entry("t", kind="link", target="s"))
        self.assertEqual(("fifo", 2), (nodes[b"g"].type, nodes[b"g"].links))
        self.assertEqual(("symlink", 2, b"f"), (nodes[b"t"].type, nodes[b"t"].links, nodes[b"t"].target))

    def test_of_a_path_that_comes_twice_the_last_counts(self):
        nodes = self.packed(entry("a", b"first"), entry("d", kind="dir"), entry("d/x", b"child"),
                            entry("a", b"second", mode=0o600), entry("d", kind="dir", mode=0o700))
        self.assertEqual(b"second", self.contents[b"a"])
        self.assertEqual((0o600, 0o700), (nodes[b"a"].mode, nodes[b"d"].mode))
        self.assertIn(b"d/x", nodes)

    def test_only_xattr_records_become_xattrs(self):
        capability = "\x01\x00\x00\x02\x00\x20" + "\0" * 14
        nodes = self.packed(entry("ping", b"p", pax_headers={
            "comment": "no xattr", "SCHILY.xattr.security.capability": capability,
            "mtime": "1234567890.000000001", "atime": "1.5"}))
        self.assertEqual({b"security.capability": capability.encode()}, nodes[b"ping"].xattrs)
        self.assertEqual(1234567890000000001, nodes[b"ping"].mtime)

    def test_numeric_owners_win_over_names_of_the_host(self):
        nodes = self.packed(entry("a", uid=12345, gid=54321, uname="nobody", gname="root"))
        self.assertEqual((12345, 54321), (nodes[b"a"].uid, nodes[b"a"].gid))

    def test_large_ids_and_times_in_every_encoding(self):
        for style in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
            nodes = self.packed(entry("a", uid=4294967294, gid=70000, mtime=2**33),
                                entry("b", mtime=-1), style=style)
            self.assertEqual((4294967294, 70000, 2**33 * 10**9),
                             (nodes[b"a"].uid, nodes[b"a"].gid, nodes[b"a"].mtime))
            self.assertEqual(-10**9, nodes[b"b"].mtime)

    def test_a_negative_time_with_nanoseconds(self):
        nodes = self.packed(entry("a", pax_headers={"mtime": "-1.250000001"}))
        self.assertEqual(-1_250_000_001, nodes[b"a"].mtime)

    def test_special_mode_bits_stay(self):
        nodes = self.packed(*(entry(f"m{mode:o}", mode=mode) for mode in (0o4755, 0o2755, 0o1644, 0)))
        self.assertEqual([0, 0o1644, 0o2755, 0o4755],
                         sorted(node.mode for path, node in nodes.items() if path))

    def test_directories_that_are_only_implied_exist(self):
        nodes = self.packed(entry("a/b/c", b"x"))
        self.assertEqual(("directory", 0o755, 0, 0),
                         (nodes[b"a/b"].type, nodes[b"a/b"].mode, nodes[b"a/b"].uid, nodes[b"a/b"].mtime))

    def test_names_of_255_bytes_and_of_no_encoding(self):
        strange = b"\xff\xfe\n".decode("utf-8", "surrogateescape")
        nodes = self.packed(entry("n" * 255, b"x"), entry(strange, b"y"),
                            entry("long/" * 40 + "end", b"z"), style=tarfile.GNU_FORMAT)
        self.assertIn(b"n" * 255, nodes)
        self.assertEqual(b"y", self.contents[b"\xff\xfe\n"])

    def test_bytes_after_the_end_of_the_archive_are_ignored(self):
        nodes = self.packed_bytes(tar_of(entry("a", b"x")) + b"garbage" * 1000)
        self.assertEqual({b"", b"a"}, set(nodes))

    def test_every_compression_gives_the_same_layer(self):
        data = tar_of(entry("a", b"x" * 5000), entry("d", kind="dir"))
        zstd = subprocess.run(["zstd", "-cq"], input=data, stdout=subprocess.PIPE, check=True).stdout
        layers = set()
        for name, packed in (("t.tar", data), ("t.tar.gz", gzip.compress(data)),
                             ("t.tar.xz", lzma.compress(data)), ("t.tar.zst", zstd)):
            self.packed_bytes(packed, name)
            layers |= set(os.listdir(self.store / "layers"))
        self.assertEqual(1, len(layers))

    def test_file_types_replace_each_other(self):
        nodes = self.packed(entry("a", b"file"), entry("a", kind="dir"), entry("a/x", b"x"),
                            entry("b", kind="symlink", target="a"), entry("b", b"file"))
        self.assertEqual(("directory", "file"), (nodes[b"a"].type, nodes[b"b"].type))


class BadTars(HostileTarTest):
    def test_refuses_names_that_leave_the_tree(self):
        for name in ("../evil", "a/../../evil", "a/.."):
            with self.subTest(name):
                self.refused(tar_of(entry("ok", b"x"), entry(name, b"x")), name)

    def test_refuses_an_absolute_name(self):
        tar = with_raw_name(tar_of(entry("aetc/evil", b"x"), style=tarfile.USTAR_FORMAT),
                            b"aetc/evil", b"/etc/evil")
        self.refused(tar, "/etc/evil")

    def test_refuses_a_path_through_a_symlink(self):
        self.refused(tar_of(entry("a", kind="symlink", target="/etc"), entry("a/evil", b"x")), "a/evil")

    def test_refuses_a_path_below_a_file(self):
        self.refused(tar_of(entry("a", b"x"), entry("a/b", b"y")), "a/b")

    def test_refuses_hard_links_that_lead_nowhere(self):
        self.refused(tar_of(entry("lost", kind="link", target="gone")), "lost", "gone")
        self.refused(tar_of(entry("self", kind="link", target="self")), "self")
        self.refused(tar_of(entry("d", kind="dir"), entry("l", kind="link", target="d")), "l")
        self.refused(tar_of(entry("a", kind="link", target="b"), entry("b", kind="link", target="a")),
                     "a")

    def test_refuses_a_hard_link_that_leaves_the_tree(self):
        self.refused(tar_of(entry("l", kind="link", target="../../etc/passwd")), "l")

    def test_refuses_a_name_over_255_bytes(self):
        self.refused(tar_of(entry("n" * 256, b"x")), "n" * 256)

    def test_refuses_xattrs_over_the_limits_of_the_format(self):
        self.refused(tar_of(entry("big", pax_headers={"SCHILY.xattr.user.v": "v" * 70000})), "big")
        self.refused(tar_of(entry("long", pax_headers={"SCHILY.xattr.user." + "n" * 260: "v"})), "long")
        self.refused(tar_of(entry("many", pax_headers={
            f"SCHILY.xattr.user.{i}": "v" * 4000 for i in range(70)})), "many")

    def test_refuses_a_device_that_means_a_whiteout(self):
        self.refused(tar_of(entry("dev", kind="char", devmajor=0, devminor=0)), "dev")

    def test_refuses_a_truncated_tar(self):
        whole = tar_of(entry("first", b"x" * 100_000), entry("second", b"y" * 100_000))
        for length in (512 + 50_000, 512 + 100_352 + 200, 512 + 100_352 + 512 + 70_000):
            with self.subTest(length):
                self.refused(whole[:length])

    def test_refuses_a_truncated_compressed_tar(self):
        whole = tar_of(entry("a", os.urandom(200_000)))
        self.refused(gzip.compress(whole)[:-50_000])
        self.refused(lzma.compress(whole)[:-50_000])

    def test_refuses_what_is_no_tar(self):
        self.refused(os.urandom(100_000))
        self.refused(b"")

    def test_refuses_a_damaged_header(self):
        data = bytearray(tar_of(entry("a", b"x"), entry("b", b"y")))
        data[1024 + 100] ^= 1  # the mode of b: the checksum no longer holds
        self.refused(bytes(data))

    def test_refuses_a_file_that_claims_to_be_enormous(self):
        tar = tar_of(entry("huge", b"x", pax_headers={"size": str(1 << 62)}))
        self.refused(tar)


class FullDisk(HostileTarTest):
    def test_a_full_disk_is_an_error_and_space_heals_it(self):
        kernel_mounts.private_namespace()
        disk = self.folder / "disk"
        disk.mkdir()
        kernel_mounts.mount("none", disk, "tmpfs", "size=2m", flags=0)
        self.addCleanup(kernel_mounts.unmount, disk)
        self.store = disk / "store"
        data = tar_of(entry("noise", os.urandom(8 << 20)))
        self.refused(data, "No space left")
        kernel_mounts.mount("none", disk, "tmpfs", "size=64m", flags=kernel_mounts.MS_REMOUNT)
        self.assertEqual({b"", b"noise"}, set(self.packed_bytes(data)))


def main():
    global LAYER_PACK
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LAYER_PACK = sys.argv.pop(1)
    if os.geteuid() != 0:
        print("SKIP: root: mounting a small disk needs it")
        return 77
    unittest.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
