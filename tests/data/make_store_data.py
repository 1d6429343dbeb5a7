#!/usr/bin/env python3
"""Makes the golden store, the inputs that must fail and the seeds of the fuzz targets.

Written from varve-store(5) and varve-layer(5) alone, so that what the C++ code reads was not made
by it. The results are committed (another zstd makes other bytes); run this only to add to them:

    tests/data/make_store_data.py        # writes below tests/data and tests/fuzz/corpus
"""

import hashlib
import json
import pathlib
import shutil
import struct
import subprocess

DATA = pathlib.Path(__file__).resolve().parent
CORPUS = DATA.parent / "fuzz" / "corpus"
BLOCK = 4096
TRAILER_BYTES = 80


def sha256(data):
    return hashlib.sha256(data).digest()


def xxh3_128(data):
    printed = subprocess.run(["xxhsum", "-H128"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return bytes.fromhex(printed.split()[0].decode())


def prefix(magic, version=1, compat=0, incompat=0):
    return struct.pack("<8sIII", magic, version, compat, incompat)


def stored_form(raw):
    """The bytes a chunk is stored as, and its flags."""
    frame = subprocess.run(["zstd", "-3", "-q", "-c", "--no-check"], input=raw, stdout=subprocess.PIPE,
                           check=True).stdout
    return (frame, 0) if len(frame) < len(raw) else (raw, 1)


def make_pack(chunks, **kwargs):
    """The pack of these raw chunks, and an (offset, stored size, flags) for each."""
    data, index, places = b"", b"", []
    for raw in chunks:
        stored, flags = stored_form(raw)
        places.append((len(data), len(stored), flags))
        index += sha256(raw) + struct.pack("<4I", len(data), len(stored), len(raw), flags)
        data += stored
    trailer = (prefix(b"VARVEPAK", **kwargs) + struct.pack("<IQ", len(chunks), len(data)) + sha256(index)
               + xxh3_128(data))
    return data + index + trailer, places


def make_layer(chunks, metadata_size, root_nid=36, **kwargs):
    """The layer object of these raw chunks, and its id."""
    pages, table, offset = [], b"", 0
    for first in range(0, len(chunks), 1024):
        group = chunks[first:first + 1024]
        page = b"".join(sha256(raw) + struct.pack("<I", len(raw)) for raw in group)
        pages.append(page)
        table += sha256(page) + struct.pack("<Q", offset)
        offset += sum(map(len, group))
    header = prefix(b"VARVELAY", **kwargs) + struct.pack(
        "<I3Q4I", 64 + len(table), offset, metadata_size, len(chunks), len(pages), root_nid, 1024, 0)
    return header + table + b"".join(pages), sha256(header + table)


def make_placement(layer, packs, entries, stored_bytes, **kwargs):
    head = prefix(b"VARVEPLC", **kwargs) + struct.pack(
        "<I32sQQII16x", 96 + 32 * len(packs), layer, len(entries), stored_bytes, len(packs), 1024)
    return head + b"".join(packs) + b"".join(struct.pack("<4I", *entry) for entry in entries)


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def image_json(layers, **extra):
    return canonical({"config": {"Cmd": ["sh"], "Env": ["PATH=/bin", "NAME=\u00e9\n\"\\\x01"],
                                 "Labels": {"a": "1", "b": ""}, "WorkingDir": "/"},
                      "ids": [70000, 4294967294], "layers": [layer.hex() for layer in layers],
                      "type": "varve.image", "version": 1} | extra)


def sample_chunks():
    """Some that compress, one of noise, one of a single byte, one repeated: two blocks and more."""
    noise = b"".join(sha256(bytes([i])) for i in range(40))
    chunks = [b"the metadata region " * 410, noise, b"x", b"some file\n" * 2000, noise]
    chunks[0] = chunks[0][:2 * BLOCK]
    chunks.append(bytes(-sum(map(len, chunks)) % BLOCK))
    return chunks


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def make_golden(root):
    chunks = sample_chunks()
    first, second = chunks[:2], chunks[2:4] + chunks[5:]
    packs, places = [], {}
    for number, group in enumerate((first, second)):
        pack, spots = make_pack(group)
        packs.append(sha256(pack[-TRAILER_BYTES:]))
        places |= {sha256(raw): (number, *spot) for raw, spot in zip(group, spots)}
        write(root / "packs" / packs[-1].hex()[:2] / packs[-1].hex(), pack)
    layer, layer_id = make_layer(chunks, len(chunks[0]))
    entries = [places[sha256(raw)] for raw in chunks]
    placement = make_placement(layer_id, packs, entries, sum(place[2] for place in places.values()))
    image = image_json([layer_id], annotations={"note": "carried"})
    folder = root / "placements" / layer_id.hex()
    write(root / "varve-store", canonical({"id": "00000000-1111-4222-8333-444444444444",
                                           "type": "varve.store", "version": 1}))
    write(root / "layers" / layer_id.hex(), layer)
    write(folder / sha256(placement).hex(), placement)
    write(folder / "current", sha256(placement).hex().encode() + b"\n")
    write(root / "images" / sha256(image).hex(), image)
    write(root / "refs" / "team" / "app:v1", sha256(image).hex().encode() + b"\n")
    return {"pack": make_pack(first)[0], "layer": layer, "placement": placement, "image": image}


def patched(data, offset, value, size=4):
    return data[:offset] + value.to_bytes(size, "little") + data[offset + size:]


def must_fail(good):
    """Name of the file → (content, the error). The kind of object is the name's ending."""
    pack, layer, placement, image = (good[kind] for kind in ("pack", "layer", "placement", "image"))
    trailer, size = len(pack) - TRAILER_BYTES, len(pack)
    text = image.decode()
    unknown = ", which this program does not know"
    return {
        "empty.pack": (b"", "pack is too short for its trailer"),
        "magic.pack": (patched(pack, trailer, 0, 1), "magic is '\\x00ARVEPAK', not 'VARVEPAK'"),
        "version.pack": (patched(pack, trailer + 8, 2),
                         "format version 2 is not known to this program, which reads version 1"),
        "incompat.pack": (patched(pack, trailer + 16, 1 << 31 | 1),
                          "needs incompatible feature bits 0, 31" + unknown),
        "count.pack": (patched(pack, trailer + 20, 0xffffffff),
                       f"4294967295 index entries at offset {trailer - 96} do not fit a pack of {size} bytes"),
        "offset.pack": (patched(pack, trailer + 24, 2**64 - 1, 8),
                        f"2 index entries at offset {2**64 - 1} do not fit a pack of {size} bytes"),
        "index.pack": (patched(pack, trailer - 96, pack[trailer - 96] ^ 1, 1),
                       "index does not match its hash in the trailer"),
        "short.layer": (layer[:63], "layer is too short for its header"),
        "version.layer": (patched(layer, 8, 7),
                          "format version 7 is not known to this program, which reads version 1"),
        "incompat.layer": (patched(layer, 16, 4), "needs incompatible feature bits 2" + unknown),
        "image-size.layer": (patched(layer, 24, 4097, 8),
                             f"image size 4097 is not a multiple of 4096 up to {2**44}"),
        "chunk-count.layer": (patched(layer, 40, 2**63, 8),
                              f"chunk count {2**63} is outside 1 … {2**27}"),
        "leaf-count.layer": (patched(layer, 48, 2), "2 leaves and a header of 104 bytes do not fit 6 chunks"),
        "root-nid.layer": (patched(layer, 52, 65536), "root nid 65536 is outside 1 … 65535"),
        "leaf-order.layer": (patched(layer, 64 + 32, 1, 8), "leaf 0 begins at image offset 1"),
        "leaf-hash.layer": (patched(layer, 104, layer[104] ^ 1, 1), "leaf page does not match its hash"),
        "other-layer.placement": (patched(placement, 24, placement[24] ^ 1, 1),
                                  "placement is for layer "
                                  + bytes([placement[24] ^ 1]).hex() + placement[25:56].hex()),
        "pack-count.placement": (patched(placement, 72, 7), "placement has 7 packs for 6 chunks"),
        "pack-number.placement": (patched(placement, 160, 2), "placement names pack 2 of 2"),
        "offset.placement": (patched(placement, 164, 0xffffffff),
                             "placement has " + str(int.from_bytes(placement[168:172], "little"))
                             + " stored bytes at offset 4294967295 for a chunk of 8192"),
        "flags.placement": (patched(placement, 172, 2), "unknown placement flags 0x2"),
        "space.image": (text.replace(":", ": ", 1).encode(),
                        "JSON that is not canonical (key order, duplicate keys, spaces or escapes)"),
        "newline.image": (image + b"\n",
                          "JSON that is not canonical (key order, duplicate keys, spaces or escapes)"),
        "escape.image": (text.replace("sh", "\\u0073h").encode(),
                         "JSON that is not canonical (key order, duplicate keys, spaces or escapes)"),
        "double.image": (text.replace("70000", "70000.5").encode(),
                         "JSON with a number that is not an integer"),
        "version.image": (text.replace('"version":1', '"version":2').encode(),
                          "format version 2 is not known to this program, which reads version 1"),
        "incompat.image": (text.replace('"ids":[70000,4294967294]', '"ids":[],"incompat":["sealed"]').encode(),
                           "needs the incompatible features 'sealed'" + unknown),
        "type.image": (text.replace("varve.image", "varve.lease").encode(),
                       "type is 'varve.lease', not 'varve.image'"),
        "small-id.image": (text.replace("70000", "1000").encode(),
                           "'ids' has 1000 at position 0: not sorted, or below 65536"),
        "id-range.image": (text.replace("4294967294", "4294967296").encode(),
                           "'ids' has an element that is not a 32-bit id"),
        "no-layer.image": (json_without_layers(text), "image has 0 layers, not 1 … 500"),
        "deep.image": (b"[" * 100 + b"]" * 100, "not JSON: too deep"),
        "array.image": (b"[]", "JSON, but not an object"),
    }


def json_without_layers(text):
    return canonical(json.loads(text) | {"layers": []})


def make_seeds(good, bad):
    """Seeds: the good objects, and the bad ones that reach furthest."""
    pairs = {"pack": "fuzz_pack_index", "image": "fuzz_image_json"}
    for kind, target in pairs.items():
        write(CORPUS / target / "good", good[kind])
        for name, (content, _) in bad.items():
            if name.endswith("." + kind):
                write(CORPUS / target / name, content)
    # Layer and placement behind one another, with the length of the first in front.
    for name, (layer, placement) in ({"good": (good["layer"], good["placement"])}
                                     | {n: (c, good["placement"]) for n, (c, _) in bad.items() if n.endswith(".layer")}
                                     | {n: (good["layer"], c) for n, (c, _) in bad.items() if n.endswith(".placement")}).items():
        write(CORPUS / "fuzz_layer" / name, struct.pack("<I", len(layer)) + layer + placement)
    for name, record in {"lease": {"expires_s": 5, "objects": ["layers/x"], "type": "varve.lease", "version": 1},
                         "tombstone": {"due_s": 5, "settled_s": 0, "type": "varve.tombstone", "version": 1},
                         "store": {"id": "00000000-1111-4222-8333-444444444444", "type": "varve.store", "version": 1}}.items():
        write(CORPUS / "fuzz_image_json" / name, canonical(record))
    write(CORPUS / "fuzz_image_json" / "ref", b"team/app:v1")


def main():
    for path in (DATA / "store", DATA / "store-must-fail"):
        shutil.rmtree(path, ignore_errors=True)
    good = make_golden(DATA / "store")
    bad = must_fail(good)
    for name, (content, error) in bad.items():
        write(DATA / "store-must-fail" / name, content)
        write(DATA / "store-must-fail" / (name + ".error"), error.encode() + b"\n")
    make_seeds(good, bad)


if __name__ == "__main__":
    main()
