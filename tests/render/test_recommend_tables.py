"""The ranking of several tables: whom the budgets admit, and its text and Markdown."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import jsonschema
import pytest

from reconciler.errors import UserError
from reconciler.loop.recommend_tables import Answer, Failed, ranked
from reconciler.plan.budget import Budget, Spent
from reconciler.render import recommend_tables_markdown, recommend_tables_text
from tests.recommendations import RECOMMENDATIONS_SCHEMA
from tests.said import Said

MIB, GIB = 1 << 20, 1 << 30
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
DAILY = Budget("daily", per_seconds=86_400, max_rewrite_bytes=10 * GIB)


def answer(
    table: str,
    saving: int,
    rewrite: int,
    *,
    cpu_seconds: float = 60.0,
    budgets: tuple[Budget, ...] = (DAILY,),
    spent: tuple[Spent, ...] | None = (),
    key: str = "default/facts",
) -> Answer:
    """A table whose best layout saves so many bytes net of rewriting; it is kept if saving is 0."""
    chosen = {
        "name": "best",
        "what": "partitioned by month(day), sorted by region, day",
        "totalCostBytes": 100 * GIB - saving,
        "rewrite": {"bytes": rewrite, "firstBytes": rewrite, "cpuSeconds": cpu_seconds},
    }
    document = {
        "table": table,
        "chosen": "best" if saving else None,
        "keep": "" if saving else "the best candidate costs 1.2 % less, below 3 %",
        "savesPercent": 41.5 if saving else 0.0,
        "objective": {"horizonSeconds": 30 * 86_400},
        "layouts": [{"name": "today", "totalCostBytes": 100 * GIB}, chosen],
    }
    return Answer(document, f"{key[8:]} (layouts/{key[8:]}.yaml:1)", key, budgets, spent)


def state(body: dict[str, Any]) -> list[tuple[str, bool | None]]:
    return [(item["table"], item["fits"]) for item in body["items"]]


def test_the_order_is_net_saving_per_byte_then_saving_then_name() -> None:
    tables = [
        answer("w.d", 8 * GIB, 4 * GIB),
        answer("w.keep", 0, 0),
        answer("w.b", 3 * GIB, 1 * GIB),
        answer("w.c", 4 * GIB, 2 * GIB),
        answer("w.a", 3 * GIB, 1 * GIB),
        answer("w.free", 1 * MIB, 0, cpu_seconds=0.0),
    ]
    names = [item["table"] for item in ranked(tables, [], NOW)["items"]]
    assert names == ["w.free", "w.a", "w.b", "w.d", "w.c", "w.keep"]
    assert names == [item["table"] for item in ranked(tables[::-1], [], NOW)["items"]]


def test_a_smaller_table_fits_after_one_that_does_not() -> None:
    tables = [
        answer("w.first", 60 * GIB, 6 * GIB),
        answer("w.second", 45 * GIB, 5 * GIB),
        answer("w.third", 32 * GIB, 4 * GIB),
    ]
    body = ranked(tables, [], NOW)
    assert state(body) == [("w.first", True), ("w.second", False), ("w.third", True)]
    (budget,) = body["budgets"]
    assert (budget["plannedBytes"], budget["leftBytes"]) == (10 * GIB, 10 * GIB)


@pytest.mark.parametrize(
    ("more", "fits"),
    [
        ({"spent": (Spent(NOW, 9 * GIB, 0.0),)}, False),
        ({"spent": (Spent(NOW - dt.timedelta(days=2), 9 * GIB, 0.0),)}, True),
        ({"spent": None}, False),
        ({"spent": None, "budgets": ()}, True),
        ({"budgets": (DAILY, Budget("cpu", per_seconds=3_600, max_cpu_seconds=59))}, False),
        ({"budgets": (Budget("none", schedule="0 0 * * *", duration_seconds=86_400,
                             max_rewrite_bytes=0),)}, False),
        ({"budgets": (Budget("bad", schedule="never", duration_seconds=60,
                             max_rewrite_bytes=1),)}, False),
    ],
)  # fmt: skip
def test_the_gates_rules_decide_what_fits(more: dict[str, Any], fits: bool, said: Said) -> None:
    (item,) = ranked([answer("w.t", 20 * GIB, 2 * GIB, **more)], [], NOW)["items"]
    assert item["fits"] is fits and bool(item["waits"]) is not fits
    said(item["waits"])


def several() -> dict[str, Any]:
    tables = [
        answer("warehouse.sales.lineitem", 90 * GIB, 6 * GIB, cpu_seconds=4_000.0),
        answer("warehouse.sales.orders", 40 * GIB, 5 * GIB),
        answer("warehouse.web.sessions", 20 * GIB, 25 * GIB, key="default/web"),
        answer("warehouse.sales.part", 0, 0),
    ]
    errors = [
        Failed(
            "warehouse.sales.nation",
            UserError(
                "no queries are known for warehouse.sales.nation",
                do="import a log with `layoutctl workload import`",
            ),
        )
    ]
    body = ranked(tables, errors, NOW)
    jsonschema.validate(body, RECOMMENDATIONS_SCHEMA)
    return body


@pytest.mark.parametrize("width", [80, 100])
def test_text(width: int, said: Said) -> None:
    text = recommend_tables_text.render(several(), width)
    assert max(map(len, text.splitlines())) <= width
    said(text)


def test_markdown(said: Said) -> None:
    said(recommend_tables_markdown.render(several()))


def test_the_money_of_a_ranked_table_is_net_of_its_rewrite_and_is_said() -> None:
    one = answer("w.a", 90 * GIB, 6 * GIB)
    today, best = one.document["layouts"]
    today["money"] = {"currency": "EUR", "readAhead": 50.0, "rewrite": 0.0, "firstRewrite": 0.0}
    best["money"] = {"currency": "EUR", "readAhead": 20.0, "rewrite": 3.5, "firstRewrite": 4.0}
    body = ranked([one], [], NOW)
    jsonschema.validate(body, RECOMMENDATIONS_SCHEMA)
    money = {"currency": "EUR", "netSaving": 50.0 - 20.0 - 3.5, "rewrite": 4.0}
    assert body["items"][0]["money"] == money
    for text in (
        recommend_tables_text.render(body, 200), recommend_tables_markdown.render(body)
    ):  # fmt: skip
        assert "26.50 EUR" in text and "4.00 EUR" in text


def test_without_a_better_layout_there_is_no_table(said: Said) -> None:
    body = ranked([answer("w.a", 0, 0), answer("w.b", 0, 0)], [], NOW)
    said(recommend_tables_text.render(body, 80))
    said(recommend_tables_markdown.render(body))


def test_markdown_of_many_tables_is_cut_and_says_so() -> None:
    long = "t" * 250
    body = ranked([answer(f"w.{long}{n:04d}", n * GIB, GIB) for n in range(1, 600)], [], NOW)
    text = recommend_tables_markdown.render(body)
    assert len(text) <= recommend_tables_markdown.MAX_CHARACTERS
    cut, beyond = map(int, re.findall(r"(\d+) more", text))
    assert cut > 0 and beyond > 0
