"""Gives a pod's process its own view of the file system, then becomes it.

Run by the test kubelet as `python enter.py SPEC` (no project import, so that it starts in some
milliseconds). In a private mount namespace the root becomes an empty tmpfs with every top-level
directory of the machine bound into it, and the pod's volumes are mounted over that: mount points
appear without touching the machine. What images are made of stays in sight where a volume would
hide it, such as a checkout below /tmp.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 0x1, 0x20, 0x1000, 0x4000
MS_UNBINDABLE, MS_PRIVATE = 0x20000, 0x40000
CLONE_NEWNS = 0x20000
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

libc = ctypes.CDLL(None, use_errno=True)


def mount(
    source: str | None,
    target: str,
    kind: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    parts = [part if part is None else part.encode() for part in (source, target, kind)]
    if libc.mount(*parts, ctypes.c_ulong(flags), None if data is None else data.encode()):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def bind(source: str, target: str, flags: int = 0) -> None:
    """Mounts a file or directory over another, which is created when it is missing."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, flags=MS_BIND | flags)


def make_root(root: str, writable: set[str]) -> None:
    """An empty root with the machine's top-level directories, and a small /dev of its own.

    Directories in which mount points must appear get an overlay whose upper layer is in memory.
    """
    mount("pod", root, "tmpfs")
    mount(None, root, flags=MS_UNBINDABLE)  # it may lie in a directory that is bound into it
    for name in os.listdir("/"):
        path = f"/{name}"
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif name == "dev":
            make_devices(f"{root}/dev")
        elif name not in writable:
            bind(path, root + path, MS_REC if os.path.isdir(path) else 0)
    mount(None, root, flags=MS_PRIVATE)  # an overlay cannot have layers in an unbindable mount
    for name in writable & set(os.listdir("/")) - {"dev"}:
        overlay(f"/{name}", root)


def overlay(path: str, root: str) -> None:
    upper, work = f"{root}/.upper{path}", f"{root}/.work{path}"
    for directory in (upper, work, root + path):
        os.makedirs(directory)
    mount(
        "overlay", root + path, "overlay", data=f"lowerdir={path},upperdir={upper},workdir={work}"
    )


def make_devices(target: str) -> None:
    os.makedirs(f"{target}/shm")
    for name in DEVICES:
        bind(f"/dev/{name}", f"{target}/{name}")
    if os.path.isdir("/dev/pts"):
        bind("/dev/pts", f"{target}/pts", MS_REC)
    mount("shm", f"{target}/shm", "tmpfs")
    for name, path in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{path}", f"{target}/{name}")


def top(path: str) -> str:
    """The top-level directory in which a path lies once links are followed (/var/run: run)."""
    return os.path.realpath(path).split("/")[1]


def enter(spec: dict[str, Any]) -> None:
    """spec: root, mounts [{source, target, readOnly}], programs [path], directory, command."""
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    mount(None, "/", flags=MS_REC | MS_PRIVATE)
    root = spec["root"]
    mounts = sorted(spec["mounts"], key=lambda item: item["target"])
    absent = [item["target"] for item in mounts if not os.path.exists(item["target"])]
    make_root(root, {top(path) for path in absent})
    for item in mounts:
        target = root + os.path.realpath(item["target"])
        bind(item["source"], target, MS_REC)
        if item["readOnly"]:
            mount(None, target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    for path in spec["programs"]:
        if not os.path.exists(root + path) or not os.path.samefile(path, root + path):
            bind(path, root + path, MS_REC)
    os.chroot(root)
    os.chdir(spec["directory"])


def main() -> None:
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    try:
        enter(spec)
        os.execvp(spec["command"][0], spec["command"])
    except OSError as error:
        # As a container runtime answers when a container cannot be created.
        print(f"failed to create containerd task: {error}", file=sys.stderr, flush=True)
        os._exit(128)


if __name__ == "__main__":
    main()
