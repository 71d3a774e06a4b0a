"""`layoutctl replay TABLE`: what the last days of queries would have cost under other policies.

The recorded queries run again, batch by batch, on the table in memory: under no policy, under the
one that governs the table, and under those that are named. The table itself is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.options import CatalogName, Files, Format, Output, Quiet, Shared, Table, Timeout

if TYPE_CHECKING:
    from reconciler.api.load import Documents
    from reconciler.api.prices import Prices
    from reconciler.loop.replaying import Rival
    from reconciler.loop.step import Step
    from reconciler.replay.result import Replayed

NONE, MINE = "none", "its policy"

Policy = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="Compare with the policy in this file; may be repeated.",
    ),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(
        "--baseline",
        metavar="NAME",
        help="Compare with sort-all, sort-new, sort-weekly, depth-driven, literal-wair, "
        "literal-wair-one-key, new-tree, free-before or free-after; may be repeated.",
    ),
]
Days = Annotated[
    int, typer.Option("--days", metavar="N", min=1, help="Days before the last query.")
]
Every = Annotated[
    str, typer.Option("--every", metavar="DURATION", help="Time between two decisions.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.svg", help="Draw the costs as they add up."),
]


def replay(
    table: Table,
    file: Files = None,
    policy: Policy = None,
    baseline: Baseline = None,
    days: Days = 30,
    every: Every = "24h",
    plot: Plot = None,
    catalog: CatalogName = None,
    output: Format = Output.TABLE,
    shared: Shared = False,
    timeout: Timeout = 30.0,
    quiet: Quiet = False,
) -> None:
    """Show what the recorded queries would have cost under other policies."""
    import datetime as dt

    from reconciler.cli import shared as sharing
    from reconciler.cli.targets import select
    from reconciler.loop.replaying import Span, replay_table
    from reconciler.render.terminal import bar, progress

    span = Span(days, _milliseconds(every))
    if plot is not None:
        _require_place(plot)
    chosen = select(table, file or [], catalog, timeout=timeout)
    step = chosen.steps[0]
    own = {str(path): _documents_of(path) for path in policy or []}
    rivals = _rivals(step, own, baseline or [])
    if not quiet:
        _warn_of_others(step, own, chosen.documents)
    actor = sharing.actor_of(chosen, timeout, shared)

    def shown(name: str, finished: int, batches: int) -> None:
        progress(f"{bar(finished / batches)} {name}", quiet=quiet)

    found = replay_table(step.target, rivals, span, actor, dt.datetime.now(dt.UTC), shown)
    progress("", quiet=quiet)
    if plot is not None:
        _draw(plot, found)
    _print(found, step.target.catalog.prices, output)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Decide")(replay)


def _print(found: Replayed, prices: Prices | None, output: Output) -> None:
    from reconciler.render.replay_text import document, render
    from reconciler.render.terminal import width

    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(document(found, prices), output), nl=False)
    else:
        typer.echo(render(found, width(), prices))


def _require_place(plot: Path) -> None:
    """Refuse a drawing that could not be written, before the replay takes its time."""
    import importlib.util
    import os

    from reconciler.errors import UserError

    if not os.access(plot.parent, os.W_OK) or plot.is_dir():
        raise UserError(f"cannot write {plot}", do="name a file in a directory you can write")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(
            "--plot needs matplotlib, which is not installed",
            do="pip install 'table-layout-reconciler[report]'",
        )


def _draw(path: Path, found: Replayed) -> None:
    from reconciler.render.plots import added_costs

    path.write_text(added_costs(found))


def _milliseconds(every: str) -> int:
    from reconciler.api.quantities import parse_duration
    from reconciler.errors import UserError

    try:
        seconds = parse_duration(every)
    except ValueError as error:
        raise UserError(f'--every "{every}": {error}', do="for example --every 6h") from error
    if seconds < 60:
        raise UserError(f'--every "{every}" is less than a minute', do="for example --every 6h")
    return seconds * 1000


def _rivals(step: Step, files: Mapping[str, Documents], baselines: list[str]) -> list[Rival]:
    """Return the policies to compare: none and the table's own first."""
    from reconciler.errors import UserError
    from reconciler.loop.replaying import BASELINES, FREE, Rival

    possible = [*BASELINES, *FREE]
    unknown = [name for name in baselines if name not in possible]
    if unknown:
        known = ", ".join(name for name in possible if name != NONE)
        raise UserError(f'--baseline "{unknown[0]}" is not known', do=f"one of {known}")
    mine = step.policy_name or MINE
    rivals = [Rival(NONE, step.policy, NONE), Rival(mine, step.policy)]
    rivals += [Rival(path, documents.policies[0]) for path, documents in files.items()]
    named = [name for name in dict.fromkeys(baselines) if name != NONE]
    rivals += [Rival(name, step.policy, name) for name in named]
    return rivals


def _warn_of_others(step: Step, files: Mapping[str, Documents], known: Documents) -> None:
    """Say which of the files' policies would not govern the table. known: the documents of the
    command, whose catalogs the files may refer to."""
    from reconciler.cli.targets import governing_policy

    config, identifier = step.target.catalog, step.target.identifier
    name = ".".join((config.name, *identifier))
    for path, own in files.items():
        documents = replace(own, catalogs=(*own.catalogs, *known.catalogs))
        if governing_policy(documents, config, identifier) is None:
            typer.echo(
                f"warning: {path} does not select {name}; it is replayed as if it did", err=True
            )


def _documents_of(path: Path) -> Documents:
    """Return the documents of a file, which must have one policy."""
    from reconciler.api.load import load
    from reconciler.errors import UserError

    documents = load([str(path)])
    if len(documents.policies) != 1:
        raise UserError(
            f"{path} has {len(documents.policies)} policies, and --policy takes a file with one",
            do="name a file with one TableLayoutPolicy",
        )
    return documents
