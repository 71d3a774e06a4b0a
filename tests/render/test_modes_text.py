"""The section on write modes, of plans, explanations and observations."""

from __future__ import annotations

import jsonschema
import pytest

from reconciler.advisor.deletes.mode_document import modes_document
from reconciler.plan.ledger import throughput
from reconciler.plan.plan_schema import SCHEMA
from reconciler.queries.rewrite_cost import RunTimes, throughput_from
from reconciler.render.modes_text import modes_section
from tests.advisor.test_delete_mode import advice, merges, rewrites
from tests.said import Said

WRITE_MODES = SCHEMA["properties"]["evidence"]["properties"]["writeModes"]
ELSEWHERE = throughput_from([], [RunTimes(None, 1.0, 1, tasks=1.0, cpu=0.5, model=1.0)])


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("case", ["better", "perhaps", "measured", "elsewhere", "unknown"])
def test_modes_are_shown_with_their_costs(case: str, width: int, said: Said) -> None:
    found = {
        "better": lambda: advice(merges(), weight=50.0),
        "perhaps": lambda: advice(merges(), weight=1.5e7, version=3),
        "measured": lambda: advice(merges(), weight=50.0, throughput=throughput(rewrites(6, 2.0))),
        "elsewhere": lambda: advice(merges(), weight=50.0, throughput=ELSEWHERE),
        "unknown": lambda: advice(merges(), weight=0.0),
    }[case]()
    document = modes_document(found.modes, found.notes)
    speed = document["speed"]
    assert speed["lowMilli"] < speed["milli"] < speed["highMilli"]
    counts = {"measured": (6, 0), "elsewhere": (0, 1)}.get(case, (0, 0))
    assert (speed["actions"], speed["runs"]) == counts
    jsonschema.validate(document, WRITE_MODES)
    lines = modes_section(document, width)
    assert max(map(len, lines)) <= width
    said("\n".join(lines))


def test_without_operations_there_is_no_section() -> None:
    assert modes_section(None, 80) == modes_section({}, 80) == []
