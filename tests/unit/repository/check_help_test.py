#!/usr/bin/env python3
"""Tests check_help.py with made-up tools."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
import check_help

TOOL = """#!/bin/sh
case $1 in
  build) echo 'Options:'; echo '  --store URL  where'; echo '  --help' ;;
  *) echo 'Options:'; echo '  --help  shows this'; echo; echo 'Subcommands:'; echo '  build   packs' ;;
esac
"""


def faults(page):
    with tempfile.TemporaryDirectory() as folder:
        tool = pathlib.Path(folder, "tool")
        tool.write_text(TOOL)
        tool.chmod(0o755)
        return [fault.replace(str(tool), "tool") for fault in check_help.faults_of(str(tool), page)]


class CheckHelpTest(unittest.TestCase):
    def test_accepts_a_page_that_agrees(self):
        page = ".SH build\n.TP\n.BI \\-\\-store \" URL\"\n.TP\n.B \\-\\-help\n"
        self.assertEqual([], faults(page))

    def test_finds_an_option_that_the_page_lacks(self):
        self.assertEqual(
            ["--store of tool build is missing in the man page"], faults("build\n.TP\n.B \\-\\-help\n"))

    def test_finds_a_subcommand_that_the_page_lacks(self):
        self.assertIn("subcommand build is missing in the man page", faults("\\-\\-store \\-\\-help"))

    def test_finds_an_option_that_only_the_page_has(self):
        page = "build \\-\\-store\n.TP\n.B \\-\\-help\n.TP\n.B \\-\\-gone\n"
        self.assertEqual(["the man page defines --gone, which tool does not have"], faults(page))


if __name__ == "__main__":
    unittest.main()
