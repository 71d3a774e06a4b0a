"""Reads a plan from a file, and checks that it is still valid for the table and its policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.api.documents import TableLayoutPolicy
    from reconciler.loop.local_actor import LocalActor
    from reconciler.loop.step import Step
    from reconciler.plan.plan import Plan


def from_plan_file(
    path: Path, files: Sequence[str], catalog: str | None, timeout: float, shared: bool
) -> tuple[Step, Plan, LocalActor]:
    """Make the saved plan the standing one. Raises UserError if it is no longer valid."""
    from reconciler.api.load import Documents, load
    from reconciler.catalog.discover import resolve_catalog
    from reconciler.cli.shared import actor_on
    from reconciler.cli.targets import step_for, step_under
    from reconciler.errors import UserError
    from reconciler.loop.ports import Target

    plan, digest = _read(path)
    if digest != plan.digest():
        raise UserError(
            f"{path} was changed after it was saved: its digest does not match",
            do=again(plan, path, files, catalog),
        )
    documents = load(files) if files else Documents()
    target = Target(resolve_catalog(catalog or plan.catalog, documents.catalogs), plan.table)
    if files:
        step = step_for(target, documents)
    else:
        step = step_under(target, _policy_of(plan, path), plan.policy)
    if step.policy_hash != plan.policy_hash:
        raise UserError(
            f"{path}: plan {plan.id} was made under another policy than {step.policy_name}",
            do=again(plan, path, files, catalog),
        )
    actor = actor_on(target.catalog, documents.catalogs, timeout, shared)
    check_stands(plan, actor.observe(step.target), step, again(plan, path, files, catalog))
    actor.put_plan(plan)
    return step, plan, actor


def _policy_of(plan: Plan, path: Path) -> TableLayoutPolicy:
    """Return the policy that the plan was made under, with its budgets, windows and checks."""
    from reconciler.api.document_codec import from_document
    from reconciler.api.documents import TableLayoutPolicy
    from reconciler.errors import UserError

    try:
        policy = from_document(plan.evidence["policyDocument"])
    except (KeyError, TypeError, ValueError, AttributeError):
        policy = None
    if not isinstance(policy, TableLayoutPolicy):
        raise UserError(
            f"{path} holds no valid policy",
            details=("A saved plan runs within the budgets of the policy that it was made under.",),
            do=f"layoutctl apply {path} -f PATH-OF-THE-POLICY",
        )
    return policy


def check_stands(plan: Plan, observation: Any, step: Step, do: str) -> None:
    """Raise if the plan does not stand: it is planned again instead of being run in part. A plan
    that is done raises nothing. do: the command that makes another plan."""
    from reconciler.errors import StalePlanError
    from reconciler.plan.standing import Fallen, head_of, judge

    found = judge(plan, head_of(observation), step.clock())
    if found.fallen not in (None, Fallen.DONE):
        raise StalePlanError(
            f"plan {plan.id} is no longer valid: {found.why}", details=found.details, do=do
        )


def again(plan: Plan, path: Path, files: Sequence[str], catalog: str | None) -> str:
    """The command that makes another plan of the same table, under the same policy, in its file.

    Without files the policy's own is named: a plan says where its policy was read.
    """
    from reconciler.cli.following import given, plan_command
    from reconciler.table.observation import quoted_name

    origin = plan.evidence.get("policyFile")
    named = list(files) or ([origin] if origin and Path(origin).exists() else [])
    name = quoted_name((plan.catalog, *plan.table))
    return plan_command(name, given(named, catalog, False), path)


def _read(path: Path) -> tuple[Plan, str | None]:
    """The saved plan, and the digest that its file names."""
    from reconciler.errors import UserError
    from reconciler.plan.plan import parse_plan

    try:
        return parse_plan(path.read_text(encoding="utf-8"))
    except UserError as error:
        raise UserError(f"{path}: {error.what}", details=error.details, do=error.do) from error
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}",
            do="check the path, or write a plan with: layoutctl plan TABLE --out FILE",
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: this is not a plan document",
            details=("It is not UTF-8 text.",),
            do="write one with: layoutctl plan TABLE --out FILE",
        ) from error
