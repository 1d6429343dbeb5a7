#!/usr/bin/env python3
"""A store, read with nothing but what varve-store(5), varve-layer(5) and varve-erofs(5) say.

    second_reader.py LAYER_PACK

Packs two trees with layer-pack and follows ref → image → layer → placement → packs in Python; the
bytes must be those that `layer-pack export --erofs` writes. Then the chunks' sizes must be those that
the cutting rules of varve-erofs(5), written down here once more, give for the files.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import store_reader  # noqa: E402
from store_reader import expect  # noqa: E402

BLOCK = 4096
PLACEMENT = struct.Struct("<8s3I I 32s 2Q 2I 16x")
PLACEMENT_ENTRY = struct.Struct("<4I")


def read_pointer(path):
    data = path.read_bytes()
    expect(len(data) == 65 and data[64:] == b"\n", f"{path}: is no pointer")
    return data[:64].decode()


def read_json(path, kind):
    """A text object in its one spelling."""
    data = path.read_bytes()
    value = json.loads(data)
    spelled = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    expect(spelled.encode() == data, f"{path}: is not canonical")
    expect(value["type"] == kind and value["version"] == 1 and not value.get("incompat"),
           f"{path}: is no {kind} of this version")
    return value


def read_image(store, name, tag):
    image_id = read_pointer(store / "refs" / f"{name}:{tag}")
    path = store / "images" / image_id
    expect(hashlib.sha256(path.read_bytes()).hexdigest() == image_id, f"{path}: wrong hash")
    return read_json(path, "varve.image")


def read_placement(store, layer_id, chunk_count):
    """For each chunk of the layer: the pack's id, offset, stored size, flags."""
    folder = store / "placements" / layer_id
    placement_id = read_pointer(folder / "current")
    data = (folder / placement_id).read_bytes()
    expect(hashlib.sha256(data).hexdigest() == placement_id, f"{folder}: wrong hash")
    magic, version, _, incompat, header_size, layer, count, stored_bytes, pack_count, page = \
        PLACEMENT.unpack_from(data)
    expect((magic, version, incompat, page) == (b"VARVEPLC", 1, 0, 1024), f"{folder}: no placement")
    expect(layer.hex() == layer_id and count == chunk_count, f"{folder}: of another layer")
    expect(header_size == PLACEMENT.size + 32 * pack_count, f"{folder}: header size")
    packs = [data[at:at + 32].hex() for at in range(PLACEMENT.size, header_size, 32)]
    entries = [(packs[pack], offset, stored, flags)
               for pack, offset, stored, flags in PLACEMENT_ENTRY.iter_unpack(data[header_size:])]
    expect(len(entries) == count, f"{folder}: {len(entries)} entries")
    expect(sum(entry[2] for entry in set(entries)) == stored_bytes, f"{folder}: stored bytes")
    return entries


def read_layer_image(store, layer_id):
    """The bytes of the EROFS image; every chunk checked."""
    layer = store_reader.read_layer(store, layer_id)
    places = read_placement(store, layer_id, len(layer.chunks))
    packs = {pack: (store / "packs" / pack[:2] / pack).read_bytes() for pack, *_ in places}
    indexes = {pack: store_reader.read_pack_index(store / "packs" / pack[:2] / pack) for pack in packs}
    frames = b""
    for (chunk, raw_size), (pack, offset, stored, flags) in zip(layer.chunks, places):
        entry = indexes[pack][chunk]
        expect((entry.offset, entry.stored_size, entry.raw_size, entry.is_raw)
               == (offset, stored, raw_size, flags == 1), f"{pack}: is at odds with the placement")
        if flags == 0:
            frames += packs[pack][offset:offset + stored]
    # Frames in a row decompress to their contents in a row: one process for all.
    plain = subprocess.run(["zstd", "-dcq"], input=frames, stdout=subprocess.PIPE, check=True).stdout
    image, at = bytearray(), 0
    for (chunk, raw_size), (pack, offset, stored, flags) in zip(layer.chunks, places):
        if flags == 1:
            raw = packs[pack][offset:offset + stored]
        else:
            raw = plain[at:at + raw_size]
            at += raw_size
        expect(hashlib.sha256(raw).digest() == chunk, f"chunk {chunk.hex()} is damaged")
        image += raw
    return layer, bytes(image)


def gear_table():
    return [int.from_bytes(hashlib.sha256(b"varve fastcdc gear 1" + bytes([i])).digest()[:8], "little")
            for i in range(256)]


def padded(size):
    return -(-size // BLOCK) * BLOCK


def cut_large(data):
    """The sizes of a large file's chunks (no holes in it)."""
    gear, sizes, start = gear_table(), [], 0
    early, late = (1 << 19) - 1 << 45, (1 << 15) - 1 << 49
    while start < len(data):
        chunk = data[start:start + 524288]
        end, f = len(chunk), 0
        for at in range(32768, len(chunk)):
            f = (f << 1) + gear[chunk[at]] & (1 << 64) - 1
            if f & (early if at < 131072 else late) == 0:
                end = at + 1
                break
        sizes.append(end)
        start += end
    sizes[-1] += padded(len(data)) - len(data)
    return sizes


def group_small(contents):
    """The sizes of the chunks that small files share."""
    sizes, group, seen = [], 0, set()
    for data in contents:
        digest = hashlib.sha256(data).digest()
        if not data or digest in seen:
            continue
        seen.add(digest)
        if group and group + padded(len(data)) > 65536:
            sizes.append(group)
            group = 0
        group += padded(len(data))
        if group >= 16384 and digest[0] & 3 == 0:
            sizes.append(group)
            group = 0
    return sizes + ([group] if group else [])


def make_files(seed, count, large):
    """Paths and contents: small files with repetitions, and one large file."""
    noise = random.Random(seed)
    files = {"large/one.bin": noise.randbytes(large)}
    for number in range(count):
        size = noise.choice([0, 1, 100, 4095, 4096, 4097, 20000, 70000, 131071])
        folder = noise.choice(["a", "a.b", "a/b", "z"])
        files[f"{folder}/file-{number % (count - 5)}"] = noise.randbytes(size)
    files["a/copy"] = files["z/copy"] = b"the same words\n" * 500
    return files


def check_tree(layer_pack, work, seed):
    files = make_files(seed, 120, 1_500_000)
    tree, store = work / f"tree-{seed}", work / "store"
    for name, data in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    subprocess.run([layer_pack, "build", tree, "--store", f"file://{store}", "--tag", f"t{seed}:v1",
                    "--env", "NAME=caf\u00e9 \"quoted\"\n"], check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"XDG_CACHE_HOME": str(work)})
    exported = work / f"{seed}.erofs"
    subprocess.run([layer_pack, "export", f"t{seed}:v1", "--store", f"file://{store}", "--erofs", exported],
                   check=True, stdout=subprocess.DEVNULL)

    read_json(store / "varve-store", "varve.store")
    image = read_image(store, f"t{seed}", "v1")
    expect("NAME=caf\u00e9 \"quoted\"\n" in image["config"]["Env"], "the environment is another")
    expect(len(image["layers"]) == 1 and image["ids"] == [], "layers or ids are others")
    layer, data = read_layer_image(store, image["layers"][0])
    expect(data == exported.read_bytes(), "the image differs from the exported one")

    sizes = [size for _, size in layer.chunks]
    metadata = [262144] * (layer.metadata_size // 262144)
    if layer.metadata_size % 262144:
        metadata.append(layer.metadata_size % 262144)
    ordered = [data for _, data in sorted((name.encode(), data) for name, data in files.items())]
    small = group_small(data for data in ordered if len(data) < 131072)
    large = [size for data in ordered if len(data) >= 131072 for size in cut_large(data)]
    expect(sizes == metadata + small + large,
           f"chunks are cut otherwise: {sizes} instead of {metadata} + {small} + {large}")
    print(f"tree {seed}: {len(sizes)} chunks, {len(data)} bytes: as the man pages say")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layer_pack")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="varve-second-reader-") as work:
        for seed in (1, 2):
            check_tree(arguments.layer_pack, pathlib.Path(work), seed)


if __name__ == "__main__":
    main()
