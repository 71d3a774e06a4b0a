"""Renders a fleet as one self-contained HTML page: it loads nothing and needs no server.

It answers, in order: which tables waste most? Which plans wait for a person? Who gets slower? Do
the rewrites pay? Each table has a caption and heads with scope. A small script of the page itself
sorts, filters and folds the long one; without scripts all rows are there, the worst first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from reconciler.api.prices import Prices
from reconciler.format import count, cpu, iec, percent, plural, utc
from reconciler.plan.money import Usage, beside, cost_text, money_text, reading
from reconciler.render.fleet_model import (
    Fleet,
    FleetTable,
    Week,
    share_of_worst,
    weeks_of,
)
from reconciler.render.fleet_page import CSS, FOLDED, SCRIPT
from reconciler.render.fleet_text import wasters
from reconciler.render.observe_text import stored_text

MOST_ROWS = 200
"""Rows of the shorter tables; the others are counted."""
WORST = 10
"""Tables that the first finding speaks of."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of tables."""

    head: str
    """What stands above it."""
    text: Callable[[FleetTable], str]
    """What a cell says."""
    value: Callable[[FleetTable], float | None]
    """What the column is sorted by; None sorts last."""


def render_fleet(fleet: Fleet) -> str:
    """Return the whole page."""
    body = "\n".join(
        section
        for section in (_ranking(fleet), _waiting(fleet), _slower(fleet), _trend(fleet))
        if section
    )
    title = escape(f"Layout of {fleet.where}")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{CSS}</style></head><body>\n<main>"
        f"<h1>{title}</h1>\n<p class=note>Generated {escape(utc(fleet.now_ms))} by layoutctl from "
        f"metadata, recorded queries and the ledger.</p>\n{_facts(fleet)}\n{body}\n"
        f"{_missing(fleet)}</main>\n<script>{SCRIPT}</script>\n</body></html>\n"
    )


def _facts(fleet: Fleet) -> str:
    facts = [
        ("Tables", count(len(fleet.tables))),
        ("Data files", count(sum(table.files for table in fleet.tables))),
        ("Stored", _stored(fleet)),
        ("Wasted a day", beside(iec(fleet.waste), _wasted(fleet))),
        ("Plans that wait", count(sum(table.waits is not None for table in fleet.tables))),
        ("Spent", _spent(fleet)),
        ("Saved, at least", _read_text(fleet.saved, fleet.prices)),
    ]
    items = "".join(f"<div><dt>{k}</dt><dd>{_fact(v)}</dd></div>" for k, v in facts)
    return f"<dl>{items}</dl>"


def _fact(text: str) -> str:
    """Return a fact with its money on a line of its own."""
    size, _, money = text.removesuffix(")").partition(" (")
    return escape(size) + (f" <small>{escape(money)}</small>" if money else "")


def _stored(fleet: Fleet) -> str:
    return stored_text(sum(table.bytes for table in fleet.tables), fleet.prices)


def _spent(fleet: Fleet) -> str:
    if not any(table.rewrites for table in fleet.tables):
        return "-"
    prices = fleet.prices
    if prices is None:
        return iec(fleet.spent)
    money = sum(table.spent_money(prices) for table in fleet.tables)
    return beside(iec(fleet.spent), money_text(money, prices.currency))


def _wasted(fleet: Fleet) -> str:
    prices = fleet.prices
    if prices is None:
        return ""
    return money_text(sum(table.wasted(prices) for table in fleet.tables), prices.currency)


def _read_text(size: float | None, prices: Prices | None) -> str:
    """Return bytes of reading, with what reading them costs."""
    if size is None:
        return "-"
    text = iec(size) if size >= 0 else f"-{iec(-size)}"
    return beside(text, cost_text(prices, reading(size)) if prices is not None else "")


def _ranking(fleet: Fleet) -> str:
    tables = fleet.tables
    if not tables:
        return "<section><h2>There is no table</h2></section>"
    part = percent(share_of_worst(tables, WORST))
    finding = (
        f"The worst {WORST} of {count(len(tables))} tables make {part} of the waste"
        if len(tables) > WORST and fleet.waste
        else f"{wasters(len(fleet.wasting))} {iec(fleet.waste)} a day"
    )
    note = (
        "Wasted is what is read for rows that nobody asks for, and files opened that merging would "
        "save, in bytes of reading per day."
    )
    if fleet.assumed:
        note += (
            f" {plural(fleet.assumed, 'table')} without recorded queries (- in Queries a day): one "
            "read of the whole table a day is assumed."
        )
    tools = (
        "<p class=tools hidden><label for=find>Find a table</label> <input id=find type=search "
        "autocomplete=off> <button type=button id=all></button> "
        "<span id=said role=status></span></p>"
    )
    columns = _columns(fleet)
    heads = "".join(
        f"<th scope=col{' class=text' if number == 0 else ''}"
        f"{' aria-sort=descending' if number == 1 else ''}>{escape(column.head)}</th>"
        for number, column in enumerate(columns)
    )
    rows = "\n".join(_row(table, columns) for table in tables)
    table = (
        f"<table id=tables data-folded={FOLDED}><caption>Tables by what they waste</caption>"
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
    )
    return _section(finding, note, tools + _scrolled("Tables by what they waste", table))


def _row(table: FleetTable, columns: Sequence[Column]) -> str:
    name = f"<th scope=row>{_broken(table.name)}</th>"
    return f"<tr>{name}{''.join(_cell(table, column) for column in columns[1:])}</tr>"


def _cell(table: FleetTable, column: Column) -> str:
    value = column.value(table)
    mark = "" if value is None else f" data-v={value:.6g}"
    return f"<td{mark}>{escape(column.text(table))}</td>"


def _broken(name: str) -> str:
    """Return a name that may be broken after its dots, for a narrow screen."""
    return escape(name).replace(".", ".<wbr>")


def _columns(fleet: Fleet) -> list[Column]:
    priced = fleet.prices
    money = [] if priced is None else [
        Column(f"{priced.currency} a day", lambda t: money_text(t.wasted(priced), priced.currency),
               lambda t: t.wasted(priced))
    ]  # fmt: skip
    return [
        Column("Table", lambda t: t.name, lambda t: None),
        Column("Wasted a day", lambda t: iec(t.waste.cost), lambda t: t.waste.cost),
        *money,
        Column("Surplus files", lambda t: count(t.small.surplus), lambda t: t.small.surplus),
        Column("Files with deletes", lambda t: count(t.with_deletes), lambda t: t.with_deletes),
        Column("Files", lambda t: count(t.files), lambda t: t.files),
        Column("Files in 7 days", _growth, lambda t: t.growth),
        Column("Stored", lambda t: iec(t.bytes), lambda t: t.bytes),
        Column("Queries a day", _queries, lambda t: t.waste.queries),
        Column("Spent", lambda t: iec(t.spent) if t.rewrites else "-",
               lambda t: t.spent if t.rewrites else None),
        Column("Saved", lambda t: _read_text(t.saved, None), lambda t: t.saved),
    ]  # fmt: skip


def _growth(table: FleetTable) -> str:
    grown = table.growth
    return "-" if grown is None else f"{'+' if grown >= 0 else '-'}{count(abs(grown))}"


def _queries(table: FleetTable) -> str:
    number = table.waste.queries
    return "-" if number is None else f"{number:,.1f}" if number < 10 else count(number)


def _waiting(fleet: Fleet) -> str:
    rows = [
        [table.name, plan.plan_id, utc(plan.created_ms), iec(plan.rewrite_bytes),
         beside(cpu(plan.cpu_seconds), _cpu_money(plan.cpu_seconds, fleet.prices)),
         _read_text(plan.saving, fleet.prices) if plan.saving else "-"]
        for table in fleet.tables
        if (plan := table.waits) is not None
    ]  # fmt: skip
    if not rows:
        return _section("No frozen plan waits for approval", "", "")
    heads = ("Table", "Plan", "Made", "Rewrites", "CPU", "Saves in 7 days")
    note = "layoutctl plan TABLE shows a plan, layoutctl apply TABLE carries it out."
    table = _table("Plans that wait for approval", heads, rows, text=3)
    waiting = "plan waits" if len(rows) == 1 else "plans wait"
    return _section(f"{count(len(rows))} {waiting} for approval", note, table)


def _cpu_money(seconds: float, prices: Prices | None) -> str:
    return cost_text(prices, Usage(cpu_seconds=seconds)) if prices is not None else ""


def _slower(fleet: Fleet) -> str:
    rows = [
        [table.name, one.plan_id, "measured after the rewrite", _read_text(one.saved, fleet.prices)]
        for table in fleet.tables
        for one in table.rewrites
        if one.harm
    ]
    rows += [
        [table.name, table.waits.plan_id, f"would read more: {text}", f"{iec(now)} to {iec(then)}"]
        for table in fleet.tables
        if table.waits is not None
        for text, now, then in table.waits.slower
    ]
    if not rows:
        return _section("No query is known to get slower", "", "")
    heads = ("Table", "Plan", "What", "By how much")
    note = "Measured: what later queries saved, negative if they read more. Otherwise predicted."
    return _section(
        f"{plural(len(rows), 'case')} in which queries get slower", note,
        _table("Queries that get slower", heads, rows, text=3),
    )  # fmt: skip


def _trend(fleet: Fleet) -> str:
    weeks = weeks_of(fleet.tables, fleet.now_ms)
    if not weeks:
        return _section("Nothing was rewritten yet", "", "")
    saved = fleet.saved
    finding = f"Rewrites cost as much as reading {_spent(fleet)}"
    if saved is not None:
        finding += f" and saved at least {_read_text(saved, fleet.prices)}"
    note = (
        "By the week of the rewrite. Saved is what later queries have not read because of it until "
        "now; recent rewrites have had little time."
    )
    most = max(max(week.cost, week.saved or 0.0) for week in weeks) or 1.0
    rows = [_week(week, most) for week in weeks]
    heads = ("Week from", "Plans", "Rewritten", "Spent", "Saved", "Spent and saved")
    table = _table("Saved against spent, by week", heads, rows, text=1, raw=(5,))
    return _section(finding, note, table)


def _week(week: Week, most: float) -> list[str]:
    bars = "".join(
        f'<span class="bar {name}" style="width:{100 * max(size or 0.0, 0.0) / most:.0f}%"></span>'
        for name, size in (("spent", week.cost), ("saved", week.saved))
    )
    return [
        utc(week.start_ms)[:10], count(week.plans), iec(week.rewritten), iec(week.cost),
        _read_text(week.saved, None), f"<span aria-hidden=true>{bars}</span>",
    ]  # fmt: skip


def _missing(fleet: Fleet) -> str:
    if not fleet.failed:
        return ""
    items = "".join(
        f"<li>{escape(name)}: {escape(why)}</li>" for name, why in fleet.failed[:MOST_ROWS]
    )
    cut = len(fleet.failed) - MOST_ROWS
    more = f"<li>{count(cut)} more</li>" if cut > 0 else ""
    return f"<div class=box><h2>Not read</h2><ul>{items}{more}</ul></div>"


def _section(finding: str, note: str, body: str) -> str:
    said = f"<p class=note>{escape(note)}</p>\n" if note else ""
    return f"<section><h2>{escape(finding)}</h2>\n{said}{body}</section>"


def _scrolled(name: str, table: str) -> str:
    """Return a table in a region that scrolls sideways where the screen is narrow."""
    return f'<div class=wide role=region aria-label="{escape(name)}" tabindex=0>{table}</div>'


def _table(
    name: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text: int,
    raw: Iterable[int] = (),
) -> str:
    """Return a table. text: columns from the left that hold text. raw: columns of HTML."""
    head = "".join(
        f"<th scope=col{' class=text' if number < text else ''}>{escape(cell)}</th>"
        for number, cell in enumerate(heads)
    )
    lines = "\n".join(_line(row, text, tuple(raw)) for row in rows[:MOST_ROWS])
    cut = len(rows) - MOST_ROWS
    note = f"<p class=note>{count(cut)} more rows not shown.</p>" if cut > 0 else ""
    table = (
        f"<table><caption>{escape(name)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )
    return _scrolled(name, table) + note


def _line(row: Sequence[str], text: int, raw: Sequence[int]) -> str:
    cells = [f"<th scope=row>{_broken(row[0])}</th>"]
    for number, cell in enumerate(row[1:], start=1):
        mark = " class=text" if number < text else ""
        cells.append(f"<td{mark}>{cell if number in raw else escape(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>"
