"""The kinds of change of a table's files, each as what a new snapshot does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.commit.live import LiveFiles
from reconciler.commit.snapshot import AddedFile, SnapshotChange
from reconciler.engines.delete_file import DeleteFile

REPLACE, OVERWRITE, DELETE, APPEND = "replace", "overwrite", "delete", "append"
"""Operations of a snapshot, as the specification names them."""


def replace_files(
    live: LiveFiles, paths: Iterable[str], added: Sequence[AddedFile], sequence: int
) -> SnapshotChange:
    """Return the change that puts files with the same rows in the place of others.

    The delete files of the replaced files alone go with them. sequence: of the snapshot that was
    read; the new files keep it, so that later deletes apply to them too.
    """
    rows = live.rows(paths)
    return SnapshotChange(
        REPLACE,
        added=added,
        sequence=sequence,
        removed=_with_manifests(live, rows, paths),
        removed_deletes=live.own_deletes(rows.values()),
    )


def row_delta(
    live: LiveFiles,
    paths: Iterable[str],
    added: Sequence[AddedFile],
    removed: Sequence[DeleteFile],
) -> SnapshotChange:
    """Return the change that adds and removes delete files. paths: data files to which one of them
    applies, all of which must stay."""
    rows = live.rows(paths)
    return SnapshotChange(
        DELETE if added else OVERWRITE,
        added_deletes=added,
        removed_deletes={one.path: str(one.entry) for one in removed},
        required=_with_manifests(live, rows, paths),
    )


def remove_deletes(removed: Sequence[DeleteFile]) -> SnapshotChange:
    """Return the change that removes delete files which apply to nothing."""
    return SnapshotChange(OVERWRITE, removed_deletes={one.path: str(one.entry) for one in removed})


def append_nothing() -> SnapshotChange:
    """Return the change that only moves the head: with a mark in its summary it fences."""
    return SnapshotChange(APPEND, fast=True)


def _with_manifests(
    live: LiveFiles, rows: Mapping[str, int], paths: Iterable[str]
) -> dict[str, str]:
    """Return each path with its manifest, "" for one that is not live: a commit then finds that it
    is missing."""
    return {path: live.manifest(rows[path]) if path in rows else "" for path in paths}
