"""The page of a fleet: what its tables hold, its size, and what a real browser makes of it."""

from __future__ import annotations

import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reconciler.api.prices import Prices
from reconciler.render.fleet_html import render_fleet
from reconciler.render.fleet_model import Fleet, weeks_of, worst_first
from reconciler.render.fleet_page import CSS, FOLDED
from reconciler.render.observe_text import stored_text
from tests.browser import asked
from tests.render.fleets import MIB, NOW_MS, fleet, rewrite, table

MOST_BYTES = 3_000_000
"""Of a page of 5,000 tables."""


class Page(HTMLParser):
    """The tables of a page: heads and rows of text, and every tag with its attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.tables[-1][-1][-1] += data


def names(page: Page) -> list[str]:
    return [row[0] for row in page.tables[0][1:]]


def test_the_ranking_has_every_table_the_most_wasteful_first() -> None:
    made = fleet()
    page = Page(render_fleet(made))
    assert names(page) == [one.name for one in made.tables]
    wastes = [one.waste.read_bytes + MIB * one.waste.openings for one in made.tables]
    assert wastes == sorted(wastes, reverse=True)
    wide = {len(row) for row in page.tables[0]}
    assert len(wide) == 1


def test_every_table_has_a_caption_and_heads_with_a_scope() -> None:
    page = Page(render_fleet(fleet()))
    count = {tag: sum(found == tag for found, _ in page.tags) for tag in ("table", "caption")}
    assert count["table"] == count["caption"] == 4
    assert all(attrs.get("scope") in ("row", "col") for tag, attrs in page.tags if tag == "th")
    sorted_by = [attrs["aria-sort"] for tag, attrs in page.tags if "aria-sort" in attrs]
    assert sorted_by == ["descending"]


def test_the_page_loads_nothing() -> None:
    text = render_fleet(fleet())
    page = Page(text)
    assert not [
        attrs for tag, attrs in page.tags
        if {"src", "href", "srcset", "action"} & attrs.keys() or tag in ("link", "iframe", "img")
    ]  # fmt: skip
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|https?://", text)


def test_what_waits_gets_slower_and_pays_is_told_apart() -> None:
    page = Page(render_fleet(fleet()))
    _, waiting, slower, trend = page.tables
    assert [row[1] for row in waiting[1:]] == ["p-00000000000000000001"]
    assert waiting[1][3:] == ["300.0 MiB", "40 CPU s", "900.0 MiB"]
    assert {row[1] for row in slower[1:]} == {"p-c", "p-00000000000000000001"}
    assert [row[1:5] for row in trend[1:]] == [
        ["1", "100.0 MiB", "400.0 MiB", "700.0 MiB"],
        ["2", "200.0 MiB", "800.0 MiB", "-50.0 MiB"],
    ]


def test_weeks_add_up_and_leave_out_none_between() -> None:
    tables = [table(0, rewrites=(rewrite("p-a", 30), rewrite("p-b", 1)))]
    weeks = weeks_of(tables, NOW_MS)
    assert [week.plans for week in weeks] == [1, 0, 0, 0, 1]
    assert [week.saved for week in weeks] == [700.0 * MIB, None, None, None, 700.0 * MIB]
    assert sum(week.cost for week in weeks) == sum(one.spent for one in tables)


def test_without_prices_no_money_is_shown_and_with_them_it_is_the_formulas() -> None:
    plain = render_fleet(fleet())
    assert "EUR" not in plain
    priced = fleet(prices=Prices("EUR", tib_read=Decimal(5), requests1000=Decimal("0.4")))
    page = Page(render_fleet(priced))
    worst = priced.tables[0].waste
    expected = worst.read_bytes / 2**40 * 5.0 + worst.openings / 1000 * 0.4
    shown = page.tables[0][1][2]
    assert shown.endswith(" EUR")
    assert float(shown.removesuffix(" EUR")) == pytest.approx(expected, rel=0.01)


def test_the_page_prices_stored_bytes_as_observe_does() -> None:
    prices = Prices("EUR", gib_month=Decimal("0.02"))
    priced = fleet(prices=prices)
    stored = stored_text(sum(table.bytes for table in priced.tables), prices)
    size, _, money = stored.removesuffix(")").partition(" (")
    assert f"<dd>{size} <small>{money}</small></dd>" in render_fleet(priced)


def test_names_are_text_and_not_tags() -> None:
    bad = "w.<script>alert(1)</script>.`a&b`"
    text = render_fleet(Fleet("catalog <w>", NOW_MS, (table(0, name=bad),)))
    page = Page(text)
    assert names(page) == [bad]
    assert sum(tag == "script" for tag, _ in page.tags) == 1


def test_a_fleet_without_tables_is_a_page() -> None:
    page = Page(render_fleet(Fleet("catalog w", NOW_MS, (), failed=(("w.a", "no metadata"),))))
    assert page.tables == []


def test_five_thousand_tables_fit_three_megabytes() -> None:
    priced = fleet(5_000, prices=Prices("EUR", tib_read=Decimal(5)))
    assert len(render_fleet(priced).encode()) < MOST_BYTES


def _luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_has_the_contrast_of_wcag_on_every_background() -> None:
    texts = re.findall(r"[{;\s]color:#([0-9a-f]+)", CSS)
    grounds = re.findall(r"background:#([0-9a-f]+)", CSS)
    light = [ground for ground in grounds if _luminance(ground) > 0.5]
    assert len(texts) >= 3 and len(light) >= 3
    for text in texts:
        for ground in light:
            assert (_luminance(ground) + 0.05) / (_luminance(text) + 0.05) >= 4.5


SORT = """
const heads = [...document.querySelectorAll("#tables thead th")];
const at = text => heads.findIndex(head => head.textContent === text);
const column = n => [...document.querySelectorAll("#tables tbody tr")].map(r => r.cells[n]);
const shown = () => [...document.querySelectorAll("#tables tbody tr")];
const click = text => heads[at(text)].querySelector("button").click();
"""


def test_a_browser_sorts_by_numbers_and_names_and_says_so(tmp_path: Path) -> None:
    made = fleet(300)
    found = asked(
        render_fleet(made),
        SORT
        + """
        const first = heads.map(h => h.getAttribute("aria-sort"));
        document.getElementById("all").click();
        click("Files");
        const down = column(at("Files")).map(c => +c.dataset.v);
        const by = heads[at("Files")].getAttribute("aria-sort");
        click("Files");
        const up = column(at("Files")).map(c => +c.dataset.v);
        click("Queries a day");
        const queries = column(at("Queries a day")).map(c => c.dataset.v ?? null);
        click("Table");
        return {first, down, by, up, queries, names: column(0).map(c => c.textContent),
                sorted: heads.filter(h => h.hasAttribute("aria-sort")).map(h => h.textContent),
                said: document.getElementById("said").textContent};
        """,
        tmp_path,
    )
    files = sorted(one.files for one in made.tables)
    assert found["first"][1] == "descending" and found["first"].count(None) == 9
    assert (found["by"], found["down"], found["up"]) == ("descending", files[::-1], files)
    known = [one for one in found["queries"] if one is not None]
    assert found["queries"] == [*known, *[None] * (300 - len(known))]
    assert [*map(float, known)] == sorted(map(float, known), reverse=True)
    assert found["names"] == sorted(one.name for one in made.tables)
    assert found["sorted"] == ["Table"]
    assert "Table" in found["said"] and "ascending" in found["said"]


def test_a_browser_folds_finds_and_opens_a_long_fleet(tmp_path: Path) -> None:
    made = fleet(5_000)
    found = asked(
        render_fleet(made),
        SORT
        + """
        const find = document.getElementById("find"), all = document.getElementById("all");
        const first = shown().length;
        find.value = "TEAM7."; find.dispatchEvent(new Event("input"));
        const team = shown().map(r => r.cells[0].textContent);
        find.value = ""; find.dispatchEvent(new Event("input"));
        all.click();
        const every = shown().length;
        all.click();
        return {first, team, every, again: shown().length};
        """,
        tmp_path,
    )
    expected = [one.name for one in made.tables if ".team7." in one.name]
    assert (found["first"], found["every"], found["again"]) == (FOLDED, 5_000, FOLDED)
    assert found["team"] == expected and len(expected) == 125


def test_on_a_phone_only_the_tables_scroll_sideways(tmp_path: Path) -> None:
    found = asked(
        render_fleet(fleet(300)),
        """
        const wide = document.querySelector(".wide");
        const button = document.querySelector("#tables thead button").getBoundingClientRect();
        return {page: document.documentElement.scrollWidth, screen: innerWidth,
                table: wide.scrollWidth > wide.clientWidth, focus: wide.tabIndex,
                target: button.height,
                first: getComputedStyle(document.querySelector("tbody th")).position};
        """,
        tmp_path,
        width=500,
    )
    assert found["page"] <= found["screen"]
    assert found["table"] and found["focus"] == 0 and found["first"] == "sticky"
    assert found["target"] >= 44


def test_worst_first_is_by_waste_then_bytes_then_name() -> None:
    waste = table(0).waste
    tables = [table(0, name=name, bytes=size, waste=waste) for name, size in
              (("b", 5), ("a", 5), ("c", 9))]  # fmt: skip
    assert [one.name for one in worst_first(tables)] == ["c", "a", "b"]
