"""Which sorts of a test went through the disk."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.rewrite import spill


def noted_spills(monkeypatch: pytest.MonkeyPatch) -> list[spill.Spill]:
    """Return the spills that are made from now on, as they are made."""
    made: list[spill.Spill] = []

    class Noted(spill.Spill):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(spill, "Spill", Noted)
    return made
