"""What our SQL reader finds, and what sqlglot's optimizer leaves to find.

    python -m bench.sql_reader [random queries]        default 600

sqlglot's way: `qualify`, `isolate_table_selects`, `normalize`, `pushdown_predicates`, `simplify`;
what then stands in the WHERE of a table's own SELECT is bound with our `bind`. First the 22 queries
of TPC-H: scans, scans with a predicate, CPU seconds to read all from text. Then the random queries
of tests/workload_log/test_law.py: tables that could be pruned, and queries whose result changes
when the rows that no predicate keeps are removed.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import duckdb
import sqlglot
from hypothesis import HealthCheck, Phase, given, seed, settings
from sqlglot import exp
from sqlglot.optimizer.isolate_table_selects import isolate_table_selects
from sqlglot.optimizer.normalize import normalize
from sqlglot.optimizer.optimizer import optimize
from sqlglot.optimizer.pushdown_predicates import pushdown_predicates
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.simplify import simplify

from reconciler.queries.predicate import TRUE
from reconciler.workload_log.conditions import bind
from reconciler.workload_log.conjuncts import normal_form
from reconciler.workload_log.constants import Binding
from reconciler.workload_log.sql import TableRead
from reconciler.workload_log.tables import KnownTable
from tests.workload_log import oracle, test_law
from tests.workload_log.tpch import QUERIES, SCHEMAS

RULES = (qualify, isolate_table_selects, normalize, pushdown_predicates, simplify)

Tables = dict[str, KnownTable]
Read = Callable[[str, Tables], list[TableRead]]
OURS: Read = oracle.demands_of


def theirs(sql: str, tables: Tables) -> list[TableRead]:
    schema = {
        name: {field.name: field.type for field in table.schema.fields}
        for name, table in tables.items()
    }
    tree = optimize(sqlglot.parse_one(sql, dialect="duckdb"), schema, rules=RULES)
    some = OURS(f"SELECT * FROM {next(iter(tables))}", tables)[0]
    found = []
    for node in tree.find_all(exp.Table):
        if node.name in tables:
            table = tables[node.name]
            binding = Binding(oracle.EVENT_MS, "UTC", "duckdb", {})
            bound = bind(conditions(node), table.schema, binding)
            found.append(
                replace(some, table=table, predicate=bound.predicate, literals=bound.literals)
            )
    return found


def conditions(node: exp.Table) -> list[exp.Expr]:
    """The conjuncts in the WHERE of the SELECT that reads this table alone."""
    select = node.find_ancestor(exp.Select)
    where = select.args.get("where") if select else None
    if select is None or where is None or select.args.get("joins"):
        return []
    conjuncts = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    plain = [normal_form(part.copy()) for part in conjuncts]
    for part in plain:
        for column in part.find_all(exp.Column):
            column.set("table", None)
    return plain


READERS: dict[str, Read] = {"ours": OURS, "sqlglot.optimizer": theirs}


def tpch() -> None:
    tables = oracle.known_tables(SCHEMAS)
    for name, read in READERS.items():
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            demands = [demand for sql in QUERIES.values() for demand in read(sql, tables)]
            best = min(best, time.process_time() - start)
        selective = sum(demand.fragment.predicate != TRUE for demand in demands)
        print(f"{name:18} {len(demands)} scans, {selective} with a predicate, {best:.2f} s")


def law(number: int) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    rows = test_law.data.__wrapped__()
    connection = next(rows)

    @seed(1)
    @settings(
        max_examples=number, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(sql=test_law.queries())
    def judge(sql: str) -> None:
        for name, read in READERS.items():
            original, oracle.demands_of = oracle.demands_of, read
            try:
                kept = oracle.check_law(connection, sql, test_law.TABLES)
                counted[name, "queries whose result stays"] += 1
                counted[name, "tables pruned"] += sum(share < 1 for share in kept.values())
            except duckdb.Error:
                counted[name, "queries that do not run"] += 1
            except AssertionError:
                counted[name, "queries that lose rows"] += 1
            finally:
                oracle.demands_of = original

    judge()
    return counted


def main() -> None:
    tpch()
    for (name, what), number in sorted(law(int((*sys.argv[1:], "600")[0])).items()):
        print(f"{name:18} {number} {what}")


if __name__ == "__main__":
    main()
