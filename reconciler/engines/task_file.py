"""One data file of a snapshot as its manifest entry describes it, with the deletes on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.table.deletes import PATH_ID


@dataclass(frozen=True, slots=True)
class Deletes:
    """Delete files that apply to one data file."""

    positions: frozenset[tuple[str, int]] = frozenset()
    """Path and offset of each position delete file or vector."""
    equality: frozenset[str] = frozenset()
    """Paths of equality delete files."""


NO_DELETES = Deletes()


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One data file as its manifest entry describes it. Mappings are by field id, for the requested
    columns only."""

    path: str
    """Location of the file."""
    format: str
    """Its format, in capitals."""
    size: int
    """Bytes of the file."""
    rows: int
    """Rows in it, deleted ones included."""
    spec_id: int = 0
    """Id of its partition spec."""
    sequence: int = 0
    """Data sequence number."""
    encrypted: bool = False
    """Whether its entry has a key."""
    deletes: Deletes = NO_DELETES
    """The delete files that apply to it."""
    deleted: int = 0
    """Rows deleted by position, counted from delete files that name only this file."""
    partition: tuple[Any, ...] = ()
    """Its values as the specification writes them in JSON, () where they cannot be read."""
    first_row_id: int | None = None
    """Row id of its first row, from format 3 on; None before."""
    lower: Mapping[int, bytes] = field(default_factory=dict)
    """Lower bounds, in the specification's binary form."""
    upper: Mapping[int, bytes] = field(default_factory=dict)
    """Upper bounds, likewise."""
    nulls: Mapping[int, int] = field(default_factory=dict)
    """Numbers of NULL values."""
    nans: Mapping[int, int] = field(default_factory=dict)
    """Numbers of NaN values."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Stored bytes."""


def task_file(body: Mapping[str, Any], spec_id: int, sequence: int) -> TaskFile:
    file = body.get("data-file", body)
    return TaskFile(
        path=file["file-path"],
        format=str(file["file-format"]).upper(),
        size=int(file["file-size-in-bytes"]),
        rows=int(file["record-count"]),
        spec_id=spec_id,
        sequence=sequence,
        encrypted=file.get("key-metadata") is not None,
        deletes=_deletes(body.get("delete-files", ())),
        deleted=_deleted_rows(file["file-path"], body.get("delete-files", ())),
        partition=tuple(file.get("partition") or ()),
        first_row_id=file.get("first-row-id"),
        lower=_by_id(file, "lower-bounds", bytes.fromhex),
        upper=_by_id(file, "upper-bounds", bytes.fromhex),
        nulls=_by_id(file, "null-value-counts", int),
        nans=_by_id(file, "nan-value-counts", int),
        sizes=_by_id(file, "column-sizes", int),
    )


def _deleted_rows(path: str, files: Iterable[Mapping[str, Any]]) -> int:
    """Return the rows deleted by delete files of this data file alone; a vector replaces older
    files."""
    named = [file for file in files if _names(file, path)]
    vectors = [file for file in named if str(file["file-format"]).upper() == "PUFFIN"]
    return sum(int(file["record-count"]) for file in vectors or named)


def _names(file: Mapping[str, Any], path: str) -> bool:
    if _by_equality(file):
        return False
    if "referenced-data-file" in file:
        return bool(file["referenced-data-file"] == path)
    low = _by_id(file, "lower-bounds", bytes.fromhex).get(PATH_ID)
    high = _by_id(file, "upper-bounds", bytes.fromhex).get(PATH_ID)
    return low == high == path.encode()


def _by_equality(file: Mapping[str, Any]) -> bool:
    return bool(file["content"].upper().replace("-", "_") == "EQUALITY_DELETES")


def _by_id(file: Mapping[str, Any], name: str, read: Any) -> dict[int, Any]:
    found = file.get(name)
    if not found:
        return {}
    return {int(k): read(v) for k, v in zip(found["keys"], found["values"], strict=True)}


def _deletes(files: Iterable[Mapping[str, Any]]) -> Deletes:
    positions, equality = set(), set()
    for file in files:
        if _by_equality(file):
            equality.add(file["file-path"])
        else:
            positions.add((file["file-path"], int(file.get("content-offset") or 0)))
    return (
        Deletes(frozenset(positions), frozenset(equality)) if positions or equality else NO_DELETES
    )
