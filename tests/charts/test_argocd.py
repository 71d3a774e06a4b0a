"""Argo CD's health check, run by a Lua of the version that Argo CD speaks (5.1)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from charts import sync
from reconciler.api.conditions import CONVERGED_ORDER, EXPLANATIONS, ConditionType, Reason
from reconciler.api.schema import API_VERSION, KINDS

SCRIPT = (sync.ARGOCD / "health.lua").read_text()


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """Status and message that the script returns for an object."""
    from lupa import lua51

    lua = lua51.LuaRuntime(register_eval=False, register_builtins=False)
    lua.globals().obj = lua.table_from(obj, recursive=True)
    found = lua.execute(SCRIPT)
    return found.status, found.message


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def an_object(*conditions: dict[str, Any], seen: int = 3, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "x", "generation": 3},
        "spec": spec,
        "status": {"observedGeneration": seen, "conditions": list(conditions)},
    }


READY = condition("Ready", "True", "Observed", "14 tables")


def test_before_the_operator_has_seen_the_object_it_is_progressing() -> None:
    fresh = {"metadata": {"name": "x", "generation": 1}, "spec": {}}
    assert health(fresh)[0] == "Progressing"
    assert health({**fresh, "status": {"observedGeneration": -1}})[0] == "Progressing"


def test_an_older_generation_is_never_called_healthy() -> None:
    converged = condition("Converged", "True", "NothingToDo")
    assert health(an_object(READY, converged, seen=2))[0] == "Progressing"


def test_a_plan_that_waits_for_approval_is_suspended_and_says_which() -> None:
    reason, message = "AwaitingApproval", "plan p-3f9a1c0b77de4c21a0be"
    waiting = condition("Converged", "False", reason, message)
    assert health(an_object(READY, waiting)) == ("Suspended", f"{reason}: {message}")


def test_what_a_person_suspended_is_suspended() -> None:
    assert health(an_object(READY, suspend=True))[0] == "Suspended"
    inherited = condition("Converged", "False", "Suspended", "by its policy")
    assert health(an_object(READY, inherited))[0] == "Suspended"


@pytest.mark.parametrize(
    "reason", [r.value for r, e in EXPLANATIONS.items() if ConditionType.STALLED in e.types]
)
def test_stalled_is_degraded_whatever_else_holds(reason: str) -> None:
    stalled = condition("Stalled", "True", reason, "because")
    waiting = condition("Converged", "False", "AwaitingApproval")
    found = health(an_object(READY, waiting, stalled, suspend=True))
    assert found == ("Degraded", f"{reason}: because")


def test_a_catalog_that_is_down_degrades() -> None:
    down = condition("Ready", "False", "CatalogUnavailable", "connection refused")
    unknown = condition("Converged", "Unknown", "CatalogUnavailable")
    assert health(an_object(down, unknown))[0] == "Degraded"


def test_taking_in_a_generation_is_progressing() -> None:
    reconciling = condition("Reconciling", "True", "NewGeneration")
    assert health(an_object(READY, reconciling))[0] == "Progressing"


@pytest.mark.parametrize(
    "reason",
    sorted(set(CONVERGED_ORDER) - {Reason.AWAITING_APPROVAL, Reason.SUSPENDED}),
)
def test_whatever_else_is_not_converged_holds_up_no_sync(reason: str) -> None:
    pending = condition("Converged", "False", reason, "later")
    assert health(an_object(READY, pending)) == ("Healthy", f"{reason}: later")


def test_converged_is_healthy() -> None:
    done = condition("Converged", "True", "NothingToDo")
    assert health(an_object(READY, done)) == ("Healthy", "NothingToDo")


def test_an_object_that_is_being_deleted_is_progressing() -> None:
    going = an_object(READY)
    going["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    assert health(going)[0] == "Progressing"


def test_the_patch_for_argo_cd_gives_every_kind_this_check() -> None:
    (path, text), *_ = sync.argocd().items()
    assert path.read_text() == text, "run: make manifests"
    group = API_VERSION.partition("/")[0]
    assert yaml.safe_load(text)["data"] == {
        f"resource.customizations.health.{group}_{kind}": SCRIPT for kind in KINDS
    }
