"""Which listed files count as orphans."""

from __future__ import annotations

import pytest

from reconciler.table.orphans import (
    LEAST_AGE_MS,
    MOST_FILES,
    Listed,
    Search,
    orphans_of,
    place_of,
)

NOW = 10**12
HOUR = 3_600_000
ROOT = "s3://lake/wh/db/t"
OPEN = f"{ROOT}/data/layout-p-00000000000000000000-1-9"


def _found(path: str, hours: float, search: Search = Search(48 * HOUR)) -> bool:
    referenced = {place_of("s3a://lake/wh/db/t/data/live.parquet")}
    listed = [Listed(path, 10, NOW - int(hours * HOUR))]
    return bool(orphans_of(listed, ROOT, referenced, search, NOW, [OPEN]).files)


@pytest.mark.parametrize(
    ("path", "hours", "orphan"),
    [
        ("data/a.parquet", 49, True),
        ("data/a.parquet", 47, False),
        ("data/k=1/a.orc", 49, True),
        ("metadata/a-m0.avro", 49, True),
        ("metadata/00001-x.metadata.json", 49, True),
        ("data/live.parquet", 9_999, False),  # another spelling of its scheme
        ("data/notes.txt", 9_999, False),
        ("data/_SUCCESS", 9_999, False),
        ("elsewhere/a.parquet", 9_999, False),
        ("data/layout-p-1-1-1/a.parquet", 49, False),
        ("data/layout-p-1-1-1/a.parquet", 169, True),
        ("data/layout-p-00000000000000000000-1-9/a.parquet", 9_999, False),  # not settled
        ("../t2/data/a.parquet", 9_999, False),
    ],
)
def test_only_old_files_of_the_table_that_nothing_refers_to_are_orphans(
    path: str, hours: float, orphan: bool
) -> None:
    assert _found(f"{ROOT}/{path}", hours) is orphan


def test_a_table_whose_name_begins_like_this_ones_is_another_one() -> None:
    assert not _found("s3://lake/wh/db/t2/data/a.parquet", 9_999)


def test_an_age_below_the_least_counts_as_the_least() -> None:
    assert Search(0).age_ms == LEAST_AGE_MS
    assert not _found(f"{ROOT}/data/a.parquet", 23, Search(0))
    assert _found(f"{ROOT}/data/a.parquet", 25, Search(0))


def test_a_prefix_narrows_the_search() -> None:
    search = Search(0, "data/k=1/")
    assert _found(f"{ROOT}/data/k=1/a.parquet", 30, search)
    assert not _found(f"{ROOT}/data/k=12/a.parquet", 30, search)


@pytest.mark.parametrize("below", ["data/inner/metadata", "inner/metadata", "metadata/inner"])
def test_metadata_of_another_table_below_rules_out_every_file(below: str) -> None:
    other = f"{ROOT}/{below}/00000-x.metadata.json"
    listed = [Listed(f"{ROOT}/data/a.parquet", 1, 0), Listed(other, 1, NOW)]
    found = orphans_of(listed, ROOT, (), Search(0), NOW)
    assert (found.files, found.shared) == ((), other)


def test_a_plan_holds_the_oldest_and_says_how_many_are_left() -> None:
    listed = [Listed(f"{ROOT}/data/{n}.parquet", 1, n) for n in range(MOST_FILES + 5, -1, -1)]
    found = orphans_of(listed, ROOT, (), Search(0), NOW)
    assert (len(found.files), found.left) == (MOST_FILES, 6)
    assert found.files[0].path.endswith("/0.parquet")
