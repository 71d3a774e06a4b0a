"""The lines of a plan's totals are found by what they measure, in plans of older versions too."""

import pytest

from reconciler.plan.prediction import DENSER, OPENING, SKIPPING, Prediction, total
from reconciler.plan.totals import Quantity, harm_of, named, total_of

OLDER = {"totals": [{"name": "data files", "now": 3}, {"name": "read / 14 days", "now": 5}]}


def test_a_line_is_found_by_its_measure_whatever_its_name():
    lines = [{**named(Quantity.COST, "2 days"), "now": 1},
             {"name": "read by the queries", "measure": "readBytes", "now": 2}]  # fmt: skip
    found = [total_of({"totals": lines}, name) for name in (Quantity.COST, Quantity.READ)]
    assert [line.now for line in found] == [1, 2]
    assert total_of({"totals": lines}, Quantity.FILES) is None
    assert total_of({}, Quantity.READ) is None


def test_lines_of_older_plans_are_found_by_their_names():
    assert [total_of(OLDER, name).now for name in (Quantity.FILES, Quantity.READ)] == [3, 5]
    assert total_of(OLDER, Quantity.COST) is None
    assert total_of(OLDER, Quantity.STORAGE) is None


@pytest.mark.parametrize(
    ("after", "harm"), [(150, 50), (101, 0), (100, 0), (60, 0), (None, 0)]
)  # fmt: skip
def test_a_plan_that_raises_the_cost_of_reading_foretells_harm(after, harm):
    line = {**named(Quantity.COST, "2 days"), "now": 100, "after": after}
    assert harm_of({"totals": [line]}) == harm
    assert harm_of(OLDER) == 0


def test_a_saving_is_split_by_what_it_comes_from():
    pack = Prediction(saving=100, saving_opening=90, saving_denser=4)
    sort = Prediction(saving=100, saving_opening=0, saving_denser=-10)
    assert total([pack]).saved_by == (
        (90, OPENING), (6, SKIPPING), (4, DENSER),
    )  # fmt: skip
    assert total([sort]).saved_by[0] == (110, SKIPPING)
    assert sum(share for share, _ in total([pack, sort]).saved_by) == 100
    assert total([Prediction(saving=100)]).saved_by is None  # of an older version
