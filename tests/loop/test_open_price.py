"""A storage that answers late: what its openings take is measured once, and plans follow it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.advisor.pto.objective import LOCAL
from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import data_file_io
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.propose import Proposal
from reconciler.loop.recommend import Options, costs_of
from reconciler.queries.open_price import MOST_BYTES, PRESET, OpenPrice
from reconciler.queries.table_view import OPEN_BYTES
from reconciler.state import sketch
from reconciler.state.state import StateStore
from tests.loop.test_step import queries_on, step_of


class Late:
    """A FileIO whose files take a while to open."""

    def __init__(self, io: Any, seconds: float) -> None:
        self.io, self.seconds = io, seconds

    def new_input(self, location: str) -> Any:
        time.sleep(self.seconds)
        return self.io.new_input(location)


def row_group_bytes(proposal: Proposal) -> int:
    (scored,) = proposal.advice.actions
    return int(scored.action.row_group_bytes)


def priced(proposal: Proposal) -> tuple[int, int]:
    cost = proposal.plan.evidence["cost"]
    assert cost["openBytes"] == proposal.settings.open_bytes == proposal.open_bytes
    assert cost["openedMs"] == proposal.settings.opened_ms > 0
    return cost["openBytes"], cost["openings"]


def test_a_slow_opening_makes_row_groups_larger_and_is_measured_once(
    catalog_config: CatalogConfig,
    make_table: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = make_table("opened_late", files=10, rows=6_000)
    with table.transaction() as change:
        change.remove_properties("write.parquet.row-group-size-bytes")
    step = step_of(catalog_config, "opened_late")
    found = {}
    for name, seconds in (("near", 0.0), ("late", 0.2)):
        monkeypatch.setattr(
            sketch, "data_file_io", lambda *given, s=seconds: Late(data_file_io(*given), s)
        )
        actor = LocalActor(StateStore(tmp_path / name), tmp_path / "cache")
        actor.store.append_fragments(queries_on(table, "day", 300, 10, 400))
        found[name] = step.propose(actor)
        again = step.propose(actor, refresh=True)
        assert again.plan.id == found[name].plan.id
        assert priced(again) == priced(found[name])
    assert priced(found["near"]) == (OPEN_BYTES, 10)
    assert priced(found["late"])[0] > 4 * OPEN_BYTES
    assert row_group_bytes(found["late"]) > 4 * row_group_bytes(found["near"])


@pytest.mark.parametrize(
    ("asked", "price", "name"),
    [
        ("", PRESET, "plan"),
        ("", OpenPrice(OPEN_BYTES, 20, 1), "measured"),
        ("", OpenPrice(MOST_BYTES, 20, 1), "measured"),
        ("local", OpenPrice(MOST_BYTES, 20, 1), "local"),
    ],
)
def test_a_recommendation_has_the_price_of_plans_unless_a_preset_is_named(
    asked: str, price: OpenPrice, name: str
) -> None:
    found = costs_of(Options(costs=asked), price)
    assert found.name == name
    assert LOCAL.group <= found.group < found.file
    if not asked:
        assert found.file == price.bytes
