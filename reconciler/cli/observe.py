"""`layoutctl observe`: the layout of a table, or of every table of a namespace; metadata only."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import (
    CatalogName,
    Exclude,
    Files,
    Format,
    Output,
    Quiet,
    Select,
    Timeout,
)
from reconciler.errors import ReconcilerError
from reconciler.format import printable
from reconciler.render import terminal

if TYPE_CHECKING:
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.render.observe_text import TableSummary, WorkloadSummary
    from reconciler.table.observation import Observation


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def observe(
        target: Annotated[
            str | None,
            typer.Argument(
                metavar="[NAMESPACE|TABLE]",
                help="catalog.namespace.table, or a namespace. Default: every table.",
                show_default=False,
            ),
        ] = None,
        file: Files = None,
        catalog: CatalogName = None,
        output: Format = Output.TABLE,
        select: Select = None,
        exclude: Exclude = None,
        timeout: Timeout = 30.0,
        quiet: Quiet = False,
    ) -> None:
        """Show the layout of tables: file sizes, clustering, deletes. Reads metadata only."""
        from reconciler.catalog.load import connect
        from reconciler.cli.many_tables import looks_at, names_under, namespaces_of
        from reconciler.render.observe_text import summarise
        from reconciler.state.state import cache_directory

        config, levels = _resolve(target, file or [], catalog)
        connection = connect(config, timeout)
        spaces = functools.cache(lambda: namespaces_of(connection, config, timeout))
        seen_one = None
        if len(levels) > 1:
            seen_one = _look_at(connection, config, levels, spaces, timeout)
        if seen_one is not None:
            typer.echo(shown_table(seen_one, output), nl=False)
            return
        names = names_under(
            connection, config, levels, spaces(), timeout, select or (), exclude or ()
        )
        failed: list[tuple[tuple[str, ...], ReconcilerError]] = []
        looks = looks_at(connection, config, names, cache_directory(), timeout, failed, quiet=quiet)
        seen = [summarise(one) for one in looks]
        typer.echo(_many(config, levels, seen, output), nl=False)
        if failed:
            raise typer.Exit(max(error.exit_code for _, error in failed))


def _resolve(
    target: str | None, files: Sequence[str], catalog: str | None
) -> tuple[CatalogConfig, tuple[str, ...]]:
    from reconciler.api.load import load
    from reconciler.catalog.discover import resolve_levels

    documents = load(files).catalogs if files else ()
    return resolve_levels(target, catalog, documents)


def _look_at(
    connection: Any,
    config: CatalogConfig,
    levels: tuple[str, ...],
    spaces: Callable[[], Collection[tuple[str, ...]]],
    timeout: float,
) -> Observation | None:
    """Return a look at the table of that name; None if it is a namespace's. Otherwise raise with
    similar names. spaces: lists the catalog's namespaces."""
    from reconciler.catalog.observe import observe_loaded, observe_with
    from reconciler.state.state import cache_directory

    try:
        return observe_with(
            connection, config, levels, timeout,
            lambda table: observe_loaded(table, config.name, levels, cache_directory()),
        )  # fmt: skip
    except ReconcilerError as error:
        if error.exit_code == 1 and levels in spaces():
            return None
        raise


def shown_table(seen: Observation, output: Output) -> str:
    """Return one table in full, in a format."""
    from reconciler.cli.serialise import serialise
    from reconciler.render import observe_document, observe_text

    if output is Output.NAME:
        return printable(seen.name) + "\n"
    workload = _workload(seen)
    if output in (Output.JSON, Output.YAML):
        head = {"apiVersion": API_VERSION, "kind": "TableObservation"}
        return serialise({**head, **observe_document.document(seen, workload)}, output)
    if output is Output.MARKDOWN:
        return observe_text.markdown_table(seen, workload) + "\n"
    wide = output is Output.WIDE
    now = int(time.time() * 1000)
    return observe_text.render_table(seen, now, workload, width=terminal.width(), wide=wide) + "\n"


def _workload(seen: Observation) -> WorkloadSummary:
    """Return what was imported for the table: how many queries, which columns they filter on."""
    from reconciler.format import utc
    from reconciler.queries.predicate import fields_of
    from reconciler.queries.shape import workload_of
    from reconciler.render.observe_text import WorkloadSummary, filtered_columns
    from reconciler.state.state import StateStore, state_directory
    from reconciler.table.times import DAY_MS

    workload = workload_of(StateStore(state_directory()).shapes(seen.uuid))
    total = workload.queries
    if not total:
        return WorkloadSummary()
    shares: dict[str, float] = {}
    for shape in workload.shapes:
        for field_id in fields_of(shape.predicate):
            name = seen.schema.name_of(field_id)
            shares[name] = shares.get(name, 0.0) + float(shape.weight.sum()) / total
    per_day = total * DAY_MS / workload.span_ms
    return WorkloadSummary(total, utc(workload.until_ms), filtered_columns(shares), per_day)


def _many(
    config: CatalogConfig, levels: tuple[str, ...], tables: list[TableSummary], output: Output
) -> str:
    from reconciler.cli.serialise import serialise
    from reconciler.render import observe_document, observe_text

    ordered, prices = observe_text.worst_first(tables), config.prices
    if output is Output.NAME:
        return "".join(f"{printable(table.name)}\n" for table in ordered)
    if output in (Output.JSON, Output.YAML):
        items = [observe_document.summary_document(table, prices) for table in ordered]
        body = {"apiVersion": API_VERSION, "kind": "TableObservationList", "items": items}
        return serialise(body, output)
    if output is Output.MARKDOWN:
        return observe_text.markdown_tables(tables, prices) + "\n"
    where = observe_text.where_text(config.name, levels)
    shown = observe_text.render_tables(tables, where, width=terminal.width(), prices=prices)
    return shown + "\n"
