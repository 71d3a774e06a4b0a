"""A tree of cuts as SQL of Spark: the leaf of a row. It decides where a copied row lies, and never
whether it is there.

IF expressions as text are planned faster than columns, and their order is that of the tree: NULL
before all values, NaN after them (`table.cut_tree`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.table.cut_tree import LEAF, Cut, Tree
from reconciler.table.values import show


def leaf_text(tree: Tree, columns: Mapping[int, tuple[str, str]]) -> str:
    """Return SQL of the number of a row's leaf. columns: SQL and Iceberg's type of each column that
    is cut, by field id."""
    conditions = [_condition(cut, *columns[cut.field_id]) for cut in tree.cuts]
    open_at, leaf = list[str](), tree.leaves
    for node in reversed(tree.nodes):
        if node == LEAF:
            leaf -= 1
            open_at.append(str(leaf))
        else:
            left, right = open_at.pop(), open_at.pop()
            open_at.append(f"IF({conditions[node]}, {left}, {right})")
    return open_at.pop()


def inner_texts(tree: Tree, columns: Mapping[int, tuple[str, str]], leaf: str) -> list[str]:
    """Return SQL of what rows of one leaf are sorted by. leaf: SQL of its number."""
    found = []
    for field in sorted(set(tree.inner) - {0}):
        own = ", ".join(str(n) for n, one in enumerate(tree.inner) if one == field)
        found.append(f"IF({leaf} IN ({own}), {columns[field][0]}, NULL)")
    return found


def sql_of(path: Sequence[str]) -> str:
    """Return SQL of a column. path: its names from the top."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def _condition(cut: Cut, column: str, kind: str) -> str:
    """Return SQL of what is true for rows that go left."""
    place = cut.place[0]
    if place < 0:
        return f"{column} IS NULL"
    if place > 0:
        return f"({column} IS NULL OR NOT isnan({column}))"
    assert cut.value is not None
    sign = "<=" if cut.inclusive else "<"
    return f"({column} IS NULL OR {column} {sign} {_literal(cut.value, kind)})"


def _literal(value: int | float | bytes, kind: str) -> str:
    """Return SQL of a value in a column's domain (`table.values`)."""
    if kind.startswith("decimal"):
        return f"CAST('{show(kind, value)}' AS {kind})"
    if isinstance(value, bytes):
        return f"CAST(X'{value.hex()}' AS {kind})"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "date":
        return f"date_from_unix_date({value})"
    if kind.startswith("timestamp"):
        instant = f"timestamp_micros({value}L)"
        return instant if kind == "timestamptz" else f"CAST({instant} AS TIMESTAMP_NTZ)"
    return f"{value}L"
