"""`layoutctl workload import FILE...` and `layoutctl workload show [TABLE]`.

Import reads query logs into the local state and reports what it kept, what it skipped and why; show
lists the shapes of a table's queries. Literals are printed only with --show-literals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import (
    CatalogName,
    Files,
    Format,
    Output,
    Shared,
    ShowLiterals,
    Timeout,
    Verbose,
)
from reconciler.cli.workload_shapes import table_document
from reconciler.render.workload_text import render_import, render_show

if TYPE_CHECKING:
    import datetime as dt

    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.errors import UserError
    from reconciler.state.store import Store
    from reconciler.workload_log.importing import Tally
    from reconciler.workload_log.tables import CatalogTables, KnownTable, TableSchemas

TABLES_NOTE = "workload.tables"
MOST_REFUSED = 10
"""Logs that an error names."""


class LogFormat(StrEnum):
    AUTO = "auto"
    SQL = "sql"
    SPARK_EVENTS = "spark-events"


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(
        no_args_is_help=True, help="Import query logs and show the recorded queries."
    )
    app.add_typer(verbs, name="workload", rich_help_panel="Look")

    @verbs.command("import")
    def import_(
        logs: Annotated[
            list[Path], typer.Argument(metavar="LOG...", help="Log files or directories.")
        ],
        dialect: Annotated[
            str, typer.Option("--dialect", help="SQL dialect: spark, trino, duckdb, snowflake, ...")
        ] = "spark",
        form: Annotated[
            LogFormat, typer.Option("--format", help="auto looks at the first line.")
        ] = LogFormat.AUTO,
        catalog: CatalogName = None,
        log_catalog: Annotated[
            str | None,
            typer.Option(
                "--log-catalog",
                metavar="NAME",
                help="Name of the catalog in the log, if different.",
            ),
        ] = None,
        schema: Annotated[
            str | None, typer.Option("--schema", help="Namespace of table names without one.")
        ] = None,
        timezone: Annotated[
            str, typer.Option("--timezone", help="Time zone of times without a zone.")
        ] = "UTC",
        file: Files = None,
        shared: Shared = False,
        output: Format = Output.TABLE,
        timeout: Timeout = 30.0,
    ) -> None:
        """Read query logs: which conditions on which columns, how often. Safe to repeat."""
        from reconciler.catalog.discover import resolve_catalog
        from reconciler.cli.shared import store_of
        from reconciler.queries.shape import workload_of
        from reconciler.state.movements import record_movements
        from reconciler.workload_log.dialects import check_dialect

        documents = _documents(file)
        config = resolve_catalog(catalog, documents)
        store = store_of(config, documents, timeout, shared)
        tables = catalog_tables(config, timeout, log_catalog, documents)
        levels = (config.name, *schema.split(".")) if schema else ()
        zone, reader = _zone(timezone), check_dialect(dialect)
        tallies, refused = _import_all(
            _logs(logs),
            lambda path: _import_one(path, form, reader, tables, store, levels, zone),
        )
        touched = _touched(tables, config.name, _queries(tallies))
        if touched:
            known = store.note_as(TABLES_NOTE, dict) or {}
            store.set_note(TABLES_NOTE, {**known, **{t.uuid: list(t.levels) for t, _ in touched}})
        for one, _ in touched:
            recorded = workload_of(store.shapes(one.uuid))
            record_movements(store, one.uuid, tables.schema(one.uuid), recorded)
        if tallies:
            body = _import_document(tallies, touched, timezone)
            _emit(body, output, lambda: render_import(body, _width(output, False)))
        failed = refusal(refused, nothing_kept(tallies, dialect))
        if failed is not None:
            raise failed

    @verbs.command("show")
    def show(
        table: Annotated[
            str | None, typer.Argument(metavar="[TABLE]", help="catalog.namespace.table")
        ] = None,
        catalog: CatalogName = None,
        file: Files = None,
        shared: Shared = False,
        output: Format = Output.TABLE,
        show_literals: ShowLiterals = False,
        verbose: Verbose = False,
        timeout: Timeout = 30.0,
    ) -> None:
        """Show the shapes of imported queries: how often, how recent, what they explain."""
        from reconciler.catalog.discover import resolve_levels
        from reconciler.cli.shared import store_of
        from reconciler.state.state import StateStore, state_directory

        documents = _documents(file)
        store: Store = StateStore(state_directory())
        if shared:
            config, _ = resolve_levels(table, catalog, documents)
            store = store_of(config, documents, timeout, shared)
        items = [
            table_document(store, config, identifier, show_literals, timeout, table is None)
            for config, identifier in _chosen(store, table, catalog, documents)
        ]
        body = {
            "apiVersion": API_VERSION,
            "kind": "WorkloadList",
            "items": items,
            "skipped": dict(sorted(store.skips(None).items())),
        }
        _emit(body, output, lambda: render_show(body, _width(output, verbose)))


def _emit(body: dict[str, Any], output: Output, text: Any) -> None:
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(body, output), nl=False)
    else:
        typer.echo(text())


def _width(output: Output, verbose: bool) -> int:
    from reconciler.render import terminal

    return terminal.UNLIMITED if verbose or output is Output.WIDE else terminal.width()


def _documents(files: list[str] | None) -> Sequence[Any]:
    if not files:
        return ()
    from reconciler.api.load import load

    return load(files).catalogs


def _zone(name: str) -> dt.tzinfo:
    from reconciler.errors import UserError
    from reconciler.workload_log.constants import named_zone

    try:
        return named_zone(name)
    except ValueError as error:
        raise UserError(str(error), do="use a name such as Europe/Berlin or UTC") from error


# Tables of the catalog, by the names in queries


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """levels: catalog, namespace levels and name."""

    uuid: str
    levels: tuple[str, ...]


def catalog_tables(
    config: CatalogConfig, timeout: float, log_catalog: str | None, documents: Sequence[Any]
) -> CatalogTables:
    """Return the tables of the catalog except the reconciler's own. log_catalog: the catalog's name
    in the log, None if it is the same."""
    from reconciler.catalog.load import connect, list_namespaces, list_tables
    from reconciler.cli.system_namespace import is_state
    from reconciler.workload_log.tables import CatalogTables

    catalog = connect(config, timeout)
    names = {
        (log_catalog or config.name, *identifier): tuple(identifier)
        for namespace in list_namespaces(catalog, config, timeout)
        if not is_state(config, documents, tuple(namespace))
        for identifier in list_tables(catalog, config, tuple(namespace), timeout)
    }
    return CatalogTables(names, lambda table: _known(catalog, config, table, timeout))


def _known(
    catalog: Any, config: CatalogConfig, identifier: tuple[str, ...], timeout: float
) -> KnownTable | None:
    """Load a table; one that cannot be loaded is reported and left out, and the import
    continues."""
    from reconciler.catalog.load import load_table
    from reconciler.catalog.metadata import hidden_columns_of, schema_of
    from reconciler.errors import UnavailableError, UserError
    from reconciler.table.observation import quoted_name
    from reconciler.workload_log.tables import KnownTable

    name = quoted_name((config.name, *identifier))
    try:
        table = load_table(catalog, config, identifier, timeout)
    except UnavailableError:
        raise
    except UserError as error:
        typer.echo(f"warning: {name} is left out: {error.what}", err=True)
        return None
    return KnownTable(
        str(table.metadata.table_uuid), name, schema_of(table.metadata),
        hidden_columns_of(table.metadata),
    )  # fmt: skip


def _touched(
    tables: CatalogTables, catalog: str, queries: Counter[str]
) -> list[tuple[TouchedTable, int]]:
    """Return the loaded tables with kept queries, most queries first."""
    found = [
        (TouchedTable(known.uuid, (catalog, *identifier)), queries[known.name])
        for identifier, known in tables.loaded()
        if queries[known.name]
    ]
    return sorted(found, key=lambda item: (-item[1], item[0].levels))


# Import


def _logs(paths: Iterable[Path]) -> list[Path]:
    from reconciler.errors import UserError
    from reconciler.workload_log.event_log_files import event_logs

    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path} does not exist", do="check the path of the log")
        inside = event_logs(path) if path.is_dir() else [path]
        if not inside:
            raise UserError(
                f"{path} contains no log", do="name a log, or a directory with logs in it"
            )
        found += inside
    return found


def _import_all(
    paths: Sequence[Path], import_one: Callable[[Path], Tally]
) -> tuple[list[tuple[Path, Tally]], list[UserError]]:
    """Import every log; return the counts, and why logs could not be used."""
    from reconciler.errors import UserError
    from reconciler.workload_log.unusable import why_unusable

    tallies: list[tuple[Path, Tally]] = []
    refused: list[UserError] = []
    for path in paths:
        try:
            tally = import_one(path)
        except UserError as error:
            refused.append(error)
            continue
        why = None if path.is_dir() else why_unusable(path, str(path), tally)
        if why is None:
            tallies.append((path, tally))
        else:
            refused.append(why)
    return tallies, refused


def _import_one(
    path: Path,
    form: LogFormat,
    dialect: str,
    tables: TableSchemas,
    store: Store,
    levels: tuple[str, ...],
    zone: dt.tzinfo,
) -> Tally:
    from reconciler.workload_log.event_log_files import is_event_log
    from reconciler.workload_log.spark_events import SparkEventImport
    from reconciler.workload_log.sql import Session, SqlReader
    from reconciler.workload_log.sql_log import SqlLogImport

    if form is LogFormat.SPARK_EVENTS or (form is LogFormat.AUTO and is_event_log(path)):
        return SparkEventImport(tables, store, zone).run(path)
    return SqlLogImport(SqlReader(dialect, tables), store, Session(levels, zone)).run(path)


def nothing_kept(tallies: Sequence[tuple[Path, Tally]], dialect: str) -> UserError | None:
    """Return why an import of readable logs kept nothing; None if it kept something, or if all was
    imported before."""
    from reconciler.errors import UserError
    from reconciler.workload_log import skip_reasons

    if not tallies or any(t.kept or t.earlier or t.repeated for _, t in tallies):
        return None
    skipped: Counter[str] = Counter()
    for _, tally in tallies:
        skipped.update(tally.skipped)
    if not skipped:
        return UserError(
            f"{tallies[0][0]} has no SQL execution", do="check the path and --format of the log"
        )
    reasons = (f"{reason}: {count:,}" for reason, count in skipped.most_common(5))
    do = "import a log with SELECT statements on tables of this catalog"
    if skip_reasons.UNKNOWN_TABLES in skipped:
        do = "check --catalog, --log-catalog and --schema"
    if skip_reasons.UNPARSABLE in skipped:
        do = f"check --dialect, which is {dialect}"
    return UserError(
        "no query of a table in this catalog was found, and nothing was recorded",
        details=tuple(reasons),
        do=do,
    )


def refusal(refused: Sequence[UserError], nothing: UserError | None) -> UserError | None:
    """Return one error for all logs that could not be used."""
    from reconciler.errors import UserError

    errors = [*refused, *([nothing] if nothing else [])]
    if len(errors) < 2:
        return errors[0] if errors else None
    details = [f"{e.what}: {e.do}" for e in errors[:MOST_REFUSED]]
    more = len(errors) - MOST_REFUSED
    return UserError(
        f"{len(errors)} logs could not be used",
        details=(*details, *([f"and {more} more"] if more > 0 else [])),
        do="correct these, and import them again: what was recorded is not counted again",
    )


def _queries(tallies: Sequence[tuple[Path, Tally]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for _, tally in tallies:
        total.update(tally.queries)
    return total


def _import_document(
    tallies: Sequence[tuple[Path, Tally]],
    touched: Sequence[tuple[TouchedTable, int]],
    timezone: str,
) -> dict[str, Any]:
    from reconciler.format import utc
    from reconciler.table.observation import quoted_name

    skipped: Counter[str] = Counter()
    full_scans: Counter[str] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    weights: dict[str, float] = {}
    for _, tally in tallies:
        skipped.update(tally.skipped)
        full_scans.update(tally.full_scans)
        unknown.update(tally.unknown)
        for name, weight in tally.weights.items():
            weights[name] = weights.get(name, 0.0) + weight
    until = [tally.until_ms for _, tally in tallies if tally.until_ms is not None]
    since = [tally.since_ms for _, tally in tallies if tally.since_ms is not None]
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkloadImport",
        "files": [
            {"path": str(path), "read": t.read, "kept": t.kept, "skipped": sum(t.skipped.values()),
             "earlier": t.earlier, "repeated": t.repeated, "fragments": t.fragments,
             "skippedLines": {reason: t.lines[reason] for reason in sorted(t.lines)}}
            for path, t in tallies
        ],
        "tables": [
            {"table": name, "queries": n, "weight": round(weights.get(name, float(n)), 3)}
            for name, n in ((quoted_name(t.levels), n) for t, n in touched)
        ],
        "skipped": dict(skipped.most_common()),
        "fullScans": dict(full_scans.most_common()),
        "examples": _examples(tallies),
        "timesWithoutZone": {"count": sum(t.zoneless for _, t in tallies), "readAs": timezone},
        "unknownColumns": [
            {"table": table, "column": column, "conditions": count}
            for (table, column), count in unknown.most_common()
        ],
        "since": utc(min(since)) if since else None,
        "until": utc(max(until)) if until else None,
    }  # fmt: skip


def _examples(tallies: Sequence[tuple[Path, Tally]]) -> dict[str, str]:
    """Return by reason one query that could not be read, by its place."""
    found: dict[str, str] = {}
    for path, tally in tallies:
        for reason, place in tally.examples.items():
            found.setdefault(reason, f"{path}: {place}" if len(tallies) > 1 else place)
    return found


# Show


def _names(note: Any) -> list[list[str]]:
    """Return the names of tables that a note holds, as levels. Raises if it holds none."""
    return [[str(level) for level in levels] for levels in note.values()]


def _chosen(
    store: Store, table: str | None, catalog: str | None, documents: Sequence[Any]
) -> list[tuple[CatalogConfig, tuple[str, ...]]]:
    from reconciler.catalog.discover import find_catalogs, resolve_table
    from reconciler.errors import UserError

    if table is not None:
        return [resolve_table(table, catalog, documents)]
    names: list[list[str]] = sorted(store.note_as(TABLES_NOTE, _names) or [])
    if not names:
        raise UserError(
            "no queries have been imported", do="layoutctl workload import --dialect trino FILE"
        )
    configs = {item.config.name: item.config for item in find_catalogs(documents)}
    return [
        (configs[levels[0]], tuple(levels[1:]))
        for levels in names
        if levels[0] in configs and catalog in (None, levels[0])
    ]
