"""Renders a fleet for `top`: the most wasteful tables as text, as Markdown and as a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.api.prices import Prices
from reconciler.format import count, iec, percent, plural
from reconciler.plan.money import money_text
from reconciler.render.fleet_model import Fleet, FleetTable, share_of_worst
from reconciler.render.terminal import commands, tabulate, wrapped


def render_top(fleet: Fleet, most: int, width: int) -> str:
    """Return the first `most` tables that waste something, one line each, and what the figures
    mean."""
    if not fleet.tables:
        return f"{fleet.where} holds no table."
    if not fleet.wasting:
        text = f"{wasters(len(fleet.tables))} nothing.{_assumption(fleet)}"
        return "\n".join([*wrapped(text, width), *_next(fleet, width)])
    shown = fleet.wasting[:most]
    heads, rows = _columns(fleet, shown)
    lines = tabulate([heads, *rows], "l" + "r" * (len(heads) - 1), width)
    return "\n".join([*lines, *wrapped(_total(fleet, len(shown)), width), *_next(fleet, width)])


def markdown_top(fleet: Fleet, most: int) -> str:
    """Return the first `most` tables that waste something, for a wiki."""
    heads, rows = _columns(fleet, fleet.wasting[:most])
    rule = ["---", *["---:"] * (len(heads) - 1)]
    table = [[f"`{row[0]}`", *row[1:]] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *table))


def _columns(fleet: Fleet, tables: Sequence[FleetTable]) -> tuple[list[str], list[list[str]]]:
    priced = fleet.prices is not None
    heads = ["TABLE", "WASTES/DAY", *(["COSTS/DAY"] if priced else []), "FILES", "TO PACK",
             "DELETES ON", "BYTES", "QUERIES/DAY"]  # fmt: skip
    return heads, [_cells(table, fleet.prices) for table in tables]


def _cells(table: FleetTable, prices: Prices | None) -> list[str]:
    queries = table.waste.queries
    money = [] if prices is None else [money_text(table.wasted(prices), prices.currency)]
    return [
        table.name,
        iec(table.waste.cost),
        *money,
        count(table.files),
        count(table.small.surplus),
        count(table.with_deletes),
        iec(table.bytes) if table.files else "-",
        "-" if queries is None else f"{queries:,.1f}" if queries < 10 else count(queries),
    ]


def wasters(tables: int) -> str:
    """Return `1 table wastes`, `3 tables waste`."""
    return f"{plural(tables, 'table')} {'wastes' if tables == 1 else 'waste'}"


def _total(fleet: Fleet, shown: int) -> str:
    parts = [f"{wasters(len(fleet.wasting))} {iec(fleet.waste)} of reading a day"]
    if fleet.prices is not None:
        money = sum(table.wasted(fleet.prices) for table in fleet.tables)
        parts.append(f"which costs {money_text(money, fleet.prices.currency)}")
    if shown < len(fleet.wasting):
        part = percent(share_of_worst(fleet.wasting, shown))
        parts.append(f"the {count(shown)} shown {part} of it")
    meaning = (
        "wastes = bytes read for rows that nobody asks for, and files opened that merging would "
        "save; to pack = these files"
    )
    text = f"{', '.join(parts)}; {meaning}."
    if fleet.idle:
        text += f" {wasters(fleet.idle)} nothing."
    return text + _assumption(fleet)


def _assumption(fleet: Fleet) -> str:
    if not fleet.assumed:
        return ""
    tables = plural(fleet.assumed, "table")
    return f" Without recorded queries (-), one read of the whole table a day is assumed: {tables}."


def _next(fleet: Fleet, width: int) -> list[str]:
    entries = [f"layoutctl plan {one.name}" for one in fleet.wasting[:1]]
    if fleet.assumed:
        entries.append("layoutctl workload import FILE")
    return commands(entries, width)


def document(fleet: Fleet, most: int | None = None) -> dict[str, Any]:
    """Return the fleet's tables as plain values, bytes and counts unrounded."""
    return {
        "tables": len(fleet.tables),
        "tablesWithoutWaste": fleet.idle,
        "wastedBytesPerDay": round(fleet.waste),
        **_money(fleet),
        "items": [_item(table, fleet.prices) for table in fleet.wasting[:most]],
        "errors": [{"table": name, "error": why} for name, why in fleet.failed],
    }


def _money(fleet: Fleet) -> dict[str, Any]:
    prices = fleet.prices
    if prices is None:
        return {}
    wasted = sum(table.wasted(prices) for table in fleet.tables)
    return {"currency": prices.currency, "wastedMoneyPerDay": round(wasted, 6)}


def _item(table: FleetTable, prices: Prices | None) -> dict[str, Any]:
    waste = table.waste
    money = {} if prices is None else {"wastedMoneyPerDay": round(table.wasted(prices), 6)}
    return {
        "table": table.name,
        "wastedBytesPerDay": round(waste.cost),
        "wastedReadBytesPerDay": round(waste.read_bytes),
        "wastedOpeningsPerDay": round(waste.openings, 3),
        "openBytes": waste.open_bytes,
        **money,
        "queriesPerDay": None if waste.queries is None else round(waste.queries, 3),
        "dataFiles": table.files,
        "bytes": table.bytes,
        "smallFiles": table.small.files,
        "surplusFiles": table.small.surplus,
        "dataFilesWithDeletes": table.with_deletes,
    }
