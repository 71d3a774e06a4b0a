"""`layoutctl recommend`: which layout to declare for a table, as a policy ready for review.

Reads the recorded queries and a sample, changes nothing but, with `--out`, the named file. Several
tables are ranked: which to change first under the budgets of their policies.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.cli.in_cluster import Kubeconfig, Namespace
from reconciler.cli.options import (
    CatalogName,
    Exclude,
    Files,
    Format,
    Output,
    Quiet,
    Select,
    Shared,
    Timeout,
    Verbose,
)
from reconciler.format import printable

if TYPE_CHECKING:
    from reconciler.api.documents import TableLayoutPolicy
    from reconciler.cli.targets import Selection
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.ports import Target
    from reconciler.loop.recommend import Options, Recommended
    from reconciler.loop.recommend_tables import Answer, Failed

Tables = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TABLE]...",
        help="catalog.namespace.table; several are ranked.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write the layout into this policy file, which is created if missing.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write a page with plots."),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="How to choose: simulation, boosting, forest, tpe, random, expert, default, mddl.",
    ),
]
Costs = Annotated[
    str,
    typer.Option(
        "--costs",
        help="Cost of opening files and row groups: local or object-store. Default: as in "
        "the table's plans.",
        show_default=False,
    ),
]
Horizon = Annotated[
    str,
    typer.Option("--horizon", metavar="DURATION", help="Time over which a rewrite has to pay."),
]
SampleBytes = Annotated[
    str,
    typer.Option("--sample-bytes", metavar="BYTES", help="Most bytes to read for the sample."),
]
SampleRows = Annotated[
    int,
    typer.Option("--sample-rows", metavar="ROWS", min=1_000, max=600_000, help="Rows to sample."),
]
KeepPartitioning = Annotated[
    bool,
    typer.Option("--keep-partitioning", help="Consider the present partition spec only."),
]
FromCluster = Annotated[
    bool,
    typer.Option("--from-cluster", help="Print what the operator's last recommend job found."),
]


def recommend(
    tables: Tables = None,
    file: Files = None,
    out: Out = None,
    html: Html = None,
    method: Method = "simulation",
    costs: Costs = "",
    horizon: Horizon = "720h",
    sample_bytes: SampleBytes = "10Gi",
    sample_rows: SampleRows = 120_000,
    keep_partitioning: KeepPartitioning = False,
    from_cluster: FromCluster = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    shared: Shared = False,
    catalog: CatalogName = None,
    output: Format = Output.TABLE,
    select: Select = None,
    exclude: Exclude = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Recommend which partitioning, sort order and sizes to declare, and for which table first."""
    from reconciler.cli import shared as sharing
    from reconciler.cli.targets import select_tables
    from reconciler.loop.recommend import Options

    named = tables or []
    if from_cluster:
        table = _one_named(named)
        _from_cluster(table, namespace, kubeconfig, out, output, timeout, verbose=verbose)
        return
    options = Options(
        method=method, costs=costs, horizon_ms=_seconds(horizon) * 1000,
        sample_bytes=_bytes(sample_bytes), sample_rows=sample_rows,
        keep_partitioning=keep_partitioning,
    )  # fmt: skip
    chosen = select_tables(
        named, file or [], catalog, include=select or (), exclude=exclude or (), timeout=timeout
    )
    _refuse_many(chosen, out, html)
    actor = sharing.actor_of(chosen, timeout, shared)
    recommend_for = _one if len(chosen.steps) == 1 else _several
    recommend_for(chosen, actor, options, Destination(out, html, output, verbose, quiet))


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Decide")(recommend)


@dataclass(frozen=True, slots=True)
class Destination:
    """What becomes of a recommendation."""

    out: Path | None
    """The file to write the policy to; None for none."""
    html: Path | None
    """The file to write the page to; None for none."""
    output: Output
    """The format of what is printed."""
    verbose: bool
    """Whether all of it is printed."""
    quiet: bool
    """Whether progress is not shown."""


def _one(chosen: Selection, actor: LocalActor, options: Options, wanted: Destination) -> None:
    from reconciler.loop.recommend import recommended
    from reconciler.loop.recommendation_document import recommendation_document
    from reconciler.render.terminal import progress

    target = chosen.steps[0].target
    progress("sampling and simulating", quiet=wanted.quiet)
    made = recommended(target, actor, options, dt.datetime.now(dt.UTC))
    progress("", quiet=wanted.quiet)
    body = recommendation_document(made)
    written = "" if wanted.out is None else _write(wanted.out, body, target)
    if wanted.html is not None:
        _page(wanted.html, body)
    _print(body, wanted.output, body["table"], written, verbose=wanted.verbose)


def _several(chosen: Selection, actor: LocalActor, options: Options, wanted: Destination) -> None:
    """Rank the tables. One that fails does not hide the others, but the exit code says so."""
    from reconciler.errors import ReconcilerError
    from reconciler.loop.recommend import checked, recommended
    from reconciler.loop.recommend_tables import Failed, ranked
    from reconciler.render.terminal import progress
    from reconciler.table.observation import quoted_name

    checked(options)
    answers: list[Answer] = []
    failed: list[Failed] = []
    for number, step in enumerate(chosen.steps, start=1):
        name = quoted_name((step.target.catalog.name, *step.target.identifier))
        progress(f"{number} of {len(chosen.steps)}  {name}", quiet=wanted.quiet)
        try:
            made = recommended(step.target, actor, options, dt.datetime.now(dt.UTC))
            answers.append(_answer(made, step.policy, step.policy_name, actor))
        except ReconcilerError as error:
            failed.append(Failed(name, error))
    progress("", quiet=wanted.quiet)
    body = ranked(answers, failed, dt.datetime.now(dt.UTC))
    _print_ranked(body, wanted.output, verbose=wanted.verbose)
    if failed:
        if wanted.output in (Output.TABLE, Output.WIDE, Output.NAME):
            for item in failed:
                typer.echo(f"{printable(item.table)}: {item.error.render()}", err=True)
        raise typer.Exit(max(item.error.exit_code for item in failed))


def _answer(
    made: Recommended, policy: TableLayoutPolicy, policy_name: str, actor: LocalActor
) -> Answer:
    from reconciler.loop.decision_settings import budgets_of
    from reconciler.loop.gating import policy_key
    from reconciler.loop.recommend_tables import Answer
    from reconciler.loop.recommendation_document import recommendation_document

    key = policy_key(policy)
    return Answer(
        document=recommendation_document(made),
        policy=policy_name,
        policy_key=key,
        budgets=budgets_of(policy.spec),
        spent=actor.spent(key, made.observation.uuid),
    )


def _one_named(named: Sequence[str]) -> str:
    from reconciler.errors import UserError

    if len(named) == 1:
        return named[0]
    raise UserError(
        f"--from-cluster prints one table, and {len(named) or 'none'} "
        f"{'are' if named else 'is'} named",
        do="name one table: layoutctl recommend TABLE --from-cluster",
    )


def _refuse_many(chosen: Selection, out: Path | None, html: Path | None) -> None:
    """Refuse several tables before anything is sampled: a policy file gets one layout."""
    from reconciler.errors import UserError

    if len(chosen.steps) == 1 or (out is None and html is None):
        return
    option = "--out" if out is not None else "--html"
    names = [".".join(step.target.identifier) for step in chosen.steps]
    raise UserError(
        f"{option} writes one layout, and {len(names)} tables are selected",
        details=(f"They are {', '.join(names[:8])}{', ...' * (len(names) > 8)}.",),
        do=f"rank them without {option}, then name one table",
    )


def _from_cluster(
    table: str, namespace: str | None, kubeconfig: str | None, out: Path | None, output: Output,
    timeout: float, *, verbose: bool,
) -> None:  # fmt: skip
    from reconciler.cli import recommend_from_cluster as cluster
    from reconciler.render.terminal import UNLIMITED, width

    found = cluster.look_up(table, namespace, kubeconfig)
    written = "" if out is None else _write(out, cluster.declared(found), found.target())
    if output in (Output.TABLE, Output.WIDE):
        columns = UNLIMITED if output is Output.WIDE else width()
        typer.echo(cluster.text(found, columns, written))
    elif output is Output.NAME:
        typer.echo(f"{found.recommendation['id']} {found.reason}")
    else:
        _print(cluster.whole(found, timeout), output, table, written, verbose=verbose)


def _page(path: Path, body: Mapping[str, Any]) -> None:
    from reconciler.render.recommend_html import render as as_html

    _save(path, as_html(body))


def _seconds(text: str) -> int:
    from reconciler.api.quantities import parse_duration
    from reconciler.errors import UserError

    try:
        found = parse_duration(text)
    except ValueError:
        found = 0
    if not found:
        raise UserError(f'--horizon "{text}" is not a duration', do="write it as 720h or 24h30m")
    return found


def _bytes(text: str) -> int:
    from reconciler.api.quantities import parse_bytes
    from reconciler.errors import UserError

    try:
        return parse_bytes(text)
    except ValueError:
        raise UserError(
            f'--sample-bytes "{text}" is not a size', do="write it as 10Gi or 500Mi"
        ) from None


def _print(
    body: Mapping[str, Any], output: Output, table: str, written: str, *, verbose: bool
) -> None:
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(body, output), nl=False)
    elif output is Output.NAME:
        typer.echo(body["chosen"] or "today")
    elif output is Output.MARKDOWN:
        from reconciler.render.recommend_markdown import render as as_markdown

        typer.echo(as_markdown(body), nl=False)
    else:
        from reconciler.render.recommend_text import render
        from reconciler.render.terminal import UNLIMITED, width

        columns = UNLIMITED if output is Output.WIDE else width()
        typer.echo(
            render(body, columns, verbose=verbose, following=_following(body, table, written))
        )


def _print_ranked(body: Mapping[str, Any], output: Output, *, verbose: bool) -> None:
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        typer.echo(serialise(body, output), nl=False)
    elif output is Output.NAME:
        for item in body["items"]:
            typer.echo(f"{printable(item['table'])} {item['recommendation']['chosen'] or 'today'}")
    elif output is Output.MARKDOWN:
        from reconciler.render.recommend_tables_markdown import render as as_markdown

        typer.echo(as_markdown(body), nl=False)
    else:
        from reconciler.render.recommend_tables_text import render
        from reconciler.render.recommend_text import render as one_text
        from reconciler.render.terminal import UNLIMITED, width

        columns = UNLIMITED if output is Output.WIDE else width()
        first = next((item for item in body["items"] if item["fits"]), None)
        following = () if first is None else _following(first["recommendation"], first["table"], "")
        typer.echo(render(body, columns, following=following))
        for item in body["items"] if verbose else ():
            typer.echo("\n" + one_text(item["recommendation"], columns, verbose=True))


def _following(body: Mapping[str, Any], table: str, written: str) -> tuple[str, ...]:
    if not body["policy"]:
        return ()
    if written:
        return (f"git diff {written}", f"layoutctl plan {table} -f {written}")
    return (f"layoutctl recommend {table} --out layouts/{table.split('.')[-1]}.yaml",)


def _write(out: Path, body: Mapping[str, Any], target: Target) -> str:
    """Write the layout into the policy at `out`, of which nothing else changes; "" if nothing is to
    be declared."""
    from reconciler.errors import UserError

    if not body["policy"]:
        if body["chosen"] is not None:
            raise UserError(
                f"a layout of the method {body['method']} cannot be declared",
                do="leave out --out, or choose another --method; nothing was written",
            )
        return ""
    text = _edited(out, body["policy"], target) if out.exists() else _fresh(body["policy"], target)
    _save(out, text)
    return str(out)


def _save(path: Path, text: str) -> None:
    from reconciler.errors import UserError

    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}", do="name a file in a directory that exists"
        ) from error


def _fresh(policy: Mapping[str, Any], target: Target) -> str:
    from reconciler.api.policy_edit import edited
    from reconciler.api.template import policy_template
    from reconciler.loop.recommendation_document import policy_changes

    template = policy_template(target.identifier, target.catalog.name)
    return edited(template, 0, policy_changes(policy))


def _edited(out: Path, policy: Mapping[str, Any], target: Target) -> str:
    """Return the text of the file with the layout in the policy that governs the table."""
    from reconciler.api.load import load
    from reconciler.api.policy_edit import CannotEditError, block, edited
    from reconciler.api.source import parse_yaml
    from reconciler.cli.targets import governing_policy
    from reconciler.errors import UserError
    from reconciler.loop.recommendation_document import policy_changes

    documents = load([out])
    found = governing_policy(documents, target.catalog, target.identifier)
    if found is None:
        raise UserError(
            f"no policy in {out} selects {'.'.join(target.identifier)}",
            do="name the file of the table's policy, or one that does not exist yet; "
            "nothing was written",
        )
    with out.open(newline="") as file:
        text = file.read()
    changes = policy_changes(policy, found.spec.layout.clustering.mode)
    lines = [document.line for document in parse_yaml(text, str(out))[0]]
    try:
        return edited(text, lines.index(found.origin.line), changes)
    except (CannotEditError, ValueError) as error:
        raise UserError(
            f"{out} was not changed: {error}",
            details=("Merge these fields by hand:", *block(changes).splitlines()),
            do="merge them, or use --out with a file that does not exist yet",
        ) from error
