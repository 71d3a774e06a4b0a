"""Plan documents of any content: parsed, or refused with the field that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.cli.saved_plan import _policy_of, _read
from reconciler.errors import UserError
from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.ordering import Lexicographic
from reconciler.plan.plan import Plan, parse_plan, plan_from_document, plan_id
from reconciler.table.schema import SortColumn
from tests.examples import examples
from tests.mutated import places, replaced
from tests.plan.test_plan import make, table

ACTIONS = (
    Cluster(ordering=Lexicographic((SortColumn(3),)), inputs=("a", "b"), target_bytes=1 << 20),
    BinPack(inputs=("c",), partition=(1, None, b"x", 2.5)),
    SetProperties(old=(("p", None),), new=(("p", "1"),)),
    SetSortOrder(key=(SortColumn(3),), old=("identity(1) asc x",)),
)


def document() -> dict[str, Any]:
    plan = make(ACTIONS, table(["a", "b", "c"]))
    return json.loads(json.dumps(plan.document() | {"digest": plan.digest()}))


PLACES = places(document())
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(PLACES), values, st.booleans())
def test_a_mutated_plan_is_parsed_or_refused(path: Any, value: Any, removed: bool) -> None:
    body = replaced(document(), path, value, removed)
    try:
        plan = plan_from_document(body)
    except UserError as error:
        assert error.details and error.do
        return
    assert plan.digest() and plan.predicted.bytes_in is not None
    with pytest.raises(UserError):  # the fixture's evidence holds no policy
        _policy_of(plan, Path("plan.json"))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(PLACES), values)
def test_a_mutated_plan_whose_id_fits_is_parsed_or_refused(path: Any, value: Any) -> None:
    """Whoever makes a plan up computes its id too."""
    body = replaced(document(), path, value)
    try:
        parsed: Plan | None = plan_from_document(body)
    except UserError:
        parsed = None
    if parsed is not None:
        body["planId"] = plan_id(
            parsed.table_uuid, parsed.policy_hash, [item.action for item in parsed.actions]
        )
        assert plan_from_document(body).id == body["planId"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested"),
        ("{", "JSON"),
        ("[]", "[] "),
        (json.dumps(document() | {"actions": 7}), "actions: 7"),
        (json.dumps(document() | {"table": [1]}), "table[0]: 1"),
        (json.dumps(document() | {"evidence": {"a": [[[]]] * 3, "b": 1.5}}), "float"),
        ('{"apiVersion": ' + "9" * 10_000 + "}", ""),
    ],
)
def test_a_file_that_is_not_a_plan_says_where_and_why(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        _read(path)
    assert str(path) in raised.value.what and raised.value.exit_code == 1
    assert any(why in detail for detail in raised.value.details)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"plan\.json"):
        _read(tmp_path / "plan.json")


def test_a_plan_survives_its_document() -> None:
    plan, digest = parse_plan(json.dumps(document()))
    assert plan.digest() == digest and len(plan.actions) == len(ACTIONS)
