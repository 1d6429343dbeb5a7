#!/usr/bin/env python3
"""Tests compare_trees.py with pairs of trees that differ in one attribute each."""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import compare_trees
import make_trees

ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in (
    (0x01, 6, 0xFFFFFFFF), (0x02, 4, 1234), (0x04, 4, 0xFFFFFFFF), (0x10, 4, 0xFFFFFFFF),
    (0x20, 0, 0xFFFFFFFF)))


def build(root):
    make = make_trees.Maker(root, "compare")
    make.file("d/file", b"content" * 1000)
    make.file("d/other", b"content" * 1000)
    make.link("d/linked", "d/file")
    make.symlink("d/symlink", "file")
    os.mkfifo(make.path("d/fifo"), 0o644)
    make.xattr("d/file", "user.name", b"\x00\xff")
    make.settle()
    return root


def set_mtime(path):
    os.utime(path, ns=(0, make_trees.EPOCH_NS + 1))


def relink(left):
    os.unlink(left / "d/linked")
    os.link(left / "d/other", left / "d/linked")


class CompareTreesTest(unittest.TestCase):
    def setUp(self):
        # Not /tmp: user xattrs need a filesystem that has them.
        self.scratch = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.left = pathlib.Path(build(os.path.join(self.scratch.name, "left")))
        self.right = pathlib.Path(build(os.path.join(self.scratch.name, "right")))

    def tearDown(self):
        self.scratch.cleanup()

    def found(self, **options):
        trees = [compare_trees.tree_at(path) for path in (self.left, self.right)]
        found = [(os.fsdecode(path), name)
                 for path, name, _, _ in compare_trees.differences(*trees, **options)]
        for tree in trees:
            tree.close()
        return found

    def found_after(self, change, path="d/file"):
        change(self.left / path)
        return [item for item in self.found(ignore=("mtime",)) if "linked" not in item[0]]

    def test_equal_trees_have_no_difference(self):
        self.assertEqual([], self.found())

    def test_finds_a_different_mode(self):
        self.assertEqual([("d/file", "mode")], self.found_after(lambda path: path.chmod(0o600)))

    def test_finds_a_different_setuid_bit(self):
        self.assertEqual([("d/file", "mode")], self.found_after(lambda path: path.chmod(0o4644)))

    @unittest.skipUnless(os.geteuid() == 0, "SKIP: root: changing owners needs it")
    def test_finds_different_owners(self):
        self.assertEqual([("d/file", "uid")], self.found_after(lambda path: os.chown(path, 70000, -1)))
        self.assertEqual([("d/file", "uid"), ("d/file", "gid")],
                         self.found_after(lambda path: os.chown(path, -1, 4294967294)))

    @unittest.skipUnless(os.geteuid() == 0, "SKIP: root: making devices needs it")
    def test_finds_a_different_device_number(self):
        for side, minor in ((self.left, 3), (self.right, 5)):
            os.mknod(side / "d/device", 0o020644, os.makedev(1, minor))
        self.assertEqual([("d/device", "rdev")], self.found(ignore=("mtime",)))

    def test_finds_an_mtime_that_differs_by_a_nanosecond(self):
        set_mtime(self.left / "d/other")
        self.assertEqual([("d/other", "mtime")], self.found())

    def test_finds_a_different_mtime_of_a_directory(self):
        set_mtime(self.left / "d")
        self.assertEqual([("d", "mtime")], self.found())

    def test_finds_a_different_size(self):
        with open(self.left / "d/other", "ab") as out:
            out.write(b"x")
        self.assertEqual([("d/other", "size")], self.found(ignore=("mtime",)))

    def test_finds_one_changed_byte(self):
        with open(self.left / "d/other", "r+b") as out:
            out.seek(6999)
            out.write(b"X")
        self.assertEqual([("d/other", "content")], self.found(ignore=("mtime",)))

    def test_finds_a_different_symlink_target(self):
        os.unlink(self.left / "d/symlink")
        os.symlink("fool", self.left / "d/symlink")
        self.assertEqual([("d/symlink", "target")], self.found(ignore=("mtime",)))

    def test_finds_a_different_type(self):
        os.unlink(self.left / "d/fifo")
        (self.left / "d/fifo").touch(0o644)
        self.assertEqual([("d/fifo", "type")], self.found(ignore=("mtime",)))

    def test_finds_a_missing_and_an_extra_path(self):
        os.rename(self.left / "d/other", self.left / "d/another")
        self.assertEqual([("d/another", "exists"), ("d/other", "exists")],
                         self.found(ignore=("mtime",)))

    def test_finds_a_lost_hard_link(self):
        os.unlink(self.left / "d/linked")
        (self.left / "d/linked").write_bytes(b"content" * 1000)
        names = {name for _, name in self.found(ignore=("mtime", "xattrs"))}
        self.assertEqual({"links", "same_inode_as"}, names)

    def test_finds_a_hard_link_to_the_wrong_inode(self):
        relink(self.left)
        self.assertIn(("d/linked", "same_inode_as"), self.found(ignore=("mtime",)))

    def test_finds_a_changed_a_missing_and_an_extra_xattr(self):
        for change in (lambda path: os.setxattr(path, "user.name", b"\x00"),
                       lambda path: os.removexattr(path, "user.name"),
                       lambda path: os.setxattr(path, "user.extra", b"")):
            self.assertEqual([("d/file", "xattrs")], self.found_after(change))

    def test_a_posix_tar_equals_its_directory(self):
        os.setxattr(self.left / "d/other", "system.posix_acl_access", ACL)
        os.setxattr(self.left / "d", "system.posix_acl_default", ACL)
        os.utime(self.left / "d/fifo", ns=(0, -1_500_000_001))
        make_trees.Maker.file(make_trees.Maker(self.left / "more", 1), "n" * 255, b"long name")
        (pathlib.Path(os.fsdecode(os.fsencode(self.left) + b"/more/\xff"))).touch()
        tar = self.right.with_suffix(".tar")
        subprocess.run(["tar", "--format=posix", "--xattrs", "--acls", "--numeric-owner", "-C",
                        self.left, "-cf", tar, "."], check=True)
        self.right = tar
        self.assertEqual([], self.found())
        os.chmod(self.left / "d/file", 0o600)
        self.assertEqual([("d/file", "mode"), ("d/linked", "mode")], self.found())

    def test_a_missing_socket_is_a_difference_unless_allowed(self):
        make_trees.Maker(self.left / "sockets", 1).socket("s")
        self.assertEqual([("sockets", "exists"), ("sockets/s", "exists")],
                         self.found(ignore=("mtime",)))
        self.assertEqual([("sockets", "exists")],
                         self.found(ignore=("mtime",), sockets_differ=True))


if __name__ == "__main__":
    unittest.main()
