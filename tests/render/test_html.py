"""The HTML report: self-contained, honest about what is missing, each finding from its numbers."""

from __future__ import annotations

import builtins
import re
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.advisor.advice import Debt, Rejected
from reconciler.api.prices import Prices
from reconciler.errors import UserError
from reconciler.plan import reasons
from reconciler.plan.rejected import Line
from reconciler.plan.sentence import sentence
from reconciler.render import plots
from reconciler.render.html import mean_depth, render_html
from reconciler.render.report_credit import credit_facts
from reconciler.render.report_gather import _not_done
from reconciler.render.report_model import (
    CutCurve,
    FileSizes,
    Forecast,
    Investment,
    JudgedRewrite,
    KeyFiles,
    LeafMap,
    Payoff,
    QueryBytes,
    ReportData,
    ShapeBytes,
    Spans,
)
from tests.examples import examples
from tests.said import Said

HOUR = 3_600_000


def spans(*pairs: tuple[float, float]) -> Spans:
    return Spans(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))


def everything(**changes: Any) -> ReportData:
    quarter = [(n / 4, (n + 1) / 4 - 0.01) for n in range(4)]
    parts: dict[str, Any] = {
        "table": "warehouse.sales.lineitem",
        "generated": "2026-11-20T10:00:00Z",
        "facts": (("Snapshot", "731"),),
        "key_files": (
            KeyFiles(
                "l_shipdate",
                spans(*quarter),
                spans(*[(0.0, 1.0)] * 9),
                spans((0.1, 0.2), (0.3, 0.4)),
                np.array([1.0, 1.0]),
            ),
        ),
        "sizes": FileSizes(np.array([8 << 20, 7 << 20]), np.array([1 << 20] * 9), 8 << 20),
        "queries": QueryBytes(
            (ShapeBytes("a = ?", 10, 1e9, 1e8), ShapeBytes("b < ?", 1, 1e6, 5e6)),
            "same queries, by the new files' bounds",
        ),
        "payoff": Payoff((Investment("p-1", 0, 1e9, 1e9 / (5 * HOUR), "1.0 KiB"),), HOUR),
        "forecasts": (Forecast("bytes read", "bytes", 1e9, 0.8e9, 1.25e9, 1.1e9),),
        "cut": CutCurve(
            np.array([3e8, 4e8, 3.5e8, 1e8]),
            2,
            9,
            (
                JudgedRewrite("recluster by l_shipdate", 2, 5e8, 1e8, True),
                JudgedRewrite("2 more files", 2, 1e8, 4e8, False),
            ),
        ),
        "refused": (Line("recluster by <b>", "BelowCost", "saves 0.5x its cost"),),
        "leaves": LeafMap(
            ("a", "b"),
            bytes=np.array([3e6, 1e6]),
            reads=np.array([0.1, 0.9]),
            boxes=np.array([[0.0, 0.0, 0.75, 1.0], [0.75, 0.0, 0.25, 1.0]]),
            sorted_by=("a", ""),
        ),
    }
    return ReportData(**{**parts, **changes})


def test_the_page_is_whole_and_loads_nothing() -> None:
    page = render_html(everything())
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<svg") == 7
    assert page.count("<table>") == 9  # the head's, one beside each plot, and what was refused
    loads = re.findall(r"(?:src|href)=\"(?!#)([^\"]+)\"|url\((?!#)([^)]+)\)|@import", page)
    assert not loads
    assert "<script" not in page


def test_every_plot_is_well_formed_and_says_what_it_is() -> None:
    for svg in re.findall(r"<svg.*?</svg>", render_html(everything()), re.DOTALL):
        assert ElementTree.fromstring(svg).get("aria-label")


def test_titles_are_the_findings(said: Said) -> None:
    titles = re.findall(r"<h2>(.*?)</h2>", render_html(everything()))
    figures = [tuple(re.findall(r"\d[\d.]*", title)) for title in titles]
    assert figures == [
        ("1.0", "4", "9.0", "9"), ("30", "2"), ("2", "2", "0", "9"),
        ("100.1", "954.6", "90", "1", "2"),
        ("5.0",), ("10", "1", "1"), ("2", "9", "2"), ("1",),
    ]  # fmt: skip
    said("\n".join(titles))


def test_the_table_of_cuts_says_what_the_plan_says_of_a_refused_rewrite() -> None:
    """The plan judges by the 10th percentile: 0.44x there must not be the expected 0.65x here."""
    low, expected, cost = 0.44e9, 0.65e9, 1e9
    why = reasons.short_of(low, cost, 1.0)
    item = Rejected(
        sentence("merge 4 files"), reasons.BELOW_COST, why, files=4, saving=expected,
        saving_low=low, cost=cost,
    )  # fmt: skip
    files = SimpleNamespace(row_of={}, partition=np.zeros(0, dtype=np.int64))
    sources = SimpleNamespace(
        advice=SimpleNamespace(rejected=(item,)), observation=SimpleNamespace(files=files)
    )
    judged = tuple(_not_done(sources))  # type: ignore[arg-type]
    page = render_html(everything(cut=CutCurve(np.array([1.0]), 1, 4, judged)))
    (row,) = re.findall(r"<tr><td class=text>merge 4 files</td>(.*?)</tr>", page)
    assert re.findall(r"<td[^>]*>(.*?)</td>", row)[1:] == [
        "419.6 MiB", "953.7 MiB", str(why), "not done",
    ]  # fmt: skip


def test_the_same_data_gives_the_same_page() -> None:
    assert render_html(everything()) == render_html(everything())


def test_money_of_a_rewrite_is_that_of_the_bytes_it_reads() -> None:
    """Costs are in bytes of reading, of which a byte rewritten counts as rho."""
    spent = Payoff((Investment("p-1", 0, 4.0 * (1 << 40), 1.0, "1.0 KiB"),), HOUR)
    cut = CutCurve(np.array([1.0]), 1, 1, (JudgedRewrite("all", 1, 1.0, 4.0 * (1 << 40), True),))
    prices = Prices("EUR", tib_read=Decimal(1000))
    page = render_html(everything(payoff=spent, cut=cut, prices=prices, rho=4.0))
    assert page.count("4.0 TiB (1,000.00 EUR)") == 2


@pytest.mark.parametrize(
    ("debt", "exact", "room", "values"),
    [
        (Debt(4 << 30, 1 << 30), True, 5 << 30, ("4.0", "1.0", "3.0", "5.0")),
        (Debt(1 << 30, 3 << 30), True, None, ("1.0", "3.0", "2.0")),  # earned more than spent
        (Debt(1 << 30, -(1 << 30)), False, 0.0, ("1.0", "-1.0", "2.0", "0")),
    ],
)  # fmt: skip
def test_credit_is_what_was_spent_and_saved_and_may_be_spent(
    debt: Debt, exact: bool, room: float | None, values: tuple[str, ...], said: Said
) -> None:
    facts = credit_facts(debt, room, exact=exact, prices=None, rho=4.0)
    assert tuple(re.findall(r"-?\d[\d.]*", " ".join(value for _, value in facts))) == values
    prices = Prices("EUR", tib_read=Decimal(1024))
    priced = credit_facts(debt, room, exact=exact, prices=prices, rho=4.0)
    assert priced[0][1].endswith(f"({float(values[0]) / 4:.2f} EUR)"), "each byte is read once"
    said("\n".join(f"{name}: {value}" for name, value in facts))


def test_missing_parts_are_named_with_their_reason(said: Said) -> None:
    data = everything(
        queries=None, payoff=None, forecasts=(), missing={"queries": "no queries were imported"}
    )
    page = render_html(data)
    said("\n".join(re.findall(r"<li>(.*?)</li>", page)))
    assert page.count("<svg") == 4


def test_nothing_measured_is_still_a_page() -> None:
    page = render_html(ReportData("a.b.c", "now", ()))
    assert page.count("<li>") == 7
    assert "<svg" not in page


def test_without_labels_the_key_axis_shows_no_value() -> None:
    assert "1994-03-05" not in render_html(everything())
    labelled = everything().key_files[0]
    shown = KeyFiles(
        labelled.column, labelled.after, labelled.before, labelled.queried, labelled.weight,
        ticks=((0.5, "1994-03-05"),),
    )  # fmt: skip
    assert "1994-03-05" in render_html(everything(key_files=(shown,)))


def test_names_are_escaped_and_not_read_as_formulas() -> None:
    hostile = "<script>$x$&"
    data = everything(table=hostile, forecasts=(Forecast(hostile, "cpu", 1, 0.8, 1.25, 3),))
    page = render_html(data)
    assert "<script" not in page
    assert "&lt;script&gt;$x$&amp;" in page


def test_without_matplotlib_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
    said: Said,
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError) as caught:
        render_html(everything())
    said(caught.value)
    assert "table-layout-reconciler[report]" in (caught.value.do or "")


def test_break_even_counts_later_investments() -> None:
    first = Investment("p-1", 0, 1_000.0, 10.0 / HOUR, "1.0 KiB")
    assert plots.break_even_ms(Payoff((first,), HOUR)) == pytest.approx(100 * HOUR)
    second = Investment("p-2", 50 * HOUR, 500.0, 20.0 / HOUR, "1.0 KiB")
    assert plots.break_even_ms(Payoff((first, second), HOUR)) == pytest.approx(
        (1_500 + 50 * 20) / 30 * HOUR
    )


def test_a_rewrite_that_saves_nothing_never_breaks_even() -> None:
    data = Payoff((Investment("p-1", 0, 1_000.0, -1.0, "1.0 KiB"),), HOUR)
    assert plots.break_even_ms(data) is None
    assert "will not" in render_html(everything(payoff=data))


def test_what_queries_have_saved_already_counts_before_a_day_of_them_is_known() -> None:
    """The rate of recorded queries would need 100 hours."""
    early = replace(Investment("p-1", 0, 1_000.0, 10.0 / HOUR, "2.0 KiB"), measured=1_024.0)
    for item, paid in ((early, True), (replace(early, measured=900.0), False)):
        page = render_html(everything(payoff=Payoff((item,), HOUR)))
        heads = re.findall(r"<h2>(.*?)</h2>", page)
        assert any("1.0 KiB" in head for head in heads) is paid


def test_harm_is_called_harm_with_the_bytes_of_a_day(said: Said) -> None:
    loss = Investment("p-2", HOUR, 1_000.0, -(1 << 20) / (24 * HOUR), "1.0 KiB", harm=True)
    good = Investment("p-1", 0, 1_000.0, 10.0 / HOUR, "1.0 KiB")
    page = render_html(everything(payoff=Payoff((good, loss), 2 * HOUR)))
    for harm in re.findall("HARM[^<]*", page):
        said(harm)
    assert page.count("HARM") == 2
    assert "HARM" not in render_html(everything(payoff=Payoff((good,), HOUR)))


def test_long_tables_are_cut_and_counted() -> None:
    shapes = tuple(ShapeBytes(f"c{n} = ?", 1, 10.0 + n, 5.0) for n in range(100))
    page = render_html(everything(queries=QueryBytes(shapes, "predicted")))
    assert page.count(" = ?</td>") == 40 and "60 more rows" in page


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_covering_counts_the_intervals_that_touch(
    files: list[tuple[float, float]], queries: list[tuple[float, float]]
) -> None:
    files = [(min(f), max(f)) for f in files]
    queries = [(min(q), max(q)) for q in queries]
    expected = [sum(low <= q[1] and high >= q[0] for low, high in files) for q in queries]
    assert spans(*files).covering(spans(*queries)).tolist() == expected


def test_depth_is_one_for_disjoint_files_and_n_for_identical_ones() -> None:
    assert mean_depth(spans((0, 0.4), (0.5, 1.0))) == 1.0
    assert mean_depth(spans(*[(0.0, 1.0)] * 7)) == 7.0


def test_layouts_that_lie_together_share_a_label():
    points = [("today", 0.0, 100.0), ("best", 26.0, 10.0), ("expert", 26.0, 60.0),
              ("next 1", 26.0, 12.0), ("next 2", 25.0, 40.0)]  # fmt: skip
    assert plots.labelled_together(points) == [
        ("today", 0.0, 100.0), ("best, next 1", 26.0, 10.0), ("expert", 26.0, 60.0),
        ("next 2", 25.0, 40.0),
    ]  # fmt: skip
