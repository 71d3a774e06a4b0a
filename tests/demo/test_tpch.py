"""The demo's queries: repeatable, within TPC-H's rules, and the same set in any order."""

from __future__ import annotations

import random
import re
from pathlib import Path

import duckdb

from reconciler.demo import tpch


def test_a_round_is_the_same_for_the_same_seed() -> None:
    assert tpch.draw(tpch.ROUND_ONE, 7, 4_000) == tpch.draw(tpch.ROUND_ONE, 7, 4_000)
    assert tpch.draw(tpch.ROUND_ONE, 7, 4_000) != tpch.draw(tpch.ROUND_ONE, 8, 4_000)


def test_reordering_keeps_every_execution() -> None:
    round_ = tpch.draw(tpch.ROUND_ONE, 1, 4_000)
    again = tpch.reordered(round_, 2)
    assert again != round_
    assert sorted(q.label for q in again) == sorted(q.label for q in round_)
    assert {q.label: q.sql for q in again} == {q.label: q.sql for q in round_}


def test_labels_are_unique_within_a_round() -> None:
    labels = [query.label for query in tpch.draw(tpch.ROUND_TWO, 3, 4_000)]
    assert len(set(labels)) == len(labels) == sum(count for _, count in tpch.ROUND_TWO)


def test_no_parameter_is_left_open() -> None:
    for query in (*tpch.all_22(), *tpch.draw(tpch.ROUND_ONE, 1, 4_000)):
        assert not re.search(r"\{\w+\}", query.sql), query.label


def test_all_22_are_the_22() -> None:
    assert [query.name for query in tpch.all_22()] == [f"Q{n}" for n in range(1, 23)]


def test_order_keys_are_those_that_the_generator_uses() -> None:
    drawn = {
        int(re.search(r"l_orderkey = (\d+)", query.sql).group(1))  # type: ignore[union-attr]
        for seed in range(200)
        for query in tpch.draw((("order lookup", 3),), seed, 6_000)
    }
    assert all(key % 32 < 8 and 0 < key <= 6_000 for key in drawn)


def test_months_stay_within_their_range() -> None:
    generator = random.Random(5)
    months = {str(tpch._month(generator, (1993, 11), (1994, 2))) for _ in range(100)}
    assert months == {"1993-11-01", "1993-12-01", "1994-01-01", "1994-02-01"}


def test_the_22_and_the_demos_own_run_on_tpch_data(tmp_path: Path) -> None:
    from reconciler.demo.data import FACTS, OTHERS, Place, Scale, generate

    scale = Scale(scale_factor=0.01, parts=4, late_parts=1, target_bytes=1 << 20)
    generated = generate(Place(tmp_path), scale)
    database = duckdb.connect()
    for name in FACTS:
        files = f"{generated}/{name}/*.parquet"
        database.execute(f"create view {name} as select * from '{files}'")
    for name in OTHERS:
        database.execute(f"create view {name} as select * from '{generated}/{name}.parquet'")
    own = tpch.draw((("order lookup", 1), ("late commits", 1)), 1, scale.largest_order)
    for query in (*tpch.all_22(), *own):
        columns = database.execute(query.sql).description
        assert columns, query.label
    found = database.execute(next(q for q in own if q.name == "order lookup").sql).fetchall()
    assert found, "an order that exists"
