"""The law for deletes: after any history of operations, maintenance changes no live row.

What must be live is computed beside the table, by hand: neither Spark nor Iceberg is asked. Spark
reads the table before and after each maintenance, and so does DuckDB, whose reader shares no code
with Iceberg's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from reconciler.demo import witness
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack
from reconciler.plan.actions.upgrade_format import UpgradeFormat
from tests.spark.equality import add_equality_delete, delete_paths, upsert
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

_text = st.sampled_from(["c", "a", "b"])
"""`c` is NULL in half of the histories."""
_rows = st.lists(st.tuples(st.integers(0, 1), _text), min_size=2, max_size=6)
_flag = st.booleans()
STEPS = st.one_of(
    st.tuples(st.just("append"), _rows),
    st.tuples(st.just("delete"), st.integers(2, 4), st.integers(0, 3)),
    st.tuples(
        st.just("equality"),
        st.sampled_from([("id",), ("s",), ("id", "s")]),
        st.lists(st.integers(0, 11), min_size=1, max_size=3, unique=True),
        st.integers(0, 3),
    ),
    st.tuples(
        st.just("upsert"),
        st.lists(st.tuples(st.integers(0, 11), _text), min_size=1, max_size=4),
        st.integers(0, 1),
    ),
    st.tuples(st.just("evolve")),
    st.tuples(st.just("upgrade")),
    st.tuples(
        st.just("maintain"), st.sampled_from(["convert", "compact", "apply", "pack", "drop"])
    ),
)


@dataclass(frozen=True)
class History:
    version: int
    partitioned: bool
    nulls: bool
    steps: tuple[tuple[Any, ...], ...]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """At least one delete of each scope; and in the end all maintenance."""
    steps = [("append", draw(_rows)), *draw(st.lists(STEPS, min_size=2, max_size=5))]
    equality = ("equality", draw(st.sampled_from([("id",), ("s",)])), [1, 2], draw(_rows)[0][0])
    steps += [("delete", 3, 0), ("append", draw(_rows)), equality]
    upserted = draw(st.lists(st.tuples(st.integers(0, 5), _text), min_size=2, max_size=4))
    steps.append(("upsert", upserted, draw(st.integers(0, 1))))
    last = [("maintain", kind) for kind in ("convert", "compact", "drop", "apply", "drop")]
    version, partitioned, nulls = draw(st.sampled_from([1, 2, 3])), draw(_flag), draw(_flag)
    return History(version, partitioned, nulls, (*steps, *last))


@dataclass
class Model:
    """rows: live (id, k, s) by the (spec id, k) that holds them. version: the table's format.
    nulls: the text `c` is NULL."""

    version: int
    nulls: bool
    rows: list[tuple[int, int, str | None, tuple[int, int | None]]] = field(default_factory=list)
    spec: int = 0
    by_k: bool = False
    ids: int = 0

    @property
    def live(self) -> Counter[str]:
        return Counter(f"Row(id={i}, k={k}, s={s!r})" for i, k, s, _ in self.rows)

    def text(self, drawn: str) -> str | None:
        return None if self.nulls and drawn == "c" else drawn

    def place(self, k: int) -> tuple[int, int | None]:
        return self.spec, k if self.by_k else None


def _play(bench: Bench, name: str, model: Model, step: tuple[Any, ...]) -> None:
    full = bench.full(name)
    if step[0] == "append":
        new = [
            (model.ids + n, k, model.text(s), model.place(k)) for n, (k, s) in enumerate(step[1])
        ]
        model.ids += len(new)
        model.rows += new
        values = ", ".join(f"({i}, {k}, {'NULL' if s is None else repr(s)})" for i, k, s, _ in new)
        bench.sql(f"INSERT INTO {full} VALUES {values}")
    elif step[0] == "delete":
        bench.sql(f"DELETE FROM {full} WHERE id % {step[1]} = {step[2]}")
        model.rows = [row for row in model.rows if row[0] % step[1] != step[2]]
    elif step[0] == "equality" and model.ids:
        _delete_by_keys(bench, name, model, *step[1:])
    elif step[0] == "upsert":
        _upsert(bench, name, model, *step[1:])
    elif step[0] == "upgrade" and model.version == 2:
        model.version = 3
        bench.run(bench.request(name, UpgradeFormat(2, 3), plan=f"p-{len(bench.events)}"))
    elif step[0] == "evolve" and not model.by_k:
        bench.sql(f"ALTER TABLE {full} ADD PARTITION FIELD k")
        model.spec, model.by_k = model.spec + 1, True
    elif step[0] == "maintain":
        actions = maintenance(bench, name, step[1])
        if actions:
            bench.run(bench.request(name, *actions, plan=f"p-{len(bench.events)}"))


def _delete_by_keys(
    bench: Bench, name: str, model: Model, columns: tuple[str, ...], keys: list[int], choice: int
) -> None:
    """In one partition, or everywhere if the first spec has none and the choice is even."""
    everywhere = not model.by_k or (choice % 2 == 0 and model.spec == 1)
    values = {
        "id": [key % model.ids for key in keys],
        "s": [model.text("cab"[k % 3]) for k in keys],
    }
    kinds = {"id": pa.int64(), "s": pa.string()}
    named = {column: pa.array(values[column], kinds[column]) for column in columns}
    if everywhere:
        add_equality_delete(bench, name, named)
        scope = None
    else:
        files = [f for f in bench.files(name) if f.spec_id == model.spec]
        if not files:
            return
        file = files[choice % len(files)]
        add_equality_delete(bench, name, named, like=file.file_path)
        scope = (file.spec_id, file.partition.k)
    places = {"id": 0, "s": 2}
    gone = set(zip(*(values[column] for column in columns), strict=True))
    model.rows = [
        row
        for row in model.rows
        if (scope is not None and row[3] != scope)
        or tuple(row[places[column]] for column in columns) not in gone
    ]


def _upsert(bench: Bench, name: str, model: Model, drawn: list[tuple[int, str]], k: int) -> None:
    """One checkpoint of Flink: the last row of each id takes the place of older ones of its
    partition."""
    rows = [(i, model.text(s)) for i, s in drawn]
    place = model.place(k)
    columns = {
        "id": pa.array([i for i, _ in rows], pa.int64()),
        "k": pa.array([k] * len(rows), pa.int32()),
        "s": pa.array([s for _, s in rows], pa.string()),
    }
    partition = f"k={k}" if model.by_k else ""
    keys = ("id", "k") if model.by_k else ("id",)
    upsert(bench, name, columns, keys, model.spec, partition, positions=model.version < 3)
    if model.version >= 3:  # a vector would be needed for the rows that the checkpoint replaced
        new = rows
    else:
        new = list(dict(rows).items())
    written = {i for i, _ in rows}
    model.rows = [
        row for row in model.rows if row[0] not in written or (model.by_k and row[3] != place)
    ]
    model.rows += [(i, k, s, place) for i, s in new]
    model.ids = max(model.ids, *(i + 1 for i in written))


def maintenance(bench: Bench, name: str, kind: str) -> list[Action]:
    rows = bench.sql(f"SELECT file_path, content, file_format FROM {bench.full(name)}.delete_files")
    paths = {
        "convert": {row.file_path for row in rows if row.content == 2},
        "compact": {r.file_path for r in rows if r.content == 1 and r.file_format != "PUFFIN"},
        "drop": {row.file_path for row in rows},
    }
    kinds = {"convert": ConvertDeletes, "compact": CompactDeletes, "drop": RemoveDanglingDeletes}
    if kind in kinds:
        return [kinds[kind](inputs=tuple(sorted(paths[kind])))] if paths[kind] else []
    files: dict[tuple[int, str], list[str]] = {}
    for file in bench.files(name):
        place = str(getattr(file, "partition", "")) if file.spec_id or "partition" in file else ""
        files.setdefault((file.spec_id, place), []).append(file.file_path)
    if not files:
        return []
    (spec_id, _), own = max(files.items(), key=lambda item: len(item[1]))
    rewrite = ApplyDeletes if kind == "apply" else BinPack
    return [rewrite(spec_id=spec_id, inputs=tuple(sorted(own)))]


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    with witness.connect() as connection:
        yield connection


def _check_by_duckdb(bench: Bench, name: str, duckdb: Any, model: Model) -> None:
    """DuckDB 1.5.5 applies an equality delete to every partition, and compares by SQL's
    three-valued logic: beside some equality deletes it can only show that no row is back."""
    seen = _seen_by_duckdb(bench, name, duckdb)
    assert seen <= model.live
    if not (model.nulls or model.by_k) or not delete_paths(bench, name, 2):
        assert seen == model.live


def _seen_by_duckdb(bench: Bench, name: str, duckdb: Any) -> Counter[str]:
    location = str(bench.table(name).operations().current().metadataFileLocation())
    query = f"SELECT id, k, s FROM iceberg_scan('{location.removeprefix('file:')}')"
    rows = duckdb.execute(query).fetchall()
    return Counter(f"Row(id={i}, k={k}, s={s!r})" for i, k, s in rows)


def histories_of(tried: int) -> settings:
    """Return the settings of a property over so many histories, which are not made smaller: each
    takes seconds."""
    return settings(
        max_examples=tried,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("tried", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_maintenance_of_deletes_changes_no_live_row(bench: Bench, duckdb: Any, tried: int) -> None:
    @histories_of(tried)
    @given(history=histories())
    def holds(history: History) -> None:
        _assert_kept(bench, duckdb, history)

    holds()


def _assert_kept(bench: Bench, duckdb: Any, history: History) -> None:
    properties = (
        f"'format-version'='{history.version}', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition'"
    )
    by = "k" if history.partitioned else ""
    name = bench.create("id bigint, k int, s string", properties, by)
    model = Model(history.version, history.nulls, by_k=history.partitioned)
    for number, step in enumerate(history.steps):
        if model.version == 1 and step[0] in ("delete", "equality", "upsert"):
            model.version = 2 + number % 2
            bench.run(bench.request(name, UpgradeFormat(1, model.version)))
        if step[0] == "maintain":
            assert bench.rows(name) == model.live, ("before", step)
            _check_by_duckdb(bench, name, duckdb, model)
        _play(bench, name, model, step)
        if step[0] == "maintain":
            assert bench.rows(name) == model.live, step
            _check_by_duckdb(bench, name, duckdb, model)
    assert delete_paths(bench, name, 2) == ()
    assert bench.leftovers(name) == []
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(bench.config.name, **dict(bench.config.properties))
    seen = catalog.load_table(("jobs", name)).scan().to_arrow().to_pylist()
    assert Counter(row["id"] for row in seen) == Counter(row[0] for row in model.rows)
