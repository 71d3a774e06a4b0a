"""Auto looks at what a real plan needs of the machine, and says what of it is too little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reconciler.api.choices import EngineType
from reconciler.engines.choice import LONGEST_SECONDS, Machine
from reconciler.engines.local import machine
from reconciler.format import duration, iec
from reconciler.loop import engines
from reconciler.loop.engines import CommitTarget, engine_for, needs_of
from reconciler.plan.actions.delete_maintenance import CompactDeletes, ConvertDeletes
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.rewrite import BinPack, Cluster
from reconciler.plan.ordering import by_tree
from reconciler.table.cut_tree import Cut, made
from reconciler.table.deletes import DeleteTable
from reconciler.table.schema import SpecField
from tests.loop.test_step import DECLARED, step_of

GIB = 1 << 30
HERE = Machine(cores=2, memory_bytes=8 * GIB, disk_bytes=100 * GIB)
NO_SPARK = "pyspark is not installed (pip install ...)"


def test_auto_says_what_of_this_machine_a_plan_does_not_fit(
    catalog_config, make_table, actor, monkeypatch
):
    make_table("too_large", files=3)
    step = step_of(catalog_config, "too_large", **DECLARED)
    proposal = step.propose(actor)
    place = CommitTarget.of(step.target.catalog, step.policy.spec.safety)
    (item,) = proposal.pending
    million = replace(
        item.predicted, rows=3 * 10**9, bytes_in=60 * GIB, bytes_out=60 * GIB, groups=3, columns=8,
        text_bytes=0,
    )  # fmt: skip
    wide = replace(item, predicted=million, action=replace(item.action, row_group_bytes=0))
    slow = replace(item, predicted=replace(item.predicted, millis=(LONGEST_SECONDS + 1) * 1000))

    def taken(one, here, why_not=""):
        monkeypatch.setattr(machine, "of_this", lambda spark: replace(here, spark=spark))
        monkeypatch.setattr(engines, "why_no_spark", lambda: why_not)
        return engine_for(EngineType.AUTO, place, proposal.observation, [one])

    assert taken(item, HERE).engine is EngineType.LOCAL
    needs = needs_of(place, proposal.observation, [wide])
    keys = 24 * 1_500_000_000  # of the largest of three groups, one key
    assert keys < needs.task_bytes < 2 * keys
    metadata = proposal.observation.metadata
    size, unset = "write.parquet.row-group-size-bytes", list[int]()
    for properties in ({}, {size: "128MB"}):  # which is no number
        odd = replace(proposal.observation, metadata=replace(metadata, properties=properties))
        unset.append(needs_of(place, odd, [wide]).task_bytes)
    assert unset[0] == unset[1] > needs.task_bytes
    for one, here, number in (
        (item, replace(HERE, disk_bytes=1), iec(1)),
        (item, replace(HERE, memory_bytes=1 << 20), iec(1 << 20)),
        (wide, replace(HERE, disk_bytes=1000 * GIB), iec(needs.task_bytes)),
        (slow, HERE, duration(LONGEST_SECONDS + 1)),
    ):
        found = taken(one, here)
        assert (found.engine, found.refused) == (EngineType.SPARK, False)
        assert number in found.why
        without = taken(one, here, NO_SPARK)
        assert (without.engine, without.refused) == (EngineType.LOCAL, False)
        assert number in without.why
        assert NO_SPARK in without.why


def test_auto_counts_the_memory_of_a_tree_as_the_engine_does(catalog_config, make_table, actor):
    """All rows' leaves and places, the columns that move them, and a file of a leaf."""
    make_table("tree_memory", files=3)
    step = step_of(catalog_config, "tree_memory", **DECLARED)
    proposal = step.propose(actor)
    place = CommitTarget.of(step.target.catalog, step.policy.spec.safety)
    (item,) = proposal.pending
    rows, size, in_group = 10 * 10**6, 2 * GIB, 15 * 10**6
    target = 720_000_000  # of 3.3 million rows
    predicted = replace(
        item.predicted, rows=rows, bytes_in=size, bytes_out=size, groups=1, columns=2, text_bytes=0
    )
    tree = by_tree(made((Cut(1, 5), None, None), [0, 0]))
    moved = (SpecField(1, "bucket[4]"), SpecField(2, "day"))

    def needed(action):
        own = replace(item, action=action, predicted=predicted)
        return needs_of(place, proposal.observation, [own]).task_bytes

    plain = needed(BinPack(target_bytes=target))
    within = needed(Cluster(ordering=tree, target_bytes=target)) - plain
    places, of_file = 8 * in_group, 112 * 1.5 * target * rows / size
    assert within == pytest.approx(places + of_file, rel=0.001)
    both = needed(Migrate(ordering=tree, target_bytes=target, fields=moved)) - plain
    assert both - within == 2 * 24 * in_group
    assert needed(BinPack(target_bytes=target, row_group_bytes=8 << 20)) > 9 * plain


@pytest.mark.parametrize("dangling", [False, True])
def test_delete_files_that_only_spark_reads_are_left_to_it(
    catalog_config, make_table, actor, dangling: bool
):
    """Auto would otherwise take this machine, and the execution refuse what the plan offered."""
    make_table(f"avro_deletes_{dangling}", files=3)
    step = step_of(catalog_config, f"avro_deletes_{dangling}", **DECLARED)
    proposal = step.propose(actor)
    path, own = np.array(["s3://lake/d.avro"], dtype=object), np.array([True])
    of_others = DeleteTable(
        path, spec_id=np.array([0]), other_format=own, dangling=np.array([dangling])
    )
    seen = replace(proposal.observation, delete_files=of_others)
    place = CommitTarget.of(step.target.catalog, step.policy.spec.safety)
    (item,) = proposal.pending
    for action in (CompactDeletes, ConvertDeletes):
        merged = replace(item, action=action(inputs=(str(path[0]),)))
        assert bool(needs_of(place, seen, [merged]).unsupported) is not dangling
    assert not needs_of(place, seen, [item]).unsupported  # its own check says which files reach it


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_a_task_has_what_the_local_engine_gives_it(groups: int) -> None:
    threads = max(1, HERE.slots // groups)
    assert HERE.task_bytes(threads) * (2 // threads) <= HERE.memory_bytes // 2
