"""The runbook page is what the constants say, and leaves no reason out."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.api.conditions import EXPLANATIONS, Reason
from reconciler.api.runbook import runbook

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "conditions.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == runbook(), (
        "run: python -m reconciler.api.runbook > docs/operations/conditions.md"
    )


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_section_with_its_cause_and_what_to_do(reason: Reason) -> None:
    section = runbook().partition(f"\n## {reason.value}\n")[2].partition("\n## ")[0]
    assert f"**Cause.** {EXPLANATIONS[reason].cause}" in section
    remedy = section.partition("**Remedy.** ")[2]
    assert remedy.strip() and remedy.startswith(EXPLANATIONS[reason].remedy)


def test_what_waits_for_a_person_names_the_command_that_helps() -> None:
    for reason in (Reason.AWAITING_APPROVAL, Reason.PLAN_CHANGED, Reason.PLAN_EXPIRED):
        assert "layoutctl approve" in EXPLANATIONS[reason].remedy
    assert "layoutctl resume" in EXPLANATIONS[Reason.SUSPENDED].remedy
