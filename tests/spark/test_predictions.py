"""Plans that come true: small kinds of tables, planned and rewritten, prediction beside fact.

`python -m bench.tables` plays many kinds, larger, with a brute force over keys beside each.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.tables.compare import Numbers, compared
from bench.tables.drawn import Ask, Drawn, Random, drawn, random_of
from bench.tables.play import NAMESPACE, Place, TimedActor, play, step_of
from reconciler.api.catalog_config import CatalogConfig
from reconciler.loop.gating import Approvals
from reconciler.loop.step import CONVERGED, run_step
from reconciler.plan import reasons
from reconciler.state.state import StateStore

FILES, ROWS = 6, 6_000
A_DAY = 60.0


def _batches(columns: Callable[[Random], dict[str, Any]], kind: str) -> list[pa.Table]:
    random = random_of(kind, 1)
    return [pa.table({**columns(random), "v": random.random(ROWS)}) for _ in range(FILES)]


def _asked(sql: str, most: int) -> Ask:
    def ask(random: Random, at: dt.datetime) -> str:
        return sql.format(t="{t}", v=int(random.integers(0, most)))

    return ask


def nested() -> Drawn:
    """Lookups by a field of a struct, of whose values the manifests have no bounds."""

    def columns(random: Random) -> dict[str, Any]:
        ids = random.integers(0, 900, ROWS)
        return {
            "who": pa.StructArray.from_arrays([pa.array(ids), pa.array(ids % 5)], ["id", "tier"])
        }

    ask = _asked("SELECT v FROM {t} WHERE who.id = {v}", 900)
    return drawn("nested", 1, _batches(columns, "nested"), [(ask, A_DAY)], (), target=1 << 16)


def days_and_shops() -> Drawn:
    """Two days, many shops: half of the queries ask for a day, half for a shop on it."""

    def columns(random: Random) -> dict[str, Any]:
        return {"day": random.integers(0, 2, ROWS), "shop": random.integers(0, 400, ROWS)}

    def on_a_day(random: Random, at: dt.datetime) -> str:
        day, shop = int(random.integers(0, 2)), int(random.integers(0, 400))
        return f"SELECT v FROM {{t}} WHERE day = {day} AND shop = {shop}"

    asks = [(_asked("SELECT v FROM {t} WHERE day = {v}", 2), A_DAY / 2), (on_a_day, A_DAY / 2)]
    return drawn("days", 1, _batches(columns, "days"), asks, (), target=1 << 16)


def all_match() -> Drawn:
    """A placebo: a condition that nearly every row meets."""

    def columns(random: Random) -> dict[str, Any]:
        return {"k": random.integers(0, 5_000, ROWS)}

    ask = _asked("SELECT v FROM {t} WHERE k >= {v}", 3)
    return drawn("all_match", 1, _batches(columns, "all_match"), [(ask, A_DAY)], (),
                 target=1 << 16, whole=True)  # fmt: skip


@pytest.fixture(scope="module")
def place(
    spark: Any,
    catalog_config: CatalogConfig,
    iceberg_catalog: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Place:
    iceberg_catalog.create_namespace_if_not_exists(NAMESPACE)
    root: Path = tmp_path_factory.mktemp("predictions")
    return Place(spark, catalog_config, iceberg_catalog, root)


@pytest.fixture(scope="module")
def played(place: Place) -> Callable[[Drawn], Numbers]:
    return lambda made: compared(place, play(place, made)[0])


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        (nested, "recluster by who.id"),
        (days_and_shops, "recluster by 2 bands of day, each sorted by shop"),
    ],
)
def test_what_a_plan_predicts_comes_true(place, played, kind, chosen):
    line = played(kind())
    assert line["rows_equal"]
    assert line["chosen"] == [chosen]
    for name in ("read", "file_count"):
        span = line[name]
        assert span["low"] <= span["found"] <= span["high"], (name, span)
    assert line["read"]["found"] < 0.7 * line["read"]["before"]
    assert line["cost"]["chosen"] < 0.5 * line["cost"]["nothing"]
    if kind is days_and_shops:
        # A file with rows of both days may still be sorted by shop, so that half of it has one day.
        assert _next_plan(place, kind()) == CONVERGED
    else:
        assert line["next"] == 0, line["next_labels"]


def _next_plan(place: Place, made: Drawn) -> str:
    """Carry the next plan out; return the table's state."""
    store = StateStore(place.root / f"state-{made.name}")
    actor = TimedActor(store, place.root / "cache", spark=place.spark)
    step = step_of(place, made.name, actor.now, None)
    approvals = Approvals(everything=True)
    return run_step(step, actor, approvals, lambda event: None, lambda: False).state.state


def test_a_placebo_is_left_alone_for_the_right_reason(played):
    line = played(all_match())
    assert line["chosen"] == []
    assert [reasons.NOT_PRUNABLE, reasons.MATCHES_MOST] in line["reasons"]
