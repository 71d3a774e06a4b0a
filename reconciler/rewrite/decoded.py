"""How much memory the rows of files take in Arrow's arrays, as their footers say.

Stored bytes say little of that: texts compress twenty to one, and a dictionary of few texts decodes
to far more than is stored. The plan of a task goes by it (`rewriting`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reconciler.rewrite.dictionaries import DICTIONARY_BYTES
from reconciler.table.parquet_schema import NotParquetError, text_sizes

WIDTHS = {"BOOLEAN": 0.125, "INT32": 4.0, "INT64": 8.0, "INT96": 8.0, "FLOAT": 4.0, "DOUBLE": 8.0}
"""Bytes of a value."""
DECIMAL_WIDTH, OFFSET_WIDTH, NULL_WIDTH = 16.0, 4.0, 0.125
MOST_PARSED = 200
"""Files whose sizes of texts are read from the footer, which takes a hundred times as long as what
Arrow decodes of it; those of further ones follow from the most of these."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of files."""

    name: str
    """Its path."""
    width: float | None
    """Bytes of a value, None for texts."""
    whole: bool
    """Whether it is a column of the table itself, which may be read as a dictionary."""


@dataclass(slots=True)
class _Sums:
    """The memory of one file's rows, while its chunks are looked at."""

    bytes: float = 0.0
    """Bytes of all columns, where those in `more` are read as dictionaries."""
    more: dict[str, float] = field(default_factory=dict)
    """Bytes by which a text column takes more if it is not read as a dictionary, by name; of the
    columns that can be."""
    plain: set[str] = field(default_factory=set)
    """Text columns whose values here are no dictionary of few values."""


@dataclass(frozen=True, slots=True)
class _File:
    """`_Sums` in a compact form: a plan may have 100,000 files, most of them with equal columns."""

    bytes: float
    """As `_Sums.bytes`."""
    names: tuple[str, ...]
    """Columns of `more`."""
    more: npt.NDArray[np.float64]
    """As `_Sums.more`."""
    plain: frozenset[str]
    """As `_Sums.plain`."""


class DecodedSizes:
    """The memory that the rows of files take, by what their footers say. Several threads may note
    files at once."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._leaves: tuple[Any, list[_Leaf]] = None, []
        self._ratios: dict[str, float] = {}
        self._parsed = 0
        self._known: dict[Any, Any] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def note(self, path: str, metadata: Any, footer: bytes) -> None:
        """Add a file. metadata: its footer as pyarrow reads it; footer: as it is stored. A footer
        that cannot be read leaves the file unknown; whether it is damaged is judged elsewhere."""
        with contextlib.suppress(ArithmeticError, AttributeError, LookupError, ValueError):
            self._files[path] = self._noted(metadata, footer)

    def _noted(self, metadata: Any, footer: bytes) -> _File:
        file, sizes = _Sums(), None
        leaves = self._leaves_of(metadata.schema)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for at, leaf in enumerate(leaves):
                chunk = group.column(at)
                file.bytes += NULL_WIDTH * chunk.num_values
                if leaf.width is not None:
                    file.bytes += leaf.width * chunk.num_values
                elif not chunk.has_dictionary_page:  # 4 bytes of length in front of each value
                    file.bytes += chunk.total_uncompressed_size
                    file.plain.add(leaf.name)
                else:
                    if sizes is None:
                        sizes = self._sizes(footer)
                    known = sizes[number][at] if sizes else None
                    self._note_texts(file, leaf, chunk, known)
        for name in file.plain & file.more.keys():
            file.bytes += file.more.pop(name)
        names, plain = tuple(file.more), frozenset(file.plain)
        interned = self._known
        more = np.fromiter(file.more.values(), dtype=np.float64, count=len(names))
        return _File(
            file.bytes, interned.setdefault(names, names), more, interned.setdefault(plain, plain)
        )

    def of(self, paths: Collection[str]) -> int:
        """Return the bytes of the rows of all these files, 0 if one of them is not known: a column
        is read as a dictionary if it may be in every file."""
        files = [self._files[path] for path in paths if path in self._files]
        if len(files) < len(paths):
            return 0
        plain = frozenset[str]().union(*{file.plain for file in files})
        names = {file.names for file in files}
        wanted = {of: np.array([name in plain for name in of], dtype=np.bool_) for of in names}
        more = sum(float(file.more[wanted[file.names]].sum()) for file in files)
        return int(sum(file.bytes for file in files) + more)

    def _note_texts(self, file: _Sums, leaf: _Leaf, chunk: Any, known: int | None) -> None:
        values, stored = chunk.num_values, chunk.total_uncompressed_size
        texts = self._ratios.get(leaf.name, 0.0) * stored if known is None else float(known)
        if known is not None:
            most = self._ratios.get(leaf.name, 0.0)
            self._ratios[leaf.name] = max(most, known / max(stored, 1))
        whole = (texts or _expected(chunk)) + OFFSET_WIDTH * values
        # As in `dictionaries._is_repeated`.
        if leaf.whole and stored < DICTIONARY_BYTES * values + 1_000:
            numbers = stored + OFFSET_WIDTH * values
            file.bytes += min(numbers, whole)
            file.more[leaf.name] = file.more.get(leaf.name, 0.0) + max(0.0, whole - numbers)
        else:
            file.bytes += whole
            file.plain.add(leaf.name)

    def _sizes(self, footer: bytes) -> list[list[int | None]]:
        if self._parsed >= MOST_PARSED:
            return []
        self._parsed += 1
        try:
            return text_sizes(footer)
        except NotParquetError:
            return []

    def _leaves_of(self, schema: Any) -> list[_Leaf]:
        """Return the columns of a file; most files have those of the one before."""
        known, leaves = self._leaves
        if known is None or not known.equals(schema):
            leaves = [_leaf(schema.column(at)) for at in range(len(schema))]
            self._leaves = schema, leaves
        return leaves


def _leaf(column: Any) -> _Leaf:
    width = WIDTHS.get(column.physical_type)
    if "DECIMAL" in (column.logical_type.type, column.converted_type):
        width = DECIMAL_WIDTH
    elif column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = float(column.length)
    in_list = OFFSET_WIDTH if column.max_repetition_level else 0.0
    whole = "." not in column.path
    return _Leaf(column.path, None if width is None else width + in_list, whole)


def _expected(chunk: Any) -> float:
    """Return the expected bytes of dictionary-encoded texts whose writer does not say: their number
    times the mean of the dictionary.

    The numbers of values hardly compress, so that their stored bytes show how many texts there are,
    and what is left is the dictionary. Sorted ones do compress: no mean is more than the longer one
    of least and greatest text.
    """
    values, stored = max(1, chunk.num_values), chunk.total_uncompressed_size
    dictionary = max(0, chunk.data_page_offset - chunk.dictionary_page_offset)
    numbers = min(stored, max(0, chunk.total_compressed_size - dictionary))
    distinct = 2.0 ** max(0.0, min(8 * numbers / values - 1, 60.0))
    mean = (stored - numbers) / distinct
    found = chunk.statistics
    if found is not None and found.has_min_max:
        mean = min(mean, max(len(found.min_raw), len(found.max_raw)))
    return float(max(stored, values * mean))
