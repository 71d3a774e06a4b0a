"""A query counts once, whatever files of its log are imported, in whatever order."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.state.state import StateStore
from reconciler.workload_log import sql_log
from reconciler.workload_log.identity import Occurrences, identity_of
from reconciler.workload_log.importing import Tally
from reconciler.workload_log.sql import SqlReader
from reconciler.workload_log.sql_log import SqlLogImport
from tests.examples import examples
from tests.queries.single import recorded
from tests.workload_log.sinks import MemorySink
from tests.workload_log.test_sql_log import BY_NAME, entry, run, write

MINUTE = 1_772_359_200_000
UUID = "0c9e8a54-3f0e-4b0c-9a53-aa2c4f8ad{:03d}"


@dataclass
class Model:
    """What was asked: the count of each query, kept without any of the code under test."""

    counts: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def read(self, lines: Sequence[dict[str, Any]]) -> None:
        """Equal lines of one file are executions of their own; other files may repeat them."""
        found: Counter[tuple[Any, ...]] = Counter()
        for line in lines:
            number = int(line["sql"].split("=")[1].rstrip(" ;\r\n"))
            if "queryId" in line:
                found[line["queryId"], number] = 1
            else:
                found[line["timestamp"], number] += 1
        self.counts = self.counts | found

    @property
    def by_literal(self) -> Counter[int]:
        total: Counter[int] = Counter()
        for (_, number), count in self.counts.items():
            total[number] += count
        return total


def logged(draw: random.Random, size: int) -> list[dict[str, Any]]:
    """Return a log: some equal lines at one time, some queries with an id and two events."""
    lines: list[dict[str, Any]] = []
    for at in range(size):
        sql = f"SELECT id FROM db.t WHERE id = {draw.randrange(6)}"
        line: dict[str, Any] = {"sql": sql, "timestamp": MINUTE + draw.randrange(at // 3 + 1)}
        if draw.random() < 0.3:
            line["queryId"] = UUID.format(at)
            lines.append({**line, "state": "started"})
            line = {**line, "timestamp": line["timestamp"] + 7, "durationMs": 7}
        lines += [line] * draw.choice((1, 1, 1, 2, 3))
    return lines


def changed(draw: random.Random, line: dict[str, Any]) -> str:
    """Return a line as another exporter writes it: the same query."""
    body = dict(line)
    if draw.random() < 0.3:
        body["sql"] = (
            draw.choice(("\r\n", " ", "")) + body["sql"] + draw.choice((";", " ;\n", "\t"))
        )
    if draw.random() < 0.3:
        body["user"] = draw.choice(("ann", "bob"))
    items = list(body.items())
    draw.shuffle(items)
    return json.dumps(dict(items))


class Crash(Exception):
    pass


class Failing(MemorySink):
    """Dies before or after one of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.after = False

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash

    def append_fragments(self, fragments: Any) -> None:
        if not self.after:
            self._step()
        super().append_fragments(fragments)
        if self.after:
            self._step()

    def set_cursor(self, source: str, value: str) -> None:
        if not self.after:
            self._step()
        super().set_cursor(source, value)
        if self.after:
            self._step()


def file_of(draw: random.Random, directory: Path, name: str, lines: Sequence[str]) -> Path:
    end = draw.choice(("\n", "\r\n"))
    body = "".join(line + end for line in lines).encode()
    path = directory / name
    path.write_bytes(gzip.compress(body) if draw.random() < 0.3 else body)
    return path


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 32))
def test_whatever_parts_of_a_log_are_imported_each_query_counts_once(seed: int) -> None:
    draw = random.Random(seed)
    log = logged(draw, draw.randrange(1, 40))
    sink, model = Failing(), Model()
    with tempfile.TemporaryDirectory() as where, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_log, "BATCH", draw.choice((1, 3, 8, 20_000)))
        for number in range(draw.randrange(1, 6)):
            start, end = sorted(draw.randrange(len(log) + 1) for _ in "ab")
            part = log[start:end]
            if draw.random() < 0.3:
                draw.shuffle(part)
            lines = [changed(draw, line) for line in part]
            sizes = [*sorted(draw.randrange(len(part) + 1) for _ in "ab"), len(part)]
            for size in sizes if draw.random() < 0.5 else sizes[-1:]:  # a log that grows
                path = file_of(draw, Path(where), f"{number}.log", lines[:size])
                sink.left, sink.after = draw.choice((-1, 1, 2, 3)), draw.random() < 0.5
                for _ in range(2):
                    try:
                        run(sink, path)
                        break
                    except Crash:
                        sink.left = -1
                model.read(part[:size])
    counted = Counter(int(item.literals[0]) for item in sink.fragments)  # type: ignore[arg-type]
    assert counted == model.by_literal


def test_an_overlapping_a_rotated_and_a_rewritten_log_add_only_what_is_new(tmp_path: Path) -> None:
    sink = MemorySink()
    lines = [entry(n, timestamp=MINUTE + n) for n in range(538)]
    assert run(sink, write(tmp_path / "q.jsonl", *lines[:400])).kept == 400
    overlapping = run(sink, write(tmp_path / "q.2.jsonl", *lines[200:]))
    assert (overlapping.kept, overlapping.earlier) == (138, 200)
    again = run(sink, write(tmp_path / "q.3.jsonl", *lines[1:], end="\r\n"))
    assert (again.kept, again.earlier) == (0, 537)
    assert len(sink.fragments) == 538


def test_equal_lines_of_one_log_are_separate_executions(tmp_path: Path) -> None:
    sink = MemorySink()
    run(sink, write(tmp_path / "a.jsonl", *[entry(1)] * 3, entry(2)))
    run(sink, write(tmp_path / "b.jsonl", entry(2), *[entry(1)] * 2))
    run(sink, write(tmp_path / "a.jsonl", *[entry(1)] * 3, entry(2), entry(1)))
    assert Counter(f.literals[0] for f in sink.fragments) == {1: 4, 2: 1}


def test_events_of_one_query_count_once_and_keep_what_was_measured(tmp_path: Path) -> None:
    sink = MemorySink()
    events = [
        entry(1, query_id=UUID.format(1), state="QUEUED"),
        entry(1, query_id=UUID.format(1), timestamp="2026-03-01T10:00:09Z", durationMs=9000),
        entry(1, query_id=UUID.format(2)),
    ]
    tally = run(sink, write(tmp_path / "q.jsonl", *events))
    assert (tally.read, tally.kept, tally.repeated) == (3, 2, 1)
    assert {(f.event_ms - MINUTE, f.duration_ms) for f in sink.fragments} == {(0, 9000), (0, None)}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("", 5, "SELECT 1", ()), ("", 5, "\r\nSELECT 1 ;\n", ()), True),
        (("", 5, "SELECT\r\n1", ()), ("", 5, "SELECT\n1", ()), True),
        (("", 5, "SELECT 1", ()), ("", 6, "SELECT 1", ()), False),
        (("", 5, "SELECT 1", ("a", "")), ("", 5, "SELECT 1", ("b", "")), False),
        (("20260301_100000_00001_abcde", 5, "a", ()), ("20260301_100000_00001_abcde", 9, "b", ()),
         True),
        # an engine's counter, within a day and after its restart
        (("17", 5, "a", ()), ("17", 9, "a", ()), True),
        (("17", 5, "a", ()), ("17", 9, "b", ()), False),
        (("17", 5, "a", ()), ("17", 5 + 86_400_000, "a", ()), False),
        # PostgreSQL's query_id is a hash of the text without its values
        (("-4729182736451928374", 5, "a", ()), ("-4729182736451928374", 9, "a", ()), False),
    ],
)  # fmt: skip
def test_what_makes_two_lines_one_query(one: Any, other: Any, same: bool) -> None:
    assert (identity_of(*one).key == identity_of(*other).key) is same


def test_occurrences_agree_with_a_count() -> None:
    rng = np.random.default_rng(7)
    counted: Counter[int] = Counter()
    occurrences = Occurrences()
    for _ in range(40):
        keys = rng.integers(0, 60, rng.integers(1, 30)).tolist()
        expected = []
        for key in keys:
            expected.append(counted[key])
            counted[key] += 1
        assert occurrences.add(keys) == expected
    assert len(occurrences._runs) < 8


def test_two_importers_at_once_do_not_double(tmp_path: Path) -> None:
    """Both ask what is recorded before either has stored anything."""
    path = write(tmp_path / "q.jsonl", *(entry(n, timestamp=MINUTE + n) for n in range(50)))
    stores = [StateStore(tmp_path / "state") for _ in "ab"]
    empty = np.empty(0, dtype=np.int64)
    for store in stores:
        store.recorded_positions = lambda: empty  # type: ignore[method-assign]
        store.cursor = lambda source: None  # type: ignore[method-assign]
        assert _imported(path, store).kept == 50
    assert len(recorded(StateStore(tmp_path / "state"), "uuid-t")) == 50


def _imported(path: Path, store: Any) -> Tally:
    return SqlLogImport(SqlReader("trino", BY_NAME), store).run(path)


def test_a_log_that_an_earlier_version_imported_is_not_imported_again(tmp_path: Path) -> None:
    """Earlier versions stored a log's own id and line numbers; the state knows the log by the
    hashes of its lines."""
    sink = MemorySink()
    lines = [entry(n, timestamp=MINUTE + n) for n in range(20)]
    path = write(tmp_path / "q.jsonl", *lines)
    run(sink, path)
    items = sink.fragments
    sink.stored = {}
    sink.append_fragments(
        [replace(item, source="sql-0", position=256 * n) for n, item in enumerate(items)]
    )
    assert run(sink, path).earlier == 20
    assert run(sink, write(path, *lines, entry(99))).kept == 1
    assert len(sink.fragments) == 21
