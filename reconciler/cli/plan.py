"""`layoutctl plan`: what would change, its cost and saving, which queries get slower.

It writes nothing. A printed plan is a preview, computed each time. `--out` and `--publish` freeze
it: `plan` and `apply` then use the frozen plan until it is carried out, expires, or another writer
replaces an input.

One table in full; many tables one line each, by saving, with details behind -v or a table's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import (
    CatalogName,
    Engine,
    Exclude,
    Files,
    Format,
    Output,
    PlanFile,
    Publish,
    Quiet,
    Select,
    Shared,
    ShowLiterals,
    Timeout,
    Verbose,
)
from reconciler.cli.plan_lines import (
    approval_line,
    budgeted,
    lines,
    money_of,
    next_commands,
    with_digest,
)
from reconciler.format import printable

if TYPE_CHECKING:
    from reconciler.cli.following import Given
    from reconciler.cli.targets import Selection
    from reconciler.engines.choice import Chosen
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import Step
    from reconciler.plan.budget import Gate
    from reconciler.plan.plan import Plan
    from reconciler.render.against import Against

    Planned = tuple[Step, Proposal, Gate]

Table = Annotated[
    str | None,
    typer.Argument(metavar="[TABLE]", help="catalog.namespace.table", show_default=False),
]
Refresh = Annotated[
    bool, typer.Option("--refresh", help="Replace the frozen plan, if any, by a new one.")
]
Base = Annotated[
    Path | None,
    typer.Option(
        "--base",
        metavar="FILE",
        help="With -o markdown: compare with this output of `plan -o json`.",
    ),
]
DetailedExitcode = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit 2 when there is work to do.")
]


def plan(
    table: Table = None,
    file: Files = None,
    out: PlanFile = None,
    publish: Publish = False,
    shared: Shared = False,
    catalog: CatalogName = None,
    output: Format = Output.TABLE,
    select: Select = None,
    exclude: Exclude = None,
    refresh: Refresh = False,
    base: Base = None,
    show_literals: ShowLiterals = False,
    detailed_exitcode: DetailedExitcode = False,
    engine: Engine = None,
    timeout: Timeout = 30.0,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Show what would be rewritten, its cost and saving, and which queries get slower."""
    from reconciler.cli.following import given
    from reconciler.cli.shared import actor_of
    from reconciler.cli.targets import select as choose

    against, include = _base_of(base, output), select or ()
    chosen = choose(
        table, file or [], catalog, include=include, exclude=exclude or (), timeout=timeout
    )
    _refuse(chosen, out, publish, show_literals)
    actor = actor_of(chosen, timeout, shared)
    actor.engine = engine
    wanted = {"refresh": refresh, "show_literals": show_literals, "quiet": quiet}
    planned, failed = _plan_all(chosen, actor, many=table is None and out is None, **wanted)
    if refresh and not show_literals:
        for step, proposal, _ in planned:
            replace_frozen(actor, step, proposal)
    if out is not None:
        save(out, actor, planned[0][1].plan)
    uris = published(chosen, actor, planned, timeout) if publish else {}
    detailed = verbose or table is not None or out is not None
    options, engines = given(file, catalog, shared), engines_of(planned, actor)
    shown = Shown(output, detailed, verbose, out, uris, options, against, engines)
    show(planned, failed, shown)
    _exit(planned, failed, detailed_exitcode)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Decide")(plan)


def _exit(planned: list[Planned], failed: list[tuple[Step, Any]], detailed: bool) -> None:
    """Exit with the code of a failure; if it is to be detailed, by whether there is work to do."""
    from reconciler.errors import EXIT_CHANGES

    if failed:
        raise typer.Exit(max(error.exit_code for _, error in failed))
    if detailed and any(proposal.pending for _, proposal, _ in planned):
        raise typer.Exit(EXIT_CHANGES)


def published(
    chosen: Selection, actor: LocalActor, planned: list[Planned], timeout: float
) -> dict[str, str]:
    """Publish and keep the plans; return where they are, by id."""
    from reconciler.cli.shared import publish

    uris = publish(chosen, [proposal.plan for _, proposal, _ in planned], timeout)
    for _, proposal, _ in planned:
        if proposal.plan.id in uris:
            actor.put_plan(proposal.plan)
    return uris


def _base_of(base: Path | None, output: Output) -> Against | None:
    """Return the plans to compare with. Raises UserError before anything is planned."""
    from reconciler.errors import UserError
    from reconciler.render.against import read_base

    if base is None:
        return None
    if output is not Output.MARKDOWN:
        raise UserError(
            f"--base compares in Markdown only, and the output is {output.value}",
            do="add -o markdown, or leave out --base",
        )
    return read_base(base)


def _plan_all(
    chosen: Selection,
    actor: LocalActor,
    *,
    refresh: bool,
    show_literals: bool,
    many: bool,
    quiet: bool,
) -> tuple[list[Planned], list[tuple[Step, Any]]]:
    """Return every table's proposal; among many tables one that fails does not hide the others."""
    from reconciler.errors import ReconcilerError
    from reconciler.render import terminal

    planned: list[Planned] = []
    failed: list[tuple[Step, Any]] = []
    for number, step in enumerate(chosen.steps, start=1):
        name = ".".join(step.target.identifier)
        terminal.progress(f"{number} of {len(chosen.steps)}  {name}", quiet=quiet or not many)
        try:
            planned.append(_plan_one(step, actor, refresh, show_literals))
        except ReconcilerError as error:
            if not many:
                raise
            failed.append((step, error))
    terminal.progress("", quiet=quiet or not many)
    return planned, failed


def _plan_one(step: Step, actor: LocalActor, refresh: bool, show_literals: bool) -> Planned:
    proposal = step.propose(actor, refresh=refresh, show_literals=show_literals)
    return governed(step, actor, proposal)


def governed(step: Step, actor: LocalActor, proposal: Proposal) -> Planned:
    """Return the proposal with its policy written into the plan, and the gate's answer to it."""
    from dataclasses import replace

    from reconciler.loop.evidence import under_policy
    from reconciler.loop.gating import Approvals
    from reconciler.loop.step import judge_gate

    plan = under_policy(proposal.plan, step.policy, step.policy_name, step.not_acted_on)
    proposal = replace(proposal, plan=plan)
    return step, proposal, judge_gate(step, proposal, actor, Approvals())


def replace_frozen(actor: LocalActor, step: Step, proposal: Proposal) -> None:
    """The new plan takes the place of the one that is kept for the table, so that `apply` runs it.
    Where none is kept, a new plan stays a preview."""
    kept = actor.standing_plan(proposal.observation.uuid, step.policy_hash)
    if kept is not None:
        actor.put_plan(proposal.plan)


def engines_of(planned: list[Planned], actor: LocalActor) -> dict[str, Chosen]:
    """Return who would carry each plan out here, by the plan's id."""
    return {
        proposal.plan.id: actor.engine_of(step, proposal.observation, proposal.pending)
        for step, proposal, _ in planned
        if proposal.pending
    }


def _refuse(chosen: Selection, out: Path | None, publish: bool, show_literals: bool) -> None:
    """Refuse, before anything is planned, literals in a plan that others read, and several tables
    where a file is to hold one plan."""
    from reconciler.errors import UserError

    if (out is not None or publish) and show_literals:
        raise UserError(
            f"--show-literals and {'--publish' if publish else '--out'} cannot be combined: "
            "others read the plan",
            do="leave out one of them",
        )
    if out is None or len(chosen.steps) == 1:
        return
    names = [".".join(step.target.identifier) for step in chosen.steps]
    raise UserError(
        f"--out saves one plan, and {len(names)} tables are selected",
        details=(f"They are {', '.join(names[:8])}{', ...' * (len(names) > 8)}.",),
        do="name one table, or narrow with --select",
    )


def save(path: Path, actor: LocalActor, plan: Plan) -> None:
    """Write the plan to the file, and keep it, so that `apply` finds it."""
    from reconciler.errors import UserError
    from reconciler.plan.plan import stored_form

    stored_form(plan)
    document = with_digest(plan)
    try:
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}", do="name a file in a directory you can write"
        ) from error
    actor.put_plan(plan)


@dataclass(frozen=True, slots=True)
class Shown:
    """How plans are shown, and where they are."""

    output: Output
    """The format."""
    detailed: bool
    """Whether a table's plan is shown in full, not as one line."""
    verbose: bool
    """Whether it is shown with all its evidence."""
    saved: Path | None
    """The file that the plan was saved in; None if it was not."""
    uris: Mapping[str, str]
    """Where plans were published, by id."""
    options: Given
    """The options that a command named in the text must repeat."""
    against: Against | None
    """The base to compare with; None without one."""
    engines: Mapping[str, Chosen]
    """Who would carry out the plans that have work, by their ids."""


def show(planned: list[Planned], failed: list[tuple[Step, Any]], shown: Shown) -> None:
    output, uris = shown.output, shown.uris
    documents = [_document(proposal, shown) for _, proposal, _ in planned]
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        body = documents[0] if len(documents) == 1 and not failed else _listing(documents, failed)
        typer.echo(serialise(body, output), nl=False)
    elif output is Output.MARKDOWN:
        typer.echo(_markdown(planned, failed, shown), nl=False)
    elif output is Output.NAME:
        for document in documents:
            typer.echo(document["planId"])
    elif shown.detailed:
        texts = [_text(*item, shown) for item in planned]
        typer.echo("\n\n".join(texts))
    elif planned:
        typer.echo(lines(planned, wide=output is Output.WIDE))
        for line in (*_published_lines(planned, uris), *_first_of(planned, shown)):
            typer.echo(line)
    if output not in (Output.JSON, Output.YAML):
        for step, error in failed:
            typer.echo(f"{printable('.'.join(step.target.identifier))}: {error.render()}", err=True)


def _markdown(planned: list[Planned], failed: list[tuple[Step, Any]], shown: Shown) -> str:
    from reconciler.render.markdown import render_plans

    against = shown.against
    named = [(".".join(step.target.identifier), error.what) for step, error in failed]
    bodies = [
        {**budgeted(proposal, gate, None), "digest": proposal.plan.digest()}
        for _, proposal, gate in planned
    ]
    if against is not None:
        against = against.beside(bodies, [name for name, _ in named])
    approvals = [_approval(*item, shown.uris) for item in planned]
    return render_plans(bodies, named, approvals, against)


def _engine(shown: Shown, proposal: Proposal) -> dict[str, Any]:
    chosen = shown.engines.get(proposal.plan.id)
    return {} if chosen is None else {"engine": {"type": chosen.engine.value, "why": chosen.why}}


def _first_of(planned: list[Planned], shown: Shown) -> list[str]:
    """Return the command that shows the table with most to save, of those with work."""
    from reconciler.cli.following import plan_command
    from reconciler.cli.plan_lines import saved_per_day
    from reconciler.render import terminal
    from reconciler.render.terminal import commands

    pending = [proposal for _, proposal, _ in planned if proposal.pending]
    if not pending:
        return []
    first = max(pending, key=saved_per_day)
    return commands([plan_command(first.observation.name, shown.options)], terminal.width())


def _published_lines(planned: list[Planned], uris: Mapping[str, str]) -> list[str]:
    """Return, for many tables, what to approve and where it is stored."""
    published = [p.plan for _, p, _ in planned if p.plan.id in uris]
    if not published:
        return []
    lines = ["", "Published. To approve, add to the policy under spec.approval.approvedPlans:"]
    for plan in published:
        lines += [f"  - {plan.id}  # {'.'.join(plan.table)}", f"      {uris[plan.id]}"]
    return lines


def _approval(step: Step, proposal: Proposal, gate: Gate, uris: Mapping[str, str]) -> str:
    """Return how the plan can be approved, for a pull request."""
    text = f"Approval: {approval_line(step, gate)}."
    if proposal.plan.id in uris:
        text += " Published."
    return text


def _listing(documents: list[dict[str, Any]], failed: list[tuple[Step, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "LayoutPlanList",
        "items": documents,
        "errors": [
            {"table": list(step.target.identifier), "error": error.what} for step, error in failed
        ],
    }


def preview(step: Step, actor: LocalActor) -> tuple[str, dict[str, Any]]:
    """Return one table's plan as `plan TABLE` prints it, and as it does with -o json."""
    from reconciler.cli.following import given

    planned = _plan_one(step, actor, False, False)
    engines = engines_of([planned], actor)
    shown = Shown(Output.TABLE, True, False, None, {}, given(None, None, False), None, engines)
    return _text(*planned, shown), _document(planned[1], shown)


def _document(proposal: Proposal, shown: Shown) -> dict[str, Any]:
    from reconciler.loop.remaining import progress

    return {
        **with_digest(proposal.plan, shown.uris), **progress(proposal),
        **_engine(shown, proposal), **money_of(proposal),
    }  # fmt: skip


def _text(
    step: Step,
    proposal: Proposal,
    gate: Gate,
    shown: Shown,
) -> str:
    from reconciler.render import terminal
    from reconciler.render.plan_text import render_plan

    saved, uris = shown.saved, shown.uris
    text = render_plan(
        budgeted(proposal, gate, shown.engines.get(proposal.plan.id)),
        width=terminal.width(),
        preview=saved is None and not proposal.frozen and proposal.plan.id not in uris,
        approval=approval_line(step, gate),
        verbose=shown.verbose,
        following=next_commands(proposal, saved, shown.options),
    )
    if saved is not None:
        text += f"\n  Written to {saved}, with the policy under which it was made."
    elif proposal.frozen and proposal.plan.id not in uris:
        since = f"{proposal.plan.created:%Y-%m-%dT%H:%M:%SZ}"
        text += f"\n  This plan has been frozen since {since}; --refresh makes a new one."
    if proposal.plan.id in uris:
        from reconciler.cli.shared import published_text

        text += f"\n{published_text(proposal.plan, uris[proposal.plan.id])}"
    if proposal.newer is not None:
        text += f"\n  Newer evidence would change it to {proposal.newer.id}: see --refresh."
    return text
