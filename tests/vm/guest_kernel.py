"""A stock Debian kernel to boot: fetched with apt as a package, unpacked, never installed.

The result is kept in the cache that the Debian trees use (see tests/support/make-debian-tree), or
where this machine has none below the working directory, in a folder named by meta-package and
version. A newer version takes the place of the older ones, once nobody boots them any more.
"""
import ctypes
import fcntl
import functools
import glob
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile

DEFAULT_CACHE = "/var/cache/varve-test-trees"
# What the guest needs beyond what is built in, besides what these depend on.
MODULES = ["virtio_pci", "virtio_blk", "fuse", "loop", "erofs", "overlay"]


class NoKernel(Exception):
    """No such package can be had from apt."""


def _apt_cache(*words):
    return subprocess.run(["apt-cache", *words], capture_output=True, text=True).stdout


def _package_of(meta_package):
    """(name, version) of the kernel package that `meta_package` stands for."""
    depends = re.search(r"Depends: (linux-image-\S+)", _apt_cache("depends", meta_package))
    shown = _apt_cache("show", "--no-all-versions", depends[1]) if depends else ""
    version = re.search(r"^Version: (\S+)$", shown, re.MULTILINE)
    if not version:
        raise NoKernel(f"apt knows no package '{meta_package}'")
    return depends[1], version[1]


def decompress_lz4_legacy(data, size):
    """The kernel's own framing: a magic number, then blocks of up to 8 MiB, each with its length."""
    library = ctypes.CDLL("liblz4.so.1")
    out = bytearray()
    at = 4
    block = ctypes.create_string_buffer(8 << 20)
    while len(out) < size:
        (length,) = struct.unpack_from("<I", data, at)
        count = library.LZ4_decompress_safe(data[at + 4:at + 4 + length], block, length, len(block))
        if count <= 0:
            raise ValueError("the kernel's LZ4 data is damaged")
        out += block.raw[:count]
        at += 4 + length
    return bytes(out)


def extract_vmlinux(bzimage):
    """The ELF file inside a bzImage (Documentation/x86/boot.rst): it boots without being unpacked by
    the guest, which emulation makes slow."""
    if bzimage[0x202:0x206] != b"HdrS":
        raise ValueError("not a bzImage")
    start, length = struct.unpack_from("<II", bzimage, 0x248)
    start += ((bzimage[0x1f1] or 4) + 1) * 512
    payload = bzimage[start:start + length]
    (size,) = struct.unpack("<I", payload[-4:])
    if payload.startswith(b"\x02\x21\x4c\x18"):
        vmlinux = decompress_lz4_legacy(payload, size)
    elif payload.startswith(b"\xfd7zXZ"):
        vmlinux = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        vmlinux = subprocess.run(["zstd", "-dcq"], input=payload[:-4], check=True,
                                 capture_output=True).stdout
    else:
        raise ValueError(f"unknown compression of the kernel: {payload[:6].hex()}")
    if len(vmlinux) != size or not vmlinux.startswith(b"\x7fELF"):
        raise ValueError("what was unpacked is no kernel")
    return vmlinux


def _load_order(directory, version):
    """The files of MODULES and what they need, each after what it depends on."""
    subprocess.run(["depmod", "-b", directory, version], check=True)
    base = f"{directory}/lib/modules/{version}/"
    needs, file_of = {}, {}
    with open(base + "modules.dep") as file:
        for line in file:
            path, _, rest = line.partition(":")
            needs[path] = rest.split()
            file_of[os.path.basename(path).split(".")[0].replace("-", "_")] = path
    order = []

    def add(path):
        for needed in needs[path]:
            add(needed)
        if path not in order:
            order.append(path)

    for name in MODULES:
        if name in file_of:  # Else it is built in, or the guest's checks say that it is missing.
            add(file_of[name])
    return [base + path for path in order]


def _unpack(package, version, target):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as work:
        # apt drops to its own user when it can.
        os.chmod(work, 0o755)
        subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download",
                        f"{package}={version}"], cwd=work, check=True)
        root, made = work + "/root", work + "/made"
        subprocess.run(["dpkg-deb", "-x", *glob.glob(work + "/*.deb"), root], check=True)
        os.makedirs(made + "/modules")
        release = os.listdir(root + "/lib/modules")[0]
        with open(f"{root}/boot/vmlinuz-{release}", "rb") as file:
            vmlinux = extract_vmlinux(file.read())
        with open(made + "/vmlinux", "wb") as file:
            file.write(vmlinux)
        for number, path in enumerate(_load_order(root, release)):
            name = f"{made}/modules/{number:02}-{os.path.basename(path).removesuffix('.xz')}"
            with (lzma.open if path.endswith(".xz") else open)(path, "rb") as source, \
                    open(name, "wb") as copy:
                shutil.copyfileobj(source, copy)
        os.rename(made, target)


def _compare(one, other):
    is_older = subprocess.run(["dpkg", "--compare-versions", one, "lt", other]).returncode == 0
    return -1 if is_older else int(one != other)


def _kept(meta_package, cache):
    """The folders of this meta-package, the newest version last."""
    start = f"{cache}/{meta_package}-"
    versions = [path[len(start):] for path in glob.glob(glob.escape(start) + "[0-9]*")]
    return [start + version for version in sorted(versions, key=functools.cmp_to_key(_compare))]


def _lock(folder, how):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_unused(folders):
    for folder in folders:
        descriptor = _lock(folder, fcntl.LOCK_EX)
        if descriptor is not None:  # Nobody uses it.
            shutil.rmtree(folder)
            os.close(descriptor)


def _fetch_newest(meta_package, cache):
    package, version = _package_of(meta_package)
    target = f"{cache}/{meta_package}-{version}"
    before = _kept(meta_package, cache)
    if not before or _compare(before[-1].removeprefix(f"{cache}/{meta_package}-"), version) < 0:
        _unpack(package, version, target)
    # Who shares the cache may have newer lists of packages.
    *older, newest = _kept(meta_package, cache)
    _remove_unused(older)
    return newest


def _fetch(meta_package, cache):
    try:
        return _fetch_newest(meta_package, cache)
    except (NoKernel, subprocess.CalledProcessError) as error:
        before = _kept(meta_package, cache)
        if before:
            return before[-1]
        print(f"{error}; asking apt for its lists", flush=True)
    # Lists that were never fetched, or that name a version that is gone.
    subprocess.run(["apt-get", "-qq", "update"])
    return _fetch_newest(meta_package, cache)


def fetch(meta_package):
    """The folder that holds `vmlinux` and `modules/NN-NAME.ko`, to be loaded in that order: of the
    newest version that apt has, or of one fetched before when apt has none. It stays there as long
    as this process lives. Raises NoKernel."""
    shared = DEFAULT_CACHE if os.path.isdir(DEFAULT_CACHE) else os.path.abspath("kernels")
    cache = os.environ.get("VARVE_TREE_CACHE", shared)
    os.makedirs(cache, exist_ok=True)
    with open(f"{cache}/.{meta_package}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = _fetch(meta_package, cache)
        _lock(folder, fcntl.LOCK_SH)
        return folder
