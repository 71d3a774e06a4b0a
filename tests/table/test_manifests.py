"""How many manifests a query reads that needs one partition, before and after a rewrite."""

from __future__ import annotations

import numpy as np
import pytest

from reconciler.table.manifests import NO_MANIFESTS, manifest_table

SIZE = np.full(4, 10)
NAMES = tuple("abcd")


def table(manifest: list[int], partition: list[int]):
    every = frozenset((*NAMES, "deletes"))
    return manifest_table(NAMES, SIZE, every, np.array(manifest), np.array(partition))


def test_a_partition_in_every_manifest_is_read_from_all() -> None:
    found = table([0, 1, 2, 3] * 2, [0] * 4 + [1] * 4)
    assert (found.read_now, found.read_after(1), found.read_after(2)) == (4.0, 1.0, 1.75)


def test_files_count_by_their_number() -> None:
    found = table([0, 1, 2, 3, 0], [0, 0, 0, 0, 1])
    assert found.read_now == pytest.approx((4 * 4 + 1) / 5)
    assert found.files.tolist() == [2, 1, 1, 1]


def test_an_empty_table_reads_none() -> None:
    assert (len(NO_MANIFESTS), NO_MANIFESTS.read_now, NO_MANIFESTS.read_after(1)) == (0, 0.0, 0.0)
