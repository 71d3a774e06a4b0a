"""A month of TPC-H's lineitem with the columns of all its tables, and 15 templates of its queries.

Rows and queries are those of the Qd-tree paper's benchmark (Yang et al., section 7.1) at scale 1:
the templates that filter, ten draws of the literals of each. What a bound can express becomes a
condition; comparisons of two columns and LIKE do not, and only count in the selectivity.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from reconciler.demo.data import generator
from reconciler.queries.predicate import And, Comparison, In, Or, Predicate, Ref
from reconciler.queries.shape import Shape, unrecorded_shape

NUMBERS = ("l_quantity", "l_discount", "l_shipdate", "l_receiptdate", "o_orderdate", "p_size")
NAMES = (
    "l_returnflag", "l_shipmode", "l_shipinstruct", "o_orderstatus", "o_orderpriority",
    "c_mktsegment", "p_brand", "p_type", "p_container", "c_nation", "s_nation", "c_region",
    "s_region",
)  # fmt: skip
COLUMNS = {name: number for number, name in enumerate((*NUMBERS, *NAMES), 1)}
"""Field ids of the columns that queries filter on."""
COLOURS = ("green", "blue", "red", "ivory", "linen", "navy", "olive", "plum", "puff", "rose")
DRAWS = 10
"""Queries of each template."""

SQL = """
SELECT (l_quantity * 100)::INT AS l_quantity, (l_discount * 100)::INT AS l_discount,
  l_shipdate, l_receiptdate, o_orderdate, p_size, l_returnflag, l_shipmode, l_shipinstruct,
  o_orderstatus, o_orderpriority, c_mktsegment, p_brand, p_type, p_container,
  cn.n_name AS c_nation, sn.n_name AS s_nation, cr.r_name AS c_region, sr.r_name AS s_region,
  c_nationkey = s_nationkey AS same_nation, l_shipdate < l_commitdate AS shipped_early,
  l_commitdate < l_receiptdate AS received_late, p_name
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
  JOIN nation cn ON c_nationkey = cn.n_nationkey JOIN region cr ON cn.n_regionkey = cr.r_regionkey
  JOIN supplier ON l_suppkey = s_suppkey JOIN nation sn ON s_nationkey = sn.n_nationkey
  JOIN region sr ON sn.n_regionkey = sr.r_regionkey JOIN part ON l_partkey = p_partkey
WHERE l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-04-01'
"""

Literals = tuple[Any, ...]
Sides = tuple[tuple[tuple[str, str], ...], ...]
"""An OR of ANDs of (column, operator)."""


@dataclass(frozen=True)
class Template:
    """The queries of one template."""

    name: str
    """As TPC-H numbers it."""
    sides: Sides
    """Its conditions that bounds can express; () where there are none."""
    literals: tuple[Literals, ...]
    """Of each query, in the order of the conditions."""
    rest: tuple[tuple[str, ...], ...] = field(default=())
    """Of each query, conditions that no bound expresses: names of `Month.masks`."""

    @property
    def shape(self) -> Shape:
        """Return the queries, each once, as the reader of a log makes them."""
        slot, sides = 0, list[Predicate]()
        for side in self.sides:
            parts: list[Predicate] = []
            for column, operator in side:
                ref = Ref(COLUMNS[column])
                parts.append(In(ref, slot) if operator == "in" else Comparison(ref, operator, slot))
                slot += 1
            sides.append(And(tuple(parts)) if len(parts) > 1 else parts[0])
        one = np.ones(len(self.literals))
        columns = zip(*self.literals, strict=True) if self.sides else ()
        values = tuple(
            tuple(column) if isinstance(column[0], tuple) else np.array(column)
            for column in columns
        )
        every = And(()) if not sides else Or(tuple(sides)) if len(sides) > 1 else sides[0]
        return unrecorded_shape(self.name, every, (), values, one, one)


@dataclass(frozen=True)
class Month:
    """The rows."""

    values: dict[int, np.ndarray]
    """By field id: int64, or text as bytes."""
    masks: dict[str, np.ndarray]
    """bool[rows] of each condition that no bound expresses."""

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def matches(self, template: Template, number: int, *, whole: bool) -> np.ndarray:
        """Return the rows of one query, bool[rows]. whole: by all conditions, else by those that
        bounds can express."""
        found, slot = np.zeros(len(self), dtype=bool), 0
        for side in template.sides:
            own = np.ones(len(self), dtype=bool)
            for column, operator in side:
                own &= _met(self.values[COLUMNS[column]], operator, template.literals[number][slot])
                slot += 1
            found |= own
        found |= not template.sides
        for name in template.rest[number] if whole and template.rest else ():
            found &= self.masks[name]
        return found


def _met(values: np.ndarray, operator: str, literal: Any) -> np.ndarray:
    tests: dict[str, Callable[[], np.ndarray]] = {
        "<": lambda: values < literal, "<=": lambda: values <= literal,
        ">": lambda: values > literal, ">=": lambda: values >= literal,
        "=": lambda: values == literal, "in": lambda: np.isin(values, list(literal)),
    }  # fmt: skip
    return tests[operator]()


def month(directory: Path) -> Month:
    """Return the rows; TPC-H is generated into the directory if it is not there."""
    if not (directory / "lineitem.parquet").exists():
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [generator(), "parquet", "--scale-factor", "1", "--output-dir", str(directory)],
            check=True,
        )
    names = ("lineitem", "orders", "customer", "nation", "region", "supplier", "part")
    with duckdb.connect() as db:
        for name in names:
            db.execute(f"CREATE VIEW {name} AS FROM '{directory / name}.parquet'")
        frame = db.execute(SQL + " ORDER BY l_orderkey, l_linenumber").to_arrow_table()
    values = {}
    for name, number in COLUMNS.items():
        column = frame[name].to_numpy()
        if name in NAMES:
            values[number] = column.astype(np.bytes_)
        else:
            dated = column.dtype.kind == "M"
            values[number] = (column.astype("M8[D]") if dated else column).astype(np.int64)
    masks = {
        name: frame[name].to_numpy(zero_copy_only=False)
        for name in ("same_nation", "shipped_early", "received_late")
    }
    parts = frame["p_name"].to_numpy(zero_copy_only=False).astype(str)
    masks |= {colour: np.char.find(parts, colour) >= 0 for colour in COLOURS}
    return Month(values, masks)


def day(year: int, month: int, number: int = 1) -> int:
    """Return a date as days; months count on beyond December."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return int(np.datetime64(f"{year}-{month:02d}-{number:02d}").astype(int))


def templates(rows: Month, seed: int) -> tuple[Template, ...]:
    """Return the queries with literals as TPC-H draws them (its section 2.4)."""
    random = np.random.default_rng(seed)
    texts = {name: np.unique(rows.values[COLUMNS[name]]) for name in NAMES}

    def integer(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    def text(name: str) -> bytes:
        return bytes(random.choice(texts[name]))

    def queries(draw: Callable[[], tuple[Literals, tuple[str, ...]]]) -> dict[str, Any]:
        drawn = [draw() for _ in range(DRAWS)]
        return {"literals": tuple(one for one, _ in drawn), "rest": tuple(two for _, two in drawn)}

    def q1() -> tuple[Literals, tuple[str, ...]]:
        return (day(1998, 12) - integer(60, 120),), ()

    def q3() -> tuple[Literals, tuple[str, ...]]:
        at = day(1995, 3) + integer(0, 30)
        return (text("c_mktsegment"), at, at), ()

    def quarter(*rest: str) -> tuple[Literals, tuple[str, ...]]:
        first = integer(0, 57)
        return (day(1993, 1 + first), day(1993, 4 + first)), rest

    def q5() -> tuple[Literals, tuple[str, ...]]:
        year = integer(1993, 1997)
        return (text("s_region"), day(year, 1), day(year + 1, 1)), ("same_nation",)

    def q6() -> tuple[Literals, tuple[str, ...]]:
        year, discount = integer(1993, 1997), integer(2, 9)
        quantity = 100 * integer(24, 25)
        return (day(year, 1), day(year + 1, 1), discount - 1, discount + 1, quantity), ()

    def q7() -> tuple[Literals, tuple[str, ...]]:
        one, two = (bytes(each) for each in random.choice(texts["s_nation"], 2, replace=False))
        span = day(1995, 1), day(1996, 12, 31)
        return (one, two, *span, two, one, *span), ()

    def q8() -> tuple[Literals, tuple[str, ...]]:
        span = day(1995, 1), day(1996, 12, 31)
        return (text("c_region"), *span, text("p_type")), ()

    def q9() -> tuple[Literals, tuple[str, ...]]:
        return (), (str(random.choice(COLOURS)),)

    def q10() -> tuple[Literals, tuple[str, ...]]:
        first = integer(1, 24)
        return (day(1993, 1 + first), day(1993, 4 + first), b"R"), ()

    def q12() -> tuple[Literals, tuple[str, ...]]:
        modes = random.choice(texts["l_shipmode"], 2, replace=False)
        year = integer(1993, 1997)
        pair = tuple(sorted(bytes(one) for one in modes))
        return (pair, day(year, 1), day(year + 1, 1)), ("shipped_early", "received_late")

    def q14() -> tuple[Literals, tuple[str, ...]]:
        first = integer(0, 59)
        return (day(1993, 1 + first), day(1993, 2 + first)), ()

    def q17() -> tuple[Literals, tuple[str, ...]]:
        return (text("p_brand"), text("p_container")), ()

    def q19() -> tuple[Literals, tuple[str, ...]]:
        found: list[Any] = []
        for number, (low, high) in enumerate(((1, 10), (10, 20), (20, 30))):
            kinds = (b"CASE", b"BOX", b"PACK", b"PKG"), (b"BAG", b"BOX", b"PKG", b"PACK")
            size = (b"SM", b"MED", b"LG")[number]
            least = 100 * integer(low, high)
            found += [
                text("p_brand"),
                tuple(sorted(size + b" " + kind for kind in kinds[number == 1])),
                least, least + 1_000, 1, (5, 10, 15)[number], (b"AIR", b"REG AIR"),
                b"DELIVER IN PERSON",
            ]  # fmt: skip
        return tuple(found), ()

    def q21() -> tuple[Literals, tuple[str, ...]]:
        return (b"F", text("s_nation")), ("received_late",)

    span = ("l_shipdate", ">="), ("l_shipdate", "<=")
    of_nations = ("s_nation", "="), ("c_nation", "="), *span
    in_person = (
        ("p_brand", "="), ("p_container", "in"), ("l_quantity", ">="), ("l_quantity", "<="),
        ("p_size", ">="), ("p_size", "<="), ("l_shipmode", "in"), ("l_shipinstruct", "="),
    )  # fmt: skip
    ordered = ("o_orderdate", ">="), ("o_orderdate", "<")
    sides: dict[str, tuple[Sides, Callable[[], tuple[Literals, tuple[str, ...]]]]] = {
        "q1": (((("l_shipdate", "<="),),), q1),
        "q3": (((("c_mktsegment", "="), ("o_orderdate", "<"), ("l_shipdate", ">")),), q3),
        "q4": ((ordered,), lambda: quarter("received_late")),
        "q5": (((("s_region", "="), *ordered),), q5),
        "q6": (((("l_shipdate", ">="), ("l_shipdate", "<"), ("l_discount", ">="),
                 ("l_discount", "<="), ("l_quantity", "<")),), q6),
        "q7": ((of_nations, of_nations), q7),
        "q8": (((("c_region", "="), ("o_orderdate", ">="), ("o_orderdate", "<="),
                 ("p_type", "=")),), q8),
        "q9": ((), q9),
        "q10": (((*ordered, ("l_returnflag", "=")),), q10),
        "q12": (((("l_shipmode", "in"), ("l_receiptdate", ">="), ("l_receiptdate", "<")),), q12),
        "q14": (((("l_shipdate", ">="), ("l_shipdate", "<")),), q14),
        "q17": (((("p_brand", "="), ("p_container", "=")),), q17),
        "q18": ((), lambda: ((), ())),
        "q19": ((in_person, in_person, in_person), q19),
        "q21": (((("o_orderstatus", "="), ("s_nation", "=")),), q21),
    }  # fmt: skip
    return tuple(Template(name, side, **queries(draw)) for name, (side, draw) in sides.items())


def selectivity(rows: Month, every: Sequence[Template], *, whole: bool) -> float:
    """Return the share of the rows that a query asks for, on the mean of all queries."""
    return float(np.mean([
        rows.matches(one, number, whole=whole).mean()
        for one in every for number in range(len(one.literals))
    ]))  # fmt: skip
