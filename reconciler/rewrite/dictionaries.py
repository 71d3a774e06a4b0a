"""Which columns can be sorted and written by the numbers of their dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.rewrite.columns import Column

DICTIONARY_BYTES = 4
"""Stored bytes per value, before compression, below which a text column is worth reading as a
dictionary."""


def dictionary_columns(columns: Sequence[Column], footers: Sequence[tuple[Any, Any]]) -> list[str]:
    """Return the text columns of which every stored chunk is a dictionary of few values: these
    are sorted and written by their numbers.

    footers: of the files, each with its field ids by path.
    """
    left = [column for column in columns if column.type in ("string", "binary")]
    for footer, ids in footers:
        leaves = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
        of_id = {i: leaves.get(path[0]) for path, i in ids.items() if len(path) == 1}
        left = [column for column in left if _is_repeated(footer, of_id.get(column.field_id))]
    return [column.name for column in left]


def _is_repeated(footer: Any, leaf: int | None) -> bool:
    if leaf is None:
        return False
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(leaf)
        small = chunk.total_uncompressed_size < DICTIONARY_BYTES * chunk.num_values + 1_000
        if not (chunk.has_dictionary_page and small):
            return False
    return True
