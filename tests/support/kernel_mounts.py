"""The few mount calls that tests and benchmarks need, without mount(8).

mount(8) of util-linux 2.38 quietly makes a loop device for an EROFS image; these ask the kernel.
"""

import ctypes
import os

CLONE_NEWNS = 0x00020000
MS_RDONLY = 1
MS_REMOUNT = 32
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
MOVE_MOUNT_F_EMPTY_PATH = 4
AT_FDCWD = -100
SYS_MOVE_MOUNT = 429

LIBC = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def private_namespace():
    """Moves this process to a mount namespace of its own: its mounts go when it ends."""
    check(LIBC.unshare(CLONE_NEWNS), "unshare")
    check(LIBC.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "mount /")


def mount(source, target, kind, options="", flags=MS_RDONLY):
    check(LIBC.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags),
                     options.encode()), f"mounting {source} on {target}")


def unmount(target, flags=0):
    check(LIBC.umount2(os.fsencode(target), flags), f"unmounting {target}")


def attach_mount(descriptor, target):
    """Puts a detached mount (a descriptor of open_tree or fsmount) on `target`."""
    check(LIBC.syscall(SYS_MOVE_MOUNT, descriptor, b"", AT_FDCWD, os.fsencode(target),
                       MOVE_MOUNT_F_EMPTY_PATH), f"attaching a mount on {target}")


def backing_devices():
    """The names of the kernel's backing devices. One that a mount made has no other link to it: a
    mount of EROFS on a file is `erofs-<number>`."""
    return set(os.listdir("/sys/class/bdi"))


def set_read_ahead(backing_device, kib):
    with open(f"/sys/class/bdi/{backing_device}/read_ahead_kb", "w") as setting:
        setting.write(str(kib))


def backing_device_of(path):
    """That of a filesystem that is named by its device number, as FUSE is."""
    device = os.stat(path).st_dev
    return f"{os.major(device)}:{os.minor(device)}"
