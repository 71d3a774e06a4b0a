"""Builds the programs that tests run and that are written in Go, or finds them in a cache.

A module below tests/cluster (kube, helm, versitygw) pins everything that goes into its binary. The
cache key is the hash of those files with Go's version and platform, so a changed pin builds anew
and nothing else does. Only binaries are kept: module and build caches (gigabytes) are temporary,
unless GOMODCACHE or GOCACHE say otherwise, and shared by the modules that are built together.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

HERE = Path(__file__).parent

PROGRAMS = {
    "kube": ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"),
    "helm": ("helm",),
    "versitygw": ("versitygw",),
}
"""Module -> the programs that its one binary can be called as."""

_BUILD_SECONDS = 3600


class CannotBuild(Exception):
    """Why the programs are not there; one sentence, with what to do."""


def directories(modules: Collection[str]) -> dict[str, Path]:
    """The directory with the programs of each module; those not in the cache are built first."""
    found = locate(modules)
    missing = [module for module, directory in found.items() if not _is_complete(module, directory)]
    if missing:
        root = cache_root()
        root.mkdir(parents=True, exist_ok=True)
        with _exclusive(root / ".lock"):
            _build(
                {name: found[name] for name in missing if not _is_complete(name, found[name])}, root
            )
    return found


def locate(modules: Collection[str]) -> dict[str, Path]:
    """Where the programs of each module are, or will be once they are built."""
    return {module: _cached(module) for module in modules}


def cache_root() -> Path:
    """cluster below $LAYOUTCTL_CACHE, else below layoutctl in the user's cache directory."""
    chosen = os.environ.get("LAYOUTCTL_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute() / "cluster"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "layoutctl" / "cluster"


def _cached(module: str) -> Path:
    digest = hashlib.sha256()
    for path in sorted((HERE / module).iterdir()):
        digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return cache_root() / f"{module}-{digest.hexdigest()[:16]}-{_go_platform(module)}"


def _go_platform(module: str) -> str:
    """Version and platform as in "go1.26.1-linux-amd64"; asks Go to resolve the toolchain."""
    if shutil.which("go") is None:
        raise CannotBuild(
            f"these tests build {module} with Go, and there is no `go` on the PATH: install"
            " Go 1.26 or newer (https://go.dev/dl)"
        )
    asked = subprocess.run(
        ["go", "env", "GOVERSION", "GOOS", "GOARCH"],
        cwd=HERE / module, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if asked.returncode:
        raise CannotBuild(
            f"these tests build {module} with Go 1.26 or newer, and this Go cannot:"
            f" {asked.stderr.strip()}"
        )
    return "-".join(asked.stdout.split())


def _is_complete(module: str, directory: Path) -> bool:
    return all((directory / program).is_file() for program in PROGRAMS[module])


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Holds an advisory lock, so that runs that start together build once."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(wanted: dict[str, Path], root: Path) -> None:
    with tempfile.TemporaryDirectory(dir=root, prefix=".build-", ignore_cleanup_errors=True) as at:
        scratch = Path(at)
        for module, directory in wanted.items():
            _compile(module, scratch, scratch / module)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(directory)
            (scratch / module).rename(directory)


def _compile(module: str, scratch: Path, out: Path) -> None:
    """Leaves in `out` the binary and a link to it for each program."""
    out.mkdir()
    done = subprocess.run(
        ["sh", "./build.sh", str(out / "binary")],
        cwd=HERE / module,
        env=_go_environment(scratch),
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise CannotBuild(f"go could not build {module}: {done.stderr.strip()[-3000:]}")
    for program in PROGRAMS[module]:
        (out / program).symlink_to("binary")


def _go_environment(scratch: Path) -> dict[str, str]:
    """Static and reproducible; -modcacherw so that the temporary module cache can be removed."""
    return {
        "GOMODCACHE": str(scratch / "mod"),
        "GOCACHE": str(scratch / "build"),
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -modcacherw",
        "GOTMPDIR": str(scratch),
    }


if __name__ == "__main__":
    for place in directories(sys.argv[1:] or PROGRAMS).values():
        print(place)
