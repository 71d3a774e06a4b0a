"""A plan that somebody made up is refused by its schema, or can be printed: nothing in between."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from reconciler.plan.plan_schema import SCHEMA
from reconciler.render import markdown, plan_text
from tests.cli.plans import many_actions, single
from tests.examples import examples
from tests.mutated import places, replaced

EVIDENCE = Draft202012Validator(SCHEMA["properties"]["evidence"])
ACTION = Draft202012Validator(SCHEMA["properties"]["actions"]["items"]["properties"]["predicted"])
DOCUMENTS = (single(), many_actions())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


PLACES = [
    (number, place)
    for number, document in enumerate(DOCUMENTS)
    for place in [
        *(("evidence", *inner) for inner in places(document["evidence"], items=2)[1:]),
        *(
            ("actions", 0, "predicted", *p)
            for p in places(document["actions"][0]["predicted"], items=2)[1:]
        ),
    ]
]


def test_the_documents_that_are_mutated_are_valid() -> None:
    for document in DOCUMENTS:
        assert list(EVIDENCE.iter_errors(document["evidence"])) == []
        assert [e for a in document["actions"] for e in ACTION.iter_errors(a["predicted"])] == []


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), values, st.booleans())
def test_what_the_schema_accepts_can_be_printed(place: Any, value: Any, removed: bool) -> None:
    number, path = place
    document = replaced(DOCUMENTS[number], path, value, removed)
    wrong = [*EVIDENCE.iter_errors(document["evidence"])]
    wrong += [e for action in document["actions"] for e in ACTION.iter_errors(action["predicted"])]
    if not wrong:
        assert plan_text.render_plan(document, verbose=True)
        assert plan_text.render_plan(document, width=80)
        assert markdown.render_plan(document)
