"""The demo's reporting team: who runs its queries, in the engine that this machine has.

Spark's team needs a JDK; DuckDB's needs none. Both run the same queries on the same tables, and
both leave a query log that `layoutctl workload import` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reconciler.demo.tpch import Query


@dataclass(frozen=True, slots=True)
class QueryRun:
    """The result of one execution, and what its engine recorded of it."""

    label: str
    """The name of this execution, unique in its round."""
    name: str
    """The name of the query."""
    checksum: str
    """Hash of the rows that it returned, in any order."""
    files: int
    """Number of data files that its scans of the fact tables opened."""
    scanned: int
    """Number of data files that these tables held."""
    bytes: int | None
    """Number of bytes that the engine counts as read, of all tables; None if it does not count."""


class Team(Protocol):
    """Runs the demo's queries. It uses none of layoutctl's code."""

    @property
    def engine(self) -> str:
        """The engine's name, as it is printed."""
        ...

    @property
    def bytes_name(self) -> str:
        """How the engine calls the bytes that it read, "" if it does not count them."""
        ...

    @property
    def caution(self) -> str:
        """What one should know of the engine's figures."""
        ...

    @property
    def import_options(self) -> tuple[str, ...]:
        """The options of `workload import` for its log."""
        ...

    def versions(self) -> tuple[str, ...]:
        """Return the programs that it uses, each with its version."""
        ...

    def run_round(
        self, queries: Sequence[Query], afterwards: Sequence[str] = ()
    ) -> tuple[tuple[QueryRun, ...], Path]:
        """Run the queries in this order; return the result of each, and the query log's path.

        afterwards: further statements of the same session, which are not measured.
        """
        ...

    def iceberg_sort(self, table: str, target_bytes: int) -> tuple[str, ...]:
        """Return the statements by which Iceberg itself sorts a table, () if the engine has no such
        procedure."""
        ...
