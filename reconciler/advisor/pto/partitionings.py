"""Candidate partition specs: which columns, under which transforms, and why others are refused.

PTO, section 3.2.2: columns by query frequency, then selectivity; the first k, and none. Guard rails
on partitions, rows and bytes per partition keep a spec from making files that no rewrite can mend;
one at the table's rate of ingest keeps writers from making them anew with every commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from reconciler.advisor.pto.column_use import ColumnUse, Usage
from reconciler.advisor.simulate.pool import Pool
from reconciler.advisor.simulate.target import TargetPartitions, target_partitions
from reconciler.format import count, iec, plural
from reconciler.table.schema import Field, PartitionField, PartitionSpec, Schema

TOP = 3
"""Columns that the paper keeps (section 4.1.3)."""

LEAST_ROWS = 10_000
LEAST_PARTITIONS, MOST_PARTITIONS = 2, 4_000
"""Rows of a table worth partitioning (section 4.1.3), and partitions. The paper asks for ten at
least; what few partitions are worth is left to their price."""

LEAST_SAMPLED = 10
"""Sampled rows per partition: fewer would overstate what queries skip."""

PER_COLUMN = 3
"""Transforms of one column that are simulated: the finest within the guard rails, and the next."""

RECENT_FILES = 16
"""Newest files whose rows show over how many partitions a commit would scatter."""

SMALL_SHARE = 0.25
"""Files that writers make should not be smaller than this share of what they could be."""

BUCKETS = (16, 64, 256)
NEW_SPEC, FIRST_FIELD = 10_000, 100_000
"""Ids of specs and fields that do not exist; Iceberg gives the real ones."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """What other writers append. A number is 0 if the history does not show it."""

    commits: float = 0.0
    """Commits per day."""
    bytes: float = 0.0
    """Bytes per day."""
    files: float = 0.0
    """Files of a commit."""
    spread: bool = False
    """Whether the table's distribution mode sends each partition to few tasks."""


NO_INGEST = Ingest()


@dataclass(frozen=True)
class Partitioning:
    """A spec that may be declared, with the partitions that the sampled rows get."""

    spec: PartitionSpec
    """The partition spec."""
    target: TargetPartitions
    """The partitions of the sampled rows under the spec."""
    present: bool = False
    """Whether the table has this spec now."""

    @property
    def partitions(self) -> int:
        return len(self.target.values)


@dataclass(frozen=True, slots=True)
class RefusedSpec:
    """A partition spec that is not a candidate."""

    what: str
    """The spec as text."""
    why: str
    """The guard rail that it breaks, with its numbers."""


def text_of(spec: PartitionSpec, schema: Schema) -> str:
    """Return `month(ts), bucket(16, id)`, "none" if unpartitioned."""
    parts = []
    for field in spec.fields:
        name = schema.name_of(field.source_id)
        function, _, argument = field.transform.partition("[")
        if field.transform == "void":
            continue
        inside = f"{argument.rstrip(']')}, {name}" if argument else name
        parts.append(name if function == "identity" else f"{function}({inside})")
    return ", ".join(parts) or "none"


def partitionings(
    usage: Usage,
    pool: Pool,
    present: PartitionSpec,
    *,
    least_bytes: float,
    written_bytes: float,
    ingest: Ingest = NO_INGEST,
    top: int = TOP,
) -> tuple[tuple[Partitioning, ...], tuple[RefusedSpec, ...]]:
    """Return the candidates, the present spec first, then none, and those that were refused.

    least_bytes: of the smallest file that a layout may declare and no plan counts as small: a
    partition holds at least one file. Which files fit a spec is left to `Space.sizes_of`.
    written_bytes: of a file that is large enough for a commit to write.
    """
    schema, refused = pool.files.schema, []
    kept = [Partitioning(present, target_partitions(pool, present), present=True)]
    if not present.unpartitioned:
        none = PartitionSpec(NEW_SPEC)
        kept.append(Partitioning(none, target_partitions(pool, none)))
    columns = 0
    for use in usage.uses:
        field = schema.by_id.get(use.field_id)
        if columns == top or field is None or field.field_id not in pool.columns:
            continue
        found = 0
        for spec in _specs(field, use):
            if found == PER_COLUMN or _same(spec, present):
                continue
            target = target_partitions(pool, spec)
            why = _idle_buckets(pool, spec) or _refusal(
                pool, kept[0].target, target, least_bytes, written_bytes, ingest
            )
            if why is None:
                kept.append(Partitioning(spec, target))
                found += 1
            else:
                refused.append(RefusedSpec(text_of(spec, schema), why))
        columns += found > 0
    return tuple(kept), tuple(refused)


def _same(one: PartitionSpec, other: PartitionSpec) -> bool:
    return [(f.source_id, f.transform) for f in one.fields] == [
        (f.source_id, f.transform) for f in other.fields
    ]


def _specs(field: Field, use: ColumnUse) -> Iterator[PartitionSpec]:
    """Yield specs of one column, the finest first."""
    for transform in transforms_of(field, use.equality):
        name = field.name.rpartition(".")[2] + ("" if transform == "identity" else "_part")
        part = PartitionField(field.field_id, FIRST_FIELD, transform, name)
        yield PartitionSpec(NEW_SPEC, (part,))


def transforms_of(field: Field, equality: float) -> Sequence[str]:
    """Return the transforms that may serve queries on the column, the finest first.

    Buckets serve single values only, so they need queries that mostly ask for those.
    """
    if field.type == "date":
        return ("day", "month", "year")
    if field.type.startswith("timestamp"):
        return ("hour", "day", "month", "year")
    buckets = tuple(f"bucket[{number}]" for number in reversed(BUCKETS)) if equality > 0.5 else ()
    if field.type == "string":
        return ("identity", *(f"truncate[{width}]" for width in (4, 3, 2, 1)), *buckets)
    if field.type in ("int", "long"):
        widths = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
        return ("identity", *(f"truncate[{width}]" for width in widths), *buckets)
    return ()


def _idle_buckets(pool: Pool, spec: PartitionSpec) -> str | None:
    """Return why buckets are refused that a column has no more values than, or None: each value has
    a partition of its own without them, and none shares it by chance."""
    field = spec.fields[0]
    function, _, buckets = field.transform.partition("[")
    values = len(pool.columns[field.source_id].distinct)
    if function != "bucket" or values > int(buckets.rstrip("]")):
        return None
    return f"{plural(values, 'value')}, no more than there are buckets"


def _refusal(
    pool: Pool,
    now: TargetPartitions,
    target: TargetPartitions,
    least_bytes: float,
    written_bytes: float,
    ingest: Ingest,
) -> str | None:
    """Return the first guard rail that the spec breaks, None if it breaks none."""
    number, live = len(target.values), float(pool.files.live_bytes.sum())
    rows = float(pool.weight.sum())
    if rows < LEAST_ROWS:
        return f"the table has {count(rows)} rows, fewer than {count(LEAST_ROWS)}"
    if number < LEAST_PARTITIONS:
        return "one partition has every row"
    if number > MOST_PARTITIONS:
        return f"{count(number)} partitions or more, the limit is {count(MOST_PARTITIONS)}"
    if live / number < least_bytes:
        size, least = iec(live / number), iec(least_bytes)
        return f"{size} per partition, a small file: less than {least}"
    if len(pool) / number < LEAST_SAMPLED:
        each = f"{len(pool) / number:.1f}"
        return f"{each} sampled rows per partition, fewer than {LEAST_SAMPLED}"
    return _scattered(pool, now, target, min(written_bytes, live / number), ingest)


def _scattered(
    pool: Pool, now: TargetPartitions, target: TargetPartitions, file_bytes: float, ingest: Ingest
) -> str | None:
    """Return why a spec is refused that makes each commit write files far too small, or None.

    A spec is not refused if the files are as small today: only what the spec adds counts.
    """
    if not ingest.commits or not ingest.bytes:
        return None
    before, after = partitions_per_file(pool, now), partitions_per_file(pool, target)
    written = ingest.bytes / ingest.commits / max(after, 1.0)
    if after <= 2.0 * before or written >= SMALL_SHARE * file_bytes:
        return None
    return (
        f"a commit of {iec(ingest.bytes / ingest.commits)} would write into {after:.0f} "
        f"partitions: files of {iec(written)}, {ingest.commits:.0f} commits a day"
    )


@dataclass(frozen=True, slots=True)
class CommitFiles:
    """Number of files that one commit writes over the partitions of a spec."""

    scattered: float
    """If each task writes the rows that it has."""
    hashed: float
    """If rows are sent to tasks by partition."""


def commit_files(pool: Pool, target: TargetPartitions, ingest: Ingest) -> CommitFiles | None:
    """Return the files of a commit as large as today's, by the rows of the newest files; None if
    the history does not show how many files a commit writes."""
    newest = np.argsort(pool.files.added_ms, kind="stable")[-round(ingest.files) :]
    mine = pool.native & np.isin(pool.file, newest)
    if ingest.files < 1.0 or not mine.any():
        return None
    pairs = np.unique(np.stack((pool.file[mine], target.number[mine])), axis=1)
    return CommitFiles(float(pairs.shape[1]), float(len(np.unique(target.number[mine]))))


def partitions_per_file(pool: Pool, target: TargetPartitions) -> float:
    """Return over how many partitions the rows of a newly written file spread, on average."""
    newest = np.argsort(pool.files.added_ms, kind="stable")[-RECENT_FILES:]
    found = [
        len(np.unique(target.number[mine]))
        for mine in (np.flatnonzero((pool.file == file) & pool.native) for file in newest)
        if len(mine)
    ]
    return float(np.mean(found)) if found else 1.0
