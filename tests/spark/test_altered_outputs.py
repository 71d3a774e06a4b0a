"""What the witness sees of a file that is not what the engine believes to have written.

Between writing and the check, the output is replaced by one that differs in one respect. The group
is not committed, its inputs are left out of the next plan, and looking again costs nothing.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import file_forms
from reconciler.engines.schedule import witnessing
from reconciler.engines.schedule.refused import NotVerified
from reconciler.loop import reader as reader_module
from reconciler.loop.ports import Target
from reconciler.loop.propose import PlanRequest, Proposal, propose
from reconciler.loop.reader import Reader
from reconciler.loop.step import state_of
from reconciler.loop.waiting import excepted
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.plan.actions.rewrite import BinPack
from reconciler.render import plan_text
from reconciler.rewrite.deletes import VECTOR
from reconciler.state.state import StateStore
from tests.loop.test_file_checks import NOW
from tests.loop.test_step import policy
from tests.spark.equality import add_equality_delete, delete_paths, on_disk
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

COLUMNS = (
    "id bigint, at timestamp_ntz, a int, b int, s string, f double, l array<int>, "
    "st struct<x:int,y:string>, d decimal(9,2)"
)
ROWS = """
  SELECT id + {start}, timestamp_ntz '2026-01-01 00:00:00.123456',
         cast(id AS int), cast(-id AS int), concat('s', id, ' '),
         CASE WHEN id = 1 THEN double('NaN') WHEN id = 2 THEN double('-0.0') ELSE id END,
         array(cast(id AS int), 7), CASE WHEN id <> 3 THEN named_struct('x', 1, 'y', 'z') END,
         cast(id AS decimal(9,2))
  FROM range(0, 20, 1, 1)
"""
Alter = Callable[[pa.Table], pa.Table]


def _with(column: str, change: Callable[[list[Any]], list[Any]], kind: Any = None) -> Alter:
    """Return a table of which a column has other values, or is stored in another type."""

    def altered(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(column)
        field = table.schema.field(at)
        field = field if kind is None else field.with_type(kind)
        values = pa.array(change(table[column].to_pylist()), field.type)
        return table.set_column(at, field, values)

    return altered


def _each(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [change(value) for value in values]


def _first(old: Any, new: Any) -> Callable[[list[Any]], list[Any]]:
    def changed(values: list[Any]) -> list[Any]:
        at = next(i for i, value in enumerate(values) if repr(value) == repr(old))
        return [*values[:at], new, *values[at + 1 :]]

    return changed


def _swapped(table: pa.Table) -> pa.Table:
    a, b = (table.schema.get_field_index(name) for name in "ab")
    fields = table.schema.field(a), table.schema.field(b)
    return table.set_column(a, fields[0], table["b"]).set_column(b, fields[1], table["a"])


def _moved(values: list[Any]) -> list[Any]:
    """Move an element to the neighbouring list: the elements in their order stay the same."""
    return [values[0][:-1], [values[0][-1], *values[1]], *values[2:]]


def _one_doubled_one_lost(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1), table.slice(0, 1), table.slice(2)])


FAULTS: dict[str, tuple[str, Alter]] = {
    "the same instants in milliseconds": (
        '"at"', lambda t: t.set_column(
            1, t.schema.field("at").with_type(pa.timestamp("ms")),
            pc.cast(t["at"], pa.timestamp("ms"), safe=False))),
    "microseconds taken for another unit": (
        '"at"', lambda t: t.set_column(
            1, t.schema.field("at"),
            pc.divide(t["at"].cast(pa.int64()), 1000).cast(pa.timestamp("us")))),
    "two columns swapped": ('"a", "b"', _swapped),
    "one byte": ('"s"', _with("s", _first("s4 ", "s5 "))),
    "a lost row": ("read 40 rows, wrote 39", lambda t: t.slice(1)),
    "a doubled row": ("wrote 41", lambda t: pa.concat_tables([t, t.slice(0, 1)])),
    "a doubled row for a lost one": ('"id"', _one_doubled_one_lost),
    "NaN to NULL": ('"f"', _with("f", _first(float("nan"), None))),
    "a value to NULL": ('"b"', _with("b", _first(-5, None))),
    "a zero's sign": ('"f"', _with("f", _first(-0.0, 0.0))),
    "an element in the neighbouring list": ('"l"', _with("l", _moved)),
    "a NULL struct to a struct of NULLs": (
        '"st"', _with("st", _first(None, {"x": None, "y": None}))),
    "the scale of values": ('"d"', _with("d", _each(lambda d: d / 10))),
    "the scale of the column": ('"d"', _with("d", list, pa.decimal128(9, 3))),
    "trimmed strings": ('"s"', _with("s", _each(str.strip))),
}  # fmt: skip


@pytest.fixture(scope="module")
def altered_table(
    spark: Any, catalog_config: CatalogConfig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """One table for all faults, since none of them is committed, and its rows."""
    bench = Bench(spark, catalog_config, tmp_path_factory.mktemp("altered"))
    name = bench.create(COLUMNS, "'format-version'='2'")
    for start in (0, 100):
        bench.sql(f"INSERT INTO {bench.full(name)} {ROWS.format(start=start)}")
    return name, repr(sorted(bench.rows(name).items()))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_output_that_differs_is_not_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, altered_table: tuple[str, str], fault: str
) -> None:
    (name, rows), honest = altered_table, witnessing.same_rows
    reason, alter = FAULTS[fault]

    def replaced(attempt: Any, base: str, tasks: Any, files: Any, *more: Any) -> Any:
        (file,) = files
        path = on_disk(file.path)
        pq.write_table(alter(pq.read_table(path)), path, store_schema=False)
        return honest(attempt, base, tasks, files, *more)

    monkeypatch.setattr(witnessing, "same_rows", replaced)
    request = bench.request(name, bench.action(name, BinPack, target_bytes=1 << 30))
    with pytest.raises(NotVerified) as caught:
        bench.run(request)
    assert reason in caught.value.what, caught.value.what
    assert bench.table(name).currentSnapshot().snapshotId() == request.base_snapshot_id
    assert repr(sorted(bench.rows(name).items())) == rows
    assert bench.leftovers(name) == [] and not bench.ledger.open_intents(request.table_uuid)
    refused = bench.ledger.refused[request.table_uuid]
    assert {one.path for one in refused} == set(request.actions[0].inputs)


class _Looks:
    """What a controller sees of a table, look by look; opened: footers that it read."""

    def __init__(self, bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[str] = []
        self.store = StateStore(bench.directory / "state")
        self._target = Target(bench.config, ("jobs", name))
        self._reader = Reader(self.store, bench.directory / "cache")
        honest = file_forms.through

        def through(io: Any, rows: Mapping[str, int]) -> Callable[[file_forms.File], Any]:
            read = honest(io, rows)

            def counted(file: file_forms.File) -> Any:
                self.opened.append(file[0])
                return read(file)

            return counted

        monkeypatch.setattr(reader_module, "through", through)

    def look(self, **spec: Any) -> Proposal:
        wanted = PlanRequest(
            target=self._target, policy=policy("t", **spec), policy_hash="h",
            policy_name="test", not_acted_on=(), cores=2,
        )  # fmt: skip
        return propose(wanted, self._reader, NOW)


def _require_named(found: Proposal, paths: set[str]) -> None:
    """Plan and status name one of the files; status names work that is left before them."""
    plan = "".join(plan_text.render_plan(found.plan.document(), width=100).split())
    status = [] if found.pending else [state_of(found, None).message]
    for text in (plan, excepted(found.advice), *status):
        assert any(path in text for path in paths), (text, paths)


def test_after_a_mismatch_the_next_plan_leaves_the_inputs_out_at_no_cost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = bench.create(COLUMNS, "'format-version'='2'")
    for start in (0, 100):
        bench.sql(f"INSERT INTO {bench.full(name)} {ROWS.format(start=start)}")
    looks = _Looks(bench, name, monkeypatch)
    pack = {"layout": {"files": {"targetSize": "1Mi", "minInputFiles": 2}}}
    first = looks.look(**pack)
    (action,) = [item.action for item in first.advice.actions if item.action.kind == "BinPack"]
    assert first.pending and len(looks.opened) == 2
    known = name, repr(sorted(bench.rows(name).items()))
    test_an_output_that_differs_is_not_committed(bench, monkeypatch, known, "one byte")
    (refused,) = bench.ledger.refused.values()
    looks.store.record_refusals(str(bench.table(name).operations().current().uuid()), refused)
    for _ in range(2):
        found = looks.look(**pack)
        taken = {path for item in found.advice.actions for path in item.action.inputs}
        assert not taken & set(action.inputs) and len(looks.opened) == 2
        _require_named(found, set(action.inputs))


def _other_positions(path: Path, change: Callable[[list[int]], list[int]]) -> None:
    """Write other positions into a position delete file."""
    held = pq.read_table(path)
    rows = change(held["pos"].to_pylist())
    names = pa.array([held["file_path"][0].as_py()] * len(rows), held.schema.field(0).type)
    other = pa.Table.from_arrays([names, pa.array(rows, pa.int64())], schema=held.schema)
    pq.write_table(other, path, store_schema=False)


def _other_vector(path: Path, offset: int, length: int, change: Callable[..., list[int]]) -> None:
    """Write a vector of other rows, with a checksum that fits it, where there was one."""
    body = bytearray(path.read_bytes())
    held = BitMap64.deserialize(bytes(body[offset + 8 : offset + length - 4]))
    marked = VECTOR + BitMap64(change(list(held))).serialize()
    assert len(marked) == length - 8
    blob = struct.pack(">I", len(marked)) + marked + struct.pack(">I", zlib.crc32(marked))
    path.write_bytes(bytes(body[:offset]) + blob + bytes(body[offset + length :]))


POSITION_FAULTS: dict[str, tuple[str, Callable[[list[int]], list[int]]]] = {
    "lost": ("1 would be back", lambda rows: rows[1:]),
    "added": ("1 others would be hidden", lambda rows: sorted({*rows, 19})),
    "moved": ("1 would be back, 1 others", lambda rows: [*rows[:-1], 19]),
    "doubled": ("1 are written twice", lambda rows: [rows[0], *rows]),
    "of no row": ("1 are written that no row has", lambda rows: [*rows, 20]),
}  # fmt: skip


@pytest.mark.parametrize("kind", [CompactDeletes, ConvertDeletes])
@pytest.mark.parametrize("version", [2, 3])
def test_other_positions_are_not_committed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, version: int, kind: Any
) -> None:
    """Every fault in turn at the check of one run, and the last one ends it."""
    name = bench.create(
        "id bigint", "'format-version'='2', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition'",
    )  # fmt: skip
    full = bench.full(name)
    bench.sql(f"INSERT INTO {full} SELECT id FROM range(0, 20, 1, 1)")
    for gone in (2, 5):
        bench.sql(f"DELETE FROM {full} WHERE id = {gone}")
    if version == 3:
        bench.sql(f"ALTER TABLE {full} SET TBLPROPERTIES ('format-version'='3')")
    if kind is ConvertDeletes:
        add_equality_delete(bench, name, {"id": pa.array([7], pa.int64())})
    looks = _Looks(bench, name, monkeypatch)
    inputs = delete_paths(bench, name, 1 if kind is CompactDeletes else 2)
    request = bench.request(name, kind(inputs=inputs))
    before, honest = bench.rows(name), witnessing.same_deletes
    faults = {
        key: POSITION_FAULTS[key] for key in (POSITION_FAULTS if version == 2 else ("moved",))
    }
    said: dict[str, str] = {}

    def replaced(*given: Any) -> Any:
        (file,) = given[4]
        path = on_disk(file.path)
        sound = path.read_bytes()
        for fault, (_, change) in faults.items():
            path.write_bytes(sound)
            if version == 2:
                _other_positions(path, change)
            else:
                _other_vector(path, file.offset, file.size, change)
            try:
                honest(*given)
            except NotVerified as error:
                said[fault], last = error.what, error
        raise last

    monkeypatch.setattr(witnessing, "same_deletes", replaced)
    with pytest.raises(NotVerified):
        bench.run(request)
    for fault, (reason, _) in faults.items():
        assert reason in said[fault], said
    assert bench.rows(name) == before and bench.leftovers(name) == []
    refused = bench.ledger.refused[request.table_uuid]
    assert {one.path for one in refused} >= set(inputs)
    looks.store.record_refusals(request.table_uuid, [replace(one) for one in refused])
    spec = {"deletes": {"compaction": "Minor"}, "layout": {"files": {"minInputFiles": 2}}}
    looks.look(**spec)
    footers = len(looks.opened)
    found = looks.look(**spec)
    assert not found.pending and len(looks.opened) == footers
    _require_named(found, {one.path for one in refused})
