#!/usr/bin/env python3
"""Checks that the varve which was linked with musl calls nothing of libc that nobody compared.

    musl_test.py VARVE.map REVIEWED_SYMBOLS LAYOUT_BY_GLIBC LAYOUT_BY_MUSL

The map is the linker's, with its table of cross references. launcher/libc/README.md has the reasons.
"""

import pathlib
import re
import subprocess
import sys

MUSL = "/x86_64-linux-musl/"
# What the start and end files of every program call.
START_SYMBOLS = {"_DYNAMIC", "__cxa_finalize", "__libc_start_main"}


def used_symbols(map_text):
    """Symbols that musl's libc.a defines and anything else uses."""
    table = map_text[map_text.index("\nCross Reference Table\n"):]
    used = set()
    entry = re.compile(r"^(\S+)(?: +|\n +)(\S.*)\n((?: +\S.*\n)*)", re.MULTILINE)
    for name, definer, users in entry.findall(table):
        if MUSL + "libc.a" in definer and any(MUSL not in user for user in users.splitlines()):
            used.add(name)
    return used - START_SYMBOLS


def reviewed_symbols(text):
    return set(re.sub(r"#.*", "", text).split())


def main():
    map_file, reviewed_file, *layouts = sys.argv[1:]
    used = used_symbols(pathlib.Path(map_file).read_text())
    reviewed = reviewed_symbols(pathlib.Path(reviewed_file).read_text())
    failures = []
    if len(used) < 50:
        failures.append(f"{map_file}: only {len(used)} symbols of libc found: the table is misread")
    failures += [f"{name} is not in {reviewed_file}" for name in sorted(used - reviewed)]
    failures += [f"{name} in {reviewed_file} is not used" for name in sorted(reviewed - used)]
    by_glibc, by_musl = (subprocess.run([program], check=True, capture_output=True, text=True)
                         .stdout.splitlines() for program in layouts)
    failures += [f"glibc has {theirs!r}, musl {ours!r}"
                 for theirs, ours in zip(by_glibc, by_musl, strict=True) if theirs != ours]
    print("\n".join(failures) or f"{len(used)} symbols, {len(by_musl)} facts of layout")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
