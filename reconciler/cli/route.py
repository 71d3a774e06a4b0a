"""`layoutctl route`: the query as it reads least, for engines that know only bounds: of the table's
replica, or with a condition on block ids."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import CatalogName, Files, Format, Output, Table, Timeout

if TYPE_CHECKING:
    import datetime as dt

    from reconciler.loop.route import Routed, RoutedRead
    from reconciler.table.observation import Observation


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def route(
        table: Table,
        query: Annotated[str, typer.Argument(metavar="SELECT", help="A query with its values.")],
        dialect: Annotated[
            str,
            typer.Option("--dialect", help="SQL dialect of the SELECT: spark, trino, duckdb, ..."),
        ] = "spark",
        zone: Annotated[
            str | None,
            typer.Option(
                "--time-zone",
                metavar="ZONE",
                help="Time zone of the session that runs it. Without one, conditions that depend "
                "on it do not count.",
            ),
        ] = None,
        file: Files = None,
        catalog: CatalogName = None,
        output: Format = Output.TABLE,
        timeout: Timeout = 30.0,
    ) -> None:
        """Print a SELECT as it reads least: of the replica, or with a condition on block ids."""
        from reconciler.catalog.discover import resolve_levels
        from reconciler.catalog.observe import observe_table
        from reconciler.cli.shared import catalogs_under
        from reconciler.errors import UnavailableError, UserError
        from reconciler.loop.route import replica_named
        from reconciler.loop.route import route as routed
        from reconciler.state.state import cache_directory

        config, levels = resolve_levels(table, catalog, catalogs_under(file))
        seen = observe_table(config, levels, cache_directory(), timeout=timeout)
        named = replica_named(seen)
        other = None
        if named is not None:
            with contextlib.suppress(UserError, UnavailableError):
                other = observe_table(config, named, cache_directory(), timeout=timeout)
        _print(seen, routed(seen, query, dialect, _zone(zone), other), output)


def _zone(name: str | None) -> dt.tzinfo | None:
    import zoneinfo

    from reconciler.errors import UserError

    if name is None:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise UserError(
            f'"{name}" is not a time zone', do="name one as in UTC or Europe/Berlin"
        ) from error


def _print(seen: Observation, found: Routed, output: Output) -> None:
    if found.replica:
        sys.stderr.write(f"{seen.name}: reads {found.replica}\n")
    elif found.not_replica:
        sys.stderr.write(f"{seen.name}: not the replica: {found.not_replica}\n")
    for number, read in enumerate(found.reads, start=1):
        for line in _lines(seen.name, read, number if len(found.reads) > 1 else 0):
            sys.stderr.write(line + "\n")
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(document(seen.name, found), output), nl=False)
        return
    typer.echo(found.sql)


def _lines(table: str, read: RoutedRead, number: int) -> list[str]:
    from reconciler.format import iec, plural

    name = f"{table}, read {number}" if number else table
    if read.reason:
        return [f"{name}: unchanged: {read.reason}", *(f"{name}: {one}" for one in read.notes)]
    before, after = iec(read.bytes_before), iec(read.bytes_after)
    files = plural(read.files_after, "file")
    text = f"{name}: {files} of {read.files_before} to read, {after} of {before}"
    return [text, *(f"{name}: {one}" for one in read.notes)]


def document(table: str, found: Routed) -> dict[str, Any]:
    """Return the result as `-o json` prints it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "QueryRoute",
        "table": table,
        "snapshotId": None if found.snapshot_id is None else str(found.snapshot_id),
        "column": found.column or None,
        "replica": found.replica or None,
        "notReplica": found.not_replica or None,
        "changed": found.changed,
        "query": found.sql,
        "reads": [
            {
                "ids": [{"first": first, "last": last} for first, last in read.ids],
                "filesBefore": read.files_before,
                "filesAfter": read.files_after,
                "bytesBefore": read.bytes_before,
                "bytesAfter": read.bytes_after,
                "reason": read.reason or None,
                "notes": list(read.notes),
            }
            for read in found.reads
        ],
    }
