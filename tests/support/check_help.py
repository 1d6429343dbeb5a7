#!/usr/bin/env python3
"""Compares a tool's --help, subcommands included, with its man page.

    check_help.py PROGRAM MAN_PAGE

Every option and subcommand of the help stands in the man page, and every option that the man page
defines (the line after .TP or .TQ, or an .It line) exists in the help.
"""

import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def help_text(program, *subcommand):
    done = subprocess.run(
        [program, *subcommand, "--help"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(subcommand)} --help ended with {done.returncode}: {done.stderr}")
    return done.stdout


def subcommands_in(text):
    """The names under a heading "Subcommands:" or "Commands:" of a help text."""
    names = []
    inside = False
    for line in text.splitlines():
        if re.match(r"(sub)?commands:\s*$", line, re.IGNORECASE):
            inside = True
        elif inside and (match := re.match(r"\s+([a-z][a-z0-9-]*)\b", line)):
            if len(line) - len(line.lstrip()) <= 4:
                names.append(match.group(1))
        elif line.strip() and not line[0].isspace():
            inside = False
    return names


def defined_in_man(page):
    """The options that a man page defines, as distinct from those its prose mentions."""
    options = set()
    lines = page.splitlines()
    for before, line in zip([""] + lines, lines):
        if before.startswith((".TP", ".TQ")) or line.startswith(".It"):
            options |= set(OPTION.findall(line))
    return options


def faults_of(program, page):
    """Yields one message for each difference."""
    page = page.replace("\\-", "-").replace("Fl -", "--")
    in_help = set()
    top = help_text(program)
    commands = subcommands_in(top)
    for command in [()] + [(name,) for name in commands]:
        text = help_text(program, *command) if command else top
        for option in sorted(set(OPTION.findall(text))):
            in_help.add(option)
            if option not in OPTION.findall(page):
                yield f"{' '.join((option, 'of', program, *command))} is missing in the man page"
    for name in commands:
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page):
            yield f"subcommand {name} is missing in the man page"
    for option in sorted(defined_in_man(page) - in_help):
        yield f"the man page defines {option}, which {program} does not have"
    if not in_help:
        yield f"{program} --help names no option"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    faults = list(faults_of(sys.argv[1], pathlib.Path(sys.argv[2]).read_text()))
    print("\n".join(faults) or "help and man page agree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
