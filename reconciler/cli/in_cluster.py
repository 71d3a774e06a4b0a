"""Finds the object in the cluster that a person names: a table, a TableLayout, a policy, a plan.

A table is `catalog.namespace.table`, with the IcebergCatalog's name or the catalog's own; objects
are named by their name, or by `policy/NAME` and `tl/NAME` if the name is ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reconciler.kube.api import Api

Object = Mapping[str, Any]

Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="Namespace of the objects. Default: that of the context.",
    ),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config."),
]
PREFIXES = {
    "tl": "TableLayout",
    "tablelayout": "TableLayout",
    "tablelayouts": "TableLayout",
    "tlp": "TableLayoutPolicy",
    "policy": "TableLayoutPolicy",
    "tablelayoutpolicy": "TableLayoutPolicy",
    "tablelayoutpolicies": "TableLayoutPolicy",
}


@dataclass(frozen=True, slots=True)
class Place:
    """One namespace of the cluster, and the objects of ours in it."""

    api: Api
    """The Kubernetes API."""
    namespace: str
    """The name of the namespace."""
    layouts: tuple[Object, ...]
    """Its TableLayouts."""
    policies: tuple[Object, ...]
    """Its TableLayoutPolicies."""
    catalogs: tuple[Object, ...]
    """Its IcebergCatalogs."""


def connect(kubeconfig: str | None, namespace: str | None) -> Place:
    """Return the place. Raises UserError without a cluster, our kinds, or the right to read
    them."""
    from reconciler.errors import UserError
    from reconciler.kube.api import Api
    from reconciler.kube.errors import NotFound
    from reconciler.kube.kinds import CATALOG, POLICY, TABLE_LAYOUT

    api = Api.from_environment(kubeconfig)
    where = namespace or api.namespace
    try:
        found = [tuple(api.list(kind, where)) for kind in (TABLE_LAYOUT, POLICY, CATALOG)]
    except NotFound as error:
        raise UserError(
            "the cluster does not know TableLayouts",
            details=("its CRDs are not installed, or KUBECONFIG names another cluster",),
            do="kubectl config current-context; docs/operations/install.md",
        ) from error
    return Place(api, where, *found)


def name_of(body: Object) -> str:
    return str(body["metadata"]["name"])


def table_of(layout: Object) -> str:
    """Return catalog.namespace.table, as these verbs accept it."""
    from reconciler.api.table_patterns import quote_identifier

    spec = layout["spec"]
    table = spec["table"]
    return quote_identifier((spec["catalogRef"]["name"], *table["namespace"], table["name"]))


def find(place: Place, text: str) -> Object:
    """Return the one TableLayout or policy that `text` means. Raises UserError for none or
    several."""
    from reconciler.errors import UserError

    prefix, slash, rest = text.partition("/")
    kind = PREFIXES.get(prefix.lower(), "") if slash else ""
    name = rest if kind else text
    objects = [body for body in (*place.layouts, *place.policies) if kind in ("", body["kind"])]
    found = [body for body in objects if name_of(body) == name] or _by_table(place, text)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(
            f'no table, TableLayout or policy "{text}" in namespace {place.namespace}',
            details=_known(place),
            do="--namespace names another one; kubectl get tl -A lists all",
        )
    raise UserError(
        f'"{text}" is {len(found)} objects in namespace {place.namespace}',
        details=tuple(f"{_short(body)}/{name_of(body)}" for body in found),
        do=f"name one of them: {_short(found[0])}/{name_of(found[0])}",
    )


def layouts_of(place: Place, body: Object) -> tuple[Object, ...]:
    """Return the TableLayouts of an object: itself, or those of the policy."""
    if body["kind"] == "TableLayout":
        return (body,)
    return tuple(
        layout for layout in place.layouts if layout["spec"]["policyRef"]["name"] == name_of(body)
    )


def _by_table(place: Place, text: str) -> list[Object]:
    from reconciler.api.table_patterns import split_identifier

    try:
        levels = split_identifier(text)
    except ValueError:
        return []
    own_names = {name_of(item): item["spec"].get("catalogName") for item in place.catalogs}
    found = []
    for layout in place.layouts:
        spec = layout["spec"]
        table = (*spec["table"]["namespace"], spec["table"]["name"])
        reference = spec["catalogRef"]["name"]
        if levels in (table, (reference, *table), (own_names.get(reference), *table)):
            found.append(layout)
    return found


def _short(body: Object) -> str:
    return "tl" if body["kind"] == "TableLayout" else "policy"


def _known(place: Place) -> tuple[str, ...]:
    if not place.layouts:
        return ("there is no TableLayout in it",)
    tables = sorted(table_of(layout) for layout in place.layouts)
    more = f" and {len(tables) - 5} more" if len(tables) > 5 else ""
    return (f"it has {', '.join(tables[:5])}{more}",)


def confirmed(question: str, yes: bool, refusal: str, do: str) -> None:
    """Ask on a terminal; elsewhere --yes is required. Raises BlockedError."""
    import sys

    from reconciler.errors import BlockedError

    if yes:
        return
    if not sys.stdin.isatty():
        raise BlockedError(refusal, details=("there is no terminal to ask on",), do=do)
    sys.stderr.write(f"{question} Type yes to continue: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != "yes":
        raise BlockedError(refusal, do=do)


def say(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line)
