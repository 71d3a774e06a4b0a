"""Every type, NULL, NaN, missing metrics, partitions: advice is made, and is well formed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.advisor.advice import AdviceInput
from reconciler.advisor.decide import decide
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering
from reconciler.plan.prediction import UNKNOWN
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment
from reconciler.queries.read_cost import read_shape
from reconciler.queries.row_filter import matches
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import table_view
from reconciler.table.sample import RowSample
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema, SortColumn
from tests.advisor.worlds import DAY, SETTINGS, workload
from tests.examples import examples
from tests.queries.worlds import World, file_table, predicates, row_values, settings_of, worlds

_ONE_COLUMN = Schema(0, (Field(1, "c1", "long"),))


@st.composite
def cases(draw: st.DrawFn) -> tuple[World, Workload, int]:
    world = draw(worlds())
    fragments = []
    for shape in range(draw(st.integers(0, 3))):
        predicate, slots = draw(predicates(world.schema))
        for number, literals in enumerate(draw(settings_of(world.schema, slots))):
            fragments.append(
                Fragment(
                    "log", 100 * shape + number, "u", predicate, tuple(literals),
                    (None,) * len(literals), tuple(f.field_id for f in world.schema.fields),
                    50.0, number * DAY, "spark",
                )
            )  # fmt: skip
    return world, workload(fragments), draw(st.integers(1, 2))


def _table(world: World, partitions: int):
    spec = PartitionSpec(3, (PartitionField(1, 1000, "void", "p"),))
    files = file_table(world, spec, [(number % partitions,) for number in range(len(world.files))])
    return replace(files, bytes=files.records * 1_000, added_ms=np.zeros(len(files), np.int64))


def _sample(world: World) -> RowSample:
    values, null, owner = row_values(world)
    return RowSample(values, null, np.ones(len(owner)), np.array(owner, dtype=np.int64))


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), mode=st.sampled_from(["WorkloadAware", "Declared", "None"]),
       sampled=st.booleans(), curve=st.sampled_from([Lexicographic, Hilbert]))  # fmt: skip
def test_advice_is_finite_disjoint_and_within_one_partition(
    case: tuple[World, Workload, int], mode: str, sampled: bool, curve: type[Ordering]
):
    world, work, partitions = case
    files = _table(world, partitions)
    key = tuple(SortColumn(f.field_id) for f in world.schema.fields[:2])
    chosen = replace(
        SETTINGS, mode=mode, min_input_files=2, target_bytes=2_500,
        ordering=(curve if len(key) > 1 else Lexicographic)(key) if mode == "Declared" else ARRIVAL,
    )  # fmt: skip
    advice = decide(AdviceInput(files, work, chosen, None, _sample(world) if sampled else None))
    row_of = {path: i for i, path in enumerate(files.path)}
    seen: set[str] = set()
    for item in advice.actions:
        rows = [row_of[path] for path in item.action.inputs]
        assert not seen & set(item.action.inputs)
        seen |= set(item.action.inputs)
        assert len(set(files.partition[rows].tolist())) == 1
        made = item.predicted
        assert made.files_out and made.files_out >= 1
        assert not {UNKNOWN, None} & {made.saving, made.saving_low, made.cost, made.millis}
    numbers: list[Any] = [advice.read_now, advice.read_after.mid, advice.files_after.mid]
    assert all(map(np.isfinite, numbers))
    assert advice.read_after.mid >= 0


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_a_file_with_a_matching_row_is_counted_as_opened(case: tuple[World, Workload, int]):
    world, work, partitions = case
    files = _table(world, partitions)
    values, null, owner = row_values(world)
    view = table_view(files, None, None, 1_000)
    for demand in demands(work, world.schema, DAY):
        reading = read_shape(view, demand)
        hit = matches(demand.predicate, demand.literals, values, null,
                      schema=world.schema, queries=len(demand))  # fmt: skip
        for query in range(len(demand)):
            holding = {owner[i] for i in np.flatnonzero(hit[query])}
            assert reading.files[query] >= len(holding)


def test_an_empty_table_gets_an_empty_plan():
    world = World(_ONE_COLUMN, [[(1,)]], [{1: frozenset()}], False)
    nothing = _table(world, 1).take(np.zeros(0, dtype=np.int64))
    for mode in ("WorkloadAware", "Declared", "None"):
        key = (SortColumn(1),) if mode == "Declared" else ()
        advice = decide(
            AdviceInput(
                nothing,
                workload(),
                replace(SETTINGS, mode=mode, ordering=Lexicographic(key) if key else ARRIVAL),
            )
        )
        assert advice.actions == ()
        assert advice.files_now == 0
