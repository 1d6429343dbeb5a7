#!/usr/bin/env python3
"""Tests what tests/vm/guest_kernel.py keeps in its cache."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "vm"))
import guest_kernel

OTHERS = ["linux-image-cloud-arm64-6.1.1-1", "linux-image-6.12-cloud-amd64-6.12.9-1", "debian-1"]


class GuestKernelTest(unittest.TestCase):
    def setUp(self):
        cache = tempfile.TemporaryDirectory()
        self.addCleanup(cache.cleanup)
        self.cache = cache.name
        for name in OTHERS:
            os.mkdir(f"{self.cache}/{name}")

    def fetch(self, version):
        """With an apt that knows this version, or none."""
        package = mock.Mock(side_effect=guest_kernel.NoKernel("none")) if version is None \
            else mock.Mock(return_value=("package", version))
        self.unpacked = []

        def unpack(_package, unpacked, target):
            self.unpacked.append(unpacked)
            os.makedirs(target + "/modules")

        with mock.patch.multiple(guest_kernel, _package_of=package, _unpack=unpack), \
                mock.patch.dict(os.environ, VARVE_TREE_CACHE=self.cache):
            return guest_kernel.fetch("linux-image-cloud-amd64")

    def kept(self):
        return sorted(name for name in os.listdir(self.cache)
                      if name not in OTHERS and not name.startswith("."))

    def lay(self, version):
        os.mkdir(f"{self.cache}/linux-image-cloud-amd64-{version}")

    def test_a_newer_version_takes_the_place_of_the_others(self):
        self.lay("6.1.9-1")
        self.lay("6.1.10-1")
        self.assertTrue(self.fetch("6.1.11-1").endswith("-6.1.11-1"))
        self.assertEqual(self.kept(), ["linux-image-cloud-amd64-6.1.11-1"])
        self.assertEqual(set(OTHERS) - set(os.listdir(self.cache)), set())

    def test_nothing_is_unpacked_twice_nor_where_a_newer_one_is_kept(self):
        self.lay("6.1.10-1")
        for version in ("6.1.10-1", "6.1.9-1"):
            self.assertTrue(self.fetch(version).endswith("-6.1.10-1"))
            self.assertEqual(self.unpacked, [])
        self.assertEqual(self.kept(), ["linux-image-cloud-amd64-6.1.10-1"])

    def test_without_apt_it_is_the_newest_version_kept(self):
        self.lay("6.1.9-1")
        self.lay("6.1.10-1")
        self.assertTrue(self.fetch(None).endswith("-6.1.10-1"))

    def test_what_somebody_boots_stays(self):
        self.lay("6.1.9-1")
        self.fetch("6.1.9-1")
        self.fetch("6.1.10-1")
        self.assertEqual(self.kept(), ["linux-image-cloud-amd64-6.1.10-1",
                                       "linux-image-cloud-amd64-6.1.9-1"])


if __name__ == "__main__":
    unittest.main()
