"""What is planned for a declared partition spec, and what keeps the present one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.advisor.advice import Advice, AdviceInput, Migration, Settings
from reconciler.advisor.decide import decide
from reconciler.advisor.simulate.target import TargetPartitions, number_of_partitions
from reconciler.plan import reasons
from reconciler.plan.grouping import Extents, by_target_partition
from reconciler.plan.ledger import ReadCheck
from reconciler.plan.trial import Trial
from reconciler.table.deletes import NO_DELETE_FILES, DeleteTable
from reconciler.table.filetable import FileTable
from reconciler.table.metadata import TableMetadata
from reconciler.table.operations import Encoding, Kind, Operations, RowOperation
from reconciler.table.schema import PartitionField, PartitionSpec, Schema, SpecField
from reconciler.table.writers import NO_WRITERS, Writers, writers_of
from tests.advisor.worlds import DATE, DAY, KEY, SETTINGS, arrived, range_workload, workload

MONTHS = (SpecField(DATE, "month"),)
BUCKETS = (SpecField(KEY, "bucket[4]"),)
NOW = SETTINGS.now_ms


def world() -> FileTable:
    return arrived(np.random.default_rng(0), rows=20_000, days=365, jitter=3).file_table()


def wanted(
    fields: tuple[SpecField, ...] = MONTHS,
    writers: Writers = NO_WRITERS,
    accepted: Sequence[str] = (),
    **more: Any,
) -> Migration:
    given: dict[str, Any] = {"spec_id": 1, "exists": False, "present": 0, **more}
    return Migration(fields, accepted=frozenset(accepted), writers=writers, **given)


def planned(
    files: FileTable, migration: Migration, settings: Settings = SETTINGS, **more: Any
) -> Advice:
    nothing = workload([])
    return decide(AdviceInput(files, nothing, replace(settings, migration=migration), **more))


def kinds(advice: Advice) -> list[str]:
    return [item.action.kind for item in advice.actions]


def under(files: FileTable, spec: PartitionSpec, rows: Sequence[int]) -> FileTable:
    """The table with some of its files under another spec, in a partition of their own."""
    spec_id, partition = files.spec_id.copy(), files.partition.copy()
    spec_id[list(rows)], partition[list(rows)] = spec.spec_id, len(files.partitions)
    values = (*files.partitions, (spec.spec_id, (1,) * len(spec.fields)))
    return replace(
        files, specs={**files.specs, spec.spec_id: spec}, spec_id=spec_id, partition=partition,
        partitions=values,
    )  # fmt: skip


def test_the_spec_is_added_then_files_move_then_writers_are_switched() -> None:
    files = world()
    advice = planned(files, wanted())
    assert kinds(advice) == ["AddSpec", "Migrate", "SwitchSpec"]
    move = advice.actions[1]
    assert move.action.inputs == tuple(sorted(files.path))
    assert (move.action.into, move.action.spec_id) == (1, 0)
    assert move.predicted.groups == 1  # each file shares a month with the next one
    assert 12 <= move.predicted.files_out <= 30
    (judged,) = (item for item in advice.objectives if item.name == "partitioning")
    assert (judged.state, judged.now, judged.after) == ("met", 100.0, 0.0)
    apart = planned(files, wanted((SpecField(KEY, "truncate[2000]"),))).actions[1].predicted
    assert (apart.groups, apart.files_out) == (3, 10)
    everything = planned(files, wanted(BUCKETS)).actions[1]
    assert everything.predicted.groups == 1  # every file has rows of every bucket


def test_a_plan_with_queries_predicts_what_they_read_of_the_new_partitions() -> None:
    table = arrived(np.random.default_rng(0), rows=20_000, days=365, jitter=300)
    files, every = table.file_table(), np.arange(10)
    asked = workload(range_workload(np.random.default_rng(1), DATE, 40, 20, 365))
    settings = replace(SETTINGS, migration=wanted(), mode="None")
    advice = decide(
        AdviceInput(files, asked, settings, table.row_groups(), table.sample(every, 2_000))
    )
    move = advice.actions[1].predicted
    assert move.estimate == "sampled"
    assert move.read_after < move.read_now / 2


def test_only_files_of_other_specs_move_and_nothing_else_rewrites_them() -> None:
    files, spec = world(), PartitionSpec(1, (PartitionField(DATE, 1000, "month", "day_month"),))
    done = under(files, spec, range(len(files)))
    follows = wanted(exists=True, present=1)
    advice = planned(done, follows)
    assert kinds(advice) == [] and advice.objectives[-1].state == "met"
    late = planned(under(files, spec, range(4, len(files))), follows)
    assert kinds(late) == ["Migrate"]
    assert late.actions[0].action.inputs == tuple(sorted(files.path[:4]))
    small = replace(SETTINGS, target_bytes=1 << 30, mode="None")
    waits = under(files, spec, range(6, len(files)))
    quiet = replace(small, quiet_partitions=frozenset((0,)), min_input_files=2)
    held = planned(waits, follows, quiet)
    assert not any(set(a.action.inputs) & set(files.path[:6]) for a in held.actions)
    judged = held.objectives[-1]
    assert judged.state == "failing" and judged.now > 0


def test_specs_are_compared_by_their_fields_whatever_their_order() -> None:
    spec = PartitionSpec(
        3, (PartitionField(KEY, 1000, "bucket[4]", "b"), PartitionField(DATE, 1001, "month", "m"))
    )
    files = world()
    moved = under(files, spec, range(len(files)))
    assert (
        kinds(planned(moved, wanted((*MONTHS, *BUCKETS), exists=True, present=3, spec_id=3))) == []
    )


UPSERTS = Operations(
    (
        RowOperation(
            9, NOW - 3 * DAY, Kind.UPSERT, Encoding.EQUALITY, 5, True, None, None, None, 5, 1, 1,
            "flink",
        ),
    )
)  # fmt: skip
FLINK = {"engine-name": "flink"}


@pytest.mark.parametrize(
    ("summary", "operations", "name"),
    [
        ({**FLINK, "replace-partitions": "true"}, Operations(), "DynamicOverwrites"),
        (FLINK, UPSERTS, "EqualityDeletes"),
        (FLINK, replace(UPSERTS, every=(replace(UPSERTS.every[0], kind=Kind.MERGE,
                                                encoding=Encoding.COPY_ON_WRITE),)), "Merges"),
    ],
)  # fmt: skip
def test_writers_for_whom_two_specs_are_a_danger_stop_it_until_somebody_accepts_them(
    summary: dict[str, str], operations: Operations, name: str
) -> None:
    files, writers = world(), writers_of([summary], operations)
    refused = planned(files, wanted(writers=writers))
    assert kinds(refused) == [] and refused.objectives[-1].state == "unreachable"
    (why,) = (item for item in refused.rejected if item.reason == reasons.MIGRATION_REFUSED)
    assert name in str(why.why) and len(why.inputs) == len(files)
    accepted = planned(files, wanted(writers=writers, accepted=[name]))
    assert kinds(accepted) == ["AddSpec", "Migrate", "SwitchSpec"]
    assert f"accepted {name}" in accepted.actions[1].predicted.reason
    other = "Merges" if name != "Merges" else "EqualityDeletes"
    assert kinds(planned(files, wanted(writers=writers, accepted=[other]))) == []


@pytest.mark.parametrize(
    ("name", "logged"),
    [("StoragePartitionedJoins", Writers(joins=3)), ("Merges", Writers(logged=3))],
)
def test_what_only_the_query_log_shows_is_a_risk(name: str, logged: Writers) -> None:
    refused = planned(world(), wanted(writers=logged))
    (why,) = (item for item in refused.rejected if item.reason == reasons.MIGRATION_REFUSED)
    assert kinds(refused) == [] and f"accept {name}" in str(why.why) and "3" in str(why.why)
    assert kinds(planned(world(), wanted(writers=logged, accepted=[name])))


def test_upserts_long_ago_or_to_an_unpartitioned_table_are_not_dangerous() -> None:
    old = replace(UPSERTS, every=(replace(UPSERTS.every[0], timestamp_ms=NOW - 31 * DAY),))
    assert kinds(planned(world(), wanted(writers=writers_of([FLINK], old)))) != []
    spec = PartitionSpec(1, (PartitionField(DATE, 1000, "month", "m"),))
    files = under(world(), spec, range(10))
    none = wanted((), writers_of([FLINK], UPSERTS), exists=True, spec_id=0, present=1)
    assert kinds(planned(files, none)) == ["Migrate", "SwitchSpec"]


def test_what_nobody_can_accept() -> None:
    files = world()
    first = replace(SETTINGS, metadata=TableMetadata(format_version=1))
    assert kinds(planned(files, wanted(), first)) == []
    alive = replace(NO_DELETE_FILES, path=np.array(["d"], dtype=object), scope=np.array([3]))
    assert isinstance(alive, DeleteTable)
    gone = PartitionSpec(2, (PartitionField(99, 1000, "identity", "gone"),))
    broken = under(files, gone, [0])
    unnamed = wanted(writers=Writers(unnamed=2))
    third = replace(SETTINGS, metadata=TableMetadata(format_version=3))
    for table, migration, settings, more in (
        (files, wanted(), first, {}),
        (files, wanted(), SETTINGS, {"deletes": alive}),
        (broken, wanted(), SETTINGS, {}),
        (files, unnamed, third, {}),
    ):
        advice = planned(table, migration, settings, **more)
        assert [k for k in kinds(advice) if k in ("AddSpec", "Migrate", "SwitchSpec")] == []
        (judged,) = (item for item in advice.objectives if item.name == "partitioning")
        assert judged.state == "unreachable"
    assert kinds(planned(files, unnamed)) != []  # format 2


def test_slices_follow_the_budget() -> None:
    files = world()
    tight = replace(SETTINGS, most_bytes=files.total_bytes // 3)
    found = planned(files, wanted(), tight).actions
    moves = [item for item in found if item.action.kind == "Migrate"]
    assert len(moves) >= 3 and all(m.predicted.bytes_in <= tight.most_bytes for m in moves)
    assert sorted(path for m in moves for path in m.action.inputs) == sorted(files.path)


RANGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 4), st.booleans(), st.integers(1, 50)),
    min_size=1, max_size=40,
)  # fmt: skip


@given(RANGES, st.integers(1, 400))
def test_no_target_partition_gets_rows_from_two_groups(
    drawn: list[tuple[int, int, bool, int]], limit: int
) -> None:
    low, width, null, size = (np.array(part) for part in zip(*drawn, strict=True))
    files = Extents(
        np.arange(len(drawn)), size, low, low + width, np.ones(len(drawn), dtype=bool), null
    )
    groups = by_target_partition(files, limit)
    assert sorted(groups.order.tolist()) == list(range(len(drawn)))
    fed: dict[int | str, set[int]] = {}
    for number, members in enumerate(groups.members):
        for row in members.tolist():
            for value in range(low[row], low[row] + width[row] + 1):
                fed.setdefault(value, set()).add(number)
            if null[row]:
                fed.setdefault("null", set()).add(number)
    assert all(len(owners) == 1 for owners in fed.values())


def test_schema_of_fields_in_words() -> None:
    files = world()
    schema: Schema = files.schema
    texts = [SpecField(KEY, t).text(schema) for t in ("identity", "bucket[16]", "truncate[3]")]
    assert texts == ["id", "bucket(16, id)", "truncate(3, id)"]


TRIAL = SpecField(KEY, "truncate[2000]")


def test_a_trial_moves_the_files_of_one_partition_and_switches_nobody() -> None:
    files = world()
    advice = planned(files, wanted((TRIAL,), trial=True))
    assert kinds(advice) == ["AddSpec", "Migrate"]
    tried = advice.actions[1]
    assert tried.predicted.evidence == "trial" and len(tried.action.inputs) == 1
    assert str(tried.predicted.reason) in str(tried.predicted.label)  # plans show which and why
    (waits,) = [item for item in advice.rejected if item.reason == reasons.TRIAL_FIRST]
    assert sorted((*waits.inputs, *tried.action.inputs)) == sorted(files.path)
    assert advice.objectives[-1].state == "failing"


def test_a_trial_is_where_the_queries_could_save_most() -> None:
    table = arrived(np.random.default_rng(0), rows=20_000, days=365, jitter=3)
    files, every = table.file_table(), np.arange(10)
    asked = workload(range_workload(np.random.default_rng(1), DATE, 20, 2, 20))
    settings = replace(SETTINGS, migration=wanted(trial=True), mode="None")
    advice = decide(
        AdviceInput(files, asked, settings, table.row_groups(), table.sample(every, 2_000))
    )
    (tried,) = [item for item in advice.actions if item.action.kind == "Migrate"]
    chosen = np.isin(files.path, tried.action.inputs)
    first = files.columns[DATE].lower
    assert chosen.sum() < len(files) and first[chosen].min() == first.min()  # of the first 20 days
    assert tried.predicted.read_after < tried.predicted.read_now


def test_without_an_order_a_trial_takes_a_present_partition() -> None:
    files = world()
    spec = PartitionSpec(1, (PartitionField(DATE, 1000, "month", "m"),))
    two = under(files, spec, range(3))
    buckets = wanted(BUCKETS, trial=True, spec_id=2)
    (tried,) = [it for it in planned(two, buckets).actions if it.action.kind == "Migrate"]
    assert tried.action.inputs == tuple(sorted(files.path[:3]))
    whole = planned(files, buckets)  # one partition: there is no part of it
    assert kinds(whole) == [] and whole.rejected[0].reason == reasons.NO_TRIAL
    assert whole.objectives[-1].state == "unreachable"


def test_a_trial_fits_the_budget() -> None:
    files = world()
    tight = replace(SETTINGS, most_bytes=int(files.bytes.min()) - 1)
    advice = planned(files, wanted((TRIAL,), trial=True), tight)
    assert reasons.NO_TRIAL in [item.reason for item in advice.rejected]


def test_after_a_trial_the_rest_moves_and_the_plan_says_what_was_found() -> None:
    files, check = world(), ReadCheck("p-1", 1, 1_000, 600, 650, True)
    spec = PartitionSpec(1, (PartitionField(DATE, 1000, "month", "day_month"),))
    some = under(files, spec, range(2))
    done = wanted(trial=True, exists=True, tried=Trial("p-1", check, 0.8))
    advice = planned(some, done)
    assert kinds(advice) == ["Migrate", "SwitchSpec"]
    assert advice.actions[0].action.inputs == tuple(sorted(files.path[2:]))
    assert done.tried is not None and done.tried.text() in str(advice.actions[0].predicted.reason)


@pytest.mark.parametrize("values", [3, 40, 600, 20_000])
def test_partitions_of_which_no_row_was_sampled_are_estimated(values: int) -> None:
    """A tenth of the rows is sampled; the model is that all values are equally frequent."""
    random = np.random.default_rng(values)
    rows = random.integers(0, values, 20_000)
    drawn = rows[random.permutation(len(rows))[:2_000]]
    seen, number = np.unique(drawn, return_inverse=True)
    pool: Any = SimpleNamespace(native=np.ones(2_000, dtype=bool), weight=np.full(2_000, 10.0))
    spec = PartitionSpec(1, (PartitionField(KEY, 1000, "identity", "k"),))
    target = TargetPartitions(spec, number, tuple((value,) for value in seen.tolist()))
    found = number_of_partitions(pool, target)
    assert found == pytest.approx(len(np.unique(rows)), rel=0.15)


def test_partitions_of_borrowed_rows_alone_are_those_that_occur() -> None:
    """Of more files than a pool has room for, those that were sampled may be left out."""
    pool: Any = SimpleNamespace(native=np.zeros(4, dtype=bool), weight=np.full(4, 10.0))
    fields = tuple(PartitionField(KEY, number, "identity", f"k{number}") for number in (1000, 1001))
    target = TargetPartitions(PartitionSpec(1, fields), np.arange(4) % 2, ((1, 2), (2, 1)))
    assert number_of_partitions(pool, target) == 2
