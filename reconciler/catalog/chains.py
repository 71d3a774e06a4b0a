"""What a metadata file of any table needs, whoever wrote it: read as a document, without a catalog.

Somebody's present state may be any metadata file: a table that is registered elsewhere, one that
was dropped without its files, a Hadoop table. So what is below a location is read, and bounded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from reconciler.catalog import bounds
from reconciler.catalog.load import translate_io
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.errors import FileMissingError
from reconciler.table.physical import NAME_MAPPING
from reconciler.table.retention import may_delete

if TYPE_CHECKING:
    from pyiceberg.table import Table

GZIP_MAGIC = b"\x1f\x8b"
VERSIONS = (1, 2, 3)
"""Format versions whose references are known."""
PATH_PROPERTIES = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
    "write.metadata.path",
)
REGISTERED = (NAME_MAPPING, "snapshot", "migrated")
"""Properties that engines set when they register files of another table or directory."""
RESTORE = "restore the file, or remove it if no table needs it"


@dataclass(frozen=True, slots=True)
class Chain:
    """The files that one metadata file names, as far as the search for orphans needs them."""

    uuid: str = ""
    """The table's UUID; "" for a view and for a table of format 1 without one."""
    roots: frozenset[str] = frozenset()
    """Directories that the table's files are or were written to."""
    named: frozenset[str] = frozenset()
    """Paths of the files that the metadata file names itself."""
    lists: tuple[str, ...] = ()
    """Paths of the manifest lists."""
    manifests: tuple[str, ...] = ()
    """Paths of the manifests of snapshots without a list (format 1)."""
    log: tuple[str, ...] = ()
    """Paths of earlier metadata files, oldest first."""
    head: str = ""
    """Path of the current snapshot's manifest list."""
    registers: bool = False
    """Whether its files may lie anywhere, because files of others were registered in it or its
    files are not to be removed (`gc.enabled`)."""


def chain_of(body: Any) -> Chain:
    """Return what a metadata document needs. Raises ValueError, LookupError or TypeError if it is
    not one of a table, or of a version whose references are not known."""
    if not isinstance(body, Mapping):
        raise ValueError("it is not an object")
    if "view-uuid" in body:  # a view has no files
        return Chain()
    if body["format-version"] not in VERSIONS:
        raise ValueError(f"its format version is {str(body['format-version'])[:20]!r}")
    properties = body.get("properties") or {}
    snapshots = body.get("snapshots") or ()
    log = tuple(str(one["metadata-file"]) for one in body.get("metadata-log") or ())
    lists = tuple(str(one["manifest-list"]) for one in snapshots if one.get("manifest-list"))
    embedded = tuple(str(path) for one in snapshots for path in one.get("manifests") or ())
    statistics = [
        str(one["statistics-path"])
        for kind in ("statistics", "partition-statistics")
        for one in body.get(kind) or ()
    ]
    named = frozenset((*log, *lists, *embedded, *statistics))
    paths = (properties.get(name) for name in PATH_PROPERTIES)
    roots = {str(body["location"]), *(str(path) for path in paths if path)}
    return Chain(
        uuid=str(body.get("table-uuid") or ""),
        roots=frozenset(roots | {path.rpartition("/")[0] for path in named}),
        named=named,
        lists=lists,
        manifests=embedded,
        log=log,
        head=next(
            (
                str(one.get("manifest-list") or "")
                for one in snapshots
                if one.get("snapshot-id") == body.get("current-snapshot-id")
            ),
            "",
        ),
        registers=any(name in properties for name in REGISTERED) or not may_delete(properties),
    )


def read_chain(io: Any, path: str) -> Chain:
    """Return what a metadata file needs. Raises FileMissingError, TableDamagedError if it cannot be
    read as one, and what its storage answers."""
    subject = f'the metadata file "{path}"'
    with translate_io(subject, RESTORE):
        with io.new_input(path).open() as stream:
            data = bounds.read(stream, subject)
        if data[:2] == GZIP_MAGIC:
            data = bounds.inflated(data, subject, window=bounds.GZIP)
        bounds.require_values(data, subject)
        try:
            return chain_of(json.loads(data))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        except AttributeError as error:
            raise ValueError("it is not metadata of a table") from error


def files_of(io: Any, chain: Chain, cache_dir: Path, known: set[str]) -> Iterator[str]:
    """Yield the files that the chain refers to. known: manifests that were read before, added to.

    A manifest or list that does not exist is passed over: nobody can find a file by it any more.
    """
    yield from chain.named
    identity = hashlib.sha256((chain.uuid or min(chain.roots, default="")).encode()).hexdigest()
    metadata = SimpleNamespace(table_uuid=f"of-others-{identity[:32]}")
    reader = ManifestReader(cast("Table", SimpleNamespace(io=io, metadata=metadata)), cache_dir)
    found: dict[str, Any] = {
        path: SimpleNamespace(manifest_path=path, manifest_length=0) for path in chain.manifests
    }
    for path in chain.lists:
        if path in known:
            continue
        known.add(path)
        try:
            found |= {str(one.manifest_path): one for one in reader.manifests_in(path)}
        except FileMissingError:
            continue
    fresh = {path: one for path, one in found.items() if path not in known}
    known |= fresh.keys()
    yield from fresh
    yield from _entries(reader, list(fresh.values()))


def _entries(reader: ManifestReader, manifests: list[Any]) -> Iterable[str]:
    try:
        entries = reader.entries(manifests)
    except FileMissingError:
        if len(manifests) == 1:
            return []
        half = len(manifests) // 2
        return [*_entries(reader, manifests[:half]), *_entries(reader, manifests[half:])]
    return [] if entries is None else map(str, entries.path)
