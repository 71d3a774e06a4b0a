"""Which spellings of a path are one file, and which files are the table's own."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.engines.commit import reachable
from reconciler.spark.commit import reachable as frames


def table(location: str, **properties: str) -> Any:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return SimpleNamespace(location=lambda: location, properties=lambda: named)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:/a/b", "file:///a/b"),
        ("file:/a/b", "/a/b"),
        ("s3://bucket/a/b", "s3a://bucket/a/b"),
        ("hdfs://name:8020/a/b", "hdfs:/a/b"),
    ],
)
def test_two_spellings_of_a_path_are_compared_as_one(one: str, other: str) -> None:
    assert re.sub(frames.SCHEME, "", one) == re.sub(frames.SCHEME, "", other) == "a/b"


@pytest.mark.parametrize(
    ("location", "path", "own"),
    [
        ("s3://b/wh/t", "s3://b/wh/t/data/x", True),
        ("s3://b/wh/t", "s3a://b/wh/t/data/x", True),
        ("s3://b/wh/t/", "s3://b/wh/t/data/x", True),
        ("s3://b/wh/t", "s3://other/wh/t/data/x", False),
        ("s3://b/wh/t", "s3://b/wh/t2/data/x", False),
        ("s3://b/wh/t", "gs://b/wh/t/data/x", False),
        ("file:/wh/t", "file:///wh/t/data/x", True),
        ("file:/wh/t", "/wh/t/data/x", True),
        ("file:/wh/t", "/elsewhere/data/x", False),
        ("file:/wh/t", "file:/wh/t/../u/data/x", False),
        ("s3://b/wh/t", "s3://b/wh/t/data/../../u/x", False),
        ("s3://b/wh/t", "s3://b/wh/t/%2e%2e/u/x", False),
    ],
)
def test_only_files_below_the_tables_own_directories_are_its_own(
    location: str, path: str, own: bool
) -> None:
    assert reachable.own(table(location), {path: 1}) == ({path: 1} if own else {})


def test_directories_that_the_properties_name_are_its_own_too() -> None:
    elsewhere = table("s3://b/wh/t", write_data_path="s3://fast/t-data")
    files = {"s3://fast/t-data/x": 1, "s3://fast/t/x": 2}
    assert reachable.own(elsewhere, files) == {"s3://fast/t-data/x": 1}


def test_what_a_link_below_the_table_leads_to_is_not_its_own(tmp_path: Path) -> None:
    inside, away = tmp_path / "t" / "data", tmp_path / "away"
    inside.mkdir(parents=True)
    away.mkdir()
    (away / "x").touch()
    (inside / "y").touch()
    (inside / "link").symlink_to(away, target_is_directory=True)
    (tmp_path / "alias").symlink_to(tmp_path / "t", target_is_directory=True)
    files = {f"file:{inside}/link/x": 1, f"file:{inside}/y": 2}
    assert reachable.own(table(f"file:{tmp_path}/t"), files) == {f"file:{inside}/y": 2}
    linked = {f"file:{tmp_path}/alias/data/y": 2}
    assert reachable.own(table(f"file:{tmp_path}/alias"), linked) == linked
