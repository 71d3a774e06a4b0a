"""`layoutctl approve`: a person approves exactly one plan; the operator runs it while it is
valid."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.cli.in_cluster import Kubeconfig, Namespace

if TYPE_CHECKING:
    from reconciler.cli.in_cluster import Object, Place

PLAN_ID = re.compile(r"p-[0-9a-f]{20}")


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Act")
    def approve(
        plan: Annotated[
            str,
            typer.Argument(
                metavar="PLAN|TABLE", help="A plan's id, or catalog.namespace.table.",
                show_default=False,
            ),
        ],
        namespace: Namespace = None,
        yes: Annotated[
            bool, typer.Option("--yes", help="Do not ask; needed for a TABLE without a terminal.")
        ] = False,
        kubeconfig: Kubeconfig = None,
    ) -> None:  # fmt: skip
        """Approve the plan that waits for a table in the cluster."""
        from reconciler.cli.in_cluster import connect

        place = connect(kubeconfig, namespace)
        if PLAN_ID.fullmatch(plan):
            layout, named = _by_plan(place, plan), True
        else:
            layout, named = _by_name(place, plan), False
        _approve(place, layout, yes=yes or named)


def _approve(place: Place, layout: Object, *, yes: bool) -> None:
    from reconciler.cli.in_cluster import confirmed, name_of, say, table_of
    from reconciler.kube.kinds import CLI_MANAGER, TABLE_LAYOUT

    plan = layout["status"]["plan"]
    identifier, table = plan["id"], table_of(layout)
    _refuse_expired(plan, table)
    what = f"{table}  plan {identifier}  {plan.get('summary') or ''}".rstrip()
    if layout["spec"].get("approvedPlan") == identifier:
        say([what, "It is already approved."])
        return
    confirmed(
        f"{what}\nApprove it?",
        yes,
        f"plan {identifier} was not approved",
        f"layoutctl approve {identifier}",
    )
    body = {"spec": {"approvedPlan": identifier}}
    place.api.patch(TABLE_LAYOUT, place.namespace, name_of(layout), body, manager=CLI_MANAGER)
    say([what, f"Approved. It runs when budgets and windows allow: {_follow(place, layout)}"])


def _follow(place: Place, layout: Object) -> str:
    from reconciler.cli.in_cluster import name_of

    return f"kubectl get tl {name_of(layout)} --namespace {place.namespace} --watch"


def _by_plan(place: Place, identifier: str) -> Object:
    from reconciler.errors import UserError

    for layout in place.layouts:
        if _plan(layout).get("id") == identifier:
            return layout
    waiting = [layout for layout in place.layouts if _plan(layout).get("id")]
    raise UserError(
        f"no plan {identifier} exists in namespace {place.namespace}",
        details=_waiting(waiting),
        do="read the current plan with layoutctl plan TABLE, and approve that one",
    )


def _waiting(layouts: list[Object]) -> tuple[str, ...]:
    from reconciler.cli.in_cluster import table_of

    if not layouts:
        return ("no table there has a plan that waits for approval",)
    lines = [f"{table_of(layout)}  {_plan(layout)['id']}" for layout in layouts[:10]]
    return ("these stand:", *lines)


def _by_name(place: Place, name: str) -> Object:
    from reconciler.api.conditions import ConditionType
    from reconciler.cli.in_cluster import find, table_of
    from reconciler.errors import UserError
    from reconciler.operator.conditions import condition_of

    layout = find(place, name)
    if layout["kind"] != "TableLayout":
        raise UserError(
            f"{name} is a policy; a plan belongs to one table",
            do="layoutctl approve TABLE, or put plan ids into spec.approval.approvedPlans in Git",
        )
    if not _plan(layout).get("id"):
        found = condition_of(layout.get("status"), ConditionType.CONVERGED)
        state = "Converged is {status}, {reason}: {message}"
        raise UserError(
            f"there is no plan for {table_of(layout)}",
            details=(state.format(**found),) if found else (),
            do="there is nothing to approve until the operator proposes one",
        )
    return layout


def _plan(layout: Object) -> dict[str, Any]:
    return dict((layout.get("status") or {}).get("plan") or {})


def _refuse_expired(plan: Object, table: str) -> None:
    from reconciler.errors import BlockedError

    expires = plan.get("expiresAt")
    if not expires:
        return
    if dt.datetime.fromisoformat(expires) <= dt.datetime.now(dt.UTC):
        raise BlockedError(
            f"plan {plan['id']} of {table} expired at {expires}",
            details=("the operator proposes a new one at its next reconcile",),
            do=f"layoutctl approve {table} when kubectl get tl shows a new plan",
        )
