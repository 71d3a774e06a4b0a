"""What joins asked of a table while a query ran, from events of a real Trino 476.

The events are of a table in six files, sorted by `dk`, so Trino read one file of 411,050 bytes or
so where the join named one value. Lines of the plans that say nothing of scans were left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.queries.fragments import Fragment
from reconciler.workload_log.join_ranges import join_ranges
from reconciler.workload_log.log_lines import kind_of
from reconciler.workload_log.sql import Session, SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from reconciler.workload_log.tables import SchemaMap
from tests.workload_log.oracle import known_tables
from tests.workload_log.sinks import MemorySink

EVENTS = Path(__file__).parent / "histories" / "trino-476-joins.jsonl"
COLUMNS = (("dk", "long"), ("day", "date"), ("word", "string"), ("amt", "decimal(9,2)"),
           ("at", "timestamp"), ("v", "double"))  # fmt: skip
KNOWN = known_tables({
    "rec.lake.fact": COLUMNS, "rec.lake.dim": (*COLUMNS, ("name", "string"), ("month", "int")),
})  # fmt: skip
READER = SqlReader("trino", SchemaMap({tuple(n.split(".")): one for n, one in KNOWN.items()}))
AS_WRITTEN = {
    "f.dk = d.dk WHERE d.name = 'n37'": "dk = 37",
    "f.dk = d.dk WHERE d.month = 7": "dk BETWEEN 210 AND 239",
    "IN ('n5','n900')": "dk IN (5, 900)",
    "d ON f.day = d.day WHERE": "day BETWEEN DATE '2020-07-29' AND DATE '2020-08-27'",
    "f.word = d.word": "word BETWEEN 'w0210' AND 'w0239'",
    "f.amt = d.amt": "amt BETWEEN 210.00 AND 239.00",
    "f.at = d.at": "at BETWEEN TIMESTAMP '2020-07-29 00:00:01' AND TIMESTAMP '2020-08-27 00:00:01'",
    "f.dk >= d.dk AND": "dk >= 10 AND dk <= 13",
    "f.day = d.day WHERE d.month = 7 AND": (
        "v < 0.5 AND dk BETWEEN 210 AND 239 AND day BETWEEN DATE '2020-07-29' AND DATE '2020-08-27'"
    ),
    "f.dk < (SELECT": "dk < 119",
    "LEFT JOIN": "true",
    "IS NOT DISTINCT FROM": "dk BETWEEN 210 AND 239",
    "f.dk < d.dk": "dk < 239",
    "'nothing'": "true",
}
"""By a part of the text, in which the last one counts: the condition that it amounts to."""


def _imported(path: Path) -> list[Fragment]:
    sink = MemorySink()
    SqlLogImport(READER, sink, Session(("rec",)), kind_of(path, None, {})).run(path)
    return [one for one in sink.fragments if one.table_uuid == KNOWN["rec.lake.fact"].uuid]


def _event(text: str) -> dict[str, Any]:
    """The last event with this in its statement."""
    events: list[dict[str, Any]] = [json.loads(line) for line in EVENTS.read_text().splitlines()]
    return [event for event in events if text in event["metadata"]["query"]][-1]


@pytest.mark.parametrize("text", AS_WRITTEN)
def test_a_join_counts_as_the_range_that_it_asked_for(tmp_path: Path, text: str) -> None:
    (tmp_path / "one").write_text(json.dumps(_event(text)))
    (found,) = _imported(tmp_path / "one")
    written = READER.extract(f"SELECT * FROM rec.lake.fact WHERE {AS_WRITTEN[text]}", 0)
    assert isinstance(written, list)
    wanted = written[0].fragment
    assert (str(found.predicate), found.literals) == (str(wanted.predicate), wanted.literals)
    assert not (found.elsewhere and found.literals)
    assert found.recorded_bytes == _event(text)["ioMetadata"]["inputs"][0]["physicalInputBytes"]


def test_a_table_that_is_read_twice_has_only_its_own_conditions(tmp_path: Path) -> None:
    event = _event("JOIN fact g")
    assert "dynamicFilters" in event["metadata"]["plan"]
    (tmp_path / "one").write_text(json.dumps(event))
    assert sorted(found.literals for found in _imported(tmp_path / "one")) == [(), (b"w0037",)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{[210], ..., [239]}", "{[2, 1], ..., [239]}"),
        ("[ SortedRangeSet", "[ NULL, SortedRangeSet"),
        ("ranges=30, {[210], ..., [239]}", "ranges=1, {(<min>,239]}"),
        ("ranges=30", "ranges=2"),
        ("type=bigint", "type=double"),
        ("dk = #df_451", "dk * #df_451"),
        ("1:dk:", ""),
        ("{[210], ..., [239]}", "{[x], ..., [239]}"),
        ("lake.fact$data", "lake.fact$files"),
        ("lake.dim$data", "lake.fact$data"),
    ],
)
def test_what_is_not_sure_is_no_condition(old: str, new: str) -> None:
    plan = _event("f.dk = d.dk WHERE d.month = 7")["metadata"]["plan"]
    assert join_ranges(plan)
    assert old in plan and join_ranges(plan.replace(old, new)) == []


def test_a_domain_of_one_range_is_that_range() -> None:
    plan = _event("f.dk = d.dk WHERE d.month = 7")["metadata"]["plan"]
    plan = plan.replace("ranges=30, {[210], ..., [239]}", "ranges=1, {[210,239]}")
    (found,) = join_ranges(plan)
    assert (found.low, found.high, found.alone) == ("210", "239", False)
