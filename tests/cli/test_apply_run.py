"""What `apply` says of a saved plan that another policy made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.cli import apply_result
from reconciler.cli.apply_run import _made_under_another
from reconciler.cli.targets import BUILT_IN
from reconciler.errors import EXIT_OK, EXIT_UNAVAILABLE
from reconciler.loop.step import CONVERGED, IDLE, PENDING

FACTS, ORDERS = "facts", "orders"


def said(made: str | None, now: str, pending: tuple[str, ...] = ("a01",)) -> str:
    """The note on a plan of policy `made`, None for one that names none, carried out under
    `now`."""
    document: dict[str, Any] = {} if made is None else {"metadata": {"name": made}}
    plan = SimpleNamespace(evidence={"policyDocument": document}, policy=made)
    step = SimpleNamespace(policy=SimpleNamespace(namespace="default", name=now), policy_name=now)
    return _made_under_another(SimpleNamespace(plan=plan, pending=pending), step)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [FACTS, None])
def test_the_same_policy_needs_no_note(made: str | None) -> None:
    assert said(made, FACTS) == ""


def test_what_is_done_needs_none_either() -> None:
    assert said(ORDERS, FACTS, pending=()) == ""


def test_each_change_of_policy_is_named_with_what_to_do() -> None:
    without, lost, other = said(BUILT_IN, FACTS), said(ORDERS, BUILT_IN), said(ORDERS, FACTS)
    assert FACTS in without and "Plan again" in without
    assert ORDERS in lost and "-f" in lost and "Plan again" not in lost
    assert ORDERS in other and FACTS in other and "Plan again" in other


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        (CONVERGED, "", EXIT_OK),
        (IDLE, "ObjectiveUnreachable", EXIT_OK),
        (IDLE, "TableDamaged", EXIT_UNAVAILABLE),
        (PENDING, "TablesPending", EXIT_UNAVAILABLE),
    ],
)
def test_a_lost_action_is_a_failure_only_if_something_is_left(
    monkeypatch: pytest.MonkeyPatch, state: str, reason: str, code: int
) -> None:
    monkeypatch.setattr(apply_result, "_waiting", lambda proposal: 0)
    lost = SimpleNamespace(result=SimpleNamespace(waiting=0, done=False))
    run: Any = SimpleNamespace(steps=[lost], done_before=False, until_converged=True)
    result: Any = SimpleNamespace(
        state=SimpleNamespace(state=state, reason=reason), before=None, after=None
    )
    assert apply_result.exit_code(run, result) == code
