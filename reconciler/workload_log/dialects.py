"""Judges whether a log was read in its own dialect, for the importer of SQL logs and its errors.

In a wrong dialect most statements fail to parse and would count as full scans: then nothing of the
log is kept, and the dialect that parses a sample of them is named.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import sqlglot
from sqlglot.dialects.dialect import Dialects
from sqlglot.errors import ParseError, SqlglotError

from reconciler.errors import UnusableLogError, UserError
from reconciler.workload_log.complexity import (
    TooComplex,
    check_text,
)

SAMPLED = 32
"""Statements that are tried in other dialects."""

LONGEST = 10_000
"""Characters of a statement that is tried in other dialects."""

CANDIDATES = ("trino", "spark", "snowflake", "bigquery", "duckdb", "postgres", "clickhouse",
              "redshift", "mysql", "tsql", "databricks", "athena", "presto", "hive", "oracle",
              "starrocks", "doris")  # fmt: skip
"""Dialects of engines that read Iceberg. The first of those that parse most is named."""


def mostly_unparsable(queries: int, unparsable: int) -> bool:
    return 2 * unparsable > queries


def parses(sql: str, dialect: str) -> bool:
    return why_unparsable(sql, dialect) == ""


def why_unparsable(sql: str, dialect: str) -> str:
    """Return the parser's reason with its place, without any of the statement's text; "" if the
    statement parses."""
    try:
        check_text(sql, dialect)
        sqlglot.parse(sql, dialect=dialect or None)
        return ""
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = str(first.get("description") or "it cannot be parsed").partition(" <class")[0]
        return f"{what[:80]} at line {first.get('line')}, column {first.get('col')} of it"
    except SqlglotError:
        return "it cannot be split into words: a quote may be left open"
    except (TooComplex, RecursionError, ValueError, KeyError, TypeError, AttributeError,
            IndexError):  # fmt: skip
        return "it is beyond what the parser reads"


def better_dialect(statements: Sequence[str], than: str) -> tuple[str, int, int]:
    """Return the dialect that parses most of a sample, how many it parses, and of how many.

    The dialect is "" if none parses more than half of them.
    """
    sample = [sql for sql in statements if len(sql) <= LONGEST][:SAMPLED]
    best, most = "", len(sample) // 2
    for dialect in CANDIDATES:
        if dialect == than:
            continue
        count = sum(parses(sql, dialect) for sql in sample)
        if count > most:
            best, most = dialect, count
    return best, most if best else 0, len(sample)


def wrong_dialect(
    name: str, dialect: str, queries: int, unparsable: int, sample: Sequence[str], example: str
) -> UnusableLogError:
    """Return the error of a log most of whose queries do not parse. name: of the log. example: why
    one does not parse."""
    better, count, tried = better_dialect(sample, dialect)
    of = f"{unparsable:,} of its first {queries:,} queries"
    details = [f"{of} do not parse; {example}", "Nothing of it was recorded."]
    if better:
        details.insert(1, f"Dialect {better} parses {count} of {tried} that were tried.")
        do = f"import it with the option --dialect {better} (in a cluster: dialect: {better})"
    else:
        details.insert(1, f"No known dialect parses most of {tried} that were tried.")
        do = 'check that the field "sql" has one whole statement, and name its dialect'
    return UnusableLogError(
        f"{name} is not written in the dialect {dialect or 'ansi'}", details=tuple(details), do=do
    )


def check_dialect(name: str) -> str:
    """Return sqlglot's name of a dialect, "" for plain SQL. Raises UserError with the valid
    names."""
    known = sorted(d.value for d in Dialects if d.value)
    folded = _DIALECT_NAMES.get(name.strip().lower(), name.strip().lower())
    if folded and folded not in known:
        near = difflib.get_close_matches(folded, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}, ansi"
        raise UserError(f'"{name}" is not a dialect', do=hint)
    return folded


_DIALECT_NAMES = {"ansi": "", "sparksql": "spark", "postgresql": "postgres", "flink": "spark"}
