#!/usr/bin/env python3
"""Writes the entries of an uncompressed tar in a random order that the seed decides.

    shuffle_tar.py SEED INPUT OUTPUT
"""

import os
import random
import sys
import tarfile


def spans_of(path):
    """The (offset, length) of every entry with its extended headers and padding."""
    with tarfile.open(path, "r:") as tar:
        starts = [member.offset for member in tar]
        end = tar.offset
    return [(start, stop - start) for start, stop in zip(starts, starts[1:] + [end])]


def copy(source, target, offset, length):
    while length > 0:
        done = os.copy_file_range(source, target, length, offset)
        if done == 0:
            raise EOFError("the tar ends inside an entry")
        offset += done
        length -= done


def shuffle(seed, source, target):
    spans = spans_of(source)
    random.Random(seed).shuffle(spans)
    with open(source, "rb") as old, open(target, "wb", buffering=0) as new:
        for offset, length in spans:
            copy(old.fileno(), new.fileno(), offset, length)
        new.write(bytes(2 * tarfile.BLOCKSIZE))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    shuffle(*sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
