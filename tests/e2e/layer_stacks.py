#!/usr/bin/env python3
"""Stacks layers with whiteouts and opaque marks, and looks at them in every way there is.

    layer_stacks.py LAYER_PACK [unittest arguments]

Random OCI images of three layers, the entries of each in random order, must show the same tree
merged by the kernel's OverlayFS over EROFS mounts of the layers, by `export`, and by `flatten`: the
tree that the little model below makes of them, which is what an OCI runtime would unpack. What is
then changed in an overlay mount must come back from `diff`.
"""

import hashlib
import io
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import compare_trees
import kernel_mounts

LAYER_PACK = None
RUN_TIMEOUT_S = 120
SEEDS = range(12)
LAYERS = 3
TIME = 1_600_000_000


class Entry:
    """One entry of a layer: a directory, file, symlink, whiteout or opaque mark."""

    def __init__(self, path, kind, text="", mode=0o644):
        self.path, self.kind, self.text, self.mode = path, kind, text, mode

    def add_to(self, tar):
        folder, _, name = self.path.rpartition("/")
        prefix = folder + "/" if folder else ""
        info = tarfile.TarInfo(self.path)
        info.mode, info.mtime = self.mode, TIME
        content = b""
        if self.kind == "directory":
            info.type = tarfile.DIRTYPE
        elif self.kind == "symlink":
            info.type, info.linkname = tarfile.SYMTYPE, self.text
        elif self.kind == "whiteout":
            info.name = f"{prefix}.wh.{name}"
        elif self.kind == "opaque":
            info.name = (self.path + "/" if self.path else "") + ".wh..wh..opq"
        else:
            content = self.text.encode()
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


def below(path, folder):
    return path.startswith(folder + "/") if folder else path != ""


def merge(layers):
    """What an OCI runtime makes of the layers: path -> (kind, text, mode).

    Marks act on the layers below only, wherever in the layer they stand; of two kinds of thing under
    one name the upper counts; directories are merged.
    """
    tree = {"": ("directory", "", 0o755)}
    for layer in layers:
        for mark in layer:
            if mark.kind in ("whiteout", "opaque"):
                gone = [path for path in tree if below(path, mark.path)
                        or (mark.kind == "whiteout" and path == mark.path)]
                for path in gone:
                    del tree[path]
        for entry in sorted(layer, key=lambda entry: entry.path):
            if entry.kind in ("whiteout", "opaque"):
                continue
            if entry.kind != "directory":
                for path in [path for path in tree if below(path, entry.path)]:
                    del tree[path]
            tree[entry.path] = (entry.kind, entry.text, entry.mode)
            folder = os.path.dirname(entry.path)
            while folder and tree.get(folder, ("",))[0] != "directory":
                tree[folder] = ("directory", "", 0o755)
                folder = os.path.dirname(folder)
    return tree


def random_layer(generator, number, folder="", depth=3):
    """Few names, so that layers meet. The lowest layer has marks too: they hide nothing."""
    layer = []
    for name in ("a", "b", "c", "d"):
        path = f"{folder}/{name}" if folder else name
        kind = generator.choice(("none", "none", "file", "symlink", "whiteout", "both", "directory",
                                 "directory", "directory"))
        if kind in ("whiteout", "both"):
            layer.append(Entry(path, "whiteout"))
        if kind == "file":
            layer.append(Entry(path, "file", f"layer {number} {path}"))
        if kind == "symlink":
            layer.append(Entry(path, "symlink", f"to-{number}"))
        if kind in ("directory", "both") and depth > 0:
            layer.append(Entry(path, "directory", mode=0o700 + number))
            if generator.random() < 0.3:
                layer.append(Entry(path, "opaque"))
            layer += random_layer(generator, number, path, depth - 1)
    if not folder and number and generator.random() < 0.2:
        layer.append(Entry("", "opaque"))
    return layer


def tar_of(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            entry.add_to(tar)
    return out.getvalue()


class Layout:
    """Writes an OCI image layout."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def blob(self, data, kind):
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}",
                "size": len(data)}

    def json_blob(self, value, kind):
        return self.blob(json.dumps(value).encode(), kind)

    def write(self, layers):
        config = self.json_blob({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["x"]}},
                                "config.v1+json")
        manifest = self.json_blob({
            "schemaVersion": 2, "config": config,
            "layers": [self.blob(data, "layer.v1.tar") for data in layers]}, "manifest.v1+json")
        (self.folder / "index.json").write_text(json.dumps({"manifests": [manifest]}))
        return self.folder


class StackTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir="/var/tmp", prefix="varve-stacks-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.store = f"file://{self.folder}/store"
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")

    def run_tool(self, *arguments):
        done = subprocess.run([LAYER_PACK, *arguments, "--store", self.store], capture_output=True,
                              timeout=RUN_TIMEOUT_S, check=False)
        self.assertEqual(0, done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout

    def build(self, source, tag):
        return json.loads(self.run_tool("build", source, "--tag", tag, "--json"))["layers"]

    def build_layers(self, layers, tag):
        """Builds an OCI image of tars; returns the layer ids."""
        layout = tempfile.mkdtemp(dir=self.folder)
        return self.build(Layout(pathlib.Path(layout, "oci")).write(layers), tag)

    def exported(self, image):
        target = self.folder / "exported.tar"
        self.run_tool("export", image, "--tar", target)
        return target

    def mount_layers(self, layers, name):
        """The kernel's overlay of EROFS mounts of the layers; returns the lowerdir option."""
        lower = []
        for number, layer in enumerate(layers):
            image = self.folder / f"{name}-{number}.erofs"
            target = self.folder / f"{name}-{number}"
            target.mkdir()
            self.run_tool("export", layer, "--erofs", image)
            kernel_mounts.mount(image, target, "erofs")
            self.addCleanup(kernel_mounts.unmount, target)
            lower.insert(0, str(target))
        if len(lower) == 1:  # overlayfs wants two, or an upper directory
            empty = self.folder / f"{name}-empty"
            empty.mkdir(mode=0o755)
            lower.insert(0, str(empty))
        return "lowerdir=" + ":".join(lower)

    def overlay(self, options, name, flags=kernel_mounts.MS_RDONLY):
        target = self.folder / name
        target.mkdir()
        kernel_mounts.mount("overlay", target, "overlay", options, flags)
        self.addCleanup(kernel_mounts.unmount, target)
        return target

    def shown(self, path):
        """Path -> (kind, text, mode) of a directory or tar."""
        tree = compare_trees.tree_at(path)
        found = {}
        for name, node in tree.nodes.items():
            text = ""
            if node.type == "file":
                with tree.open(name) as content:
                    text = content.read().decode()
            elif node.type == "symlink":
                text = os.fsdecode(node.target)
            mode = 0o644 if node.type == "symlink" else node.mode
            found[os.fsdecode(name)] = (node.type, text, mode)
        tree.close()
        return found


class Whiteouts(StackTest):
    def check(self, layers, name, shuffles=3):
        """The image of `layers` shows what the model says, in whatever order they are in the tars."""
        expected = merge(layers)
        ids = None
        for seed in range(shuffles):
            shuffled = [random.Random(seed).sample(layer, len(layer)) for layer in layers]
            found = self.build_layers([tar_of(layer) for layer in shuffled], name)
            self.assertEqual(ids or found, found, "the order of entries must not matter")
            ids = found
        with self.subTest("export"):
            self.assertEqual(expected, self.shown(self.exported(name)))
        with self.subTest("overlayfs"):
            merged = self.overlay(self.mount_layers(ids, name), f"{name}-merged")
            self.assertEqual(expected, self.shown(merged))
        with self.subTest("flatten"):
            flat = json.loads(self.run_tool("flatten", name, "--tag", f"{name}-flat", "--json"))
            self.assertEqual(1, len(flat["layers"]))
            self.assertEqual(expected, self.shown(self.exported(f"{name}-flat")))

    def test_random_stacks_show_what_a_runtime_would_unpack(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                generator = random.Random(seed)
                self.check([random_layer(generator, number) for number in range(LAYERS)], f"s{seed}")

    def test_every_order_of_marks_and_siblings_gives_one_layer(self):
        lower = [Entry("d/lower", "file", "l"), Entry("d/hidden", "file", "h")]
        upper = [Entry("d", "directory", mode=0o755), Entry("d", "opaque"),
                 Entry("d/hidden", "whiteout"), Entry("d/new", "file", "n")]
        ids = {tuple(self.build_layers([tar_of(lower), tar_of(order)], "order"))
               for order in itertools.permutations(upper)}
        self.assertEqual(1, len(ids))
        self.check([lower, upper], "orders")

    def test_an_opaque_directory_stays_opaque_below_a_third_layer(self):
        self.check([[Entry("dir/old", "file", "o")],
                    [Entry("dir", "directory", mode=0o755), Entry("dir", "opaque")],
                    [Entry("dir/new", "file", "n")]], "third")

    def test_a_directory_that_is_made_again_does_not_bring_its_files_back(self):
        self.check([[Entry("d/x", "file", "x")], [Entry("d", "whiteout")],
                    [Entry("d", "directory", mode=0o711), Entry("d/y", "file", "y")]], "again")

    def test_a_symlink_that_replaces_a_directory_hides_all_of_it(self):
        self.check([[Entry("d/x", "file", "x")], [Entry("d", "symlink", "e")],
                    [Entry("z", "file", "z")]], "link")

    def test_files_and_directories_replace_each_other(self):
        self.check([[Entry("p", "file", "1"), Entry("q/x", "file", "2")],
                    [Entry("p/q", "file", "3"), Entry("q", "file", "4")]], "kinds")

    def test_a_whiteout_of_what_is_not_there_is_not_seen(self):
        self.check([[Entry("new/gone", "whiteout"), Entry("new/kept", "file", "k"),
                     Entry("gone", "whiteout")]], "nothing")

    def test_an_opaque_root_hides_all_layers_below(self):
        self.check([[Entry("a", "file", "a"), Entry("b/c", "file", "c")],
                    [Entry("", "opaque"), Entry("d", "file", "d")]], "root")


class HardLinks(StackTest):
    def test_a_group_survives_layers_that_do_not_touch_it(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, kind, target in (("a", tarfile.REGTYPE, ""), ("b", tarfile.LNKTYPE, "a"),
                                       ("f", tarfile.FIFOTYPE, ""), ("g", tarfile.LNKTYPE, "f")):
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.mtime = kind, target, TIME
                info.size = 5 if kind == tarfile.REGTYPE else 0
                tar.addfile(info, io.BytesIO(b"hello"))
        self.build_layers([out.getvalue(), tar_of([Entry("x", "file", "x")])], "links")
        self.run_tool("flatten", "links", "--tag", "links-flat")
        for image in ("links", "links-flat"):
            tree = compare_trees.TarTree(self.exported(image))
            self.assertEqual([2, 2, 2, 2], [tree.nodes[name].links for name in (b"a", b"b", b"f", b"g")])
            self.assertEqual(tree.nodes[b"a"].inode, tree.nodes[b"b"].inode)
            self.assertEqual("fifo", tree.nodes[b"g"].type)
            tree.close()


class Diff(StackTest):
    def change(self, root):
        """Everything that leaves a trace of its own in an upper directory."""
        (root / "kept").write_text("changed")
        (root / "gone").unlink()
        subprocess.run(["rm", "-r", root / "tree"], check=True)
        (root / "tree").mkdir(mode=0o750)
        (root / "tree/new").write_text("new")
        (root / "fresh").mkdir()
        (root / "fresh/file").write_text("file")
        os.link(root / "fresh/file", root / "fresh/link")
        os.symlink("nowhere", root / "fresh/symlink")
        os.mkfifo(root / "fresh/fifo", 0o600)
        os.mknod(root / "fresh/null", 0o20666, os.makedev(1, 3))
        os.chmod(root / "folder", 0o2711)
        os.chown(root / "folder/owned", 70000, 4294967294)
        os.rename(root / "folder/moves", root / "fresh/moved")
        os.setxattr(root / "folder/owned", "user.colour", b"\x00\xff")
        os.setxattr(root / "fresh", "trusted.overlay.opaque", b"y")  # content, so overlayfs escapes it
        os.utime(root / "kept", ns=(0, 1_234_567_890_123_456_789))
        (root / "becomes-file").rmdir()
        (root / "becomes-file").write_text("file")
        (root / "becomes-folder").unlink()
        (root / "becomes-folder").mkdir()

    def test_what_is_changed_in_an_overlay_comes_back_from_diff(self):
        source = self.folder / "source"
        for name in ("kept", "gone", "tree/a", "tree/b/c", "folder/owned", "folder/moves",
                     "folder/still", "becomes-folder"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(f"lower {name}")
        (source / "becomes-file").mkdir()
        layers = self.build(source, "lower:1")
        upper, work = self.folder / "upper", self.folder / "work"
        upper.mkdir()
        work.mkdir()
        merged = self.overlay(f"{self.mount_layers(layers, 'lower')},upperdir={upper},workdir={work},"
                              "redirect_dir=nofollow,metacopy=off", "merged", flags=0)
        self.change(merged)
        self.run_tool("diff", upper, "--base", "lower:1", "--tag", "changed:1")
        left, right = (compare_trees.tree_at(path)
                       for path in (merged, self.exported("changed:1")))
        found = list(compare_trees.differences(left, right))
        right.close()
        self.assertEqual([], found)
        self.assertNotIn(b"gone", right.nodes)
        # The new layer on the kernel's overlay shows the same once more.
        both = json.loads(self.run_tool("inspect", "changed:1", "--json"))["layers"]
        again = self.overlay(self.mount_layers([layer["id"] for layer in both], "changed"), "again")
        found = list(compare_trees.differences(compare_trees.tree_at(merged),
                                               compare_trees.tree_at(again)))
        self.assertEqual([], found)

    def test_a_redirect_is_refused_by_name(self):
        (self.folder / "lower").mkdir()
        (self.folder / "lower/f").write_text("x")
        self.build(self.folder / "lower", "lower:1")
        upper = self.folder / "upper"
        (upper / "moved").mkdir(parents=True)
        os.setxattr(upper / "moved", "trusted.overlay.redirect", b"/elsewhere")
        done = subprocess.run([LAYER_PACK, "diff", upper, "--base", "lower:1", "--store", self.store],
                              capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
        self.assertEqual(7, done.returncode, done.stderr)
        self.assertIn("moved", done.stderr)
        self.assertIn("redirect_dir=nofollow", done.stderr)


def main():
    global LAYER_PACK
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LAYER_PACK = sys.argv.pop(1)
    if os.geteuid() != 0:
        print("SKIP: root: mounting needs it")
        return 77
    kernel_mounts.private_namespace()
    unittest.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
