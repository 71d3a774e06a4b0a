"""Predictions: their documents do not change, their sums add up, and nobody else knows their names
there."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reconciler
from reconciler.plan.plan import canonical_json
from reconciler.plan.prediction import (
    LOST,
    OPENING,
    PREDICTED,
    Prediction,
    Total,
    label_of,
    predictions_of,
    saved_text,
    total,
)

KNOWN = [item.name for item in fields(Prediction) if item.name != "foreign"]
FULL = {
    "label": "recluster by day", "reason": "saves 3.0x", "layout": "0f", "filesIn": 12,
    "filesOut": 3, "groups": 2, "bytesIn": 1_000, "bytesOut": 900, "writtenMilli": 910,
    "rows": 77, "cpuMillis": 40, "millis": 20, "readNow": 500, "readAfter": 100, "saving": 400,
    "savingLow": 300, "cost": 250, "estimate": "sampled", "evidence": "workload",
    "type": "Recluster",
}  # fmt: skip

numbers = st.none() | st.integers(-1, 2**53 - 1)
texts = st.none() | st.text("ab7 ", max_size=5)
predictions = st.builds(
    Prediction,
    **{  # type: ignore[arg-type]
        name: numbers if int in getattr(hint, "__args__", ()) else texts
        for name, hint in get_type_hints(Prediction).items()
        if name in KNOWN
    },
)
values = st.integers(-(2**53) + 1, 2**53 - 1) | st.text("ab7 ", max_size=5)
documents = st.dictionaries(st.sampled_from([*FULL, "policy", "later"]), values)


@given(documents)
def test_a_document_is_printed_as_it_was_read_whatever_it_holds(body: dict[str, Any]) -> None:
    again = Prediction.from_document(body).document()
    assert again == body
    assert canonical_json(again) == canonical_json(body)


@given(predictions)
def test_a_prediction_is_read_as_it_was_printed(prediction: Prediction) -> None:
    assert Prediction.from_document(prediction.document()) == prediction


def test_the_names_in_a_document_and_their_order_stay() -> None:
    prediction = Prediction.from_document(FULL)
    assert list(prediction.document()) == list(FULL)
    assert not prediction.foreign
    assert (prediction.files_in, prediction.written_milli, prediction.kind) == (
        12,
        910,
        "Recluster",
    )


def test_a_value_of_another_type_is_kept_but_not_used() -> None:
    body = {"label": 7, "bytesIn": "many", "cpuMillis": True, "later": "x"}
    prediction = Prediction.from_document(body)
    assert prediction.document() == body
    assert (prediction.label, prediction.rewrite_bytes, prediction.cpu_seconds) == (None, 0, 0.0)
    assert label_of({"type": "BinPack", PREDICTED: body}) == "BinPack"


def test_a_change_of_metadata_costs_nothing() -> None:
    prediction = Prediction(label="set x", reason="declared by the policy")
    assert not prediction.rewrites
    assert (prediction.rewrite_bytes, prediction.cpu_seconds) == (0, 0.0)
    assert total([prediction]) == Total()


@pytest.mark.parametrize(
    ("body", "share"),
    [({}, 1.0), ({"writtenMilli": 812}, 0.812), ({"writtenMilli": 1250}, 1.25),
     ({"writtenMilli": 0}, 1.0), ({"writtenMilli": -1}, 1.0), ({"writtenMilli": "much"}, 1.0)],
)  # fmt: skip
def test_what_cannot_be_is_not_believed(body: dict[str, Any], share: float) -> None:
    assert Prediction.from_document(body).written_share == share


@given(st.lists(predictions, max_size=5), st.integers(0, 5))
def test_what_is_done_and_what_remains_add_up_to_the_plan(
    every: list[Prediction], done: int
) -> None:
    whole, parts = total(every), (total(every[:done]), total(every[done:]))
    for item in fields(Total):
        assert getattr(whole, item.name) == sum(getattr(part, item.name) for part in parts)
    assert whole.bytes_in == sum(item.rewrite_bytes for item in every)
    assert whole.cpu_seconds == pytest.approx(sum(item.cpu_seconds for item in every))
    assert total(predictions_of([{PREDICTED: item.document()} for item in every])) == whole


@given(st.integers(1, 50), st.integers(1, 2**40), st.integers(0, 100))
def test_the_rest_of_an_action_shrinks_with_its_inputs(files: int, size: int, percent: int) -> None:
    planned = Prediction.from_document(FULL | {"filesIn": files, "bytesIn": size, "saving": -1})
    left = planned.left(max(1, files * percent // 100), size * percent // 100, of=files)
    assert left.bytes_in == size * percent // 100
    assert left.saving == -1
    for name in ("files_out", "groups", "bytes_out", "rows", "cpu_millis", "millis", "cost"):
        assert 0 <= getattr(left, name) <= getattr(planned, name)
    assert (left.read_now, left.layout, left.kind) == (500, "0f", "Recluster")
    every = planned.left(files, size, of=files)
    assert total([every]) == total([planned])


def test_what_budgets_use_is_kept_of_a_prediction() -> None:
    charged = Prediction.from_document(FULL).charged()
    assert charged.document() == {
        "bytesIn": 1_000,
        "cpuMillis": 40,
        "saving": 400,
        "savingLow": 300,
    }


def test_no_other_module_reads_a_prediction_by_a_string_key() -> None:
    root = Path(reconciler.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in root.rglob("*.py")
        if path != root / "plan" / "prediction.py"
        for line in by_key(path.read_text())
    ]
    assert found == []


def by_key(source: str) -> list[int]:
    """Lines that look something up by "predicted", or look a name up in something predicted."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript):
            place, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            place, key = node.func.value, node.args[0]
            if node.func.attr not in ("get", "pop"):
                continue
        else:
            continue
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            continue
        named = getattr(place, "attr", getattr(place, "id", ""))
        if key.value == PREDICTED or named == PREDICTED:
            found.append(node.lineno)
    return found


def test_a_reader_by_string_keys_would_be_found() -> None:
    assert by_key('item["predicted"]\nitem.get("predicted")\nitem.predicted["bytesIn"]') == [
        1,
        2,
        3,
    ]
    assert by_key('item.predicted.get("bytesIn", 0)\nitem.predicted.bytes_in') == [1]


def test_a_part_of_a_saving_that_is_a_loss_is_called_one() -> None:
    rewrite = Prediction(saving=100, saving_opening=-217, saving_denser=8)
    saved = total([rewrite]).saved_by
    assert saved is not None and sum(percent for percent, _ in saved) == 100
    text = saved_text(saved)
    assert LOST[OPENING] in text and OPENING not in text and " 217 " in text
