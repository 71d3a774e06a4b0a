"""`layoutctl suspend` and `resume`: nothing new starts on a table, or on all tables of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.in_cluster import Kubeconfig, Namespace

if TYPE_CHECKING:
    from reconciler.cli.in_cluster import Object, Place

Target = Annotated[
    str,
    typer.Argument(
        metavar="TABLE|POLICY",
        help="catalog.namespace.table, or the name of a TableLayout or policy.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Act")
    def suspend(target: Target, namespace: Namespace = None, kubeconfig: Kubeconfig = None) -> None:
        """Start nothing new; a running job stops at its next commit boundary."""
        _switch(target, namespace, kubeconfig, to=True)

    @app.command(rich_help_panel="Act")
    def resume(target: Target, namespace: Namespace = None, kubeconfig: Kubeconfig = None) -> None:
        """Undo suspend."""
        _switch(target, namespace, kubeconfig, to=False)


def _switch(target: str, namespace: str | None, kubeconfig: str | None, *, to: bool) -> None:
    from reconciler.cli.in_cluster import connect, find, say

    place = connect(kubeconfig, namespace)
    body = find(place, target)
    say(set_suspend(place, body, to=to))


def set_suspend(place: Place, body: Object, *, to: bool) -> list[str]:
    """Write spec.suspend if it differs; return lines that report what was done."""
    from reconciler.cli.in_cluster import name_of, table_of
    from reconciler.kube.kinds import CLI_MANAGER, POLICY, TABLE_LAYOUT

    is_table = body["kind"] == "TableLayout"
    subject = table_of(body) if is_table else f"policy {name_of(body)}"
    state = "suspended" if to else "active"
    if bool(body["spec"].get("suspend")) == to:
        return [f"{subject} is already {state}.", *_still_held(place, body, to=to)]
    kind = TABLE_LAYOUT if is_table else POLICY
    change = {"spec": {"suspend": to}}
    place.api.patch(kind, place.namespace, name_of(body), change, manager=CLI_MANAGER)
    lines = [f"{subject} is now {state}."]
    if to:
        lines.append("A running job stops at its next commit boundary; committed work stays.")
        lines.append(f"  undo: layoutctl resume {name_of(body)} --namespace {place.namespace}")
    if not is_table:
        lines.append(
            f"The policy is kept in Git: set spec.suspend: {str(to).lower()} in its document too, "
            "or the next sync may undo this."
        )
    return [*lines, *_still_held(place, body, to=to)]


def _still_held(place: Place, body: Object, *, to: bool) -> list[str]:
    """Return what still suspends a table: itself or its policy; resuming one may not be enough."""
    from reconciler.cli.in_cluster import layouts_of, name_of, table_of

    if to:
        return []
    if body["kind"] == "TableLayout":
        name = body["spec"]["policyRef"]["name"]
        held = any(
            name_of(policy) == name and policy["spec"].get("suspend") for policy in place.policies
        )
        return (
            [f"Its policy {name} is suspended: nothing starts until it is resumed."] if held else []
        )
    own = [item for item in layouts_of(place, body) if item["spec"].get("suspend")]
    return [f"{table_of(layout)} itself stays suspended." for layout in own[:10]]
