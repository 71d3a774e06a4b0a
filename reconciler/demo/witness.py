"""DuckDB as a second reader of Iceberg tables: how many data files it opens, and which rows it
returns.

A plan says how many files queries open before and after. DuckDB reads the same metadata by code
that shares nothing with ours, with Iceberg's library or with Spark, so its count is evidence of
another kind. Its Iceberg extension comes from PyPI beside it and is loaded from there: nothing is
downloaded at run time, and nothing is written to the user's home directory.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.errors import UnavailableError

ENGINE = "DuckDB"
EXTENSIONS = ("avro", "iceberg")
"""In the order of loading: DuckDB reads manifests, which are Avro files, by the first."""

FILES_READ = "Total Files Read"
DATE_UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
"""Of intervals that lead from a date to a date."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What DuckDB did for one query."""

    files: Mapping[str, int]
    """Number of data files that it opened, by table."""
    scans: Mapping[str, int]
    """Number of times that it scanned each table."""
    checksum: str
    """Hash of the rows as a multiset."""


def connect() -> Any:
    """Return a DuckDB connection that can read Iceberg tables.

    Raises UnavailableError if DuckDB or the extension of its version is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise _unavailable("DuckDB is not installed") from error
    connection = duckdb.connect()
    row = connection.execute("pragma version").fetchone()
    version = str(row[0]) if row else ""
    for name in EXTENSIONS:
        path = _extension(name, version)
        try:
            connection.execute(f"load '{path}'")
        except duckdb.Error as error:
            raise _unavailable(f"DuckDB {version} does not load {path.name}: {error}") from error
    connection.execute("pragma enable_profiling = 'no_output'")  # `opened` asks for the profile
    return connection


def _extension(name: str, version: str) -> Path:
    """Return the extension's file in the package that brings it."""
    found = importlib.util.find_spec(f"duckdb_extension_{name}")
    if found is None or found.origin is None:
        raise _unavailable(f"duckdb-extension-{name} is not installed")
    path = Path(found.origin).parent / "extensions" / version / f"{name}.duckdb_extension"
    if not path.exists():
        raise _unavailable(f"duckdb-extension-{name} is of another version than DuckDB {version}")
    return path


def _unavailable(why: str) -> UnavailableError:
    return UnavailableError(
        f"DuckDB cannot read Iceberg tables: {why}",
        do="pip install 'table-layout-reconciler[demo]', which pins versions that fit",
    )


def opened(connection: Any, sql: str, dialect: str, tables: Mapping[str, str]) -> Opened:
    """Run a query and return what DuckDB opened for it. tables: name in the query -> location of
    its metadata file; other tables are DuckDB's own."""
    text = _on_tables(sql, dialect, tables)
    rows = connection.execute(text).fetchall()
    profile = json.loads(connection.get_profiling_information())
    files, scans = dict.fromkeys(tables, 0), dict.fromkeys(tables, 0)
    for scan in _scans(profile):
        for name, location in tables.items():
            if _data_directory(location) in str(scan.get("Filename(s)", "")):
                files[name] += int(scan[FILES_READ])
                scans[name] += 1
    lines = sorted(repr(row) for row in rows)
    checksum = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    return Opened(files, scans, checksum)


def _data_directory(metadata_location: str) -> str:
    """Return the part of a table's location that the paths of its data files have in common,
    without the scheme: engines spell `file:/` in two ways."""
    root = metadata_location.rpartition("/metadata/")[0]
    return root.removeprefix("file:").lstrip("/") + "/"


def _on_tables(sql: str, dialect: str, tables: Mapping[str, str]) -> str:
    """Return the query in DuckDB's dialect, with scans of Iceberg metadata for these tables.

    A date plus days, months or years is a date in Spark and a timestamp in DuckDB, which compares
    it with a column of dates by a cast of the column. It prunes by no such condition, so the sum is
    cast to what the query's own dialect makes of it. DuckDB keeps the rows of a WITH that is used
    twice, where Spark reads its tables twice; so each use gets a text of its own.
    """
    import sqlglot
    from sqlglot import exp

    def scanned(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Table) or node.name not in tables:
            return node
        alias = node.alias or node.name
        function = exp.Anonymous(
            this="iceberg_scan", expressions=[exp.Literal.string(tables[node.name])]
        )
        return exp.Table(this=function, alias=exp.TableAlias(this=exp.to_identifier(alias)))

    tree = sqlglot.parse_one(sql, read=dialect).transform(scanned)
    for sum_ in reversed(list(tree.find_all(exp.Add, exp.Sub, exp.TsOrDsAdd))):
        if _is_date(sum_):
            sum_.replace(exp.cast(sum_.copy(), "date"))
    return str(_without_ctes(tree).sql(dialect="duckdb"))


def _without_ctes(tree: Any) -> Any:
    """Return the query with the text of each WITH in the places where it is used."""
    from sqlglot import exp

    for common in list(tree.find_all(exp.CTE)):
        for used in list(tree.find_all(exp.Table)):
            if used.name == common.alias and not used.db:
                used.replace(common.this.copy().subquery(used.alias or used.name))
    for clause in list(tree.find_all(exp.With)):
        clause.pop()
    return tree


def _is_date(node: Any) -> bool:
    """Whether Spark gives the expression the type of a date."""
    from sqlglot import exp

    if isinstance(node, exp.Cast):
        return bool(node.is_type("date"))
    if isinstance(node, exp.Add | exp.Sub):
        step = node.expression
        return (
            isinstance(step, exp.Interval)
            and step.text("unit").rstrip("S") in DATE_UNITS
            and _is_date(node.this)
        )
    return isinstance(node, exp.TsOrDsAdd)


def _scans(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what a profile says of each operator that read files."""
    if isinstance(node, list):
        for each in node:
            yield from _scans(each)
    elif isinstance(node, dict):
        extra = node.get("extra_info")
        if isinstance(extra, dict) and FILES_READ in extra:
            yield extra
        yield from _scans(node.get("children", []))
