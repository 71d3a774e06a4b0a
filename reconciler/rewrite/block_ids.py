"""Which block ids a rewrite writes, and, for the witness, SQL that finds rows with wrong ones.

The witness walks the tree by itself and lets DuckDB compare values with thresholds: a row has the
id of a leaf if and only if it meets all conditions on the way to this leaf.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.rewrite import hashes, partition_check
from reconciler.rewrite.columns import Column, Stored
from reconciler.table.cut_tree import LEAF, Cut, Tree
from reconciler.table.pairs import Pair
from reconciler.table.values import decimal_scale, decode_wide_decimal

OTHER_LEAF = "block ids of other leaves than those that rows lie in"
LEAVES = "block_leaves"
"""Name of the relation of leaves."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The ids that rows get."""

    column: Column
    """The column that holds them."""
    base: int = 0
    """Id of the first leaf."""
    tree: Tree | None = None
    """The tree whose leaves are numbered; None: every row gets NULL."""


def code_ranges(tree: Tree) -> list[dict[int, tuple[int, int]]]:
    """Return the least and the greatest code of the rows of each leaf, by the ids of the columns
    that are cut on the way to it. A code is the number of a column's thresholds at or below a
    row."""
    numbers: dict[Cut, int] = {}
    for own in tree.of_column.values():
        numbers |= {cut: number for number, cut in enumerate(own)}
    found: list[dict[int, tuple[int, int]]] = []
    waiting: list[dict[int, tuple[int, int]]] = [{}]
    for node in tree.nodes:
        box = waiting.pop()
        if node == LEAF:
            found.append(box)
            continue
        cut = tree.cuts[node]
        low, high = box.get(cut.field_id, (0, len(tree.of_column[cut.field_id])))
        right = {**box, cut.field_id: (max(low, numbers[cut] + 1), high)}
        waiting += [right, {**box, cut.field_id: (low, min(high, numbers[cut]))}]
    return found


def leaves_of(blocks: Blocks) -> dict[str, list[int]]:
    """Return the relation LEAVES as columns: the id of each leaf, and the ends of its
    codes by column."""
    tree = blocks.tree
    assert tree is not None
    rows = code_ranges(tree)
    found = {"id": [blocks.base + leaf for leaf in range(tree.leaves)]}
    for field_id, own in tree.of_column.items():
        ends = [row.get(field_id, (0, len(own))) for row in rows]
        found[f"low{_label(field_id)}"] = [low for low, _ in ends]
        found[f"high{_label(field_id)}"] = [high for _, high in ends]
    return found


def wrong_rows(
    blocks: Blocks, known: Mapping[int, Sequence[Column]], stored: Sequence[Stored], live: str
) -> str:
    """Return a query for the number of rows with wrong ids. known: `TableShape.ways`.
    live: SQL of the rows, as relation `r`."""
    value = hashes.value_of((blocks.column,), stored, {})
    if blocks.tree is None:
        return f"SELECT count(*) FROM {live} WHERE {value} IS NOT NULL"
    parts, met = [f"{value} AS id"], ["b.id IS NOT NULL"]
    for field_id, cuts in blocks.tree.of_column.items():
        pair, label = blocks.tree.pair_of(field_id), _label(field_id)
        ways_to = [known[one] for one in ((field_id,) if pair is None else pair.fields)]
        code = _code(cuts, ways_to[0], stored) if pair is None else (
            _code_of_pair(cuts, pair, ways_to, stored)
        )  # fmt: skip
        parts.append(f"{code} AS c{label}")
        met.append(f"x.c{label} BETWEEN b.low{label} AND b.high{label}")
    rows = f"SELECT {', '.join(parts)} FROM {live}"
    return (
        f"SELECT count(*) FROM ({rows}) x LEFT JOIN {LEAVES} b ON x.id = b.id "
        f"WHERE NOT coalesce({' AND '.join(met)}, false)"
    )


def _label(field_id: int) -> str:
    """Return what names of a column or a pair end in."""
    return str(field_id) if field_id > 0 else f"pair{-field_id}"


def _code(cuts: Sequence[Cut], way: Sequence[Column], stored: Sequence[Stored]) -> str:
    """Return SQL of how many of a column's thresholds are at or below a row."""
    kind, value = way[-1].type, hashes.value_of(way, stored, {})
    found = f"CASE WHEN {value} IS NULL THEN 0 "
    if kind in partition_check.FLOATS:
        found += f"WHEN isnan({value}) THEN {len(cuts)} "
    return f"{found}ELSE {_searched(cuts, kind, _compared(kind, value))} END"


def _code_of_pair(
    cuts: Sequence[Cut], pair: Pair, ways: Sequence[Sequence[Column]], stored: Sequence[Stored]
) -> str:
    """Return SQL of how many thresholds at truth values are at or below that of a row."""
    left, right = (hashes.value_of(way, stored, {}) for way in ways)
    true = f"CAST(({left} {pair.sign} {right}) AS INTEGER)"
    return f"CASE WHEN {true} IS NULL THEN 0 ELSE {_searched(cuts, 'int', true)} END"


def _searched(cuts: Sequence[Cut], kind: str, compared: str) -> str:
    """Return SQL of the same for a value that is neither NULL nor NaN."""
    nulls = sum(cut.place[0] < 0 for cut in cuts)
    plain = [cut for cut in cuts if not cut.place[0]]

    def number(low: int, high: int) -> str:
        if low == high:
            return str(nulls + low)
        middle = (low + high) // 2
        cut = plain[middle]
        sign = "<=" if cut.inclusive else "<"
        return (
            f"CASE WHEN {compared} {sign} {_threshold(kind, cut)} THEN {number(low, middle)} "
            f"ELSE {number(middle + 1, high)} END"
        )

    return number(0, len(plain))


def _compared(kind: str, value: str) -> str:
    if kind == "string":
        return f"encode({value})"
    if kind == "boolean":
        return f"CAST({value} AS INTEGER)"
    if kind in partition_check.FLOATS:
        return f"CAST({value} AS DOUBLE)"
    return partition_check.as_number(kind, value)


def _threshold(kind: str, cut: Cut) -> str:
    value = cut.value
    if isinstance(value, float):
        text = str(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
        return f"CAST('{text}' AS DOUBLE)"
    if kind.startswith("decimal"):
        unscaled = decode_wide_decimal(value) if isinstance(value, bytes) else int(value or 0)
        scale, sign = decimal_scale(kind), "-" if unscaled < 0 else ""
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        text = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}".rstrip(".")
        return f"CAST('{sign}{text}' AS DECIMAL(38,{scale}))"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    return str(value)
