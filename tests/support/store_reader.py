"""A second reader of a `file://` store, written from varve-store(5) and varve-layer(5).

Tests and benchmarks count chunks and bytes with it, independently of the programs they check.
"""

import dataclasses
import hashlib
import pathlib
import struct
import subprocess

CHUNK_ID_BYTES = 32
# Magic, version, compat, incompat, entries, index, digest, hash of the stored chunks.
TRAILER = struct.Struct("<8s3I I Q 32s 16s")
PACK_ENTRY = struct.Struct("<32s4I")  # id, offset, stored size, raw size, flags
FLAG_RAW = 1
LAYER_HEADER = struct.Struct("<8s3I I 3Q 4I")
LEAF_TABLE_ENTRY = struct.Struct("<32sQ")
LEAF_ENTRY = struct.Struct("<32sI")


@dataclasses.dataclass
class StoredChunk:
    pack: pathlib.Path
    offset: int
    stored_size: int
    raw_size: int
    is_raw: bool


@dataclasses.dataclass
class Layer:
    image_size: int
    metadata_size: int
    chunks: list  # of (id, raw size), in image order

    def metadata_chunks(self):
        """The ids of the chunks of the metadata region."""
        ids, offset = [], 0
        for chunk, raw_size in self.chunks:
            if offset >= self.metadata_size:
                break
            ids.append(chunk)
            offset += raw_size
        return ids


class BadStore(Exception):
    """The store breaks its format."""


def expect(condition, text):
    if not condition:
        raise BadStore(text)


def xxh3_128(data):
    """By the program xxhsum: the library of Python has no XXH3."""
    printed = subprocess.run(["xxhsum", "-H128"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return bytes.fromhex(printed.split()[0].decode())


def read_pack_index(path):
    """The chunks of one pack, by id, after checking the pack's name, trailer and index."""
    data = path.read_bytes()
    expect(hashlib.sha256(data[-TRAILER.size:]).hexdigest() == path.name,
           f"{path}: is not what its name says")
    magic, _, _, incompat, count, index, digest, stored_hash = TRAILER.unpack(data[-TRAILER.size:])
    expect(magic == b"VARVEPAK" and incompat == 0, f"{path}: no pack of this version")
    entries = data[index:-TRAILER.size]
    expect(len(entries) == count * PACK_ENTRY.size, f"{path}: index of {len(entries)} bytes")
    expect(hashlib.sha256(entries).digest() == digest, f"{path}: the index does not match its hash")
    expect(xxh3_128(data[:index]) == stored_hash, f"{path}: the chunks do not match their hash")
    return {chunk: StoredChunk(path, offset, stored, raw, bool(flags & FLAG_RAW))
            for chunk, offset, stored, raw, flags in PACK_ENTRY.iter_unpack(entries)}


def read_chunks(store):
    """Every chunk of a store, by id."""
    chunks = {}
    for path in sorted(pathlib.Path(store, "packs").glob("??/*")):
        chunks.update(read_pack_index(path))
    return chunks


def read_layer(store, layer_id):
    """A layer object, after checking its hash and those of its leaves."""
    path = pathlib.Path(store, "layers", layer_id)
    data = path.read_bytes()
    (magic, _, _, incompat, header_size, image_size, metadata_size, count, leaf_count, _,
     per_leaf, _) = LAYER_HEADER.unpack_from(data)
    expect(magic == b"VARVELAY" and incompat == 0, f"{path}: no layer of this version")
    expect(hashlib.sha256(data[:header_size]).hexdigest() == layer_id, f"{path}: wrong hash")
    table = list(LEAF_TABLE_ENTRY.iter_unpack(data[LAYER_HEADER.size:header_size]))
    expect(len(table) == leaf_count, f"{path}: {len(table)} leaves")
    page_bytes = per_leaf * LEAF_ENTRY.size
    chunks = []
    for number, (digest, _) in enumerate(table):
        page = data[header_size + number * page_bytes:header_size + (number + 1) * page_bytes]
        expect(hashlib.sha256(page).digest() == digest, f"{path}: leaf {number} is damaged")
        chunks += LEAF_ENTRY.iter_unpack(page)
    expect(len(chunks) == count, f"{path}: {len(chunks)} chunks")
    expect(sum(size for _, size in chunks) == image_size, f"{path}: the sizes do not add up")
    return Layer(image_size, metadata_size, chunks)


def stored_bytes(layer, chunks):
    """The stored bytes of a layer's distinct chunks."""
    return sum(chunks[chunk].stored_size for chunk in {chunk for chunk, _ in layer.chunks})


def read_chunk(stored):
    with open(stored.pack, "rb") as pack:
        pack.seek(stored.offset)
        data = pack.read(stored.stored_size)
    if not stored.is_raw:
        data = subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    expect(len(data) == stored.raw_size, f"{stored.pack}: a chunk of {len(data)} bytes")
    return data


def read_image(store, layer_id):
    """The bytes of a layer's EROFS image, every chunk checked. One process a chunk: small layers."""
    stored = read_chunks(store)
    image = bytearray()
    for chunk, _ in read_layer(store, layer_id).chunks:
        data = read_chunk(stored[chunk])
        expect(hashlib.sha256(data).digest() == chunk, f"chunk {chunk.hex()} is damaged")
        image += data
    return bytes(image)
