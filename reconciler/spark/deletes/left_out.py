"""Whether equality deletes that Iceberg's scan leaves out by bounds really delete nothing there.

Iceberg's scan leaves an equality delete out of a data file where the bounds and counts of their
manifest entries say that no key can be in it; other readers compare keys. Where an entry is wrong,
one reader sees a row that another does not, and a conversion, which drops the delete file, would
settle that for all of them. So the entries are compared with the files' own footers first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from reconciler.engines.delete_file import DeleteFile
from reconciler.engines.schedule import input_forms
from reconciler.engines.schedule.run import Run
from reconciler.rewrite.partition_check import FLOATS
from reconciler.spark.commit.table import java_of, java_session
from reconciler.spark.deletes import delete_scope
from reconciler.spark.schedule import scan
from reconciler.spark.session import iceberg
from reconciler.table.refusals import WRONG_BOUNDS, Refusal

READERS = 16
"""Footers that are read at once: a store answers each after tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class _Entries:
    """Manifest entries, as org.apache.iceberg.ContentFile."""

    deletes: Sequence[Any]
    """Entries of delete files that are left out of a data file."""
    data: Sequence[Any]
    """Entries of these data files, with the statistics of the keys."""


def refuse(run: Run, snapshot_id: int, inputs: Collection[DeleteFile]) -> None:
    """Raise RefusedInputsError if an entry is wrong by which one of these delete files is left out;
    record all such entries. Files that our own commits wrote need no check."""
    keyed = {file.path: file for file in inputs if file.keys}
    keys = sorted({key for file in keyed.values() for key in file.keys})
    left = _left_out(run, snapshot_id, keyed, keys) if keyed else _Entries((), ())
    if not left.deletes:
        return
    kinds = _kinds(java_of(run.table), keys)
    others = input_forms.foreign(
        run, [(str(f.location()), int(f.fileSizeInBytes())) for f in left.data]
    )
    foreign = {path for path, _ in others}
    asked = [(file, keyed[str(file.location())].keys) for file in left.deletes]
    asked += [(file, tuple(keys)) for file in left.data if str(file.location()) in foreign]
    with ThreadPoolExecutor(READERS, thread_name_prefix="footers") as pool:
        faults = pool.map(
            lambda one: next(_faults(run, one[0], {k: kinds[k] for k in one[1]}), None), asked
        )
        found = [
            Refusal(str(file.location()), WRONG_BOUNDS, *fault)
            for (file, _), fault in zip(asked, faults, strict=True)
            if fault is not None
        ]
    input_forms.refuse(run, found)


def _left_out(run: Run, snapshot_id: int, keyed: Collection[str], keys: Sequence[int]) -> _Entries:
    """keyed: paths of equality delete files."""
    spark, table = java_session(run.table), java_of(run.table)
    planned = scan.planned_tasks(spark, table, snapshot_id, keys)
    by_rule = delete_scope.by_rule(spark, table, snapshot_id, planned)
    some, every = (scan.delete_paths(spark, tasks, keyed) for tasks in (planned, by_rule))
    missing = {path: own - some[path] for path, own in every.items() if own != some[path]}
    paths = frozenset().union(*missing.values())
    live = delete_scope.live_delete_files(spark, table, snapshot_id).values() if paths else ()
    return _Entries(
        [file for own in live for file in iceberg.each(own) if str(file.location()) in paths],
        [task.file() for task in iceberg.each(scan.of_files(spark, planned, missing))],
    )


def _kinds(table: Any, keys: Collection[int]) -> dict[int, Any]:
    """Return the type (org.apache.iceberg.types.Type) of each field, in the newest schema that has
    it."""
    found: dict[int, Any] = {}
    for schema in [*iceberg.java_values(table.schemas()), table.schema()]:
        found |= {key: kind for key in keys if (kind := schema.findType(key)) is not None}
    return found


def _faults(run: Run, file: Any, kinds: Mapping[int, Any]) -> Iterator[tuple[str, str]]:
    """Yield columns, and how the entry of a file differs from its footer. kinds: of the fields to
    compare."""
    table, core = java_of(run.table), java_session(run.table)._jvm.org.apache.iceberg
    if str(file.format().name()) != "PARQUET":
        yield "", f"bounds that cannot be compared with a file of format {file.format().name()}"
        return
    settings = core.MetricsConfig.fromProperties({"write.metadata.metrics.default": "full"})
    opened = table.io().newInputFile(str(file.location()), int(file.fileSizeInBytes()))
    footer = core.parquet.ParquetUtil.fileMetrics(opened, settings)
    for key, kind in kinds.items():
        name = str(table.schema().findColumnName(key) or f"field {key}")
        for why in _differences(core, file, footer, key, kind):
            yield name, why


def _differences(core: Any, file: Any, footer: Any, key: int, kind: Any) -> Iterator[str]:
    for side, sign in (("lowerBounds", 1), ("upperBounds", -1)):
        stated, actual = ((getattr(one, side)() or {}).get(key) for one in (file, footer))
        if stated is None or _all_null(footer, key):
            continue
        if actual is None:
            yield "bounds in its manifest entry, and none in its footer"
            return
        value = core.types.Conversions.fromByteBuffer
        order = core.types.Comparators.forType(kind.asPrimitiveType())
        if sign * int(order.compare(value(kind, stated), value(kind, actual))) > 0:
            yield "values outside of the bounds in its manifest entry"
            return
    for counts in ("valueCounts", "nullValueCounts"):
        stated, actual = ((getattr(one, counts)() or {}).get(key) for one in (file, footer))
        if stated is not None and actual is not None and int(stated) != int(actual):
            yield "another number of values or of NULLs than its manifest entry says"
            return
    of_nan = (file.nanValueCounts() or {}).get(key)
    bounded = (file.lowerBounds() or {}).get(key) is not None
    if str(kind) in FLOATS and file.equalityFieldIds() is not None and bounded and of_nan != 0:
        yield "keys that may be NaN, which bounds leave out"


def _all_null(footer: Any, key: int) -> bool:
    nulls, values = (
        (one or {}).get(key) for one in (footer.nullValueCounts(), footer.valueCounts())
    )
    return nulls is not None and nulls == values
