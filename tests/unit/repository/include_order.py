#!/usr/bin/env python3
"""Checks that no module includes upward, and that nobody includes another module's internals.

    include_order.py REPOSITORY
"""

import pathlib
import re
import sys

# What each top-level folder may include besides itself.
ALLOWED = {
    "base": set(),
    "chunkstore": {"base"},
    "fs": {"base", "chunkstore"},
    "qos": {"base"},
    "guard": {"base"},
    "vmm": {"base"},
    "launcher": {"base", "qos", "guard", "vmm"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def faults_in(root):
    """Yields one message for each include that breaks the order; counts the includes seen."""
    seen = 0
    for folder, allowed in ALLOWED.items():
        for source in sorted((root / folder).rglob("*")):
            if source.suffix not in (".h", ".cc", ".c"):
                continue
            for included in INCLUDE.findall(source.read_text()):
                seen += 1
                path = source.relative_to(root)
                target = included.split("/")[0]
                if target != folder and target not in allowed:
                    yield f"{path}: includes {included}, but {folder} may only use {sorted(allowed)}"
                elif not (root / included).is_file():
                    yield f"{path}: includes {included}, which is not a path from the root"
                elif "/internal/" in included and target != folder:
                    yield f"{path}: includes {included}, which is private to {target}"
    if seen == 0:
        yield f"{root}: no include found, is this the repository?"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    faults = list(faults_in(pathlib.Path(sys.argv[1])))
    print("\n".join(faults) or "every include points down")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
