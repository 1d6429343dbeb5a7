"""What the guest boots from: an initramfs that loads modules, and a disk with the programs."""
import os
import re
import shutil
import stat
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def _cpio_entry(name, mode, data=b"", device=(0, 0)):
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
    entry = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    entry += b"\0" * (-len(entry) % 4) + data
    return entry + b"\0" * (-len(entry) % 4)


def write_initramfs(path, kernel, busybox):
    """A cpio archive (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    def read(file_path):
        with open(file_path, "rb") as file:
            return file.read()

    with open(path, "wb") as out:
        for directory in ("bin", "dev", "modules", "proc", "root"):
            out.write(_cpio_entry(directory, stat.S_IFDIR | 0o755))
        out.write(_cpio_entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)))
        out.write(_cpio_entry("bin/busybox", stat.S_IFREG | 0o755, read(busybox)))
        out.write(_cpio_entry("init", stat.S_IFREG | 0o755, read(HERE + "/guest/initramfs-init")))
        for name in sorted(os.listdir(kernel + "/modules")):
            out.write(_cpio_entry("modules/" + name, stat.S_IFREG | 0o644,
                                  read(f"{kernel}/modules/{name}")))
        out.write(_cpio_entry("TRAILER!!!", 0))


def _libraries(program):
    """The files that the program's loader maps, the loader among them; none for a static one."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def install_busybox(busybox, directory):
    os.makedirs(directory)
    shutil.copy(busybox, directory + "/busybox")
    for applet in subprocess.run([busybox, "--list"], check=True, capture_output=True,
                                 text=True).stdout.split():
        if applet != "busybox":
            os.symlink("busybox", f"{directory}/{applet}")


def make_tree(root, busybox, programs):
    """The guest's root directory: busybox, `programs` with their libraries, the checks."""
    install_busybox(busybox, root + "/bin")
    for name in ("dev", "proc", "sys", "run", "tmp", "usr/bin", "var/lib", "var/tmp", "mnt", "etc"):
        os.makedirs(f"{root}/{name}")
    os.symlink("bin", root + "/sbin")
    for program in programs:
        subprocess.run(["strip", "-o", f"{root}/usr/bin/{os.path.basename(program)}", program],
                       check=True)
        for library in _libraries(program):
            target = root + library
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(library, target)
    shutil.copytree(HERE + "/guest", root + "/checks")


def write_disk(path, root, size_mib):
    """An ext4 image of the tree, owned by root, with room for what the checks write."""
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", root, "-E", "root_owner=0:0,lazy_itable_init=1",
                    "-O", "^has_journal,^metadata_csum", path, f"{size_mib}m"], check=True)
