"""`layoutctl history TABLE`: every plan with predicted and actual figures, and the net saving.

A saving is realised by later queries: what they would read and open of the inputs by their old zone
maps, minus what they read of the files that replaced them, in the unit of predictions. Where a part
is not known it is a bound; without later queries there is none. A plan that did not pay back within
its horizon is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from reconciler.api.version import API_VERSION
from reconciler.cli.options import CatalogName, Files, Format, Output, Shared, Table, Timeout

if TYPE_CHECKING:
    from reconciler.advisor.measure.credit import Credit
    from reconciler.advisor.measure.past_plan import PastPlan
    from reconciler.api.prices import Prices
    from reconciler.loop.local_actor import LocalActor
    from reconciler.plan.ledger import LedgerEntry, ReadCheck
    from reconciler.table.observation import Observation


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def history(
        table: Table,
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
        plans = plans_of(actor, observation)
        if output in (Output.JSON, Output.YAML):
            from reconciler.cli.serialise import serialise

            body = _document(observation, plans, config.prices)
            typer.echo(serialise(body, output), nl=False)
        else:
            from reconciler.render.terminal import width

            typer.echo(render_history(observation.name, plans, width(), config.prices))


def plans_of(actor: LocalActor, observation: Observation) -> list[PastPlan]:
    """Return every plan of the table's ledger, oldest first."""
    from reconciler.advisor.measure.past_plan import past_plans
    from reconciler.queries.rewrite_cost import rho_from

    past = actor.history(observation.uuid)
    credits = actor.credits(observation, actor.recorded_queries(observation), past)
    rho = rho_from(past.rho).value
    return past_plans(past.entries, past.checks, credits, rho, past.open_price.bytes)


def render_history(
    name: str, plans: Sequence[PastPlan], width: int, prices: Prices | None = None
) -> str:
    """Return, per plan, oldest first, predicted and actual figures, with its actions below; in
    money too if there are prices."""
    from reconciler.render.terminal import commands, tabulate, wrapped

    if not plans:
        text = wrapped(f"{name}: no rewrite of this table is recorded here.", width)
        return "\n".join([*text, *commands([f"layoutctl plan {name}"], width)])
    rows = [["PLAN, ACTIONS", "STATE", "REWRITTEN", "CPU s", "SAVES / 7 d", "REALISED"]]
    for plan in plans:
        rows += [_plan_row(plan), *(_action_row(entry) for entry in plan.entries)]
    lines = tabulate(rows, "llrrrr", width, indent="  ")
    lines += ["", *_checks(plans, width)] if any(plan.check for plan in plans) else []
    sums = [_net(plans), *([] if prices is None else [_money(plans, prices)])]
    totals = [line for text in sums for line in wrapped(text, width, first="  ", indent="    ")]
    return "\n".join([*wrapped(name, width), *lines, *totals])


def _money(plans: Sequence[PastPlan], prices: Prices) -> str:
    """Return the money that the rewrites cost and that later queries did not pay: that of the bytes
    in `_net`."""
    from reconciler.plan.money import cost_text, money_text, reading

    spent = sum(amounts_of(plan, prices)[0] for plan in plans)
    saved = sum(plan.measured.table_least for plan in plans if plan.measured is not None)
    return (
        f"in money, by the prices of the catalog: {money_text(spent, prices.currency)} spent, "
        f"{cost_text(prices, reading(saved))} saved by measured queries"
    )


def amounts_of(plan: PastPlan, prices: Prices) -> tuple[float, float | None]:
    """Return the money that a plan cost, and what it saved at least; None while no query that
    shows it has run since."""
    from reconciler.plan.money import Usage, cost_of, reading

    spent = Usage(read_bytes=plan.read_bytes, cpu_seconds=plan.cpu_seconds)
    seen = plan.measured
    return cost_of(prices, spent), None if seen is None else cost_of(prices, reading(seen.least))


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
    spent = plan.cpu_seconds
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
    from reconciler.format import duration, saved_text

    seen = plan.measured
    if seen is None:
        if not any(entry.written for entry in plan.entries):
            return "-"
        return "unknown" if plan.realised is None else "no query since"
    age = duration(max(0, seen.until_ms - seen.since_ms) / 1000)
    verdict = "  HARM" if plan.harm else "  NOT PAID" if plan.not_paid else ""
    return f"{saved_text(seen.least, seen.exact)} in {age}{verdict}"


def _net(plans: Sequence[PastPlan]) -> str:
    """Return the savings minus the spending since the beginning, in bytes of reading."""
    from reconciler.format import count, iec, saved_text, utc

    spent = sum(plan.cost for plan in plans)
    cost = f"the rewriting cost as much as reading {iec(spent)}"
    opening = f"opening a file counts as reading {iec(plans[-1].open_bytes)}"
    seen = [plan.measured for plan in plans if plan.measured is not None]
    if not seen:
        return f"no query is known that ran since; {cost}; {opening}"
    exact = all(one.table_exact for one in seen) and not any(
        plan.realised is None and any(entry.written for entry in plan.entries) for plan in plans
    )
    saved = sum(one.table_least for one in seen)
    net = saved - spent
    unknown = max(one.unknown for one in seen)
    parts = [
        f"{saved_text(saved, exact)} saved, measured by queries from "
        f"{utc(min(one.since_ms for one in seen))} to {utc(max(one.until_ms for one in seen))}",
        *([f"{count(round(unknown))} of which the conditions are unknown count as saving nothing"]
          if unknown else []),
        cost,
        opening,
    ]  # fmt: skip
    bound = "" if exact else "at least "
    return (
        f"net since the first rewrite: {bound}{'-' if net < 0 else '+'}{iec(abs(net))} of reading "
        f"({'; '.join(parts)})"
    )


def _document(
    observation: Observation, plans: Sequence[PastPlan], prices: Prices | None
) -> dict[str, Any]:
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
                **_realised(plan.measured),
                **_money_item(plan, prices),
                "tooEarly": plan.too_early,
                "notPaid": plan.not_paid,
                "harm": plan.harm,
                "check": None if plan.check is None else _check(plan.check),
                "actions": [_item(entry) for entry in plan.entries],
            }
            for plan in plans
        ],
    }


def _money_item(plan: PastPlan, prices: Prices | None) -> dict[str, Any]:
    if prices is None:
        return {}
    spent, saved = amounts_of(plan, prices)
    known = None if saved is None else round(saved, 6)
    return {"money": {"currency": prices.currency, "spent": round(spent, 6), "saved": known}}


def _realised(seen: Credit | None) -> dict[str, Any]:
    """Return bounds of the realised saving, and the queries by which it was measured."""
    return {
        "realisedBytes": None if seen is None else round(seen.least),
        "realisedAtMostBytes": None if seen is None else round(seen.most),
        "realisedQueries": 0 if seen is None else round(seen.queries),
        "unknownQueries": 0 if seen is None else round(seen.unknown),
        "realisedSince": None if seen is None else seen.since_ms,
        "realisedUntil": None if seen is None else seen.until_ms,
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
