"""A table's properties that are numbers are read by one rule, and what is none is named."""

from __future__ import annotations

import pytest

from reconciler.api.served_properties import staged_properties
from reconciler.commit import merging
from reconciler.commit.metadata import DELETE_AFTER, removed_files
from reconciler.engines.schedule.native import BLOOM_FPP, blooms_of
from reconciler.plan.small_files import declared_target_bytes
from reconciler.table import numbers
from reconciler.table.left_to_spark import BLOOM, CODEC, LEVEL, ROW_GROUP
from reconciler.table.numbers import level, number, readable, share, unread
from reconciler.table.retention import ALL, ANY_AGE_MS, Retention, of_table

WRONG = ["", "128MB", "1e6", "1_000", " 1", "0x10", "1.5", "-7", "9" * 40, "٣", "²", str(1 << 63)]
LOG = {"metadata-log": [{"metadata-file": "m"}]}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_number_counts_as_not_set_and_is_named(text: str) -> None:
    for name in (*numbers.LEAST, f"{numbers.BLOOM_NDV}.column.c", f"{numbers.BLOOM_FPP}.column.c"):
        given = {name: text, "other": "x"}
        assert name in unread(given) and readable(given) == {"other": "x"}
    for name in numbers.LEAST:
        assert number({name: text}, name, 11) == 11
    assert merging.settings({numbers.MANIFEST_BYTES: text, numbers.LEAST_MERGED: text}) == (
        merging.settings({})
    )
    assert declared_target_bytes({numbers.FILE_BYTES: text}) == 0
    for name in numbers.RETENTION:
        assert of_table(Retention(5, 2), {name: text}) == Retention(ANY_AGE_MS, ALL)
    bloom = {f"{BLOOM}enabled.column.c": "true", f"{numbers.BLOOM_NDV}.column.c": text,
             f"{numbers.BLOOM_FPP}.column.c": text, numbers.BLOOM_BYTES: text}  # fmt: skip
    assert blooms_of(bloom, 10) == {"c": (10, BLOOM_FPP)}
    assert staged_properties({ROW_GROUP: text, CODEC: "gzip"}) == {CODEC: "gzip"}


def test_a_number_is_read_as_it_stands() -> None:
    for name, least in numbers.LEAST.items():
        for text, value in (("7", 7), ("+7", 7), ("007", 7), (str(least), least)):
            assert number({name: text}, name, 11) == value and not unread({name: text})
        assert number({}, name, 11) == 11
        assert number({name: str(least - 1)}, name, 11) == 11
        most = (1 << (63 if name in numbers.LONGS else 31)) - 1
        assert number({name: str(most)}, name, 11) == most
        assert number({name: str(most + 1)}, name, 11) == 11
    fpp = f"{numbers.BLOOM_FPP}.column.c"
    assert [share({fpp: text}, fpp, 0.5) for text in ("0.2", ".2", "2e-1")] == [0.2] * 3
    assert [share({fpp: text}, fpp, 0.5) for text in ("0", "1", "nan", "inf")] == [0.5] * 4


def test_a_level_is_one_of_its_codec() -> None:
    assert (level("22", "zstd", 3), level("-5", "zstd", 3), level("9", "gzip", 6)) == (22, -5, 9)
    assert (level("23", "zstd", 3), level(None, "gzip", 6)) == (3, 6)
    assert level("x", "gzip", None) is None
    assert level("7", "snappy", None) is None
    assert LEVEL in unread({LEVEL: "12", CODEC: "GZIP"})
    assert not unread({LEVEL: "12"}) and not unread({LEVEL: "x", CODEC: "snappy"})
    own = {"write.delete.parquet.compression-level": "12"}
    assert not unread(own)
    assert unread({**own, "write.delete.parquet.compression-codec": "gzip"})
    assert unread({**own, CODEC: "gzip"})


def test_metadata_files_stay_if_their_number_is_not_told() -> None:
    given = {DELETE_AFTER: "true", numbers.PREVIOUS_VERSIONS: "many"}
    assert removed_files(LOG, {"properties": given}) == []
    assert removed_files(LOG, {"properties": {**given, numbers.PREVIOUS_VERSIONS: "1"}}) == ["m"]


def test_a_long_text_is_cut_and_control_characters_are_escaped() -> None:
    told = unread({ROW_GROUP: "\x1b[2J" + "x" * 10_000})
    assert "\x1b" not in told and len(told) < 200


@pytest.mark.parametrize("name", numbers.COMMITS)
def test_a_number_of_a_commit_that_java_cannot_read_is_named(name: str) -> None:
    for text in ("lots", "1.5", " 1", "1e3", "", str(1 << 63)):
        assert name in numbers.stops_java({name: text}), text
    for text in ("1", "-1", "+7", "0007"):
        assert numbers.stops_java({name: text}) == "", "Java reads it, whatever it does with it"
    assert (numbers.stops_java({name: str(1 << 31)}) == "") == (name == numbers.MANIFEST_BYTES)
