#!/usr/bin/env python3
"""Tests that make_trees.py makes the same tree again, with everything it promises."""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import compare_trees
import make_trees


class MakeTreesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(dir="/var/tmp")

    def tearDown(self):
        # Not cleanup() alone: it recurses, and the hostile tree is deeper than Python's stack.
        subprocess.run(["rm", "-rf", *pathlib.Path(self.scratch.name).iterdir()], check=True)
        self.scratch.cleanup()

    def twice(self, make):
        paths = [os.path.join(self.scratch.name, name) for name in ("one", "two")]
        for path in paths:
            make(path)
        trees = [compare_trees.DirectoryTree(path) for path in paths]
        self.assertEqual([], list(compare_trees.differences(*trees)))
        return trees[0].nodes

    def test_makes_the_same_small_tree_twice(self):
        nodes = self.twice(make_trees.make_small)
        self.assertEqual({"file", "directory", "symlink"}, {node.type for node in nodes.values()})

    @unittest.skipUnless(os.geteuid() == 0, "SKIP: root: devices and owners need it")
    def test_makes_the_same_hostile_tree_twice_with_every_edge(self):
        nodes = self.twice(lambda path: make_trees.make_hostile(path, 50, 8 << 20))
        self.assertEqual(set(compare_trees.TYPES.values()), {node.type for node in nodes.values()})
        self.assertEqual(50, sum(path.startswith(b"many/") for path in nodes))
        self.assertEqual(255, max(len(path.split(b"/")[-1]) for path in nodes))
        self.assertTrue({70000, 4294967294} <= {node.uid for node in nodes.values()})
        self.assertEqual(100, nodes[b"links/hundred"].links)
        self.assertEqual({3}, {node.links for path, node in nodes.items()
                               if path.startswith(b"links/") and b"hundred" not in path})
        self.assertTrue(any(node.mtime < 0 and node.mtime % 10**9 for node in nodes.values()))
        self.assertIn(b"security.capability", nodes[b"xattrs/ping"].xattrs)
        self.assertEqual(8 << 20, nodes[b"sparse/huge"].size)
        allocated = os.lstat(os.path.join(self.scratch.name, "one/sparse/huge")).st_blocks * 512
        self.assertLess(allocated, 1 << 20)
        self.assertEqual(0o7777, stat.S_IMODE(nodes[b"types/mode-7777"].mode))


if __name__ == "__main__":
    unittest.main()
