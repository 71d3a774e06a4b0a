"""Renders an observation as text: a table's files, the clustering of its columns, what is unknown.

Everything comes from manifests, so it is exact or says why not; no value of the table is shown.
`observe` prints one table in full, or many with one line each, the worst first.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from reconciler.api.prices import Prices
from reconciler.catalog.metadata import spec_text
from reconciler.format import ago, count, iec, percent, plural
from reconciler.plan.money import beside, cost_text, storing
from reconciler.plan.small_files import auto_target_bytes, declared_target_bytes
from reconciler.plan.waste import mergeable
from reconciler.render.deletes_text import (
    damage_text,
    deletes_section,
    modes_lines,
    operations_section,
    rows_text,
)
from reconciler.render.markdown_text import code_span, escaped
from reconciler.render.specs_text import specs_section
from reconciler.render.terminal import (
    WIDEST,
    align,
    commands,
    flow,
    shortened,
    tabulate,
    wrapped,
)
from reconciler.table.observation import Observation, quoted_name
from reconciler.table.overlap_depth import ColumnDepth, rank_columns

MAX_COLUMNS = 14
"""Maximum lines of CLUSTERING; the others are counted (`-o wide` shows all)."""


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """The queries that were imported for a table."""

    queries: float = 0.0
    """Number of executions."""
    until: str = ""
    """Time of the last query; "" without queries."""
    columns: tuple[tuple[str, float], ...] = field(default=())
    """(column, share of the executions that filter on it)."""
    per_day: float | None = None
    """Mean number of executions per day; None without queries."""


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One table in a list of many."""

    name: str
    """The table's name."""
    files: int
    """Number of data files."""
    bytes: int
    """Bytes of the data files."""
    rows: int
    """Rows of the data files, deleted ones included."""
    small: int
    """Number of small files that bin-packing would merge."""
    to_pack: int
    """How many fewer files there would be after merging the small ones."""
    with_deletes: int
    """Number of data files that have deletes."""
    target: int
    """Target size of a data file in bytes."""
    best: ColumnDepth | None
    """The column by which the files are clustered best; None if none can be judged."""

    @property
    def badness(self) -> int:
        return self.to_pack + self.with_deletes


def render_table(
    seen: Observation,
    now_ms: int,
    workload: WorkloadSummary,
    *,
    width: int = WIDEST,
    wide: bool = False,
) -> str:
    """Return one table in full, without a trailing newline."""
    columns = rank_columns(seen.files)
    sections = [
        "\n".join(_headline(seen, now_ms, width)),
        "\n".join(damage_text(seen, width)),
        "\n".join(specs_section(seen, width)),
        "\n".join(_sizes(seen, width)),
        "\n".join(_clustering(seen, columns, width, wide)),
        "\n".join(deletes_section(seen, width)),
        "\n".join(operations_section(seen, workload.per_day, width)),
        "\n".join(modes_lines(seen, workload.per_day, width)),
        "\n".join(_details(seen)) if wide else "",
        "\n".join([*_workload(seen, workload, width), *wrapped(_source(seen), width)]),
    ]
    return "\n\n".join(section for section in sections if section)


def _headline(seen: Observation, now_ms: int, width: int) -> list[str]:
    layout = spec_text(seen.files.specs[seen.files.default_spec_id], seen.schema)
    order = f"sorted by {seen.sort_order_text}" if seen.sort_order_text else "unsorted"
    if seen.snapshot_id is None:
        when = "no snapshot yet"
    else:
        when = f"snapshot {short_id(seen.snapshot_id)}, {ago((now_ms - seen.snapshot_ms) / 1000)}"
    first = flow([seen.name, f"v{seen.format_version}", when, f"{layout}, {order}"], width)
    totals = [
        plural(len(seen.files), "data file"),
        iec(seen.files.total_bytes),
        rows_text(seen),
        plural(len(np.unique(seen.files.partition)), "partition"),
        *_deletes(seen),
    ]
    return [*first, *flow(totals, width)]


def short_id(snapshot_id: int) -> str:
    """Return a short form of a snapshot id: 7312…0984."""
    text = str(snapshot_id)
    return text if len(text) <= 9 else f"{text[:4]}…{text[-4:]}"


def _deletes(seen: Observation) -> list[str]:
    load, rows = seen.deletes, seen.files.total_records
    parts = []
    if load.position_files:
        share = _deleted(load.position_rows, rows)
        parts.append(f"{plural(load.position_files, 'position-delete file')} ({share})")
    if load.vectors:
        share = _deleted(load.vector_rows, rows)
        parts.append(f"{plural(load.vectors, 'deletion vector')} ({share})")
    if load.equality_files:
        hit = int((seen.files.equality_deletes > 0).sum())
        where = f"on {plural(hit, 'file')}" + (", unknown rows" if hit else "")
        parts.append(f"{plural(load.equality_files, 'equality-delete file')} ({where})")
    return parts


def _deleted(deleted: int, rows: int) -> str:
    """Return the deleted rows as text; delete files may outlive the data files whose rows they
    hide."""
    return f"{percent(deleted / rows, 2)} of rows" if rows else f"{count(deleted)} rows"


def _sizes(seen: Observation, width: int) -> list[str]:
    """Return file sizes in four bins relative to the target; below 0.75 of it a file is small."""
    if not len(seen.files):
        return []
    target = auto_target_bytes(seen.files, seen.properties)
    origin = "table property" if declared_target_bytes(seen.properties) else "by table size"
    limits = (target // 32, target // 4, target * 3 // 4)
    bins = np.digitize(seen.files.bytes, limits)
    labels = _bin_labels(limits)
    rows = [["FILE SIZE".ljust(max(map(len, labels))), "FILES", "SHARE", "BYTES"]]
    shares = []
    for number, label in enumerate(labels):
        inside = bins == number
        shares.append(float(inside.mean()))
        size = iec(int(seen.files.bytes[inside].sum()))
        rows.append([label, count(int(inside.sum())), percent(shares[-1]), size])
    lines = align(rows, "rrrr", gap="  ")
    left = max(map(len, lines)) + 3
    room = min(40, width - left)
    note = f"target {_whole(target)} ({origin})"
    head = lines[0].ljust(max(left, min(left + room, width) - len(note)))
    drawn = [bar(share, room) for share in shares]
    return [
        head + note,
        *(f"{line.ljust(left)}{one}".rstrip() for line, one in zip(lines[1:], drawn, strict=True)),
    ]


def _bin_labels(limits: Sequence[int]) -> list[str]:
    """Return labels of the bins: "< 16 MiB", "16 - 128 MiB", ">= 384 MiB"."""
    labels = [f"< {_whole(limits[0])}"]
    for low, high in itertools.pairwise(limits):
        small, large = _whole(low), _whole(high)
        unit = f" {large.split(' ')[1]}"
        labels.append(f"{small.removesuffix(unit)} - {large}")
    return [*labels, f">= {_whole(limits[-1])}"]


def _whole(size: int) -> str:
    """Return a size without a redundant decimal: 512 MiB, 1.5 MiB."""
    return iec(size).replace(".0 ", " ")


def bar(share: float, size: int) -> str:
    """Return a bar in eighths of a character; anything above zero shows."""
    eighths = math.ceil(share * size * 8) if share > 0 else 0
    return "█" * (eighths // 8) + ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8]


def _clustering(
    seen: Observation, columns: Sequence[ColumnDepth], width: int, wide: bool
) -> list[str]:
    if not len(seen.files):
        return []
    shown = list(columns) if wide else _extremes(columns)
    bounds = max((len(line.bounds) for line in shown if line.judged), default=6)
    room = width - bounds - 38  # the width of numbers and gaps
    name_width = max(12, min(max(len(line.name) for line in shown), room - 6))
    if len({shortened(line.name, name_width) for line in shown}) < len(shown):
        name_width = max(len(line.name) for line in shown)  # rather wrap the line than cut the name
    size = max(6, min(26, room - name_width))
    lines = [
        f"{'CLUSTERING':<{name_width + 2}}  {'DEPTH avg':>9}  {'max':>6}  {'OF FILES':>8}   "
        f"{'OVERLAP':<{size}}  BOUNDS".rstrip()
    ]
    for line in shown:
        start = f"  {shortened(line.name, name_width):<{name_width}}  "
        if line.judged:
            lines.append(
                f"{start}{line.mean:>9,.1f}  {line.maximum:>6,}  {percent(line.share, 1):>8}   "
                f"{bar(line.share, size):<{size}}  {line.bounds}".rstrip()
            )
        else:
            lines.append(f"{start}{'-':>9}  {'-':>6}  {'-':>8}   {line.bounds}")
    hidden = len(columns) - len(shown)
    if hidden:
        lines.append(f"  and {plural(hidden, 'more column')}: -o wide")
    return lines + wrapped(_depth_meaning(columns, len(seen.files)), width)


def _extremes(columns: Sequence[ColumnDepth]) -> list[ColumnDepth]:
    """Return the best and the worst clustered of many columns, and the first few that are not
    judged."""
    if len(columns) <= MAX_COLUMNS:
        return list(columns)
    judged = [line for line in columns if line.judged]
    others = [line for line in columns if not line.judged][: MAX_COLUMNS // 3]
    room = MAX_COLUMNS - len(others)
    if len(judged) <= room:
        return judged + others
    return judged[: room - room // 2] + judged[-(room // 2) :] + others


def _depth_meaning(columns: Sequence[ColumnDepth], files: int) -> str:
    judged = [line for line in columns if line.judged]
    text = "depth = files that hold a given value; 1 is ideal."
    if not judged or files < 2:
        return text
    clustered = [line for line in judged if line.share <= 0.9] or judged
    worst = max(clustered, key=lambda line: line.mean)
    about = max(1, round(worst.mean))
    return f"{text} A lookup of one {worst.name} opens about {about:,} of {files:,}."


def _details(seen: Observation) -> list[str]:
    """Return what `-o wide` adds: identity, references, recent writers, largest columns."""
    lines = [
        f"uuid      {seen.uuid}",
        f"location  {seen.location}",
        f"metadata  {seen.metadata_location}",
        f"snapshots {count(len(seen.ancestry))} in the history of main, "
        f"{count(len(seen.other_snapshots))} elsewhere",
    ]
    lines += [
        f"ref       {ref.name} ({ref.type}) at {short_id(ref.snapshot_id)}" for ref in seen.refs
    ]
    lines += [
        f"write     {write.operation} {short_id(write.snapshot_id)} changed "
        f"{plural(len(write.partitions), 'partition')} in the last hour"
        for write in seen.recent_writes
    ]
    sizes = {
        key: int(np.maximum(values, 0).sum()) for key, values in seen.files.column_sizes.items()
    }
    for key in sorted(sizes, key=lambda key: -sizes[key])[:5]:
        lines.append(f"bytes     {iec(sizes[key])} in {seen.schema.name_of(key)}")
    return lines


def _workload(seen: Observation, workload: WorkloadSummary, width: int) -> list[str]:
    plan = f"layoutctl plan {seen.name}"
    if not len(seen.files):
        return ["Nothing to assess yet: the table has no data files."]
    if not workload.queries:
        lines = wrapped(
            "No queries were imported for this table; with them, the columns that they filter on "
            "are listed here.",
            width,
        )
        return [*lines, *commands(["layoutctl workload import --dialect trino FILE", plan], width)]
    used = ", ".join(f"{name} {percent(share)}" for name, share in workload.columns[:6])
    text = (
        f"Queries: {count(workload.queries)} to {workload.until}; "
        f"they filter on {used or 'nothing'}."
    )
    return [*wrapped(text, width), *commands([plan], width)]


def _source(seen: Observation) -> str:
    if not seen.manifests:
        return f"exact: from the table's metadata in {_seconds(seen.seconds)}"
    read = (
        f"{iec(seen.bytes_read)} read"
        if seen.manifests_read == seen.manifests
        else f"{plural(seen.manifests_read, 'manifest')} read, {iec(seen.bytes_read)}"
        if seen.manifests_read
        else "all cached"
    )
    return (
        f"exact: from {plural(seen.manifests, 'manifest')} ({read}) in {_seconds(seen.seconds)}; "
        "no data file was opened"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.05 else "under 0.1 s"


def summarise(seen: Observation) -> TableSummary:
    """Return the summary of a table."""
    small = mergeable(seen)
    judged = [line for line in rank_columns(seen.files) if line.judged]
    touched = (seen.files.delete_files > 0) | (seen.files.equality_deletes > 0)
    return TableSummary(
        name=seen.name,
        files=len(seen.files),
        bytes=seen.files.total_bytes,
        rows=seen.files.total_records,
        small=small.files,
        to_pack=small.surplus,
        with_deletes=int(touched.sum()),
        target=small.target,
        best=judged[0] if judged else None,
    )


def worst_first(tables: Sequence[TableSummary]) -> list[TableSummary]:
    """Sort by files that could be removed or that have deletes, then by bytes."""
    return sorted(tables, key=lambda table: (-table.badness, -table.bytes, table.name))


def render_tables(
    tables: Sequence[TableSummary],
    where: str,
    *,
    width: int = WIDEST,
    prices: Prices | None = None,
) -> str:
    """Return one line per table, the worst first. prices: of the catalog, None without any."""
    if not tables:
        return f"{where} holds no table."
    rows = [["TABLE", "FILES", "BYTES", "SMALL", "TO PACK", "DELETES ON", "BEST CLUSTERED"]]
    ordered = worst_first(tables)
    for table in ordered:
        best = table.best
        rows.append(
            [
                table.name,
                count(table.files),
                stored_text(table.bytes, prices) if table.files else "-",
                percent(table.small / table.files) if table.files else "-",
                count(table.to_pack),
                count(table.with_deletes),
                f"{shortened(best.name, 24)} {best.mean:,.1f}" if best else "-",
            ]
        )
    lines = align(rows, "lrrrrrl", gap="  ")
    meaning = "to pack = how many files merging small ones would remove"
    if max(map(len, lines)) <= width:
        meaning += "; best clustered = column and its mean depth"
    else:
        lines = tabulate([row[:-1] for row in rows], "lrrrrr", width)
    stored = stored_text(sum(table.bytes for table in tables), prices)
    total = f"{plural(len(tables), 'table')}, {stored}"
    return "\n".join(
        [
            *lines,
            *wrapped(f"{total}; {meaning}.", width),
            *commands([shlex.join(["layoutctl", "observe", ordered[0].name])], width),
        ]
    )


def stored_text(size: int, prices: Prices | None) -> str:
    """Return stored bytes, with what keeping them for a month costs."""
    return beside(iec(size), f"{cost_text(prices, storing(size))} a month" if prices else "")


def markdown_table(seen: Observation, workload: WorkloadSummary) -> str:
    """Return one table for a wiki or a pull request."""
    rows = [
        "| column | mean depth | max | of files | bounds |",
        "|---|---:|---:|---:|---|",
    ]
    for line in rank_columns(seen.files):
        if line.judged:
            cells = [f"{line.mean:,.1f}", f"{line.maximum:,}", percent(line.share, 1), line.bounds]
        else:
            cells = ["-", "-", "-", line.bounds]
        rows.append(f"| {code_span(line.name)} | " + " | ".join(cells) + " |")
    facts = ", ".join(
        [plural(len(seen.files), "data file"), iec(seen.files.total_bytes),
         rows_text(seen), *_deletes(seen)]
    )  # fmt: skip
    queries = (
        f"{count(workload.queries)} queries imported, to {workload.until}."
        if workload.queries
        else "No queries imported for this table."
    )
    head = f"### {escaped(seen.name)}"
    return "\n\n".join([head, f"{facts}. {queries}", "\n".join(rows), _source(seen)])


def markdown_tables(tables: Sequence[TableSummary], prices: Prices | None = None) -> str:
    rows = [
        "| table | files | bytes | small | to pack | deletes on |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {escaped(t.name)} | {count(t.files)} | {stored_text(t.bytes, prices)} "
        f"| {count(t.small)} | {count(t.to_pack)} | {count(t.with_deletes)} |"
        for t in worst_first(tables)
    ]
    return "\n".join(rows)


def where_text(catalog: str, levels: tuple[str, ...]) -> str:
    """Return the catalog or namespace that was observed."""
    return f"namespace {quoted_name((catalog, *levels))}" if levels else f"catalog {catalog}"


def filtered_columns(shares: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Return columns by falling share of queries that filter on them."""
    return tuple(sorted(shares.items(), key=lambda item: (-item[1], item[0])))
