"""The advisor on TPC-H's lineitem as the generator writes it: real skew, dates and correlations."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench.replay.table import SimulatedTable, empty_table
from reconciler.advisor.advice import QD_TREE, AdviceInput, Settings, TreeSettings
from reconciler.advisor.decide import decide
from reconciler.advisor.qdtree.uncut import uncut
from reconciler.plan import reasons
from reconciler.plan.actions import action_from_canonical
from reconciler.plan.actions.rewrite import Recluster
from reconciler.plan.actions.state import Facts, Validity
from reconciler.plan.ordering import by_tree
from reconciler.queries.demanded import demands
from reconciler.queries.fragments import Fragment, workload_of_fragments
from reconciler.queries.predicate import EXPRESSION, LIKE, And, Comparison, Ref
from reconciler.queries.read_cost import read_shape
from reconciler.queries.shape import Workload
from reconciler.queries.table_view import table_view
from reconciler.table.block_ids import COLUMN
from reconciler.table.filetable import Float64
from reconciler.table.metadata import TableMetadata
from reconciler.table.pairs import Pair
from reconciler.table.replica import RECORD, Replica, WantedReplica
from reconciler.table.retention import BRANCH, MAIN, Snapshot, SnapshotLog
from reconciler.table.retention import Ref as BranchRef
from reconciler.table.schema import Field, Schema

DAY = 86_400_000
ORDER, PART, SHIP, RECEIPT, MODE, PRICE = 1, 2, 3, 4, 5, 6
SCHEMA = Schema(
    1,
    (
        Field(ORDER, "l_orderkey", "long"),
        Field(PART, "l_partkey", "long"),
        Field(SHIP, "l_shipdate", "date"),
        Field(RECEIPT, "l_receiptdate", "date"),
        Field(MODE, "l_shipmode", "string"),
        Field(PRICE, "l_extendedprice", "decimal(15, 2)"),
    ),
)
ROWS_PER_FILE = 1_000


@pytest.fixture(scope="module")
def lineitem(tmp_path_factory: pytest.TempPathFactory) -> SimulatedTable:
    folder = tmp_path_factory.mktemp("tpch")
    beside = Path(sys.executable).with_name("tpchgen-cli")
    command = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    assert command, "tpchgen-cli is part of the demo extra"
    subprocess.run(
        [command, "parquet", "-s", "0.01", "--tables=lineitem", "--output-dir", str(folder)],
        check=True, capture_output=True,
    )  # fmt: skip
    data = pq.read_table(folder / "lineitem.parquet")
    values = {
        ORDER: data["l_orderkey"].to_numpy().astype(np.int64),
        PART: data["l_partkey"].to_numpy().astype(np.int64),
        SHIP: data["l_shipdate"].cast("int32").to_numpy().astype(np.int64),
        RECEIPT: data["l_receiptdate"].cast("int32").to_numpy().astype(np.int64),
        MODE: np.array([str(v).encode() for v in data["l_shipmode"].to_pylist()]),
        PRICE: (data["l_extendedprice"].cast("double").to_numpy() * 100).round().astype(np.int64),
    }
    return empty_table(SCHEMA).append(values, ROWS_PER_FILE, 0, ROWS_PER_FILE)


def _between(column: int, slot: int = 0) -> tuple[Comparison, Comparison]:
    return Comparison(Ref(column), ">=", slot), Comparison(Ref(column), "<", slot + 1)


def _log(table: SimulatedTable) -> Workload:
    """Q6 and Q12 by their date ranges, Q14 by a month, and lookups of orders."""
    random = np.random.default_rng(7)
    first = int(table.values[SHIP].min())
    year = And((*_between(SHIP), Comparison(Ref(PRICE), "<", 2)))
    mode = And((Comparison(Ref(MODE), "=", 0), *_between(RECEIPT, 1)))
    lookup = Comparison(Ref(ORDER), "=", 0)
    found = []
    for i in range(60):
        start = first + int(random.integers(0, 2_000))
        wanted = [
            (year, (start, start + 365, 5_000_000), (PRICE, SHIP)),
            (mode, (b"MAIL", start, start + 365), (MODE, RECEIPT)),
            (And(_between(SHIP)), (start, start + 30), (PART, SHIP, PRICE)),
            (lookup, (int(random.integers(1, 60_000)),), (ORDER, PRICE)),
        ][i % 4]
        predicate, literals, projection = wanted
        found.append(
            Fragment("log", i, "u", predicate, literals, (None,) * len(literals),
                     tuple(sorted(projection)), 2.0, i * DAY // 6, "spark")
        )  # fmt: skip
    return workload_of_fragments(found)


@pytest.mark.parametrize(("groups", "least_rows"), [(1, 0), (8, 0), (8, 780)])
def test_lineitem_is_laid_out_by_a_tree_as_predicted_and_then_left_alone(
    lineitem, groups, least_rows
):
    """In files of one row group, and of eight, each a leaf of its own below the leaves of files;
    where the policy names the least rows of a leaf, a row group is a part of a leaf instead."""
    work = _log(lineitem)
    settings = Settings(
        target_bytes=lineitem.row_width * ROWS_PER_FILE,
        row_group_bytes=lineitem.row_width * ROWS_PER_FILE // groups,
        trees=TreeSettings(least_rows=least_rows), open_bytes=1_000, now_ms=11 * DAY,
    )  # fmt: skip
    advice = _advise(lineitem, work, settings)
    assert advice.actions
    for item in advice.actions:
        tree = item.action.ordering.tree
        assert tree is not None and {SHIP, RECEIPT, MODE} <= set(tree.columns)
        small = groups > 1 and not least_rows
        assert (tree.leaves > 4 * len(lineitem.files)) == small
        assert len(str(item.action.canonical())) < 2_000  # the plan names a tree by its hash
    assert sum(s.bytes_after for s in advice.shapes) == pytest.approx(advice.read_after.mid)
    table = lineitem
    for item in advice.actions:
        table = table.apply(item.action, settings.now_ms)
    actual = _read(table, work, settings)
    assert advice.read_after.mid == pytest.approx(actual, rel=0.05)
    most = {1: 0.2, 8: 0.13 if least_rows else 0.09}[groups]
    assert actual < most * _read(lineitem, work, settings)
    assert len(table.files) < 1.15 * len(lineitem.files)
    later = replace(settings, now_ms=settings.now_ms + 8 * DAY)
    assert _advise(table, work, later).actions == ()


@pytest.mark.parametrize("least", [3_000, 40_000])
def test_a_policy_may_ask_for_trees_alone(lineitem, least):
    """With so many rows in a leaf as it says; with more than half of all, none can be found."""
    settings = Settings(
        mode=QD_TREE, trees=TreeSettings(climbs=False, least_rows=least), open_bytes=1_000,
        target_bytes=lineitem.row_width * ROWS_PER_FILE, now_ms=11 * DAY,
        row_group_bytes=lineitem.row_width * ROWS_PER_FILE,
    )  # fmt: skip
    work = _log(lineitem)
    advice = _advise(lineitem, work, settings)
    if least > ROWS_PER_FILE * len(lineitem.files) / 2:
        assert advice.actions == ()
        assert {item.reason for item in advice.rejected} == {reasons.NO_TREE}
        return
    trees = [item.action.ordering.tree for item in advice.actions]
    assert trees and all(tree is not None for tree in trees)
    assert max(tree.leaves for tree in trees) <= ROWS_PER_FILE * len(lineitem.files) / least
    assert trees == [
        item.action.ordering.tree for item in _advise(lineitem, work, settings).actions
    ]


@pytest.mark.parametrize("wanted", ["", "block"])
def test_conditions_between_columns_are_cut_by_only_where_rows_get_ids(lineitem, wanted):
    """Half of the rows meet the condition. Without ids the plan says that it is not used. LIKE a
    pattern and an expression are used in neither case."""
    other = np.random.default_rng(1).permutation(lineitem.values[SHIP])
    table = replace(lineitem, values={**lineitem.values, RECEIPT: other})
    pair = Pair(SHIP, "less", RECEIPT)
    asked = And((
        Comparison(Ref(SHIP, pair.transform), ">=", 0), Comparison(Ref(PART), "<", 1),
        Comparison(Ref(PRICE, LIKE), ">=", 2), Comparison(Ref(ORDER, EXPRESSION), ">=", 3),
    ))  # fmt: skip
    log = workload_of_fragments([
        Fragment("log", n, "u", asked, (1, 500 + 25 * n, 1, 1), (None,) * 4,
                 (ORDER, PART, SHIP, RECEIPT, PRICE), 2.0, n * DAY // 6, "spark")
        for n in range(60)
    ])  # fmt: skip
    settings = Settings(
        mode=QD_TREE, open_bytes=1_000, now_ms=11 * DAY,
        trees=TreeSettings(climbs=False, least_rows=3_000, block_column=wanted),
        target_bytes=lineitem.row_width * ROWS_PER_FILE,
        row_group_bytes=lineitem.row_width * ROWS_PER_FILE,
    )  # fmt: skip
    advice = _advise(table, log, settings)
    trees = [tree for item in advice.actions for tree in item.action.trees]
    assert trees and {one.pairs for one in trees} == {(pair,) if wanted else ()}
    (said,) = [str(item.why) for item in advice.rejected if item.reason == reasons.NOT_CUT]
    ship, receipt, price, order = (
        table.schema.name_of(one) for one in (SHIP, RECEIPT, PRICE, ORDER)
    )
    assert f"{price} LIKE ? (100%)" in said and f"of {order} (100%)" in said
    assert (f"{ship} < {receipt} (100%)" in said) == (not wanted)
    assert said.count("%") == (3 if wanted else 4)
    dropped = Schema(2, tuple(one for one in table.schema.fields if one.field_id != RECEIPT))
    left = uncut(log.shapes, [1.0], dropped)
    assert price in left and ship not in left, "no query can ask for a dropped column"


def test_conditions_between_columns_propose_no_key_and_skip_nothing(lineitem):
    """Bounds of one column say nothing of `l_shipdate < l_receiptdate`."""
    later = Comparison(Ref(SHIP, Pair(SHIP, "less", RECEIPT).transform), ">=", 0)
    both = And((later, Comparison(Ref(PART), "<", 1)))
    alone = [
        Fragment("log", n, "u", later, (1,), (None,), (SHIP, RECEIPT), 2.0, n * DAY // 6, "spark")
        for n in range(60)
    ]
    beside = [
        Fragment("log", 100 + n, "u", both, (1, 500 + 25 * n), (None, None),
                 (PART, SHIP, RECEIPT), 2.0, n * DAY // 6, "spark")
        for n in range(60)
    ]  # fmt: skip
    settings = Settings(
        open_bytes=1_000, now_ms=11 * DAY, target_bytes=lineitem.row_width * ROWS_PER_FILE,
        row_group_bytes=lineitem.row_width * ROWS_PER_FILE,
    )  # fmt: skip
    nothing = _advise(lineitem, workload_of_fragments(alone), settings)
    assert nothing.actions == ()
    assert [str(item.why) for item in nothing.rejected] == [reasons.NO_CONDITION]
    advice = _advise(lineitem, workload_of_fragments([*alone, *beside]), settings)
    keys = {column.field_id for item in advice.actions for column in item.action.ordering.key}
    assert keys == {PART}
    (unserved,) = [one for one in advice.shapes if one.shape_id == alone[0].shape_id]
    assert unserved.bytes_now == pytest.approx(unserved.bytes_after, rel=0.02)


@pytest.mark.parametrize("taken", [False, True])
def test_trees_get_block_ids_where_the_policy_names_a_free_column(lineitem, taken):
    tops = {"block": (99, "int")} if taken else {}
    settings = Settings(
        mode=QD_TREE, trees=TreeSettings(climbs=False, block_column="block"), open_bytes=1_000,
        target_bytes=lineitem.row_width * ROWS_PER_FILE, now_ms=11 * DAY,
        row_group_bytes=lineitem.row_width * ROWS_PER_FILE,
        metadata=replace(Settings().metadata, tops=tops),
    )  # fmt: skip
    advice = _advise(lineitem, _log(lineitem), settings)
    actions = [item.action for item in advice.actions]
    assert actions
    if taken:
        assert all(one.block_column == "" for one in actions)
        assert reasons.NO_BLOCK_IDS in {item.reason for item in advice.rejected}
        return
    first, *rest = actions
    assert first.column == "block" and rest
    assert {tree for one in rest for tree in one.trees} == set(first.trees)
    assert all(one.block_column == "block" for one in rest)
    body = first.canonical()
    texts = [tree.text for tree in first.trees]
    assert action_from_canonical({**body, "trees": texts}) == first


COUNTS = {"total-data-files": "1"}
HEAD = Snapshot(2, 1, 10 * DAY, COUNTS, "append")
LOG = SnapshotLog((Snapshot(1, None, 0, COUNTS, "append"), HEAD), (BranchRef(MAIN, BRANCH, 2),))


def _with_replica(lineitem, wanted, **more):
    return Settings(
        mode="None", trees=TreeSettings(climbs=False), open_bytes=1_000, replica=wanted,
        target_bytes=lineitem.row_width * ROWS_PER_FILE, now_ms=11 * DAY,
        row_group_bytes=lineitem.row_width * ROWS_PER_FILE,
        metadata=replace(Settings().metadata, log=LOG, **more),
    )  # fmt: skip


def test_a_replica_is_planned_with_what_routed_queries_then_read(lineitem):
    work, wanted = _log(lineitem), WantedReplica("copy", 1 << 40)
    settings = _with_replica(lineitem, wanted)
    (item,) = _advise(lineitem, work, settings).actions
    action, predicted = item.action, item.predicted
    assert (action.kind, action.source, action.appends) == ("BuildReplica", 2, False)
    assert action_from_canonical({**action.canonical(), "tree": action.tree.text}) == action
    assert predicted.bytes_in == lineitem.file_table().total_bytes
    laid = Recluster(
        inputs=tuple(sorted(lineitem.file_table().path.tolist())), ordering=by_tree(action.tree),
        target_bytes=settings.target_bytes, row_group_bytes=settings.row_group_bytes,
    )  # fmt: skip
    copy = lineitem.apply(laid, settings.now_ms)
    least = sum(
        float(demand.weight @ np.minimum(now, then))
        for demand, now, then in zip(
            demands(work, SCHEMA, settings.horizon_ms),
            _readings(lineitem, work, settings), _readings(copy, work, settings), strict=True,
        )
    )  # fmt: skip
    assert predicted.read_after == pytest.approx(least, rel=0.10)
    assert least < 0.3 * predicted.read_now


def test_why_there_is_no_replica_is_said(lineitem):
    work, size = _log(lineitem), lineitem.file_table().total_bytes
    roomy = WantedReplica("copy", 1 << 40)
    settings = _with_replica(lineitem, roomy)

    def reason(changed):
        advice = _advise(lineitem, work, changed)
        assert advice.actions == ()
        return {item.reason for item in advice.rejected}

    small = replace(roomy, budget_bytes=size - 1)
    assert reason(replace(settings, replica=small)) == {reasons.NO_REPLICA}
    busy = replace(roomy, changed_ms=60_000.0)
    assert reason(replace(settings, replica=busy)) == {reasons.NO_REPLICA}
    overwritten = replace(roomy, rebuilt_ms=3_600_000.0)
    assert reason(replace(settings, replica=overwritten)) == {reasons.BELOW_COST}
    assert reason(replace(settings, most_bytes=size - 1)) == {reasons.LARGER_THAN_BUDGET}
    owned = {"properties": {COLUMN: "1"}, "tops": {"l_orderkey": (1, "int")}}
    assert reason(_with_replica(lineitem, roomy, **owned)) == {reasons.NO_REPLICA}
    first = _advise(lineitem, work, replace(settings, mode=QD_TREE))
    assert first.actions and all(item.action.kind != "BuildReplica" for item in first.actions)
    assert reasons.REPLICA_WAITS in {item.reason for item in first.rejected}


def test_a_replica_is_extended_by_appends_until_they_are_a_quarter_of_it(lineitem):
    work, size = _log(lineitem), lineitem.file_table().total_bytes
    settings = _with_replica(lineitem, WantedReplica("copy", 1 << 40))
    tree = _advise(lineitem, work, settings).actions[0].action.tree

    def actions(source, held, built):
        record = Replica("copy", "u", 9, source, 0, tree, built, held, 0)
        found = _with_replica(
            lineitem, WantedReplica("copy", 1 << 40), properties={RECORD: record.text}
        )
        return [item.action for item in _advise(lineitem, work, found).actions]

    assert actions(2, size, size) == []
    (more,) = actions(1, int(size * 0.9), int(size * 0.9))
    assert more.appends and more.tree == tree and more.source == 2
    (anew,) = actions(1, int(size * 0.9), int(size * 0.5))
    assert not anew.appends


def test_a_replica_that_is_gone_is_built_again_and_a_foreign_table_is_left_alone(lineitem):
    work, size = _log(lineitem), lineitem.file_table().total_bytes
    wanted = WantedReplica("copy", 1 << 40, kept_ms=7)
    tree = _advise(lineitem, work, _with_replica(lineitem, wanted)).actions[0].action.tree
    record = Replica("copy", "u", 9, 2, 0, tree, size, size, 0)

    def advice(asked):
        settings = _with_replica(lineitem, asked, properties={RECORD: record.text})
        return _advise(lineitem, work, settings)

    fresh = advice(wanted)
    assert fresh.actions == () and fresh.upkeep_due_ms > 11 * DAY, "somebody may drop it"
    (again,) = [item.action for item in advice(replace(wanted, lost="dropped")).actions]
    assert (again.lost, again.appends, again.kept_ms) == (9, False, 7)
    assert action_from_canonical({**again.canonical(), "tree": again.tree.text}) == again
    now = TableMetadata({RECORD: record.text}, log=LOG)
    assert again.judge(Facts(metadata=now)).validity is Validity.PENDING
    assert replace(again, lost=0).judge(Facts(metadata=now)).validity is Validity.DONE
    foreign = advice(replace(wanted, foreign="of somebody else", lost="of somebody else"))
    assert foreign.actions == ()
    assert {item.reason for item in foreign.rejected} == {reasons.NO_REPLICA}


def test_no_tree_is_planned_where_spark_has_to_write(lineitem):
    metadata = replace(
        Settings().metadata, properties={"write.parquet.compression-codec": "brotli"}
    )
    settings = Settings(
        metadata=metadata, target_bytes=lineitem.row_width * ROWS_PER_FILE, open_bytes=1_000,
        row_group_bytes=lineitem.row_width * ROWS_PER_FILE, now_ms=11 * DAY,
    )  # fmt: skip
    work = _log(lineitem)
    actions = _advise(lineitem, work, settings).actions
    assert actions and all(item.action.ordering.tree is None for item in actions)
    alone = _advise(lineitem, work, replace(settings, mode=QD_TREE))
    assert alone.actions == ()
    assert {item.reason for item in alone.rejected} == {reasons.NO_TREE}


def _advise(table: SimulatedTable, work: Workload, settings: Settings):
    sample = table.sample(np.arange(len(table.files)), 512)
    return decide(AdviceInput(table.file_table(), work, settings, table.row_groups(), sample))


def _read(table: SimulatedTable, work: Workload, settings: Settings) -> float:
    asked = demands(work, SCHEMA, settings.horizon_ms)
    read = _readings(table, work, settings)
    return sum(float(d.weight @ own) for d, own in zip(asked, read, strict=True))


def _readings(table: SimulatedTable, work: Workload, settings: Settings) -> list[Float64]:
    """Return the bytes that each query of each shape reads."""
    view = table_view(table.file_table(), table.row_groups(), None, settings.row_group_bytes)
    return [read_shape(view, d).bytes for d in demands(work, SCHEMA, settings.horizon_ms)]
