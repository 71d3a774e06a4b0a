"""`layoutctl history TABLE`: every plan with predicted and actual figures, and the net saving.

A saving is realised by later queries: what they would read and open of the inputs by their old zone
maps, minus what they read of the files that replaced them, in the unit of predictions. It is
measured per plan, because one commit may contain several actions. A plan that did not pay back
within its horizon is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import CatalogName, Files, Format, Output, Shared, Timeout

if TYPE_CHECKING:
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.measure import Realised
    from reconciler.plan.ledger import LedgerEntry, ReadCheck
    from reconciler.queries.fragments import Fragment
    from reconciler.table.observation import Observation

HORIZON_MS = 7 * 86_400_000


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def history(
        table: Annotated[str, typer.Argument(metavar="TABLE", help="catalog.namespace.table")],
        file: Files = None,
        catalog: CatalogName = None,
        output: Format = Output.TABLE,
        shared: Shared = False,
        timeout: Timeout = 30.0,
    ) -> None:
        """Show what was done to a table: predicted, actual, and whether it paid."""
        from reconciler.catalog.discover import resolve_table
        from reconciler.cli.shared import actor_on, catalogs_under
        from reconciler.loop.ports import Target

        documents = catalogs_under(file)
        config, identifier = resolve_table(table, catalog, documents)
        actor = actor_on(config, documents, timeout, shared)
        observation = actor.observe(Target(config, identifier))
        plans = past_plans(actor, observation)
        if output in (Output.JSON, Output.YAML):
            from reconciler.cli.serialise import serialise

            typer.echo(serialise(_document(observation, plans), output), nl=False)
        else:
            from reconciler.render.terminal import width

            typer.echo(render_history(observation.name, plans, width()))


@dataclass(frozen=True, slots=True)
class PastPlan:
    """A plan that was carried out at least in part. rho: cost of a rewritten byte in bytes of
    reading. check: the recorded queries before, as predicted and afterwards. open_bytes: the price
    of opening a file."""

    plan_id: str
    entries: tuple[LedgerEntry, ...]
    realised: Realised | None
    rho: float
    open_bytes: int
    check: ReadCheck | None = None

    @property
    def at_ms(self) -> int:
        return max(entry.at_ms for entry in self.entries)

    @property
    def read_bytes(self) -> int:
        return sum(entry.outcome.read_bytes for entry in self.entries)

    @property
    def cost(self) -> float:
        return self.rho * self.read_bytes

    @property
    def saved(self) -> float | None:
        return None if self.realised is None else self.realised.saved

    @property
    def harm(self) -> bool:
        """Whether queries cost more than before: later ones, or the recorded ones until a day of
        later ones is known."""
        seen = self.realised
        if seen is None or seen.saved is None or seen.too_early:
            return self.check is not None and self.check.harm
        return seen.saved < 0

    @property
    def not_paid(self) -> bool:
        """Whether its horizon of 7 days has passed and it saved less than it cost."""
        seen = self.realised
        if seen is None or seen.saved is None:
            return False
        return seen.until_ms - self.at_ms >= HORIZON_MS and seen.saved < self.cost


def past_plans(actor: LocalActor, observation: Observation) -> list[PastPlan]:
    """Return every plan of the ledger, oldest first."""
    from reconciler.loop.propose import open_bytes_of
    from reconciler.queries.rewrite_cost import rho_from

    past = actor.history(observation.uuid)
    rho = rho_from(past.rho).value
    fragments = actor.store.fragments(observation.uuid)
    checks = {check.plan_id: check for check in past.checks}
    by_plan: dict[str, list[LedgerEntry]] = {}
    for entry in past.entries:
        if entry.outcome.action_id:
            by_plan.setdefault(entry.plan_id, []).append(entry)
    return [
        PastPlan(
            plan_id,
            tuple(entries),
            _realised(actor, observation, entries, fragments, price),
            rho,
            price,
            checks.get(plan_id),
        )
        for plan_id, entries in by_plan.items()
        for price in (open_bytes_of(actor.store.get_plan(plan_id)),)
    ]


def _realised(
    actor: LocalActor,
    observation: Observation,
    entries: Sequence[LedgerEntry],
    fragments: list[Fragment],
    open_bytes: int,
) -> Realised | None:
    """Return the realised saving; None while nothing is committed, or if the outputs were
    rewritten."""
    from reconciler.loop.measure import live_outputs, realised_saving

    done = [entry for entry in entries if entry.committed]
    if not done:
        return None
    plan_id = done[0].plan_id
    actions = sorted({entry.outcome.action_id for entry in done})
    before = [actor.store.old_zone_maps(plan_id, action) for action in actions]
    written = actor.outputs(observation.uuid, plan_id)
    after = live_outputs(observation.files, written)
    if not written or len(after) < len(written):
        return None
    inputs = [files for files in before if files is not None]
    since_ms = max(entry.at_ms for entry in done)
    return realised_saving(inputs, after, fragments, since_ms, open_bytes)


def render_history(name: str, plans: Sequence[PastPlan], width: int) -> str:
    """Return, per plan, oldest first, predicted and actual figures, with its actions below."""
    from reconciler.render.terminal import commands, tabulate, wrapped

    if not plans:
        text = wrapped(f"{name}: no rewrite of this table is recorded here.", width)
        return "\n".join([*text, *commands([f"layoutctl plan {name}"], width)])
    rows = [["PLAN, ACTIONS", "STATE", "REWRITTEN", "CPU s", "SAVES / 7 d", "REALISED"]]
    for plan in plans:
        rows += [_plan_row(plan), *(_action_row(entry) for entry in plan.entries)]
    lines = tabulate(rows, "llrrrr", width, indent="  ")
    lines += ["", *_checks(plans, width)] if any(plan.check for plan in plans) else []
    return "\n".join(
        [*wrapped(name, width), *lines, *wrapped(_net(plans), width, first="  ", indent="    ")]
    )


def _checks(plans: Sequence[PastPlan], width: int) -> list[str]:
    """Return, per plan, the table's files and what the recorded queries read: before, as predicted,
    and on the new files."""
    from reconciler.render.terminal import tabulate

    rows = [["RECORDED QUERIES", "BEFORE", "PREDICTED", "FOUND", ""]]
    for plan in plans:
        if plan.check is not None:
            rows += _check_rows(plan.check)
    return tabulate(rows, "lrrrl", width, indent="  ")


def _check_rows(check: ReadCheck) -> list[list[str]]:
    from reconciler.format import count, iec

    files = (check.files_before, check.files_predicted, check.files_actual)
    read = (check.before, check.predicted, check.actual)
    cost = (check.cost_before, check.cost_predicted, check.cost_actual)
    lines = [
        [f"{check.plan_id[:10]} files", *_known(files, count), ""],
        ["  read", *_known(read, iec), ""],
        ["  with files opened", *_known(cost, iec), "HARM" if check.harm else ""],
    ]
    if not check.complete:
        for line in lines:
            line[2] = "-"  # predicted for the whole plan, of which this was a part
    return lines


def _known(values: Sequence[int | None], text: Callable[[float], str]) -> list[str]:
    return ["-" if value is None else text(value) for value in values]


def _plan_row(plan: PastPlan) -> list[str]:
    from reconciler.format import iec, utc
    from reconciler.plan.prediction import total

    predicted = total({e.outcome.action_id: e.predicted for e in plan.entries}.values())
    spent = sum(e.outcome.cpu_seconds for e in plan.entries)
    return [
        f"{utc(plan.at_ms)} {plan.plan_id[:10]}", "", iec(plan.read_bytes),
        _cpu(predicted.cpu_seconds, spent),
        iec(predicted.saving) if predicted.saving else "-", _realised_text(plan),
    ]  # fmt: skip


def _action_row(entry: LedgerEntry) -> list[str]:
    from reconciler.format import iec

    label = entry.predicted.label
    return [
        f"  {entry.outcome.action_id} {entry.action_type if label is None else label}",
        entry.outcome.state,
        iec(entry.outcome.read_bytes),
        _cpu(entry.predicted.cpu_seconds, entry.outcome.cpu_seconds),
        "", "",
    ]  # fmt: skip


def _cpu(predicted: float, actual: float) -> str:
    """Return predicted and actual CPU; work that was settled after a crash has no measured CPU
    time."""
    return f"{predicted:.0f} -> {actual:.0f}" if actual > 0 else f"{predicted:.0f} -> -"


def _realised_text(plan: PastPlan) -> str:
    from reconciler.format import duration, iec

    seen = plan.realised
    if seen is None:
        return "-"
    if seen.saved is None or seen.too_early:
        return "too early"
    saved = iec(seen.saved) if seen.saved >= 0 else f"-{iec(-seen.saved)}"
    age = duration((seen.until_ms - plan.at_ms) / 1000)
    verdict = "  HARM" if plan.harm else "  NOT PAID" if plan.not_paid else ""
    return f"{saved} in {age}{verdict}"


def _net(plans: Sequence[PastPlan]) -> str:
    """Return the savings minus the spending since the beginning, in bytes of reading."""
    from reconciler.format import iec

    spent = sum(plan.cost for plan in plans)
    saved = sum(plan.saved or 0.0 for plan in plans)
    net = saved - spent
    known = sorted({plan.open_bytes for plan in plans})
    prices = iec(known[0]) if len(known) == 1 else f"{iec(known[0])} to {iec(known[-1])}, by plan"
    return (
        f"net since the first rewrite: {'-' if net < 0 else '+'}{iec(abs(net))} of reading "
        f"({iec(max(saved, 0.0))} saved; the rewriting cost as much as reading {iec(spent)}; "
        f"opening a file counts as reading {prices})"
    )


def _document(observation: Observation, plans: Sequence[PastPlan]) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "TableHistory",
        "table": observation.name,
        "items": [
            {
                "planId": plan.plan_id,
                "time": plan.at_ms,
                "rewrittenBytes": plan.read_bytes,
                "costBytes": round(plan.cost),
                "realisedBytes": None if plan.saved is None else round(plan.saved),
                "tooEarly": plan.realised is None or plan.realised.too_early,
                "notPaid": plan.not_paid,
                "harm": plan.harm,
                "check": None if plan.check is None else _check(plan.check),
                "actions": [_item(entry) for entry in plan.entries],
            }
            for plan in plans
        ],
    }


def _check(check: ReadCheck) -> dict[str, Any]:
    """Return files, bytes and cost of the recorded queries, each before, predicted and found."""
    return {
        "complete": check.complete,
        "harm": check.harm,
        "files": _span(check.files_before, check.files_predicted, check.files_actual),
        "readBytes": _span(check.before, check.predicted, check.actual),
        "readCost": _span(check.cost_before, check.cost_predicted, check.cost_actual),
    }


def _span(before: int | None, predicted: int | None, found: int | None) -> dict[str, Any]:
    return {"before": before, "predicted": predicted, "found": found}


def _item(entry: LedgerEntry) -> dict[str, Any]:
    outcome = entry.outcome
    return {
        "actionId": outcome.action_id,
        "type": entry.action_type,
        "state": outcome.state,
        "snapshotId": None if outcome.snapshot_id is None else str(outcome.snapshot_id),
        "predicted": entry.predicted.document(),
        "rewrittenBytes": outcome.read_bytes,
        "writtenBytes": outcome.written_bytes,
        "rows": outcome.rows,
        "cpuSeconds": outcome.cpu_seconds,
        "seconds": outcome.seconds,
    }
