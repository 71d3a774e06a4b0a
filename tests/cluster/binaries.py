"""Builds the programs that tests run and that are written in Go, or finds them in a cache.

A module below tests/cluster (kube, helm, versitygw, promql) pins everything in its binary. The
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
    "promql": ("promql",),
}
"""Module -> the programs that its one binary can be called as."""

_BUILD_SECONDS = 3600


class CannotBuild(Exception):
    """Why the programs are not there; one sentence, with what to do."""


def directory(module: str) -> Path:
    """The directory with the programs of a module; builds them if they are not in the cache."""
    return dict(each([module]))[module]


def each(modules: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Each module with its directory as soon as that is complete; what is missing is built.

    Modules that are built in one go share Go's caches. Raises CannotBuild.
    """
    root = cache_root()
    with contextlib.ExitStack() as stack:
        scratch: Path | None = None
        for module in modules:
            found = _cached(module)
            if not _is_complete(module, found):
                scratch = scratch or stack.enter_context(_scratch(root))
                with _exclusive(root / f".lock-{module}"):
                    if not _is_complete(module, found):
                        _build(module, found, scratch)
            yield module, found


@contextlib.contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".build-", ignore_cleanup_errors=True) as at:
        yield Path(at)


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


def _build(module: str, directory: Path, scratch: Path) -> None:
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
    for _, built in each(sys.argv[1:] or PROGRAMS):
        print(built)
