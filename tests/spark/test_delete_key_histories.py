"""The law for identity columns: whatever becomes of the columns that equality deletes name, of the
partition spec and of the format, maintenance changes no live row.

Keys are zeros of either sign, NaN and NULL, members of a struct, renamed, widened, dropped, added
later, and added again under the name of a dropped one.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.demo import witness
from reconciler.errors import UnsupportedError
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from tests.spark.equality import add_equality_delete, delete_paths
from tests.spark.tables import Bench
from tests.spark.test_delete_histories import histories_of, maintenance

pytestmark = pytest.mark.spark

VALUES: dict[str, tuple[Any, ...]] = {
    "id": (0, 1, 2, 3, 4, 5),
    "f": (0.0, -0.0, math.nan, None, 1.5),
    "s": ("a", "b", None),
    "i": (1, 2, None),
    "st.a": (1, 2, None),
    "st.b": (-0.0, math.nan, 0.0, None),
}
KINDS = {
    "id": pa.int64(), "f": pa.float64(), "s": pa.string(), "i": pa.int32(), "st.a": pa.int32(),
    "st.b": pa.float64(),
}  # fmt: skip
_row = st.tuples(*(st.integers(0, 30) for _ in VALUES), st.booleans())
_key = st.sampled_from(
    [("f",), ("s",), ("i",), ("st.a",), ("st.b",), ("id", "f"), ("s", "i"), ("f", "st.b")]
)
_delete = st.tuples(
    st.just("equality"), _key, st.lists(st.integers(0, 30), min_size=1, max_size=3),
    st.integers(0, 5),
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(_row, min_size=1, max_size=4)),
    _delete,
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("column"), st.sampled_from(["rename", "drop", "again", "widen"]),
              st.sampled_from(["f", "s", "i"])),
    st.tuples(st.just("evolve")),
    st.tuples(st.just("upgrade")),
    st.tuples(
        st.just("maintain"), st.sampled_from(["convert", "compact", "apply", "pack", "drop"])
    ),
)  # fmt: skip
EVOLUTIONS = (
    "ADD PARTITION FIELD bucket(2, id)", "ADD PARTITION FIELD k",
    "DROP PARTITION FIELD bucket(2, id)", "DROP PARTITION FIELD k",
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[Any, ...]]]:
    """The format at the start, and the steps: each kind of key once at least in four."""
    rows = st.lists(_row, min_size=3, max_size=6)
    steps: list[tuple[Any, ...]] = [("append", draw(rows)), draw(_delete), ("append", draw(rows))]
    steps += [draw(_delete), *draw(st.lists(STEPS, min_size=4, max_size=9)), draw(_delete)]
    steps += [("maintain", kind) for kind in ("convert", "compact", "drop", "apply", "drop")]
    return draw(st.sampled_from([1, 2, 3])), steps


@dataclass
class Columns:
    """names: of the columns that are there, by the name they began with. ids: field ids of all
    that there were. wide: those that were widened."""

    names: dict[str, str] = field(default_factory=lambda: {c: c for c in "fsi"})
    ids: dict[str, int] = field(default_factory=dict)
    wide: set[str] = field(default_factory=set)
    evolved: int = 0


def _literal(value: Any, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    return f"'{value}'" if kind == "string" else f"CAST('{value}' AS {kind})"


def _append(bench: Bench, name: str, columns: Columns, rows: list[tuple[Any, ...]]) -> None:
    kinds = {"f": "double", "s": "string", "i": "bigint" if "i" in columns.wide else "int"}
    order = bench.spark.table(bench.full(name)).columns
    known = {now: first for first, now in columns.names.items()}
    lines = []
    for drawn in rows:
        value = {c: VALUES[c][n % len(VALUES[c])] for c, n in zip(VALUES, drawn, strict=False)}
        struct = "NULL" if drawn[-1] else (
            f"named_struct('a', {_literal(value['st.a'], 'int')}, "
            f"'b', {_literal(value['st.b'], 'double')})"
        )  # fmt: skip
        given_ = {"id": str(value["id"]), "k": str(drawn[0] % 2), "st": struct}
        for column in order:
            first = known.get(column)
            if first is not None:
                given_[column] = _literal(value[first], kinds[first])
        lines.append("(" + ", ".join(given_[column] for column in order) + ")")
    bench.sql(f"INSERT INTO {bench.full(name)} VALUES {', '.join(lines)}")


def _delete_by_keys(
    bench: Bench, name: str, columns: Columns, key: tuple[str, ...], keys: list[int], choice: int
) -> None:
    files = bench.files(name)
    if not files:
        return
    named, ids = {}, {}
    for column in key:
        now = columns.names.get(column, column)
        kind = pa.int64() if column == "i" and column in columns.wide else KINDS[column]
        values = [VALUES[column][(n + len(column)) % len(VALUES[column])] for n in keys]
        named[now] = pa.array(values, kind)
        if column in "fsi" and column not in columns.names:
            ids[now] = columns.ids[column]
    like = files[choice % len(files)]
    plain = next(
        (int(n) for n, spec in dict(bench.table(name).specs()).items() if spec.isUnpartitioned()),
        None,
    )
    if plain is not None and choice % 2:
        add_equality_delete(bench, name, named, spec_id=plain, ids=ids)
    else:
        add_equality_delete(bench, name, named, like=like.file_path, ids=ids)


def _change(bench: Bench, name: str, columns: Columns, what: str, column: str) -> None:
    alter = f"ALTER TABLE {bench.full(name)}"
    now = columns.names.get(column)
    if what == "rename" and now:
        bench.sql(f"{alter} RENAME COLUMN {now} TO {now}r")
        columns.names[column] = f"{now}r"
    elif what == "drop" and now:
        found = bench.table(name).schema().findField(now)
        columns.ids[column] = int(found.fieldId())
        bench.sql(f"{alter} DROP COLUMN {now}")
        del columns.names[column]
    elif what == "again" and not now:
        kind = {"f": "double", "s": "string", "i": "int"}[column]
        columns.wide.discard(column)
        bench.sql(f"{alter} ADD COLUMN {column} {kind}")
        columns.names[column] = column
    elif what == "widen" and column == "i" and now and column not in columns.wide:
        bench.sql(f"{alter} ALTER COLUMN {now} TYPE bigint")
        columns.wide.add(column)


def _version(bench: Bench, name: str) -> int:
    return int(bench.table(name).operations().current().formatVersion())


def _upgrade(bench: Bench, name: str) -> None:
    version = _version(bench, name)
    if version < 3:
        action = UpgradeFormat(version, version + 1)
        assert bench.run(bench.request(name, action, plan=f"p-{len(bench.events)}")).done


def _play(bench: Bench, name: str, columns: Columns, step: tuple[Any, ...]) -> None:
    full = bench.full(name)
    if step[0] in ("equality", "delete") and _version(bench, name) == 1:
        _upgrade(bench, name)
    if step[0] == "append":
        _append(bench, name, columns, step[1])
    elif step[0] == "equality":
        _delete_by_keys(bench, name, columns, *step[1:])
    elif step[0] == "delete":
        bench.sql(f"DELETE FROM {full} WHERE id = {step[1]} AND k = {step[1] % 2}")
    elif step[0] == "column":
        _change(bench, name, columns, *step[1:])
    elif step[0] == "upgrade":
        _upgrade(bench, name)
    elif step[0] == "evolve":
        bench.sql(f"ALTER TABLE {full} {EVOLUTIONS[columns.evolved % len(EVOLUTIONS)]}")
        columns.evolved += 1
    elif step[0] == "maintain":
        actions = maintenance(bench, name, step[1])
        if actions:
            with contextlib.suppress(UnsupportedError):
                bench.run(bench.request(name, *actions, plan=f"p-{len(bench.events)}"))


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    with witness.connect() as connection:
        yield connection


@pytest.mark.parametrize("tried", [2, pytest.param(40, marks=pytest.mark.soak)])
def test_maintenance_changes_no_row_whatever_becomes_of_the_keys(
    bench: Bench, duckdb: Any, tried: int
) -> None:
    @histories_of(tried)
    @given(history=histories())
    def holds(history: tuple[int, list[tuple[Any, ...]]]) -> None:
        _assert_kept(bench, duckdb, history)

    holds()


def _assert_kept(bench: Bench, duckdb: Any, history: tuple[int, list[tuple[Any, ...]]]) -> None:
    version, steps = history
    name = bench.create(
        "id bigint, k int, f double, s string, i int, st struct<a:int,b:double>",
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition'",
    )
    columns = Columns()
    for step in steps:
        before = bench.rows(name)
        _play(bench, name, columns, step)
        if step[0] in ("maintain", "upgrade", "evolve"):
            assert bench.rows(name) == before, step
    assert bench.leftovers(name) == []
    if not delete_paths(bench, name, 2):
        ids = Counter(bench.ids(name))
        assert _seen_by_duckdb(bench, name, duckdb) == ids


def _seen_by_duckdb(bench: Bench, name: str, duckdb: Any) -> Counter[int]:
    location = str(bench.table(name).operations().current().metadataFileLocation())
    query = f"SELECT id FROM iceberg_scan('{location.removeprefix('file:')}')"
    return Counter(row[0] for row in duckdb.execute(query).fetchall())
