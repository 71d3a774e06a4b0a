"""`layoutctl status`: whether each table has converged, and if not the reason."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
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
    Shared,
    Timeout,
)
from reconciler.format import printable

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.propose import Proposal
    from reconciler.loop.step import Step, TableState
    from reconciler.plan.budget import Gate

DEFAULT_DIRECTORY = "layouts"
DAY = dt.timedelta(hours=24)


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Look")
    def status(
        table: Annotated[
            str | None,
            typer.Argument(metavar="[TABLE]", help="catalog.namespace.table", show_default=False),
        ] = None,
        file: Files = None,
        catalog: CatalogName = None,
        output: Format = Output.TABLE,
        select: Select = None,
        exclude: Exclude = None,
        shared: Shared = False,
        timeout: Timeout = 30.0,
        quiet: Quiet = False,
    ) -> None:
        """Show which tables have converged, and why the others have not."""
        from reconciler.cli.shared import actor_of
        from reconciler.cli.targets import select as choose
        from reconciler.render import terminal

        files = file or ([DEFAULT_DIRECTORY] if not table and Path(DEFAULT_DIRECTORY).is_dir()
                         else [])  # fmt: skip
        chosen = choose(
            table, files, catalog, include=select or (), exclude=exclude or (), timeout=timeout
        )
        actor = actor_of(chosen, timeout, shared)
        found = []
        for number, step in enumerate(chosen.steps, start=1):
            name = ".".join(step.target.identifier)
            terminal.progress(f"{number} of {len(chosen.steps)}  {name}", quiet=quiet)
            found.append(_look(step, actor))
        terminal.progress("", quiet=quiet)
        _print(found, output)
        for row in found:
            if "error" in row:
                where = f"{printable(row['table'])}: " if len(found) > 1 else ""
                typer.echo(where + row["error"], err=True)
        worst = max((row["exitCode"] for row in found), default=0)
        if worst:
            raise typer.Exit(worst)


def _look(step: Step, actor: LocalActor) -> dict[str, Any]:
    """Return one table's line as data.

    An error of the table becomes its state and does not hide other tables; an error of the state
    directory is raised.
    """
    from reconciler.errors import ReconcilerError, StateError
    from reconciler.loop.gating import Approvals
    from reconciler.loop.step import judge_gate, state_of
    from reconciler.table.observation import quoted_name

    name = quoted_name((step.target.catalog.name, *step.target.identifier))
    try:
        proposal = step.propose(actor)
        gate = judge_gate(step, proposal, actor, Approvals())
    except StateError:
        raise
    except ReconcilerError as error:
        return _failed(name, error)
    return _row(name, step, proposal, gate, state_of(proposal, gate))


def _failed(name: str, error: ReconcilerError) -> dict[str, Any]:
    from reconciler.api.conditions import Reason, stalled_by
    from reconciler.errors import UnavailableError, UserError

    state, reason = "Unknown", "Error"
    if isinstance(error, UnavailableError):
        reason = Reason.CATALOG_UNAVAILABLE.value
    elif isinstance(error, UserError):
        state, reason = "Stalled", stalled_by(error).value
    return {
        "table": name,
        "state": state,
        "reason": reason,
        "message": error.what,
        "error": error.render(),
        "exitCode": error.exit_code,
    }


def _row(
    name: str,
    step: Step,
    proposal: Proposal,
    gate: Gate,
    state: TableState,
) -> dict[str, Any]:
    from reconciler.loop.local_actor import spent_since
    from reconciler.loop.waiting import refused, waiting
    from reconciler.plan.prediction import total

    now = step.clock()
    waits = waiting(proposal.advice, proposal.observation, proposal.settings)
    amplification = _amplification(proposal)
    limit = step.policy.spec.objectives.max_scan_amplification
    return {
        "table": name,
        "state": state.state,
        "reason": state.reason,
        "message": state.message,
        "planId": proposal.plan.id if proposal.pending else None,
        "policy": step.policy_name,
        "scanAmplification": amplification,
        "scanAmplificationObjective": None if limit is None else str(limit),
        "waiting": waits.document() if waits else None,
        "refused": refused(proposal.observation, step.policy) if proposal.pending else "",
        "deletes": _deletes(proposal),
        "pendingBytes": total(a.predicted for a in proposal.pending).bytes_in,
        "spentBytes": spent_since(proposal.history.entries, now - DAY),
        "budgetBytes": _budget_limit(gate),
        "since": since(proposal, state),
        **_money(step, proposal, now - DAY),
        "exitCode": 0,
    }


def _money(step: Step, proposal: Proposal, since: dt.datetime) -> dict[str, Any]:
    """Return what the pending work costs and saves and what was spent in money, {} without
    prices."""
    from reconciler.plan.money import status_money
    from reconciler.plan.prediction import total

    prices = step.target.catalog.prices
    if prices is None:
        return {}
    start = int(since.timestamp() * 1000)
    past = [entry.outcome for entry in proposal.history.entries if entry.at_ms >= start]
    pending = total(item.predicted for item in proposal.pending)
    read, seconds = sum(one.read_bytes for one in past), sum(one.cpu_seconds for one in past)
    return {"money": status_money(prices, pending, proposal.open_bytes, read, seconds)}


def _deletes(proposal: Proposal) -> dict[str, Any] | None:
    """Return the deletes of the table, None without a live delete file."""
    from reconciler.render.deletes_text import deletes_document

    seen = proposal.observation
    if not len(seen.delete_files):
        return None
    return {"storedRows": seen.files.total_records, **deletes_document(seen)}


def _amplification(proposal: Proposal) -> float | None:
    value = proposal.advice.amplification_now
    return round(value, 2) if not proposal.queries.workload.empty and value == value else None


def _budget_limit(gate: Gate) -> int | None:
    limits = [
        state.budget.max_rewrite_bytes
        for state in gate.budgets
        if state.budget.max_rewrite_bytes is not None and state.budget.per_seconds
    ]
    return min(limits, default=None)


def since(proposal: Proposal, state: TableState) -> str | None:
    """Return the time of the state's cause, None if it is not recorded anywhere.

    Work exists since its plan was frozen or, while it is only a preview, since the snapshot that it
    is planned on. A spent budget is full since the last action. A table rests since its last
    action, and an objective is missed since the snapshot on which it was judged.
    """
    from reconciler.api.conditions import Reason
    from reconciler.format import utc

    seen = proposal.observation
    snapshot = seen.snapshot_ms if seen.snapshot_id is not None else None
    acted = max((e.at_ms for e in proposal.history.entries if e.committed), default=None)
    if state.reason in (Reason.SUSPENDED, Reason.PAUSED, Reason.OWNED_ELSEWHERE,
                        Reason.OTHER_OPTIMIZER, Reason.CATALOG_POLICY,
                        Reason.OUTSIDE_WINDOW):  # fmt: skip
        return None
    if proposal.pending:
        frozen = int(proposal.plan.created.timestamp() * 1000) if proposal.frozen else None
        causes = [snapshot if frozen is None else frozen]
        causes += [acted] if state.reason == Reason.OVER_BUDGET else []
    elif state.reason:
        causes = [snapshot, acted]
    else:
        causes = [snapshot if acted is None else acted]
    known = [moment for moment in causes if moment is not None]
    return utc(max(known)) if known else None


def _print(rows: list[dict[str, Any]], output: Output) -> None:
    if output in (Output.JSON, Output.YAML):
        from reconciler.cli.serialise import serialise

        body = {
            "apiVersion": API_VERSION,
            "kind": "TableStatusList",
            "items": [
                {k: v for k, v in row.items() if k not in ("exitCode", "error")} for row in rows
            ],
        }
        typer.echo(serialise(body, output), nl=False)
    elif output is Output.NAME:
        typer.echo("\n".join(printable(row["table"]) for row in rows))
    else:
        from reconciler.render.terminal import UNLIMITED, width

        now = dt.datetime.now(dt.UTC)
        typer.echo(render_status(rows, now, UNLIMITED if output is Output.WIDE else width()))


def render_status(rows: list[dict[str, Any]], now: dt.datetime, width: int) -> str:
    """Return one line per table; reasons that do not fit, and refusals, are on lines below."""
    from reconciler.render.terminal import UNLIMITED, blocks, tabulate, wrapped

    table = [["TABLE", "STATE", "WHY", "AMPL", "PENDING", "SPENT 24 h", "SINCE"]]
    table += [_cells(row, now) for row in rows]
    align = "lllrrrr"
    if any(row.get("deletes") for row in rows):
        deleted = ["DELETED ROWS", *(_deleted(row) for row in rows)]
        table = [[*cells[:4], cell, *cells[4:]] for cells, cell in zip(table, deleted, strict=True)]
        align = "lllrrrrr"
    lines = tabulate(table, align, UNLIMITED)
    if max(map(len, lines)) <= width and not any(row.get("refused") for row in rows):
        return "\n".join(lines)
    head, *numbers = blocks([[*cells[:2], *cells[3:]] for cells in table], align[1:], width)
    lines = head
    for block, row in zip(numbers, rows, strict=True):
        lines += block
        if row["reason"] or row.get("waiting"):
            why = f"{_why(row)}: " if row["reason"] else ""
            lines += wrapped(why + row["message"], width, first="  ", indent="    ")
    return "\n".join(lines)


def _cells(row: dict[str, Any], now: dt.datetime) -> list[str]:
    from reconciler.format import iec
    from reconciler.plan.money import beside

    if "error" in row:
        return [row["table"], row["state"], row["reason"], "-", "-", "-", "-"]
    return [
        row["table"],
        row["state"],
        _why(row),
        _against(row["scanAmplification"], row["scanAmplificationObjective"]),
        beside(iec(row["pendingBytes"]), _amount(row, "cost")) if row["pendingBytes"] else "-",
        beside(_spent(row["spentBytes"], row["budgetBytes"]), _amount(row, "spent")),
        _age(row["since"], now),
    ]


def _amount(row: dict[str, Any], key: str) -> str:
    """Return an amount of a row, "" without prices."""
    from reconciler.plan.money import money_text

    money = row.get("money")
    return money_text(money[key], money["currency"]) if money else ""


def _deleted(row: dict[str, Any]) -> str:
    """ "12 %" of the stored rows, "0 to 12 %" where that number is not known."""
    found = row.get("deletes")
    if not found:
        return "-"
    stored = max(found["storedRows"], 1)
    rows = found["deletedRows"]
    least, most = (f"{rows[end] * 100 / stored:.0f}" for end in ("atLeast", "atMost"))
    return f"{most} %" if rows["atLeast"] == rows["atMost"] else f"{least} to {most} %"


def _age(since: str | None, now: dt.datetime) -> str:
    from reconciler.format import duration

    if since is None:
        return "-"
    seconds = (now - dt.datetime.fromisoformat(since)).total_seconds()
    return " ".join(duration(max(0.0, seconds)).split()[:2])


def _spent(spent: int, budget: int | None) -> str:
    """ "131.0 of 500.0 GiB"."""
    from reconciler.format import iec

    if budget is None:
        return iec(spent)
    used, limit = iec(spent), iec(budget)
    if used.split()[-1] == limit.split()[-1] or not spent:
        used = used.split()[0]
    return f"{used} of {limit}"


def _why(row: dict[str, Any]) -> str:
    if not row["reason"]:
        waits = row.get("waiting")
        return f"waits until {waits['until']}" if waits else "-"
    plan = f" {row['planId'][:10]}" if row.get("planId") else ""
    return f"{row['reason']}{plan}"


def _against(value: float | None, limit: str | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + (f"/{limit}" if limit else "")
