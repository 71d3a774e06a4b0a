"""The share of its bytes that a plan expects a rewrite to write, as its document tells it."""

from __future__ import annotations

import pytest

from reconciler.plan.plan import written_share


@pytest.mark.parametrize(
    ("told", "share"),
    [({}, 1.0), ({"writtenMilli": 812}, 0.812), ({"writtenMilli": 1250}, 1.25),
     ({"writtenMilli": 0}, 1.0), ({"writtenMilli": -1}, 1.0), ({"writtenMilli": "much"}, 1.0)],
)  # fmt: skip
def test_what_cannot_be_is_not_believed(told, share):
    assert written_share(told) == share
