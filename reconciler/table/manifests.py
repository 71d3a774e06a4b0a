"""The manifests of a snapshot, and how the files of a partition are scattered over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ManifestTable:
    """The live manifests of data files. Arrays have shape [manifests] unless said otherwise."""

    path: tuple[str, ...]
    """Path of each manifest."""
    bytes: Int64
    """int64[manifests]: size of the manifest."""
    files: Int64
    """int64[manifests]: number of live data files in it."""
    held_by: Int64
    """int64[partitions]: number of manifests that hold files of the partition."""
    live: Int64
    """int64[partitions]: number of live data files of the partition."""
    every: frozenset[str]
    """Paths of all live manifests, those of delete files included."""

    def __len__(self) -> int:
        return len(self.path)

    @property
    def read_now(self) -> float:
        """Return how many manifests a query reads that needs one partition, weighted by files."""
        total = float(self.live.sum())
        return float(self.held_by @ self.live) / total if total else 0.0

    def read_after(self, manifests: int) -> float:
        """Return the same once the files are ordered by partition in that many manifests.

        A partition of f files begins in one manifest and goes on through f / (files per manifest)
        more of them.
        """
        total = float(self.live.sum())
        if not total:
            return 0.0
        spans = np.minimum(manifests, 1.0 + (self.live - 1) * manifests / total)
        return float(spans @ self.live) / total


def manifest_table(
    path: tuple[str, ...],
    size: Int64,
    every: frozenset[str],
    manifest: npt.NDArray[np.integer],
    partition: npt.NDArray[np.integer],
) -> ManifestTable:
    """Return the table. manifest, partition: of each live data file, as indexes of shape
    [files]."""
    pairs = np.unique(np.stack((partition, manifest)).astype(np.int64), axis=1)
    _, held_by = np.unique(pairs[0], return_counts=True)
    _, live = np.unique(partition, return_counts=True)
    files = np.bincount(manifest, minlength=len(path)).astype(np.int64)
    return ManifestTable(path, size, files, held_by.astype(np.int64), live.astype(np.int64), every)


_NONE = np.zeros(0, dtype=np.int64)
NO_MANIFESTS = manifest_table((), _NONE, frozenset(), _NONE, _NONE)
