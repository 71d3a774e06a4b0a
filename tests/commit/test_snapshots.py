"""Histories of commits in Python, as pyiceberg reads the manifests, beside a model of files."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType, TimestampType

from reconciler.commit import fields, partitions
from reconciler.commit.compared import live_entries
from reconciler.commit.manifest import File
from reconciler.commit.regrouping import regrouped
from reconciler.commit.snapshot import AddedFile, SnapshotChange
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from tests.commit.committing import commit
from tests.conftest import sqlite_catalog
from tests.examples import examples

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "price", DecimalType(9, 2)),
    NestedField(5, "at", TimestampType()),
)
SPECS = {
    "none": (),
    "text": ((2, IdentityTransform(), "string"),),
    "two": ((3, IdentityTransform(), "date"), (1, BucketTransform(4), "int")),
    "price": ((4, IdentityTransform(), "decimal(9, 2)"),),
    "hour": ((5, DayTransform(), "date"),),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=20),
    "date": st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)).map(dt.date.isoformat),
    "int": st.integers(0, 3),
    "decimal(9, 2)": st.decimals(-999, 999, places=2).map(str),
}


class Model:
    """A table, and which files it should have with which data sequence numbers."""

    def __init__(self, directory: Path, version: int, spec: str, properties: dict[str, str]):
        from pyiceberg.catalog.sql import SqlCatalog

        (directory / "warehouse").mkdir()
        self.config, self.kinds = sqlite_catalog(directory), [one[2] for one in SPECS[spec]]
        self.catalog = SqlCatalog("rec", **dict(self.config.properties))
        self.catalog.create_namespace("jobs")
        parts = [
            PartitionField(source, 1000 + n, transform, f"p{n}")
            for n, (source, transform, _) in enumerate(SPECS[spec])
        ]
        self.catalog.create_table(
            "jobs.t", SCHEMA, partition_spec=PartitionSpec(*parts),
            properties={"format-version": str(version), **properties},
        )  # fmt: skip
        self.table = LiveTable(self.config, ("jobs", "t"))
        self.version, self.made = version, 0
        self.files: dict[str, tuple[int, dict[int, Any], int]] = {}

    def new(self, values: list[Any]) -> AddedFile:
        self.made += 1
        held = {
            1000 + n: None if value is None else partitions.from_json(kind, value)
            for n, (kind, value) in enumerate(zip(self.kinds, values, strict=True))
        }
        return AddedFile(0, File({
            fields.CONTENT: 0, fields.PATH: f"file:///x/{self.made}.parquet",
            fields.FORMAT: "PARQUET", fields.PARTITION: held, fields.RECORDS: self.made,
            fields.SIZE: 100 + self.made, fields.LOWER: {1: bytes(8)},
        }))  # fmt: skip

    def commit(self, added: list[AddedFile], gone: list[str], sequence: int | None) -> None:
        self.table.refresh()
        change = SnapshotChange(
            "replace" if gone else "append", added, sequence, dict.fromkeys(gone, "")
        )
        assert commit(self.table, change) is Kind.ACCEPTED
        number = int(self.table.refresh().metadata.get("last-sequence-number") or 0)
        for path in gone:
            del self.files[path]
        for one in added:
            kept = number if sequence is None or self.version == 1 else sequence
            self.files[one.file.path] = kept, dict(one.file.partition), one.file.records

    def rewrite_manifests(self) -> None:
        state = self.table.refresh()
        inputs = [str(one[fields.M_PATH]) for one in self.table.manifests(state.head())]
        groups = {path: n % 2 for n, path in enumerate(sorted(self.files))}
        made = regrouped(inputs, groups)
        assert commit(self.table, SnapshotChange("replace"), make=made) is Kind.ACCEPTED

    def check(self) -> None:
        table = self.catalog.load_table("jobs.t")
        snapshot = table.current_snapshot()
        found: dict[str, int] = {}
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            status = Counter(one.status for one in entries)
            assert manifest.added_files_count == status[ManifestEntryStatus.ADDED]
            assert manifest.existing_files_count == status[ManifestEntryStatus.EXISTING]
            assert manifest.deleted_files_count == status[ManifestEntryStatus.DELETED]
            live = [one for one in entries if one.status != ManifestEntryStatus.DELETED]
            for one in live:
                assert one.data_file.file_path not in found
                found[one.data_file.file_path] = int(one.sequence_number or 0)
            if live and self.version > 1:
                least = min(int(one.sequence_number or 0) for one in live)
                assert manifest.min_sequence_number == least
            self._check_bounds(table, manifest, entries)
        assert found == {path: one[0] for path, one in self.files.items()}
        totals = snapshot.summary
        assert int(totals["total-data-files"]) == len(self.files)
        assert int(totals["total-records"]) == sum(one[2] for one in self.files.values())

    def _check_bounds(self, table: Any, manifest: Any, entries: list[Any]) -> None:
        kinds = [one.field_type for one in table.spec().partition_type(SCHEMA).fields]
        for n, (kind, summary) in enumerate(zip(kinds, manifest.partitions or [], strict=True)):
            values = [one.data_file.partition[n] for one in entries]
            known = [_comparable(value) for value in values if value is not None]
            assert summary.contains_null == (len(known) < len(values))
            if known:
                ends = [from_bytes(kind, end) for end in
                        (summary.lower_bound, summary.upper_bound)]  # fmt: skip
                assert [_comparable(end) for end in ends] == [min(known), max(known)]


def _comparable(value: Any) -> Any:
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    return Decimal(value) if isinstance(value, Decimal) else value


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_histories(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from([1, 2]))
    spec = data.draw(st.sampled_from(sorted(SPECS)))
    least = data.draw(st.sampled_from(["2", "3", "100"]))
    target = data.draw(st.sampled_from(["9000", "8388608"]))
    properties = {
        "commit.manifest.min-count-to-merge": least,
        "commit.manifest.target-size-bytes": target,
    }
    with tempfile.TemporaryDirectory() as directory:
        model = Model(Path(directory), version, spec, properties)
        value = st.tuples(*(st.none() | VALUES[kind] for kind in model.kinds)).map(list)
        for _ in range(data.draw(st.integers(1, 6))):
            if model.files and data.draw(st.integers(0, 5)) == 0:
                model.rewrite_manifests()
                model.check()
                continue
            some = st.lists(st.sampled_from(sorted(model.files)), unique=True, max_size=4)
            gone = data.draw(some) if model.files else []
            added = [model.new(data.draw(value)) for _ in range(data.draw(st.integers(1, 4)))]
            last = int(model.table.state.metadata.get("last-sequence-number") or 0)
            sequence = data.draw(st.integers(1, last)) if gone and last else None
            model.commit(added, gone, sequence)
            model.check()


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path, 2, "none", {})


def test_a_manifest_that_is_gone_refuses(model: Model) -> None:
    model.commit([model.new([])], [], None)
    inputs = [str(one[fields.M_PATH]) for one in model.table.manifests(model.table.state.head())]
    model.rewrite_manifests()
    model.table.refresh()
    assert (
        commit(model.table, SnapshotChange("replace"), make=regrouped(inputs, {})) is Kind.REFUSED
    )
    model.check()


def test_manifests_of_an_upgraded_table_hold_the_same_entries(tmp_path: Path) -> None:
    """Those of format 1 do not say that they are of data files."""
    model = Model(tmp_path, 1, "none", {})
    for _ in range(3):
        model.commit([model.new([])], [], None)
    with model.catalog.load_table("jobs.t").transaction() as transaction:
        transaction.upgrade_table_version(2)

    def entries() -> tuple[int, str]:
        state = model.table.refresh()
        path = state.snapshots[state.head() or 0]["manifest-list"]
        return live_entries(model.table.io, path)

    before = entries()
    model.rewrite_manifests()
    assert entries() == before
    assert before[0] == 3


def test_a_new_branch_starts_at_main(model: Model) -> None:
    model.commit([model.new([])], [], None)
    head = model.table.state.head()
    for number in (1, 2):
        change = SnapshotChange("append", [model.new([])], branch="audit")
        assert commit(model.table, change) is Kind.ACCEPTED
        state = model.table.refresh()
        assert state.head() == head
        line = [one["snapshot-id"] for one in state.line(state.head("audit"))]
        assert line[number:] == [head]
        files = model.table.entries(model.table.manifests(line[0]))
        assert sum(map(len, files)) == 1 + number
        summary = state.snapshots[line[0]]["summary"]
        assert summary["total-data-files"] == str(number)  # since the branch began
    model.check()


def test_a_table_of_format_3_is_left_to_spark(model: Model) -> None:
    model.table.state = type(model.table.state)(
        {**model.table.state.metadata, "format-version": 3}, model.table.state.location
    )
    assert commit(model.table, SnapshotChange("append")) is Kind.UNSENT
