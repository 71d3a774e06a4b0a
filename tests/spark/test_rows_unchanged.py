"""The law: no action changes the multiset of rows, whatever the table looks like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from reconciler.plan.actions.rewrite import BinPack, Cluster, Recluster, Rewrite
from reconciler.plan.ordering import Hilbert, Lexicographic, Ordering
from tests.examples import examples
from tests.spark.tables import Bench

pytestmark = pytest.mark.spark

COLUMNS = (
    "id bigint, i int, f float, d double, dec decimal(20,3), s string, b binary, dt date, "
    "ts timestamp, nt timestamp_ntz, flag boolean, st struct<x:int,y:struct<z:string>>, "
    "arr array<double>, m map<string,int>"
)
KEYS = ("i", "f", "d", "dec", "s", "b", "dt", "ts", "nt", "flag", "st.x", "st.y.z")

_int = st.integers(-(2**31), 2**31 - 1)
_text = st.text(st.characters(codec="utf-8", exclude_characters="'\\\0"), max_size=4)
_double = st.floats(width=64) | st.sampled_from([0.0, -0.0, math.nan, math.inf])


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def rows(draw: st.DrawFn) -> list[Any]:
    """Values of one row as SQL literals, but for the id."""
    i, f, d = draw(_optional(_int)), draw(_optional(st.floats(width=32))), draw(_optional(_double))
    dec, s = draw(_optional(st.integers(-(10**19), 10**19))), draw(_optional(_text))
    day = draw(_optional(st.integers(-100_000, 100_000)))
    us = draw(_optional(st.integers(-(10**15), 10**15)))
    inner = draw(_optional(_text))
    items = draw(_optional(st.lists(_optional(_double), max_size=3)))
    entries = draw(_optional(st.dictionaries(st.sampled_from("abc"), _optional(_int), max_size=3)))
    return [
        _sql(i, "int"), _float(f, "float"), _float(d, "double"),
        "null" if dec is None else f"cast('{dec}e-3' AS decimal(20,3))",
        _quote(s), "null" if s is None else f"X'{s.encode().hex()}'",
        "null" if day is None else f"date_from_unix_date({day})",
        "null" if us is None else f"timestamp_micros({us})",
        "null" if us is None else f"cast(timestamp_micros({us}) AS timestamp_ntz)",
        "null" if i is None else str(i % 2 == 0).lower(),
        "null" if i is None and s is None else
        f"named_struct('x', {_sql(i, 'int')}, 'y', named_struct('z', {_quote(inner)}))",
        "null" if items is None else f"array({', '.join(_float(x, 'double') for x in items)})",
        "null" if entries is None else
f"map({_entries(entries)})",
    ]  # fmt: skip


def _entries(entries: dict[str, int | None]) -> str:
    return ", ".join(f"{_quote(k)}, {_sql(v, 'int')}" for k, v in entries.items())


def _sql(value: int | None, kind: str) -> str:
    return f"cast(null AS {kind})" if value is None else f"cast({value} AS {kind})"


def _float(value: float | None, kind: str) -> str:
    return f"cast(null AS {kind})" if value is None else f"{kind}('{value!r}')"


def _quote(text: str | None) -> str:
    return "cast(null AS string)" if text is None else f"'{text}'"


@dataclass(frozen=True)
class Case:
    version: int
    partitioned: str
    files: tuple[tuple[tuple[str, ...], ...], ...]
    delete: str
    evolve: str
    kind: type[Rewrite]
    key: tuple[str, ...]
    curve: type[Ordering]
    small_groups: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    version = draw(st.sampled_from([1, 2, 3]))
    kind = draw(st.sampled_from([BinPack, Cluster, Recluster]))
    curve = draw(st.sampled_from([Lexicographic, Hilbert]))
    names = draw(st.lists(st.sampled_from(KEYS), min_size=2, max_size=3, unique=True))
    if kind is BinPack:
        key: tuple[str, ...] = ()
        curve = Lexicographic
    else:
        key = tuple(f"{n} {draw(st.sampled_from(['asc', 'desc']))}" for n in names)
    files = draw(st.lists(st.lists(rows(), min_size=1, max_size=6), min_size=2, max_size=3))
    return Case(
        version=version,
        partitioned=draw(st.sampled_from(["", "bucket(1, id)", "truncate(1000000, id)"])),
        files=tuple(tuple(tuple(row) for row in file) for file in files),
        delete=draw(st.sampled_from(["", "id % 3 = 1", "id >= 0"])) if version > 1 else "",
        evolve=draw(st.sampled_from(["", "ADD PARTITION FIELD i", "ADD COLUMN extra int",
                                     "RENAME COLUMN s TO renamed", "DROP COLUMN arr"])),
        kind=kind,
        key=key,
        curve=curve,
        small_groups=draw(st.booleans()),
    )  # fmt: skip


def _build(bench: Bench, case: Case) -> str:
    name = bench.create(
        COLUMNS,
        f"'format-version'='{case.version}', 'write.delete.mode'='merge-on-read'",
        case.partitioned,
    )
    number = 0
    for file in case.files:
        values = []
        for row in file:
            values.append(f"({', '.join([str(number), *row])})")
            number += 1
        bench.sql(f"INSERT INTO {bench.full(name)} VALUES {', '.join(values)}")
    if case.delete:
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE {case.delete}")
    if case.evolve:
        bench.sql(f"ALTER TABLE {bench.full(name)} {case.evolve}")
    return name


def _lineage(bench: Bench, name: str, version: int) -> list[Any]:
    if version < 3:
        return []
    columns = "id, _row_id, _last_updated_sequence_number"
    return sorted(bench.sql(f"SELECT {columns} FROM {bench.full(name)}"))


@settings(
    max_examples=examples(10),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(case=cases())
def test_every_action_keeps_the_multiset_of_rows(bench: Bench, case: Case) -> None:
    name = _build(bench, case)
    files = bench.files(name)
    if not files:  # Spark dropped whole files by metadata
        return
    before, lineage = bench.rows(name), _lineage(bench, name, case.version)
    key = case.key
    if "RENAME" in case.evolve:
        key = tuple(
            part.replace("s ", "renamed ") if part.startswith("s ") else part for part in key
        )
    action = bench.action(
        name,
        case.kind,
        *key,
        curve=case.curve,
        spec_id=files[0].spec_id,
        inputs=tuple(sorted(file.file_path for file in files)),
        target_bytes=max(1, sum(file.file_size_in_bytes for file in files) // 3),
    )
    request = bench.request(name, action, group_bytes=1 if case.small_groups else 0)
    result = bench.run(request)
    assert result.done
    assert bench.rows(name) == before
    assert _lineage(bench, name, case.version) == lineage
    assert {file.spec_id for file in bench.files(name)} <= {files[0].spec_id}
    assert not set(bench.paths(name)) & set(action.inputs)
    assert bench.leftovers(name) == []
