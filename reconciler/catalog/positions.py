"""Reads the positions in small position delete files, for an exact number of live rows.

Metadata says how many positions a delete file holds, not which: two files may name the same row,
one may name a row twice, rows that never were, or files that are gone. What is read is bounded in
bytes and positions, and kept beside the cache of manifests, because a delete file never changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reconciler.catalog.archives import arrays_of
from reconciler.catalog.network import carried
from reconciler.table.deletes import DeleteTable, Positions, Scope
from reconciler.table.filetable import Int64

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

PATH, POSITION = "file_path", "pos"
"""Columns of a position delete file, as the specification names them."""

MOST_BYTES = 32 << 20
"""Maximum size of the delete files that one look reads, or has read before."""

MOST_FILES = 256
"""Maximum number of delete files that one look reads."""

MOST_POSITIONS = 4_000_000
"""Maximum number of positions in them: they are held in memory, 8 bytes each."""

READERS = 8


@dataclass(frozen=True)
class PositionReader:
    """Reads position delete files of one table. folder: where positions that were read are kept."""

    io: FileIO
    folder: Path

    def __call__(self, deletes: DeleteTable) -> Mapping[int, Positions]:
        """Return the positions of the small delete files, by their row in the table.

        A file that cannot be read is left out: its positions stay unknown, and nothing fails.
        """
        chosen = small_files(deletes)
        names = {self._kept(str(deletes.path[row])): row for row in chosen}
        self._tidy(set(names))
        found = {}
        with ThreadPoolExecutor(READERS) as pool:
            paths = [str(deletes.path[row]) for row in chosen]
            for row, positions in zip(chosen, pool.map(carried(self._read), paths), strict=True):
                if positions is not None:
                    found[row] = positions
        return found

    def _read(self, path: str) -> Positions | None:
        kept = self.folder / self._kept(path)
        with contextlib.suppress(OSError, ValueError, KeyError):
            return _from_file(kept)
        try:
            found = positions_in(self.io, path)
        except Exception:  # whatever a store or a foreign file may raise: it is then not known
            return None
        with contextlib.suppress(OSError):
            _to_file(kept, found)
        return found

    def _kept(self, path: str) -> str:
        return f"{hashlib.sha256(path.encode()).hexdigest()[:32]}.npz"

    def _tidy(self, wanted: set[str]) -> None:
        """Remove what belongs to delete files that are gone or too large."""
        with contextlib.suppress(OSError):
            for kept in self.folder.iterdir():
                if kept.name not in wanted:
                    kept.unlink()


def small_files(deletes: DeleteTable) -> list[int]:
    """Return the rows of the position delete files to read: the smallest, within the bounds."""
    rows = np.flatnonzero(deletes.of(Scope.FILE, Scope.PARTITION) & ~deletes.dangling)
    order = rows[np.lexsort((deletes.path[rows].astype(str), deletes.bytes[rows]))]
    size, count = np.cumsum(deletes.bytes[order]), np.cumsum(deletes.records[order])
    fits = (size <= MOST_BYTES) & (count <= MOST_POSITIONS)
    chosen: list[int] = order[fits][:MOST_FILES].tolist()
    return chosen


def positions_in(io: FileIO, path: str) -> Positions:
    """Return the distinct positions in a Parquet file of position deletes, by data file.

    Raises ValueError if it holds more than the metadata may claim for a file that is read.
    """
    from reconciler.catalog.parquet import with_footer

    with io.new_input(path).open() as stream:
        file = with_footer(stream, f'the footer of "{path}"', read_dictionary=[PATH])
        if file.metadata.num_rows > MOST_POSITIONS:
            raise ValueError(f'"{path}" holds more than {MOST_POSITIONS:,} positions')
        table = file.read([PATH, POSITION])
    names = table.column(PATH).combine_chunks()
    names = names if hasattr(names, "indices") else names.dictionary_encode()
    number = np.asarray(names.indices)
    position = np.asarray(table.column(POSITION).combine_chunks(), dtype=np.int64)
    return {
        str(name): np.unique(position[number == index])
        for index, name in enumerate(names.dictionary.to_pylist())
    }


def _to_file(path: Path, positions: Positions) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    counts = np.array([len(found) for found in positions.values()], dtype=np.int64)
    written = path.with_suffix(f".{os.getpid()}.tmp")
    with written.open("wb") as out:
        np.savez_compressed(
            out, allow_pickle=False, names=np.array(list(positions), dtype=np.str_), counts=counts,
            positions=np.concatenate([*positions.values(), np.zeros(0, dtype=np.int64)]),
        )  # fmt: skip
    written.replace(path)


def _from_file(path: Path) -> Positions:
    kept = arrays_of(path)
    names, counts, positions = kept["names"], kept["counts"], kept["positions"]
    return dict(zip(map(str, names), _split(positions, counts), strict=True))


def _split(positions: Int64, counts: Int64) -> Iterator[Int64]:
    ends: Sequence[int] = np.cumsum(counts).tolist()
    for count, end in zip(counts.tolist(), ends, strict=True):
        yield positions[end - count : end].astype(np.int64)
