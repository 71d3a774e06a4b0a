"""`layoutctl cancel`: ends the running job of a table, or of every table of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from reconciler.cli.in_cluster import Kubeconfig, Namespace
from reconciler.cli.suspend import Target

if TYPE_CHECKING:
    from reconciler.cli.in_cluster import Object, Place


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Act")
    def cancel(
        target: Target,
        namespace: Namespace = None,
        suspend: Annotated[
            bool, typer.Option("--suspend", help="Also start nothing new until `resume`.")
        ] = False,
        kubeconfig: Kubeconfig = None,
    ) -> None:
        """Delete the running job. What it has committed stays; nothing is half-done."""
        from reconciler.cli.in_cluster import connect, find, layouts_of, say
        from reconciler.cli.suspend import set_suspend

        place = connect(kubeconfig, namespace)
        body = find(place, target)
        if suspend:
            # First suspend, or the operator could start the next job between the two writes.
            say(set_suspend(place, body, to=True))
        ended = [line for layout in layouts_of(place, body) for line in _cancel(place, layout)]
        say(ended or [f"No job runs for {target}."])
        if ended:
            say(_afterwards(place, target, suspended=suspend or bool(body["spec"].get("suspend"))))


def _cancel(place: Place, layout: Object) -> list[str]:
    from reconciler.cli.in_cluster import name_of, table_of
    from reconciler.kube.errors import Conflict, NotFound
    from reconciler.kube.kinds import JOB
    from reconciler.kube.pods import LAYOUT_LABEL

    lines = []
    for job in place.api.list(JOB, place.namespace, {LAYOUT_LABEL: name_of(layout)}):
        if _over(job):
            continue
        try:
            place.api.delete(JOB, place.namespace, name_of(job), uid=job["metadata"]["uid"])
        except (NotFound, Conflict):
            # It ended and was removed meanwhile, which is the requested result.
            continue
        lines.append(f"{table_of(layout)}: job {name_of(job)} is being deleted.")
    return lines


def _over(job: Object) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        item["type"] in ("Complete", "Failed") and item["status"] == "True" for item in conditions
    )


def _afterwards(place: Place, target: str, *, suspended: bool) -> list[str]:
    lines = [
        "Its driver stops at the next commit boundary, within two minutes. Commits stay.",
        "The operator then observes the table again.",
    ]
    if suspended:
        lines.append("Nothing new starts before layoutctl resume.")
    else:
        lines.append(
            "The rest of an approved plan starts again when budgets allow. To prevent that:"
        )
        lines.append(f"  layoutctl suspend {target} --namespace {place.namespace}")
    return lines
