#!/usr/bin/env python3
"""Lists the tests that a ctest run skipped, and fails when this machine could have run one.

    check_skips.py JUNIT_XML

A test says why it skips on a line `SKIP: <feature>: why` (see probe-features for the names). It is
a fault when the reason is missing, names an unknown feature, or names one this machine has.
"""

import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

REASON = re.compile(r"SKIP: ([a-z0-9-]+): (.*)")
# What gtest and unittest print of a program that passed although some of its cases were skipped.
SOME_CASES = re.compile(r"\[  SKIPPED \] [1-9]|skipped=[1-9]")


def skipped_tests(junit):
    """Yields (name, output) of each test that was skipped, whole or in part."""
    for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        whole = case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
        if whole or SOME_CASES.search(output):
            yield case.get("name"), output


def fault_of(output, features):
    """Why this skip is not acceptable, or None, and the reasons the test gave."""
    reasons = REASON.findall(output)
    if not reasons:
        return "gives no reason (a line 'SKIP: <feature>: why')", reasons
    for feature, _ in reasons:
        if feature in features:
            return f"says it needs {feature}, which this machine has", reasons
    return None, reasons


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    probe = pathlib.Path(__file__).with_name("probe-features")
    features = set(subprocess.run([probe], check=True, capture_output=True, text=True).stdout.split())
    faults = 0
    for name, output in skipped_tests(sys.argv[1]):
        fault, reasons = fault_of(output, features)
        why = "; ".join(f"{feature}: {why}" for feature, why in reasons)
        print(f"skipped: {name}: {fault or why}")
        faults += fault is not None
    if faults:
        print(f"{faults} skipped tests could have run; this machine has: {' '.join(sorted(features))}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
