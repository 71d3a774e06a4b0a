"""`layoutctl workload import FILE...` and `layoutctl workload show [TABLE]`.

Import reads query logs into the local state and reports what it kept, what it skipped and why; show
lists the shapes of a table's queries. Literals are printed only with --show-literals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
from reconciler.cli.shared import catalogs_under
from reconciler.cli.workload_import import (
    Reading,
    TouchedTable,
    checked_fields,
    checked_format,
    import_all,
    import_document,
    import_one,
    logs_of,
    nothing_kept,
    queries_of,
    refusal,
)
from reconciler.cli.workload_shapes import table_document

if TYPE_CHECKING:
    import datetime as dt

    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.state.store import Store
    from reconciler.workload_log.tables import CatalogTables

TABLES_NOTE = "workload.tables"

Logs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG...",
        help="Files, directories, - for standard input, or prefixes such as s3://b/p.",
    ),
]
Dialect = Annotated[
    str | None,
    typer.Option("--dialect", help="SQL dialect; without it that of the log's system."),
]
Form = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help="trino, snowflake, databricks, athena, redshift, bigquery, spark-events,"
        " duckdb, openlineage, iceberg-scans, sql, ..."
        " Without it the first records are looked at.",
    ),
]
Fields = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="sql=FIELD,timestamp=FIELD,...",
        help="Names of the fields in a log of another kind: sql and timestamp, and where it has"
        " them queryId, catalog, schema, session, engine, bytes, durationMs, weight, timezone,"
        " application, state.",
    ),
]
LogCatalog = Annotated[
    str | None,
    typer.Option(
        "--log-catalog",
        metavar="NAME",
        help="Name of the catalog in the log, if different.",
    ),
]
Schema = Annotated[
    str | None, typer.Option("--schema", help="Namespace of table names without one.")
]
Timezone = Annotated[str, typer.Option("--timezone", help="Time zone of times without a zone.")]
Table = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="catalog.namespace.table")]


def import_(
    logs: Logs,
    dialect: Dialect = None,
    form: Form = "auto",
    fields: Fields = None,
    catalog: CatalogName = None,
    log_catalog: LogCatalog = None,
    schema: Schema = None,
    timezone: Timezone = "UTC",
    file: Files = None,
    shared: Shared = False,
    output: Format = Output.TABLE,
    timeout: Timeout = 30.0,
) -> None:
    """Read query logs: which conditions on which columns, how often. Safe to repeat."""
    from reconciler.catalog.discover import resolve_catalog
    from reconciler.cli.shared import excluded_columns, store_of
    from reconciler.queries.shape import workload_of
    from reconciler.render.workload_text import render_import
    from reconciler.state.movements import record_movements
    from reconciler.workload_log.catalog_tables import ExcludingSink

    documents = catalogs_under(file)
    config = resolve_catalog(catalog, documents)
    store = store_of(config, documents, timeout, shared)
    tables = catalog_tables(config, timeout, log_catalog, documents)
    sink = ExcludingSink(store, tables, excluded_columns(config, documents, shared))
    levels = (config.name, *schema.split(".")) if schema else ()
    name = checked_format(form)
    how = Reading(name, checked_fields(fields, name), _dialect(dialect), levels, _zone(timezone))
    with logs_of(logs, config) as found:
        read, refused = import_all(found, lambda log: import_one(log, how, tables, sink))
    touched = _touched(tables, config.name, queries_of(read))
    if touched:
        known = store.note_as(TABLES_NOTE, dict) or {}
        store.set_note(TABLES_NOTE, {**known, **{t.uuid: list(t.levels) for t, _ in touched}})
    for one, _ in touched:
        recorded = workload_of(store.shapes(one.uuid))
        record_movements(store, one.uuid, tables.schema(one.uuid), recorded)
    if read:
        body = import_document(read, touched, timezone)
        _emit(body, output, lambda: render_import(body, _width(output, False)))
    failed = refusal(refused, nothing_kept(read, dialect))
    if failed is not None:
        raise failed


def show(
    table: Table = None,
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
    from reconciler.cli.shared import excluded_columns, store_of
    from reconciler.loop.ports import Target
    from reconciler.loop.reader import Reader
    from reconciler.render.workload_text import render_show
    from reconciler.state.state import StateStore, cache_directory, state_directory

    documents = catalogs_under(file)
    store: Store = StateStore(state_directory())
    if shared:
        config, _ = resolve_levels(table, catalog, documents)
        store = store_of(config, documents, timeout, shared)
    items = []
    for config, identifier in _chosen(store, table, catalog, documents):
        excluded = excluded_columns(config, documents, shared)
        reader = Reader(store, cache_directory(), timeout, exclude_columns=excluded)
        items.append(table_document(reader, Target(config, identifier), show_literals, not table))
    body = {
        "apiVersion": API_VERSION,
        "kind": "WorkloadList",
        "items": items,
        "skipped": dict(sorted(store.skips(None).items())),
    }
    _emit(body, output, lambda: render_show(body, _width(output, verbose)))


def register(app: typer.Typer) -> None:
    verbs = typer.Typer(
        no_args_is_help=True, help="Import query logs and show the recorded queries."
    )
    app.add_typer(verbs, name="workload", rich_help_panel="Look")

    verbs.command("import")(import_)

    verbs.command("show")(show)


def _emit(body: dict[str, Any], output: Output, text: Any) -> None:
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(body, output), nl=False)
    else:
        typer.echo(text())


def _width(output: Output, verbose: bool) -> int:
    from reconciler.render import terminal

    return terminal.UNLIMITED if verbose or output is Output.WIDE else terminal.width()


def _dialect(name: str | None) -> str | None:
    """Return the dialect that --dialect names, None without it. sqlglot's name of ANSI SQL is "",
    which would count as none: it stays "ansi". Raises UserError."""
    from reconciler.workload_log.dialects import check_dialect

    return name if name is None else check_dialect(name) or "ansi"


def _zone(name: str) -> dt.tzinfo:
    from reconciler.errors import UserError
    from reconciler.workload_log.constants import named_zone

    try:
        return named_zone(name)
    except ValueError as error:
        raise UserError(str(error), do="use a name such as Europe/Berlin or UTC") from error


# Tables of the catalog, by the names in queries


def catalog_tables(
    config: CatalogConfig, timeout: float, log_catalog: str | None, documents: Sequence[Any]
) -> CatalogTables:
    """Return the tables of the catalog except the reconciler's own. log_catalog: the catalog's name
    in the log, None if it is the same."""
    from reconciler.catalog.load import connect, list_namespaces
    from reconciler.catalog.many import tables_in
    from reconciler.cli.system_namespace import is_state
    from reconciler.workload_log.catalog_tables import tables_by_name

    catalog = connect(config, timeout)
    every = map(tuple, list_namespaces(catalog, config, timeout))
    spaces = [one for one in every if not is_state(config, documents, one)]
    names = {
        (log_catalog or config.name, *identifier): tuple(identifier)
        for identifier in tables_in(catalog, config, spaces, timeout)
    }
    return tables_by_name(lambda: catalog, config, names, timeout, _left_out)


def _left_out(name: str, why: str) -> None:
    typer.echo(f"warning: {name} is left out: {why}", err=True)


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
