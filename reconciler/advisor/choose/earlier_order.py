"""Returns the rewrite that gives rows the order again that they had before a plan, for `loop/undo`.

The earlier order is that of an earlier rewrite of ours, or the one that the bounds of the replaced
files show. Where neither is known, nothing is done.

Within a file the older order is not known, nor are ties; files that merging made larger are cut
again in order of arrival, which merging kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.advice import ScoredAction, Settings
from reconciler.advisor.measure.predicted import lead_of
from reconciler.plan.actions.rewrite import Restore, Rewrite
from reconciler.plan.execution import plan_of_file
from reconciler.plan.grouping import output_file_of
from reconciler.plan.ordering import ARRIVAL, Lexicographic, Ordering
from reconciler.plan.prediction import Prediction, millis, whole
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.overlap_depth import depth_of, ranges_of
from reconciler.table.schema import SortColumn

MOST_DEPTH = 2.0
"""Files of an order overlap less: fewer than so many have the same value, on average over rows."""


@dataclass(frozen=True, slots=True)
class EarlierLayout:
    """How the rows of one partition lay before a plan."""

    action: Rewrite
    """What the plan did to them."""
    files: FileTable | None
    """The files that it replaced; None if the ledger does not keep their bounds."""
    predicted: Prediction
    """What the plan predicted."""


def older_ordering(before: EarlierLayout, orderings: Mapping[str, Ordering]) -> Ordering | None:
    """Return in which order rows lay; None if that is not known.

    orderings: of the plans whose rewrites all had the same, by plan id.
    """
    if not before.action.ordering.key and not before.action.trees:
        return ARRIVAL  # merging keeps the order in which rows arrived
    files = before.files
    if files is None or not len(files):
        return None
    known = {orderings.get(plan_of_file(str(path))) for path in files.path}
    if len(known) == 1 and (only := known.pop()) is not None:
        return only
    return _by_bounds(files)


def _by_bounds(files: FileTable) -> Ordering | None:
    """Return the order by the column whose ranges overlap least, None if no column shows one."""
    if len(files) < 2:
        return None
    every, rows = np.arange(len(files), dtype=np.int64), np.maximum(files.records, 0)
    depths = []
    for place, field in enumerate(files.schema.fields):
        if field.field_id not in files.columns:
            continue
        ranges = ranges_of(files, field.field_id)
        if ranges.known.all() and not ranges.single.all():
            depths.append((depth_of(ranges, every, rows).mean, place, field.field_id))
    if not depths or min(depths)[0] >= MOST_DEPTH:
        return None
    return Lexicographic((SortColumn(min(depths)[2]),))


def back_to_earlier_order(
    table: FileTable,
    rows: Int64,
    before: EarlierLayout,
    ordering: Ordering,
    settings: Settings,
    by_spark: str,
) -> ScoredAction:
    """Return the rewrite of files of the plan, with what it costs.

    rows: of the plan's files in the table, all of one partition. by_spark: why Spark writes them,
    "" if it does not.
    """
    target = _file_bytes(before) or settings.target_bytes
    spec_id, partition = table.partitions[int(table.partition[rows[0]])]
    action = Restore(
        inputs=tuple(sorted(str(path) for path in table.path[rows])),
        spec_id=spec_id, partition=partition, ordering=ordering, target_bytes=target,
    )  # fmt: skip
    part = table.take(rows)
    groups = action.groups(ordering.extents(part), target_bytes=target, merge_bytes=None)
    files_out = output_file_of(groups, part.live_bytes.astype(np.float64), float(target))[1]
    size, live = int(part.bytes.sum()), int(part.live_bytes.sum())
    kind = action.work
    assert kind is not None
    work = (kind, size, len(rows))
    predicted = Prediction(
        label=action.label(table.schema, table.specs),
        kind=action.kind,
        layout=action.layout(),
        files_in=len(rows),
        files_out=files_out,
        groups=len(groups.starts),
        bytes_in=size,
        bytes_out=live,
        rows=int((part.records - part.position_deleted).sum()),
        cpu_millis=millis(settings.throughput.cpu_seconds(*work)),
        millis=millis(settings.throughput.seconds(*work)),
        cost=whole(settings.rho.value * size),
        estimate="none",
        evidence="undo",
        lead=lead_of(ordering),
        by_spark=by_spark or None,
    )
    return ScoredAction(action, predicted)


def _file_bytes(before: EarlierLayout) -> int:
    """Return the mean size of the replaced files, 0 if it is not known."""
    if before.files is not None and len(before.files):
        return int(before.files.bytes.mean())
    return before.predicted.rewrite_bytes // max(before.predicted.files_in or 0, 1)
