"""The section on write modes, of plans, explanations and observations."""

from __future__ import annotations

import jsonschema
import pytest

from reconciler.advisor.deletes.mode_document import modes_document
from reconciler.plan.plan_schema import SCHEMA
from reconciler.render.modes_text import modes_section
from reconciler.table.operations import Encoding
from tests.advisor.test_delete_mode import LAZY, advice, merges
from tests.said import Said

WRITE_MODES = SCHEMA["properties"]["evidence"]["properties"]["writeModes"]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("case", ["better", "perhaps", "unknown"])
def test_modes_are_shown_with_their_costs(case: str, width: int, said: Said) -> None:
    found = {
        "better": lambda: advice(merges(), weight=50.0),
        "perhaps": lambda: advice(
            merges(encoding=Encoding.MERGE_ON_READ), weight=1e3, properties=LAZY
        ),
        "unknown": lambda: advice(merges(), weight=0.0),
    }[case]()
    document = modes_document(found.modes, found.notes)
    jsonschema.validate(document, WRITE_MODES)
    lines = modes_section(document, width)
    assert max(map(len, lines)) <= width
    said("\n".join(lines))


def test_without_operations_there_is_no_section() -> None:
    assert modes_section(None, 80) == modes_section({}, 80) == []
