"""`layoutctl review`: people's words on a pull request become the approval of its plans.

For CI: the plans of the pull request's head are given as `plan -o json` printed them. The approvals
are recorded in the shared state of the catalog, where the operator finds them after the merge.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.cli.options import Files, Timeout

if TYPE_CHECKING:
    from reconciler.cli.forges import Forge
    from reconciler.plan.plan import Plan
    from reconciler.plan.review import Approved, Refused


class Server(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"


def register(app: typer.Typer) -> None:
    @app.command(rich_help_panel="Act")
    def review(
        server: Annotated[Server, typer.Argument(help="Whose API is asked.", show_default=False)],
        plans: Annotated[
            Path, typer.Option("--plans", metavar="FILE", help="The output of `plan -o json`.")
        ],
        repository: Annotated[
            str, typer.Option("--repository", help="Owner and name, or the project's path.")
        ],
        pull: Annotated[int, typer.Option("--pull", metavar="N", help="Its number.")],
        head: Annotated[
            str, typer.Option("--head", metavar="COMMIT", help="The commit that was planned.")
        ],
        shown_by: Annotated[
            str, typer.Option("--shown-by", metavar="USER", help="Who comments the plans.")
        ],
        file: Files = None,
        timeout: Timeout = 30.0,
    ) -> None:
        """Record the approvals that a pull request has of its plans."""
        from reconciler.errors import EXIT_BLOCKED, BlockedError
        from reconciler.plan.review import approvals

        made = _plans(plans)
        forge = _forge(server, repository, timeout)
        found = forge.discussion(pull)
        if found.head != head or not found.open:
            now = f"its head is {found.head}" if found.open else "it was closed"
            raise BlockedError(
                f"pull request {pull} is not what was planned: {now}",
                details=("No approval was recorded.",),
                do="plan the pull request again",
            )
        given = approvals(found, [one.id for one in made], shown_by, forge.may_write)
        _record([one for one in made if one.id in given.by], file or [], timeout)
        _say(made, given)
        if any(one.id not in given.by for one in made):
            raise typer.Exit(EXIT_BLOCKED)


def _plans(path: Path) -> list[Plan]:
    """Return the plans in the file that have work. Raises UserError for another file."""
    from reconciler.errors import UserError
    from reconciler.plan.plan import plan_from_document

    try:
        body: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read the plans in {path}: {error}", do="write it with: layoutctl plan -o json"
        ) from error
    listed = body.get("kind") == "LayoutPlanList" if isinstance(body, dict) else False
    found = [plan_from_document(one) for one in (body["items"] if listed else [body])]
    return [one for one in found if not one.empty]


def _forge(server: Server, repository: str, timeout: float) -> Forge:
    from reconciler.cli.forges import GitHub, GitLab
    from reconciler.errors import UserError

    kind, secret, variable, usual = {
        Server.GITHUB: (GitHub, "GITHUB_TOKEN", "GITHUB_API_URL", "https://api.github.com"),
        Server.GITLAB: (GitLab, "GITLAB_TOKEN", "CI_API_V4_URL", "https://gitlab.com/api/v4"),
    }[server]
    token = os.environ.get(secret, "")
    if not token:
        raise UserError(f"{secret} is not set", do="set it to a token that may read the repository")
    api = os.environ.get(variable, usual).rstrip("/")
    return kind(api, token, repository, timeout)


def _record(plans: Sequence[Plan], files: Sequence[str], timeout: float) -> None:
    """Store the plans with their approvals, each under the policy that it was made under."""
    from reconciler.catalog.discover import resolve_catalog
    from reconciler.cli.shared import catalogs_under, shared_store
    from reconciler.errors import UserError
    from reconciler.loop.gating import plan_policy_key

    documents = catalogs_under(files)
    for plan in plans:
        key = plan_policy_key(plan)
        if key is None:
            raise UserError(f"plan {plan.id} names no policy", do="plan with the policies under -f")
        store = shared_store(resolve_catalog(plan.catalog, documents), documents, timeout)
        store.put_plan(plan)
        store.approve(plan.id, key)


def _say(plans: Sequence[Plan], given: Approved) -> None:
    for one in plans:
        who = given.by.get(one.id)
        state = f"approved by {who}" if who else "not approved"
        typer.echo(f"{one.id}  {'.'.join(one.table)}  {state}")
    for refused in given.refused:
        typer.echo(f"{_what(refused)} by {refused.user} does not count: {refused.why}", err=True)


def _what(refused: Refused) -> str:
    """Return what was said, in words that begin with ours: anybody may comment, and the log of a
    CI system carries out lines that begin with `::`."""
    from reconciler.cli.approve import PLAN_ID
    from reconciler.plan.review import NO_IDS

    if PLAN_ID.fullmatch(refused.plan):
        return refused.plan
    if refused.plan or refused.why == NO_IDS:
        return f"a command with {refused.plan[:40]!a}"
    return "a review"
