#!/usr/bin/env python3
"""Tests check_skips.py."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import check_skips


class CheckSkipsTest(unittest.TestCase):
    def test_accepts_a_reason_that_holds_here(self):
        fault, _ = check_skips.fault_of("SKIP: erofs: no such filesystem\n", {"fuse"})
        self.assertIsNone(fault)

    def test_refuses_a_feature_that_this_machine_has(self):
        fault, _ = check_skips.fault_of("SKIP: fuse: cannot open /dev/fuse\n", {"fuse"})
        self.assertIn("which this machine has", fault)

    def test_refuses_a_skip_without_a_reason(self):
        fault, _ = check_skips.fault_of("nothing to see\n", {"fuse"})
        self.assertIn("gives no reason", fault)

    def test_finds_the_skipped_tests_of_a_ctest_run(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as junit:
            junit.write(
                '<testsuite><testcase name="ran" status="run"/>'
                '<testcase name="part" status="run"><system-out>[  SKIPPED ] 1 test, listed below:'
                "</system-out></testcase>"
                '<testcase name="left" status="notrun"><skipped message="x"/>'
                "<system-out>SKIP: loop: none</system-out></testcase></testsuite>")
            junit.flush()
            self.assertEqual(
                [("part", "[  SKIPPED ] 1 test, listed below:"), ("left", "SKIP: loop: none")],
                list(check_skips.skipped_tests(junit.name)))


if __name__ == "__main__":
    unittest.main()
