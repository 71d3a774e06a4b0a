"""Recorded queries as rows of arrays: nothing is lost, nothing counts twice, versions agree."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.queries.fragment_codec import predicate_from_json
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import And, Comparison, In, Predicate, Ref, StartsWith
from reconciler.queries.shape import Shape, workload_of
from reconciler.state import state_tables
from reconciler.state import store as kept
from reconciler.state.query_rows import distinct, joined, rows_of
from reconciler.state.query_shapes import shapes_of
from reconciler.state.state import StateStore
from reconciler.state.store import RETENTION_SECONDS
from tests.examples import examples
from tests.queries.single import Query, of_fragments, queries_of, recorded
from tests.state import old_version

HOUR = 3_600_000
UUID = "3f9a1c0b-77de-4c21-a0be-000000000001"
NOW = int(time.time() * 1000)

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(allow_nan=False)
TEXTS = st.binary(max_size=6) | st.sampled_from([b"", b"a\0", b"\0", b"\xff" * 5])
SCALARS = INTS | FLOATS | TEXTS
A, B, C, D = Ref(1), Ref(2), Ref(3, "bucket[16]"), Ref(4)
TEMPLATES: tuple[tuple[Predicate, tuple[st.SearchStrategy[Any], ...]], ...] = (
    (And(()), ()),
    (Comparison(A, ">=", 0), (INTS,)),
    (And((Comparison(A, ">=", 0), Comparison(B, "<", 1), Comparison(A, "<", 2))),
     (INTS, FLOATS, INTS)),
    (And((StartsWith(D, 0), In(C, 1), In(D, 2))),
     (TEXTS, st.lists(INTS, max_size=3).map(tuple), st.lists(SCALARS, max_size=3).map(tuple))),
    (And((Comparison(D, "=", 0), StartsWith(D, 1), Comparison(A, "!=", 2))), (TEXTS, TEXTS, INTS)),
)  # fmt: skip


@st.composite
def fragments(draw: st.DrawFn, **fixed: Any) -> Fragment:
    predicate, slots = draw(st.sampled_from(TEMPLATES))
    optional = st.none() | st.integers(0, 1 << 50)
    moving = [draw(st.none() | st.integers(-(1 << 50), 1 << 50)) for _ in slots]
    made = Fragment(
        source=draw(st.sampled_from(["query", "sql-1"])),
        position=draw(st.integers(0, 40) | st.integers(0, 1 << 62)),
        table_uuid=UUID,
        predicate=predicate,
        literals=tuple(draw(slot) for slot in slots),
        moving=tuple(moving) if draw(st.booleans()) else (None,) * len(slots),
        projection=tuple(draw(st.lists(st.integers(1, 9), max_size=3, unique=True).map(sorted))),
        weight=draw(st.just(1.0) | st.floats(0.1, 1e6)),
        event_ms=draw(st.integers(0, 3)) * HOUR + draw(st.integers(0, 3)),
        engine=draw(st.sampled_from(["spark", "trino"])),
        recorded_bytes=draw(optional),
        duration_ms=draw(optional),
        full_scan=draw(st.booleans()),
        unbound=draw(st.none() | st.just(Comparison(A, "=", 0))),
        elsewhere=draw(st.booleans()),
        grouped=draw(st.booleans()),
        merged=draw(st.booleans()),
    )
    return replace(made, **fixed)


def first_of_each(items: Sequence[tuple[int, Fragment]]) -> list[tuple[int, Fragment]]:
    """The model of the store: of a query that comes again the first import counts."""
    known: dict[tuple[str, str, int], tuple[int, Fragment]] = {}
    for imported, item in sorted(items, key=lambda pair: pair[0]):
        known.setdefault((item.table_uuid, item.source, item.position), (imported, item))
    return list(known.values())


def as_read(items: Sequence[Fragment]) -> list[Query]:
    return sorted(of_fragments(items), key=by_all)


def by_all(query: Query) -> tuple[Any, ...]:
    return (query.event_ms, query.position, repr(query))


def decoded(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    """A row, read value by value: the order of the columns is all that is shared with the code."""
    found = []
    literals = {kind: iter(row[name]) for name, kind in
                (("ints", "i"), ("floats", "f"), ("texts", "t"), ("lists", "l"))}  # fmt: skip
    moving, slots = iter(row["moving"]), len(row["kinds"])
    for number, position in enumerate(row["position"]):
        values = tuple(plain(kind, next(literals[kind])) for kind in row["kinds"])
        found.append((
            row["imported_ms"], row["table_uuid"], row["source"], position,
            predicate_from_json(row["predicate"]), values,
            tuple(next(moving, None) for _ in range(slots)), tuple(json.loads(row["projection"])),
            row["weight"][number], row["event_ms"][number], row["engine"],
            *(row[name][number] if row[name] else None for name in
              ("recorded_bytes", "duration_ms")),
            row["full_scan"], row["elsewhere"], row["grouped"], row["merged"],
        ))  # fmt: skip
        assert row["hour_ms"] <= row["event_ms"][number] < row["hour_ms"] + HOUR
    return found


def plain(kind: str, value: Any) -> Any:
    if kind != "l":
        return value
    members = json.loads(value)
    return tuple(
        m if isinstance(m, int) else bytes.fromhex(m[1:]) if m[0] == "b" else float.fromhex(m[1:])
        for m in members
    )


def as_stored(imported: int, item: Fragment) -> tuple[Any, ...]:
    return (
        imported, item.table_uuid, item.source, item.position, item.predicate, item.literals,
        item.moving, item.projection, item.weight, item.event_ms, item.engine,
        item.recorded_bytes, item.duration_ms, item.full_scan, item.elsewhere, item.grouped,
        item.merged,
    )  # fmt: skip


IMPORTS = st.lists(st.tuples(st.integers(1, 3), fragments()), max_size=25)


@settings(max_examples=examples(80), deadline=None)
@given(IMPORTS)
def test_what_is_written_comes_back(imports: list[tuple[int, Fragment]]) -> None:
    rows = rows_of(imports)
    read = [query for row in rows.to_pylist() for query in decoded(row)]
    assert sorted(map(repr, read)) == sorted(repr(as_stored(*pair)) for pair in imports)


def every_shape(rows: pa.Table) -> list[Shape]:
    return [shape for shapes in shapes_of(rows).values() for shape in shapes]


@settings(max_examples=examples(80), deadline=None)
@given(IMPORTS)
def test_each_query_is_read_once_as_it_was_imported_first(
    imports: list[tuple[int, Fragment]],
) -> None:
    ordered = sorted(imports, key=lambda pair: pair[0])
    kept = first_of_each(ordered)
    want = as_read([item for _, item in kept])
    rows = rows_of(ordered)
    middle = rows.num_rows // 2  # as a scan of several files gives them
    in_parts = pa.concat_tables([rows.slice(0, middle), rows.slice(middle)])
    for stored in (rows, in_parts):
        assert sorted(queries_of(every_shape(stored)), key=by_all) == want
    merged = distinct(rows)
    assert sum(map(len, merged.column("position").to_pylist())) == len(kept)
    assert sorted(queries_of(every_shape(merged)), key=by_all) == want
    for span in (0, 2, 100):
        few = joined(merged, span)
        assert sorted(queries_of(every_shape(few)), key=by_all) == want
        stored = sorted(repr(query[1:]) for row in few.to_pylist() for query in decoded(row))
        assert stored == sorted(repr(as_stored(*pair)[1:]) for pair in kept)
        assert min(few.column("imported_ms").to_pylist(), default=0) == min(
            (imported for imported, _ in kept), default=0
        )


def alike(one: Shape, other: Shape) -> bool:
    """Whether shapes are equal, arrays and their types included."""
    return in_full(one) == in_full(other)


def in_full(shape: Shape) -> str:
    return repr([getattr(shape, name) for name in shape.__dataclass_fields__])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(fragments(source="query"), max_size=25, unique_by=lambda item: item.position))
def test_the_state_gives_the_same_shapes_as_the_fragments(items: list[Fragment]) -> None:
    read = workload_of(every_shape(rows_of((NOW, item) for item in items)))
    made = workload_of_fragments(items)
    assert (read.since_ms, read.until_ms) == (made.since_ms, made.until_ms)
    assert len(read.shapes) == len(made.shapes)
    for one, other in zip(read.shapes, made.shapes, strict=True):
        assert alike(one, other)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(fragments(source="query"), max_size=25, unique_by=lambda item: item.position))
def test_rows_of_many_tables_give_each_its_own_shapes(items: list[Fragment]) -> None:
    tables: dict[str, list[Fragment]] = {}
    for item in items:
        own = f"{UUID}-{item.position % 3}"
        tables.setdefault(own, []).append(replace(item, table_uuid=own))
    read = shapes_of(rows_of((NOW, item) for own in tables.values() for item in own))
    assert set(read) == set(tables)
    for uuid, own in tables.items():
        made = shapes_of(rows_of((NOW, item) for item in own))[uuid]
        assert sorted(map(in_full, read[uuid])) == sorted(map(in_full, made))


def query(position: int, literal: int = 7, **changes: Any) -> Fragment:
    made = Fragment("query", position, UUID, Comparison(A, ">=", 0), (literal,), (None,), (1, 2),
                    1.0, NOW + position, "trino")  # fmt: skip
    return replace(made, **changes)


@settings(max_examples=examples(6), deadline=None)
@given(st.data())
def test_two_versions_share_a_state(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Whatever they write and in whatever order, this version reads all of it, each query once,
    and the other one what it wrote."""
    store = StateStore(tmp_path_factory.mktemp("state"))
    everything: list[tuple[int, Fragment]] = []
    by_old: set[int] = set()
    for step in range(data.draw(st.integers(2, 5))):
        now = NOW - 1000 + step
        some = data.draw(st.lists(fragments(), min_size=1, max_size=4))
        everything += [(now, item) for item in some]
        if data.draw(st.booleans()):
            old_version.append(store._tables, some, now)
            by_old |= {item.position for item in some}
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kept, "_now_ms", lambda now=now: now)
                if data.draw(st.booleans()):
                    store.recorded_positions()  # an importer asks first; a writer may also not
                store.append_fragments(some)
        if data.draw(st.booleans()):
            recorded(store, UUID)
        assert old_version.positions(store._tables, UUID) == sorted(by_old)
    want = as_read([item for _, item in first_of_each(everything)])
    for reader in (store, StateStore(store.directory)):
        assert sorted(recorded(reader, UUID), key=by_all) == want


def test_old_rows_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(tmp_path)
    old_version.append(store._tables, [query(1), query(2)], NOW, lacks="elsewhere")
    assert [one.position for one in recorded(store, UUID)] == [1, 2]

    def unread(*_: Any) -> None:
        raise AssertionError("the old rows are read again")

    with monkeypatch.context() as patch:
        patch.setattr(kept, "OldRows", unread)
        assert [one.position for one in recorded(store, UUID)] == [1, 2]
        assert store.recorded_positions().tolist() == [1, 2]
    old_version.append(store._tables, [query(2), query(3, elsewhere=True)], NOW)
    assert store.recorded_positions().tolist() == [1, 2, 3]
    rows = store._tables.scan("queries", state_tables.matching({}), ["position"])
    assert rows is not None and sum(map(len, rows.column("position").to_pylist())) == 3
    (shape,) = store.shapes(UUID)
    assert shape.elsewhere == pytest.approx(1 / 3)


def test_a_takeover_that_dies_is_repeated_without_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore(tmp_path)
    old_version.append(store._tables, [query(n) for n in range(4)], NOW)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(store, "set_note", killed)
        store.take_over_old_rows()
    assert [one.position for one in recorded(store, UUID)] == [0, 1, 2, 3]


def test_rows_of_each_table_are_taken_over_whatever_another_table_has(tmp_path: Path) -> None:
    """A join is a query of two tables, under one position."""
    store = StateStore(tmp_path)
    other = UUID[:-1] + "2"
    store.append_fragments([query(1)])
    old_version.append(store._tables, [query(1, table_uuid=other), query(1), query(2)], NOW + 10**6)
    store.take_over_old_rows()
    assert [one.position for one in recorded(store, UUID)] == [1, 2]
    assert [one.position for one in recorded(store, other)] == [1]


def test_the_first_import_counts_whichever_version_made_it(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    old_version.append(store._tables, [query(1, literal=3)], NOW - 10**6)
    store.append_fragments([query(1, literal=5)])  # without asking what is there
    store.take_over_old_rows()
    assert [one.literals for one in recorded(store, UUID)] == [(3,)]


def test_old_rows_expire_like_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_now_ms", lambda: NOW)
    store = StateStore(tmp_path)
    old_version.append(store._tables, [query(1)], NOW - 1000 * RETENTION_SECONDS - 1000)
    old_version.append(store._tables, [query(2)], NOW - 1000 * RETENTION_SECONDS + 600_000)
    assert [one.position for one in recorded(store, UUID)] == [2]
    later = NOW + 1_200_000
    monkeypatch.setattr(kept, "_now_ms", lambda: later)
    assert recorded(store, UUID) == []
    store.remove_expired()
    assert old_version.positions(store._tables, UUID) == []
    rows = store._tables.scan("queries", state_tables.matching({}), ["position"])
    assert rows is not None and rows.num_rows == 0


def _take_over_and_append(directory: str, start: int) -> None:
    store = StateStore(Path(directory))
    store.recorded_positions()
    for position in range(start, start + 3):
        store.append_fragments([query(position), query(1000)])


def test_importers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    old_version.append(store._tables, [query(n) for n in range(5)], NOW)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_take_over_and_append, args=(str(tmp_path), 100 * n)) for n in (1, 2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    want = [*range(5), 100, 101, 102, 200, 201, 202, 1000]
    assert sorted(one.position for one in recorded(store, UUID)) == want


def test_many_imports_of_one_hour_become_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "MAX_FILES", 4)
    store = StateStore(tmp_path)
    hour = NOW // HOUR * HOUR
    for number in range(10):
        store.append_fragments([query(number, event_ms=hour + number)])
    rows = store._tables.scan("queries", state_tables.matching({}), ["position"])
    assert rows is not None and rows.num_rows < 6
    assert [one.position for one in recorded(store, UUID)] == list(range(10))
