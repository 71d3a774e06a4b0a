"""Which listed files count as orphans."""

from __future__ import annotations

import pytest

from reconciler.table.orphans import (
    LEAST_AGE_MS,
    Candidates,
    Listed,
    Search,
    old_files,
)
from reconciler.table.paths import key_of, locations_of, overlap

NOW = 10**12
HOUR = 3_600_000
ROOT = "s3://lake/wh/db/t"
OPEN = f"{ROOT}/data/layout-p-00000000000000000000-1-9"


def _found(path: str, hours: float, search: Search = Search(48 * HOUR)) -> bool:
    listed = [Listed(path, 10, NOW - int(hours * HOUR)), Listed(f"{path}.orc", 10, None)]
    left = Candidates(old_files(listed, ROOT, search, NOW, [OPEN]), ROOT)
    left.strike(["s3a://lake/wh/db/t/data/live.parquet"])
    return bool(left.oldest())


@pytest.mark.parametrize(
    ("path", "hours", "orphan"),
    [
        ("data/a.parquet", 49, True),
        ("data/a.parquet", 47, False),
        ("data/k=1/a.orc", 49, True),
        ("metadata/a-m0.avro", 49, True),
        ("metadata/00001-x.metadata.json", 9_999, False),  # somebody's present state, perhaps
        ("metadata/v1.metadata.json.gz", 9_999, False),
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


@pytest.mark.parametrize(
    "written",
    [
        "s3://lake/wh/db/t/data/k=a b/f.parquet",
        "s3n://LAKE/wh/db/t/data/k=a b/f.parquet",
        "s3a://lake//wh/db/t/data//k=a b/./f.parquet",
        "s3://lake/wh/db/t/metadata/../data/k=a b/f.parquet",
        "s3://lake/wh/db/t/data/k=a%20b/f.parquet",
        "s3://lake/wh/db/t/data/k=a%2520b/f.parquet",
        "https://s3.amazonaws.com/lake/wh/db/t/data/k=a b/f.parquet",
        "https://lake.s3.eu-west-1.amazonaws.com/wh/db/t/data/k=a b/f.parquet",
        "/mnt/lake/wh/db/t/data/k=a b/f.parquet",
        "wh/db/t/data/k=A b/f.parquet",
    ],
)
def test_a_file_is_kept_however_its_path_is_written(written: str) -> None:
    file = Listed(f"{ROOT}/data/k=a b/f.parquet", 1, 0)
    for path, kept in ((written, True), (written.replace("k=", "j="), False)):
        left = Candidates([file], ROOT)
        left.strike([path])
        assert bool(left) is not kept, path


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("s3://lake/wh/t", "s3a://lake/wh/t/", True),
        ("s3://lake/wh/t", "s3://lake/wh/t/data/inner", True),
        ("s3://lake/wh", "s3://lake/wh/t", True),
        ("s3://lake/wh/t", "s3://lake/wh/t2", False),
        ("s3://lake/wh/t", "s3://lake/wh/%74", True),
        ("s3://lake/wh/t", "https://s3.amazonaws.com/lake/wh/t", True),
        ("s3://lake", "s3://lake/wh/t", True),
        ("abfss://c@a.dfs.core.windows.net/wh/t", "https://a.blob.core.windows.net/c/wh/t", True),
        ("file:/wh/t", "file:///wh/x/../t", True),
        ("/wh/t", "file://localhost/wh/t", True),
    ],
)
def test_locations_overlap_either_way_however_they_are_written(
    one: str, other: str, together: bool
) -> None:
    places = locations_of(one), locations_of(other)
    assert overlap(*places) is overlap(*reversed(places)) is together


def test_a_path_above_the_root_of_its_store_has_a_key() -> None:
    assert key_of("file:/../../a/./b//c/") == "a/b/c"
