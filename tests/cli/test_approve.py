"""What is refused before a plan is approved, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.cli.approve import _by_name
from reconciler.cli.in_cluster import Place
from reconciler.errors import UserError

CONVERGED = {"type": "Converged", "status": "True", "reason": "NothingToDo", "message": "nothing"}


@pytest.mark.parametrize("conditions", [[], [CONVERGED]])
def test_a_table_without_a_plan_says_how_it_stands_as_far_as_that_is_known(
    conditions: list[dict[str, str]],
) -> None:
    layout = {
        "kind": "TableLayout",
        "metadata": {"name": "tl"},
        "spec": {"catalogRef": {"name": "c"}, "table": {"namespace": ["a"], "name": "t"}},
        "status": {"conditions": conditions},
    }
    api: Any = None
    with pytest.raises(UserError) as refused:
        _by_name(Place(api, "ns", (layout,), (), ()), "tl")
    assert len(refused.value.details) == len(conditions)
    assert all("NothingToDo" in line for line in refused.value.details)
