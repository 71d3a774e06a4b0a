"""A table as its catalog names it now: metadata in JSON, its snapshots, refs and manifests."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import bounds
from reconciler.catalog.load import connect, load_table, translate_io, within
from reconciler.catalog.manifest_reader import CORRUPT_LIST, CORRUPT_MANIFEST, READERS
from reconciler.catalog.network import carried
from reconciler.commit import fields, manifest
from reconciler.commit.manifest import Entry, ManifestFile, Named
from reconciler.commit.metadata import MAIN, completed, refs_of, snapshots_of
from reconciler.errors import FileMissingError, TableNotFoundError
from reconciler.table.observation import quoted_name

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

Snapshot = Mapping[str, Any]
"""A snapshot as the specification writes it in JSON."""
Asked = TypeVar("Asked")
Found = TypeVar("Found")
_FEW = 4
"""Files that are read one after the other: threads cost more."""


@dataclass(frozen=True)
class State:
    """A table's metadata at one time."""

    metadata: Mapping[str, Any]
    """The metadata in the JSON form of the specification."""
    location: str
    """Location of the metadata file, which no other state has."""

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])

    @property
    def version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("properties") or {}

    @cached_property
    def snapshots(self) -> dict[int, Snapshot]:
        """Return the snapshots by id, in the order in which they were added."""
        return {int(one["snapshot-id"]): one for one in snapshots_of(self.metadata)}

    @cached_property
    def refs(self) -> Mapping[str, Mapping[str, Any]]:
        return refs_of(self.metadata)

    def head(self, branch: str = MAIN) -> int | None:
        """Return the snapshot of a branch, None if it has none."""
        ref = self.refs.get(branch)
        return None if ref is None else int(ref["snapshot-id"])

    def line(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """Yield a snapshot and its ancestors that the metadata retains."""
        seen: set[int] = set()
        while snapshot_id in self.snapshots and snapshot_id not in seen:
            seen.add(snapshot_id)
            found = self.snapshots[snapshot_id]
            yield found
            snapshot_id = found.get("parent-snapshot-id")


class LiveTable:
    """One table of a catalog. `state` is as of the last refresh."""

    def __init__(
        self, config: CatalogConfig, identifier: tuple[str, ...], timeout: float = 30.0
    ) -> None:
        self.config, self.identifier, self.timeout = config, identifier, timeout
        self.catalog: Catalog = connect(config, timeout)
        table = load_table(self.catalog, config, identifier, timeout)
        self.loaded: Table = table
        self.state = self._loaded(table)

    @property
    def io(self) -> FileIO:
        return self.loaded.io

    @property
    def name(self) -> str:
        return quoted_name(self.identifier)

    def refresh(self) -> State:
        """Return the table's present state. Raises TableNotFoundError, UnavailableError."""
        if self.config.type == "sql":
            location = self.sql_location()
            if location != self.state.location:
                self.state = self._read(location)
        else:
            table = load_table(self.catalog, self.config, self.identifier, self.timeout)
            self.loaded, self.state = table, self._loaded(table)
        return self.state

    def _loaded(self, table: Any) -> State:
        if self.config.type == "sql":
            return self._read(str(table.metadata_location))
        body = json.loads(table.metadata.model_dump_json())
        return State(completed(body), str(table.metadata_location))

    def sql_location(self) -> str:
        """Return the metadata file that a SQL catalog names."""
        from sqlalchemy import text

        query = text(
            "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = :catalog "
            "AND table_namespace = :namespace AND table_name = :name"
        )

        def ask() -> str:
            with self.catalog.engine.connect() as connection:  # type: ignore[attr-defined]
                return str(connection.execute(query, self.sql_key()).scalar() or "")

        found = within(ask, self.timeout, self.config)
        if not found:
            raise TableNotFoundError(
                f'table "{self.name}" is no longer in catalog "{self.config.name}"',
                do=f"layoutctl observe --catalog {self.config.name}",
            )
        return found

    def sql_key(self) -> dict[str, str]:
        return {
            "catalog": self.catalog.name, "namespace": ".".join(self.identifier[:-1]),
            "name": self.identifier[-1],
        }  # fmt: skip

    def _read(self, location: str) -> State:
        subject = f'the metadata file "{location}"'
        with translate_io(subject, "restore the file, then run the command again"):
            with self.io.new_input(location).open() as stream:
                text = bounds.metadata_json(stream, location.endswith(".gz.metadata.json"), subject)
            return State(completed(json.loads(text)), location)

    def manifests(self, snapshot_id: int | None) -> list[ManifestFile]:
        """Return the manifests of a snapshot, [] for None."""
        if snapshot_id is None:
            return []
        return self._list(str(self.state.snapshots[snapshot_id]["manifest-list"]))

    def lists(
        self, paths: Sequence[str], may_miss: Collection[str] = ()
    ) -> Iterator[list[ManifestFile] | None]:
        """Yield the manifests of each manifest list; None for one that may be missing and is."""

        def read(path: str) -> list[ManifestFile] | None:
            try:
                return self._list(path)
            except FileMissingError:
                if path not in may_miss:
                    raise
                return None

        yield from _read_all(read, paths)

    def _list(self, path: str) -> list[ManifestFile]:
        with translate_io(f'the manifest list "{path}"', CORRUPT_LIST):
            return manifest.read_list(self._bytes(path, f'the manifest list "{path}"'), path)

    def entries(self, manifests: Sequence[ManifestFile]) -> list[list[Entry]]:
        """Return the entries of each manifest."""
        return list(self._each(manifests, manifest.read_entries))

    def each_named(
        self, manifests: Sequence[ManifestFile], may_miss: bool = False
    ) -> Iterator[list[Named]]:
        """Yield what the entries of each manifest name, decoded when asked for: those of a whole
        table would fill the memory. may_miss: a missing manifest has none."""
        return self._each(manifests, manifest.read_names, may_miss)

    def _each(
        self,
        manifests: Sequence[ManifestFile],
        decode: Callable[[bytes, ManifestFile], list[Found]],
        may_miss: bool = False,
    ) -> Iterator[list[Found]]:
        def read(one: ManifestFile) -> bytes | None:
            path = str(one[fields.M_PATH])
            try:
                with translate_io(f'the manifest "{path}"', CORRUPT_MANIFEST):
                    return self._bytes(path, f'the manifest "{path}"')
            except FileMissingError:
                if not may_miss:
                    raise
                return None

        for start in range(0, len(manifests), READERS):
            some = manifests[start : start + READERS]
            for data, one in zip(_read_all(read, some), some, strict=True):
                with translate_io(f'the manifest "{one[fields.M_PATH]}"', CORRUPT_MANIFEST):
                    found = [] if data is None else decode(data, one)
                yield found

    def _bytes(self, path: str, subject: str) -> bytes:
        with self.io.new_input(path).open() as stream:
            return bounds.read(stream, subject)

    def write(self, path: str, data: bytes) -> None:
        """Write a new file. Raises OSError if it exists or cannot be written."""
        with self.io.new_output(path).create(overwrite=False) as stream:
            stream.write(data)

    def delete(self, path: str) -> bool:
        """Delete a file; return whether that succeeded."""
        try:
            self.io.delete(path)
        except Exception:
            return False
        return True


def _read_all(read: Callable[[Asked], Found], asked: Sequence[Asked]) -> Iterator[Found]:
    """Yield what is read of each, many at the same time."""
    if len(asked) <= _FEW:
        yield from map(read, asked)
        return
    with ThreadPoolExecutor(min(READERS, len(asked))) as pool:
        yield from pool.map(carried(read), asked)
