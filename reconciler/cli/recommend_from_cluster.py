"""`layoutctl recommend TABLE --from-cluster`: what the operator's last recommend job found.

The short form needs the right to read TableLayouts only. The other forms are of the whole document,
which is read where the job stored it, with the catalog's configuration of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.api.documents import IcebergCatalog
    from reconciler.cli.in_cluster import Object, Place
    from reconciler.loop.ports import Target


@dataclass(frozen=True, slots=True)
class Found:
    """The TableLayout of one table. reference: name of its IcebergCatalog object."""

    place: Place
    layout: Object
    table: str
    reference: str

    @property
    def recommendation(self) -> Mapping[str, Any]:
        """status.recommendation. Raises UserError, with the condition's reason, if none is made."""
        from reconciler.errors import UserError

        known: Mapping[str, Any] = (self.layout.get("status") or {}).get("recommendation") or {}
        if known.get("id"):
            return known
        why = self.condition
        raise UserError(
            f"the operator has no recommendation for {self.table}",
            details=(f"{why['reason']}: {why['message']}",) if why else (),
            do="docs/operations/conditions.md explains the reason"
            if why
            else "set spec.recommend in its policy, or run it here without --from-cluster",
        )

    @property
    def condition(self) -> Mapping[str, Any]:
        """The condition BetterLayoutKnown, {} for none."""
        from reconciler.api.conditions import ConditionType

        kind = ConditionType.BETTER_LAYOUT_KNOWN.value
        found = (self.layout.get("status") or {}).get("conditions") or ()
        return next((item for item in found if item.get("type") == kind), {})

    @property
    def reason(self) -> str:
        """Reason of the condition."""
        return str(self.condition.get("reason", "Unknown"))

    def target(self) -> Target:
        """Return the table as policies name it: under the IcebergCatalog's own name."""
        from reconciler.api.catalog_config import CatalogConfig
        from reconciler.loop.ports import Target

        table = self.layout["spec"]["table"]
        config = CatalogConfig(self.reference, "", {}, "the cluster")
        return Target(config, (*table["namespace"], table["name"]))


def look_up(table: str, namespace: str | None, kubeconfig: str | None) -> Found:
    """Return the table's TableLayout. Raises UserError if there is none."""
    from reconciler.cli.in_cluster import connect, find, table_of
    from reconciler.errors import UserError

    place = connect(kubeconfig, namespace)
    layout = find(place, table)
    if layout["kind"] != "TableLayout":
        raise UserError(f'"{table}" is a policy', do="name one of its tables")
    reference = str(layout["spec"]["catalogRef"]["name"])
    return Found(place, layout, table_of(layout), reference)


def declared(found: Found) -> dict[str, Any]:
    """Return what `--out` writes: the fields of a recommendation document that it needs."""
    known = found.recommendation
    chosen = "best" if known.get("better") else None
    return {"policy": known.get("layout"), "chosen": chosen, "method": known.get("method", "")}


def whole(found: Found, timeout: float) -> dict[str, Any]:
    """Return the stored document. Raises UserError or UnavailableError if it cannot be read.

    The operator may be of another version than this one.
    """
    from reconciler.catalog.discover import resolve_catalog
    from reconciler.errors import UserError
    from reconciler.loop.recommendation_document import problem
    from reconciler.state.plan_store import PlanStore

    known = found.recommendation
    document = _catalog(found)
    config = resolve_catalog(document.spec.catalog_name, [document])
    system = document.spec.system
    plans = PlanStore(config, system.plans.uri, namespace=tuple(system.namespace), timeout=timeout)
    stored = plans.get_recommendation(str(known["uri"]), str(known["digest"]))
    wrong = problem(stored)
    if wrong:
        raise UserError(
            f"the recommendation at {known['uri']} is not one that this version reads",
            details=(wrong,),
            do=f"use layoutctl of the operator's version, or run layoutctl recommend {found.table}",
        )
    return stored


def _catalog(found: Found) -> IcebergCatalog:
    from reconciler.api.document_codec import from_document
    from reconciler.api.documents import IcebergCatalog
    from reconciler.api.schema import CATALOG
    from reconciler.cli.in_cluster import name_of
    from reconciler.errors import UserError

    for body in found.place.catalogs:
        if name_of(body) == found.reference:
            document = from_document({**body, "kind": CATALOG})
            assert isinstance(document, IcebergCatalog)
            return document
    raise UserError(
        f"there is no IcebergCatalog {found.reference} in namespace {found.place.namespace}",
        do="kubectl get icat; the short form needs none",
    )


def text(found: Found, width: int, written: str) -> str:
    """Return the short form: what is declared, its effect, its cost, and what it rests on."""
    from reconciler.api.policy_edit import block
    from reconciler.loop.recommendation_document import policy_changes
    from reconciler.render.terminal import commands, wrapped

    known = found.recommendation
    lines = wrapped(
        f"{found.table}   recommended by {known.get('method')} at {known.get('time')} on snapshot "
        f"{known.get('snapshotId')}; BetterLayoutKnown: {found.reason}",
        width, indent="  ",
    )  # fmt: skip
    lines += [line for each in _facts(known) for line in wrapped(each, width, indent="  ")]
    failed = known.get("failures") or {}
    if failed:
        last = f"The last {failed.get('count')} attempts failed: {failed.get('message')}"
        lines += wrapped(last, width, indent="  ")
    if known.get("layout"):
        lines += ["", *block(policy_changes(known["layout"])).splitlines()]
    return "\n".join([*lines, "", *commands(_following(found, written), width)])


def _facts(known: Mapping[str, Any]) -> list[str]:
    from reconciler.format import count

    sample, reading = known.get("sample") or {}, known.get("reading") or {}
    facts = [f"Keep what you have: {known.get('summary')}."]
    if known.get("better"):
        facts = [
            f"Declare: {known.get('summary')}. The {count(reading.get('queries', 0))} recorded "
            f"queries read {known.get('savesPercent', 0)} % less: {reading.get('now')} today, "
            f"{reading.get('after')} predicted ({reading.get('low')} - {reading.get('high')}).",
            f"Getting there rewrites {known.get('rewriteBytes')} and takes {known.get('cpuTime')} "
            "of CPU time.",
        ]
    return [
        *facts,
        f"Sample: {count(sample.get('rows', 0))} rows of {count(sample.get('files', 0))} files, "
        f"{sample.get('bytesRead')} read, {count(sample.get('rowsPerRowGroup', 0))} rows per "
        "smallest row group",
        f"Document: {known.get('uri')} {known.get('digest')}",
    ]


def _following(found: Found, written: str) -> tuple[str, ...]:
    if not found.recommendation.get("layout"):
        return (f"layoutctl recommend {found.table} --from-cluster -o json",)
    if written:
        return (f"git diff {written}", f"layoutctl validate {written}")
    name = found.layout["spec"]["table"]["name"]
    return (f"layoutctl recommend {found.table} --from-cluster --out layouts/{name}.yaml",)
