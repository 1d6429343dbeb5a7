#!/usr/bin/env python3
"""Tests include_order.py on small made-up repositories."""

import pathlib
import tempfile
import unittest

import include_order


def faults(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return list(include_order.faults_in(pathlib.Path(folder)))


class IncludeOrderTest(unittest.TestCase):
    def test_accepts_an_include_that_points_down(self):
        self.assertEqual([], faults({"fs/a.cc": '#include "base/b.h"\n', "base/b.h": ""}))

    def test_refuses_an_include_that_points_up(self):
        found = faults({"base/b.h": '#include "fs/a.h"\n', "fs/a.h": ""})
        self.assertIn("base/b.h: includes fs/a.h", found[0])

    def test_refuses_chunkstore_in_the_launcher(self):
        found = faults({"launcher/a.cc": '#include "chunkstore/c.h"\n', "chunkstore/c.h": ""})
        self.assertIn("launcher may only use", found[0])

    def test_refuses_a_path_that_is_not_from_the_root(self):
        self.assertIn("not a path from the root", faults({"base/a.cc": '#include "base/b.h"\n'})[0])

    def test_refuses_the_internals_of_another_module(self):
        found = faults({"fs/a.cc": '#include "base/internal/b.h"\n', "base/internal/b.h": ""})
        self.assertIn("private to base", found[0])

    def test_accepts_a_file_that_the_module_generates(self):
        self.assertEqual([], faults({"guard/a.cc": '#include "filter.inc"\n'}))

    def test_refuses_a_repository_without_includes(self):
        self.assertIn("no include found", faults({"base/a.cc": ""})[0])


if __name__ == "__main__":
    unittest.main()
