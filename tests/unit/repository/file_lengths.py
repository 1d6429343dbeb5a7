#!/usr/bin/env python3
"""Warns of source files over 500 lines, and fails on one over 1,000.

    file_lengths.py REPOSITORY
"""

import pathlib
import sys

FOLDERS = ("base", "chunkstore", "fs", "launcher", "vmm", "qos", "guard", "tests", "benchmarks")
SUFFIXES = (".h", ".cc", ".c", ".py", ".txt")
LINES_WARN = 500
LINES_MAX = 1000


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    checked = too_long = 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            checked += 1
            lines = len(path.read_bytes().splitlines())
            too_long += lines > LINES_MAX
            if lines > LINES_WARN:
                kind = "error" if lines > LINES_MAX else "warning"
                print(f"{kind}: {path.relative_to(root)} has {lines} lines")
    print(f"{checked} files checked")
    return 1 if too_long or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
