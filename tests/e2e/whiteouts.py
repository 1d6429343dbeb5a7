#!/usr/bin/env python3
"""Whiteouts and opaque marks over three layers of an OCI image, in every order inside each tar.

    whiteouts.py LAYER_PACK

Entries interact only below one name of the top directory: all permutations of those that share one
are tried, each merged in a different way with the entries of other names. The same layers must come
from every order. Merged by OverlayFS over the kernel's mounts of the
exported layers, by `layer-pack flatten`, and in the exported tar of the stack, the tree must be the
one that an OCI runtime would show: whiteouts hide what is below their layer, wherever in the tar they
stand. The reference is made here, from the table of entries alone.
"""

import hashlib
import io
import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import compare_trees
import kernel_mounts
import store_reader

OPAQUE = ".wh..wh..opq"

# Each layer is (path, content) entries: a directory ends in '/', a symlink's content is ("->", target).
LAYERS = [
    [("d/", None), ("d/a", b"1"), ("d/b", b"1"), ("d/sub/", None), ("d/sub/x", b"1"),
     ("o/", None), ("o/1", b"1"), ("o/2", b"1"), ("o/sub/", None), ("o/sub/3", b"1"),
     ("x", b"1"), ("gone", b"1"), ("was-file", b"1"), ("was-dir/", None), ("was-dir/r", b"1"),
     ("was-link", ("->", "d")), ("tree/", None), ("tree/leaf/", None), ("tree/leaf/f", b"1"),
     ("twice/", None), ("twice/a", b"1"), ("kept/", None), ("kept/a", b"1"),
     ("replaced/", None), ("replaced/old", b"1"), ("again/", None), ("again/sub/", None),
     ("again/sub/old", b"1"), ("cleared/", None), ("cleared/sub/", None), ("cleared/sub/old", b"1")],
    [(".wh.x", b""), ("d/.wh.a", b""), ("d/c", b"2"), ("o/", None), (f"o/{OPAQUE}", b""), ("o/4", b"2"),
     ("was-file/", None), ("was-file/n", b"2"), ("was-dir", b"2"), ("was-link/", None),
     ("was-link/t", b"2"), ("tree/leaf/.wh.f", b""), ("fresh/", None), ("fresh/.wh.ghost", b""),
     ("fresh/f", b"2"), (".wh.gone", b""), (f"twice/{OPAQUE}", b""), ("twice/b", b"2"),
     (".wh.replaced", b""), ("replaced/", None), ("replaced/new", b"2"), ("kept/implied/f", b"2"),
     (".wh.again", b""), ("again/sub/new", b"2"), (f"cleared/{OPAQUE}", b""),
     ("cleared/sub/new", b"2")],
    [("x", b"3"), ("d/a", b"3"), ("o/.wh.4", b""), ("o/1", b"3"), (".wh.tree", b""), ("tree/", None),
     ("tree/new", b"3"), ("d/sub/", None), (f"d/sub/{OPAQUE}", b""), ("d/sub/y", b"3"),
     (f"twice/{OPAQUE}", b""), ("twice/c", b"3"), (".wh.nothing", b""), ("fresh/.wh.f", b""),
     (".wh.was-dir", b""), ("cleared/sub/newer", b"3"), ("again/newer", b"3")],
]


def mtime_of(layer):
    return 1_600_000_000 + layer


def member(path, content, layer):
    info = tarfile.TarInfo(path.rstrip("/"))
    info.mtime, info.mode, info.uid, info.gid = mtime_of(layer), 0o640, 10 + layer, 20 + layer
    if path.endswith("/"):
        info.type, info.mode = tarfile.DIRTYPE, 0o750 + layer
    elif isinstance(content, tuple):
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, content[1], 0o777
    else:
        info.size = len(content)
    return info


def groups_of(layer):
    """The entries of a layer by the name in the top directory that they are about."""
    groups = {}
    for entry in LAYERS[layer]:
        groups.setdefault(entry[0].split("/")[0].removeprefix(".wh."), []).append(entry)
    return list(groups.values())


def orders_count():
    """How many orders hold every permutation of every group."""
    return max(math.factorial(len(group)) for layer in range(len(LAYERS)) for group in groups_of(layer))


def entries_in_order(layer, number):
    """Each group of the layer in its permutation `number`, the groups merged at random."""
    rest = []
    for group in groups_of(layer):
        permutation = number % math.factorial(len(group))
        rest.append(list(next(itertools.islice(itertools.permutations(group), permutation, None))))
    chance = random.Random(number)
    entries = []
    while rest:
        group = chance.choice(rest)
        entries.append(group.pop(0))
        rest = [group for group in rest if group]
    return entries


def tar_of(layer, number):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in entries_in_order(layer, number):
            data = content if isinstance(content, bytes) else b""
            tar.addfile(member(path, content, layer), io.BytesIO(data))
    return out.getvalue()


def write_oci_layout(folder, number):
    """An OCI image layout with the three layers, the entries of each in order `number`."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    tars = [put(tar_of(layer, number)) for layer in range(len(LAYERS))]
    config = put(json.dumps({
        "architecture": "amd64", "os": "linux", "config": {"Env": ["A=b"]},
        "rootfs": {"type": "layers", "diff_ids": [tar["digest"] for tar in tars]}}).encode())
    kind = "application/vnd.oci.image."
    manifest = put(json.dumps({
        "schemaVersion": 2, "mediaType": kind + "manifest.v1+json",
        "config": {"mediaType": kind + "config.v1+json", **config},
        "layers": [{"mediaType": kind + "layer.v1.tar", **tar} for tar in tars]}).encode())
    (folder / "index.json").write_text(json.dumps({
        "schemaVersion": 2, "manifests": [{"mediaType": kind + "manifest.v1+json", **manifest}]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def reference():
    """path -> (content, layer) of the merged tree; an implied directory's layer is None."""
    tree = {}
    for layer, entries in enumerate(LAYERS):
        for path, _ in entries:  # what is hidden is hidden before anything of this layer is there
            folder, name = os.path.split(path)
            if name == OPAQUE:
                remove(tree, folder, itself=False)
            elif name.startswith(".wh."):
                remove(tree, os.path.join(folder, name.removeprefix(".wh.")), itself=True)
        for path, content in entries:
            if not os.path.basename(path).startswith(".wh."):
                name = path.rstrip("/")
                if content is not None or not is_directory(tree.get(name)):
                    remove(tree, name, itself=True)
                add_parents(tree, name)
                tree[name] = (content, layer)
            else:
                add_parents(tree, path)
    return tree


def is_directory(entry):
    return entry is not None and entry[0] is None


def remove(tree, path, itself):
    for name in [name for name in tree if name.startswith(path + "/") or (itself and name == path)]:
        del tree[name]


def add_parents(tree, path):
    while path := os.path.dirname(path):
        tree.setdefault(path, (None, None))


def write_reference(root):
    tree = reference()
    root.mkdir()
    for path in sorted(tree):
        content, _ = tree[path]
        if content is None:
            (root / path).mkdir()
        elif isinstance(content, tuple):
            (root / path).symlink_to(content[1])
        else:
            (root / path).write_bytes(content)
    for path, (content, layer) in sorted(tree.items(), reverse=True):
        if layer is None:
            info = tarfile.TarInfo(path)
            info.mode = 0o755
        else:
            info = member(path + ("/" if content is None else ""), content, layer)
        os.chown(root / path, info.uid, info.gid, follow_symlinks=False)
        if not isinstance(content, tuple):
            os.chmod(root / path, info.mode)
        os.utime(root / path, (info.mtime, info.mtime), follow_symlinks=False)
    os.utime(root, (0, 0))
    return root


class Whiteouts:
    def __init__(self, layer_pack, folder):
        self.layer_pack, self.folder, self.store = layer_pack, folder, folder / "store"
        self.failures = 0
        self.reference = write_reference(folder / "reference")

    def tool(self, *arguments):
        done = subprocess.run([self.layer_pack, *arguments, "--store", f"file://{self.store}"],
                              stdout=subprocess.PIPE, check=True)
        return done.stdout

    def build(self, number):
        layout = self.folder / f"oci-{number}"
        write_oci_layout(layout, number)
        return json.loads(self.tool("build", layout, "--tag", "stack:1", "--json"))["layers"]

    def expect_equal(self, what, tree):
        other = compare_trees.tree_at(tree)
        found = list(compare_trees.differences(
            compare_trees.tree_at(self.reference), other, ignore=("links", "same_inode_as")))
        for path, name, a, b in found:
            print(f"    {os.fsdecode(path)!r}: {name}: {a} / {b}")
        other.close()
        print(f"{'FAILED' if found else 'ok'}: {what}", flush=True)
        self.failures += bool(found)

    def mount(self, name, image):
        """Mounts the bytes of an EROFS image."""
        file, target = self.folder / f"{name}.erofs", self.folder / f"{name}.mnt"
        file.write_bytes(image)
        target.mkdir()
        kernel_mounts.mount(file, target, "erofs")
        return target

    def check_overlay(self, layers):
        # Not the tool's export: that is the merged tree, without the marks.
        mounts = [self.mount(layer, store_reader.read_image(self.store, layer)) for layer in layers]
        target = self.folder / "overlay"
        target.mkdir()
        lowers = ":".join(str(path) for path in reversed(mounts))
        kernel_mounts.mount("overlay", target, "overlay", "lowerdir=" + lowers)
        self.expect_equal("merged by OverlayFS", target)
        for path in (target, *mounts):
            kernel_mounts.unmount(path)

    def check_flatten(self):
        self.tool("flatten", "stack:1", "--tag", "flat:1")
        exported = self.folder / "exported"
        self.tool("export", "flat:1", "--erofs", exported)
        target = self.mount("flat", exported.read_bytes())
        self.expect_equal("flattened", target)
        kernel_mounts.unmount(target)

    def check_export(self):
        tar = self.folder / "merged.tar"
        self.tool("export", "stack:1", "--tar", tar)
        self.expect_equal("exported as one tar", tar)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if os.geteuid() != 0:
        print("SKIP: root: mounting needs it")
        return 77
    kernel_mounts.private_namespace()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        check = Whiteouts(os.path.abspath(sys.argv[1]), pathlib.Path(folder))
        layers = check.build(0)
        orders = orders_count()
        others = [number for number in range(1, orders) if check.build(number) != layers]
        print(f"{'FAILED' if others else 'ok'}: {orders} orders give the layers {layers} {others}")
        check.failures += bool(others)
        check.check_overlay(layers)
        check.check_flatten()
        check.check_export()
        return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
