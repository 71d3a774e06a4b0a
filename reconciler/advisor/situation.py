"""One frozen view of a table under its workload, computed once and read by every decision."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from reconciler.advisor.advice import AdviceInput, Settings
from reconciler.advisor.deletes.burden import Burden, burden_of
from reconciler.advisor.measure.untouched import (
    QueryGroup,
    Untouched,
    query_groups,
    untouched_table,
)
from reconciler.advisor.migration.risks import Risk, hindrances, other_specs, risks
from reconciler.advisor.spent import AlreadySpent
from reconciler.advisor.wair.utilization import FileSavings, file_savings
from reconciler.format import plural
from reconciler.plan import reasons
from reconciler.plan.drift import Drifts
from reconciler.plan.execution import plan_of_file
from reconciler.queries.demanded import demands as demands_of
from reconciler.queries.rates import Outlook, forecast_rates
from reconciler.queries.read_cost import ShapeReading
from reconciler.queries.rewrite_cost import KEY_TEXT
from reconciler.queries.shape import Shape
from reconciler.queries.table_view import TableView, table_view
from reconciler.table.filetable import Bool, FileTable, Int64, Partition
from reconciler.table.left_to_spark import OTHER_FORMAT
from reconciler.table.metrics_modes import unbounded_columns
from reconciler.table.paths import ambiguous
from reconciler.table.refusals import REMEDIES, by_kind
from reconciler.table.row_group_bytes import text_row_bytes
from reconciler.table.times import YEAR_MS
from reconciler.table.unwritable import only_by_spark, unwritable


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the table and its layout allow, whatever its queries are."""

    view: TableView
    """The data files as scans see them, with their row groups and sample."""
    refused: str
    """Why no file of the table can be rewritten faithfully, "" if some can."""
    rewritable: Bool
    """bool[files]: whether a rewrite can handle the file."""
    refused_deletes: Bool
    """bool[delete files]: whether no action may read the file."""
    present: Bool
    """bool[files]: whether we wrote the file since the mix of queries last changed."""
    recent: Bool
    """bool[files]: whether we wrote a file of `present` within the horizon."""
    groups: tuple[tuple[int, Partition, Int64], ...]
    """Spec id, partition values and rows of the file table, for each partition that has files."""
    risks: tuple[Risk, ...]
    """Risks of the declared migration, accepted ones too; empty without a migration."""
    moving: Bool
    """bool[files]: whether the file waits for its move to the declared spec, so that no other
    decision rewrites it."""
    unbounded: frozenset[int]
    """Field ids of the columns whose bounds a rewrite leaves out of manifests."""
    drifts: Drifts
    """How the table has drifted from the key of the settings."""


@dataclass(frozen=True, slots=True)
class ExpectedReading:
    """What queries are expected to read of the table."""

    demands: tuple[Shape, ...]
    """The recorded and expected queries, one item for each shape."""
    savings: FileSavings
    """What the queries read of the files now, and what they could skip of each."""
    burden: Burden
    """What deletes cost the readers of each file."""
    yearly: float
    """Bytes of reading, openings included, of a year of the workload at present rates; at the mean
    rate under `literal`."""
    yearly_mean: float
    """The same at the mean rate of the recorded window."""
    outlook: Outlook
    """Why the forecast rates are what they are."""
    groups: tuple[QueryGroup, ...]
    """What queries read of the table and of an untouched one, by their columns; empty where no
    limit depends on it."""
    untouched: Untouched | None
    """The table that nobody had rewritten; None where no limit depends on it."""
    basis: str
    """Digest of the queries and of the settings by which files are laid out for them; equal if
    neither has changed."""

    @property
    def guarded(self) -> tuple[int, ...]:
        """Columns whose queries must not lose, whether or not anybody asks for them."""
        return () if self.untouched is None else self.untouched.guarded

    @property
    def readings(self) -> tuple[tuple[Shape, ShapeReading], ...]:
        """Each shape with what its queries read of the files now."""
        return tuple(zip(self.demands, self.savings.readings, strict=True))


@dataclass(frozen=True)
class Situation:
    """The advisor's input with the values derived from it."""

    given: AdviceInput
    """The input."""
    facts: TableFacts
    """What the table and its layout allow."""
    expected: ExpectedReading
    """What queries are expected to read."""
    spent: AlreadySpent
    """What earlier decisions have chosen."""

    @property
    def table(self) -> FileTable:
        return self.given.table

    @property
    def settings(self) -> Settings:
        return self.given.settings

    def part(self, rows: Int64) -> TableView:
        """Return the files at `rows` as scans see them."""
        return self.facts.view.part(rows)

    def after(self, spent: AlreadySpent) -> Situation:
        """Return the situation after a choice that has brought what is spent to this."""
        return replace(self, spent=spent)

    @property
    def trusted(self) -> bool:
        """Whether the workload explains enough of the recorded bytes to act on it."""
        return bool(self.expected.demands) and self.settings.coverage >= self.settings.min_coverage

    @cached_property
    def _text(self) -> dict[int, float] | None:
        return text_row_bytes(self.given.row_groups, self.table.schema)

    def text_row_bytes(self, key: Iterable[int]) -> float | None:
        """Return the bytes of a row's strings and binaries outside dictionaries, None where no
        footer shows them. Those of the columns of the key count KEY_TEXT times."""
        known = self._text
        if known is None:
            return None
        compared = sum(known.get(column, 0.0) for column in key)
        return sum(known.values()) + (KEY_TEXT - 1.0) * compared

    @cached_property
    def aimed(self) -> Int64:
        """The size that each file was written to have, int64[files]: the target, unless a plan of
        ours chose another one."""
        sizes = self.settings.chosen_sizes
        found = np.full(len(self.table), self.settings.target_bytes, dtype=np.int64)
        for row in np.flatnonzero(self.table.layout_written) if sizes else ():
            found[row] = sizes.get(plan_of_file(str(self.table.path[row])), found[row])
        return found

    @property
    def alpha(self) -> npt.NDArray[np.float64]:
        """Eq. 4's alpha per file, doubled for files that we wrote within the horizon
        (hysteresis)."""
        return np.where(self.facts.recent, 2.0, 1.0) * self.settings.alpha

    @property
    def cost(self) -> npt.NDArray[np.float64]:
        """rho x bytes per file."""
        return self.settings.rho.value * self.table.bytes.astype(np.float64)


def is_quiet(situation: Situation) -> npt.NDArray[np.bool_]:
    """bool[files]: another writer changed the file's partition within the quiet period."""
    return np.isin(situation.table.partition, sorted(situation.settings.quiet_partitions))


@dataclass(frozen=True, slots=True)
class UnfitFiles:
    """Files that cannot be rewritten."""

    rows: Int64
    """Of the data files."""
    reason: str
    """A constant of `plan.reasons`."""
    why: str
    """A clause about the files."""
    unnamed: bool = False
    """Whether their paths do not name them, so that no delete can be put on one of them either."""
    readable: bool = False
    """Whether deletes can be put on them all the same."""


def unfit_files(given: AdviceInput) -> list[UnfitFiles]:
    """Return the data files that cannot be rewritten, by reason; none for a sound table."""
    return [
        *_unsupported(given), *_only_by_spark(given), *_refused(given), *_undone(given),
    ]  # fmt: skip


def _unsupported(given: AdviceInput) -> list[UnfitFiles]:
    table, deletes = given.table, given.deletes
    known = table.schema.by_id
    gone = [
        number
        for number, spec in table.specs.items()
        if any(f.source_id not in known for f in spec.fields)
    ]
    repeated = _repeated(table)
    masks = {
        "of another format than Parquet": ~table.parquet,
        "encrypted": table.encrypted,
        "of a partition spec whose column was dropped": np.isin(table.spec_id, gone),
        "of a table that has one file in two manifest entries": repeated,
        "with a line end or tab in the path, which some readers drop": ambiguous(table.path),
        "with a line end in a delete file's path": deletes.under(ambiguous(deletes.path), table),
    }
    found = []
    for why, mask in masks.items():
        rows = np.flatnonzero(mask).astype(np.int64)
        if len(rows):
            files = len(set(table.path[rows]))
            text = f"{plural(files, 'file')} {why}: not supported yet"
            found.append(UnfitFiles(rows, reasons.NOT_REWRITABLE, text, mask is repeated))
    return found


def _only_by_spark(given: AdviceInput) -> list[UnfitFiles]:
    """Return the files whose rows the engine leaves to Spark, where Spark does not have the types
    of the table."""
    deletes = given.deletes
    why = only_by_spark(given.table.schema, f"delete files in {OTHER_FORMAT} apply")
    if not why:
        return []
    rows = np.flatnonzero(deletes.under(deletes.other_format, given.table)).astype(np.int64)
    text = f"{plural(len(rows), 'file')}: {why}"
    return [UnfitFiles(rows, reasons.NOT_REWRITABLE, text, readable=True)] if len(rows) else []


def _repeated(table: FileTable) -> Bool:
    """Return bool[files]: all of them if two entries have one path. Readers see such a file's rows
    once per entry; a replacement names a path, and the executor finds its inputs by it."""
    return np.full(len(table), len(table.row_of) < len(table))


def _refused(given: AdviceInput) -> list[UnfitFiles]:
    """Return the refused files, and those under a refused delete file, by what is refused."""
    table, deletes = given.table, given.deletes
    if not given.refusals:
        return []
    rows_of: dict[str, list[int]] = {}
    for path, row in table.row_of.items():
        if path in given.refusals:
            rows_of[path] = [row]
    for number in np.flatnonzero(refused_deletes(given)).tolist():
        reached = deletes.reaches(number, table).tolist()
        rows_of.setdefault(str(deletes.path[number]), []).extend(reached)
    found = []
    for (reason, column, detail), ones in by_kind(given.refusals[p] for p in rows_of).items():
        rows = np.unique([row for one in ones for row in rows_of[one.path]]).astype(np.int64)
        where = f'column "{column}": ' if column else ""
        files = "refused, for example" if len(ones) > 1 else "refused:"
        text = f"{plural(len(ones), 'file')} {files} {ones[0].path}: {where}{detail}"
        found.append(UnfitFiles(rows, reasons.REFUSED_FILES, f"{text}; {REMEDIES[reason]}"))
    return found


def _undone(given: AdviceInput) -> list[UnfitFiles]:
    """Return the files that stay as they are after a plan was taken back, by plan."""
    undone = given.settings.undone
    rows_of: dict[str, list[int]] = {}
    for path in undone:
        row = given.table.row_of.get(path)
        if row is not None:
            rows_of.setdefault(undone[path], []).append(row)
    return [
        UnfitFiles(
            np.array(sorted(rows), dtype=np.int64),
            reasons.UNDONE,
            f"{plural(len(rows), 'file')} of plan {plan}, which was taken back: they stay as they "
            "are until the policy asks for something else",
            readable=True,
        )
        for plan, rows in sorted(rows_of.items())
    ]


def refused_deletes(given: AdviceInput) -> Bool:
    """Return bool[delete files]: those that are refused."""
    return np.array([str(p) in given.refusals for p in given.deletes.path], dtype=np.bool_)


def _present(table: FileTable, outlook: Outlook) -> Bool:
    """Return which files we wrote for queries like the present ones."""
    return table.layout_written & ((table.added_ms >= outlook.since_ms) | (outlook.changes == 0))


def _recent(table: FileTable, settings: Settings) -> Bool:
    """Return which files were written within the horizon."""
    return (table.added_ms >= 0) & (settings.now_ms - table.added_ms < settings.horizon_ms)


def _risks(given: AdviceInput) -> tuple[Risk, ...]:
    settings = given.settings
    if settings.migration is None:
        return ()
    version = settings.metadata.format_version
    return risks(given.table, given.deletes, version, settings.migration, settings.now_ms)


def _moving(given: AdviceInput, found: tuple[Risk, ...]) -> Bool:
    """Return the files to migrate; none while a risk of it is not accepted."""
    migration = given.settings.migration
    if migration is None or hindrances(found, migration):
        return np.zeros(len(given.table), dtype=np.bool_)
    return other_specs(given.table, migration)


def _basis(given: AdviceInput) -> str:
    """Return the digest that `ExpectedReading.basis` holds.

    The ledger keeps it for later versions. So each value has a name and one spelling: neither the
    type of a number nor an objective that nobody gave changes the digest.
    """
    asked, settings = given.workload, given.settings
    objectives = asdict(settings.objectives)
    named = {
        "since": int(asked.since_ms),
        "until": int(asked.until_ms),
        "shapes": sorted(
            (shape.shape_id, len(shape), round(float(shape.weight.sum()), 6))
            for shape in asked.shapes
        ),
        "mode": settings.mode,
        "alpha": float(settings.alpha),
        "allowance": None if settings.allowance is None else float(settings.allowance),
        "target": (int(settings.target_bytes), bool(settings.target_auto)),
        "row groups": (int(settings.row_group_bytes), bool(settings.row_group_auto)),
        "objectives": {
            name: float(limit) for name, limit in objectives.items() if limit is not None
        },
    }
    text = json.dumps(named, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def situation_of(given: AdviceInput) -> Situation:
    """Return the input with what every decision derives from it; nothing is chosen yet."""
    table, settings = given.table, given.settings
    view = table_view(
        table, given.row_groups, given.sample, settings.row_group_bytes, settings.open_bytes
    )
    expected = _expected(given, view)
    return Situation(
        given=given,
        facts=_table_facts(given, view, expected.outlook),
        expected=expected,
        spent=AlreadySpent(taken=np.zeros(len(table), dtype=np.bool_)),
    )


def _expected(given: AdviceInput, view: TableView) -> ExpectedReading:
    table, settings, workload = given.table, given.settings, given.workload
    rates = forecast_rates(workload, settings.horizon_ms, settings.forecast)
    wanted = demands_of(workload, table.schema, settings.horizon_ms, rates.executions)
    savings = file_savings(view, wanted)
    read = list(zip(wanted, savings.readings, strict=True))
    horizon_reads = sum(float(demand.executions @ reading.cost) for demand, reading in read)
    window_reads = sum(float(demand.weight @ reading.cost) for demand, reading in read)
    limited = settings.early_share is not None
    untouched = untouched_table(view, settings.replaced, settings.leads) if limited else None
    yearly_mean = window_reads * YEAR_MS / workload.span_ms
    # The paper's window comes once more at no stated time: it has no rate.
    yearly = yearly_mean if settings.literal else horizon_reads * YEAR_MS / settings.horizon_ms
    return ExpectedReading(
        demands=wanted,
        savings=savings,
        burden=burden_of(table, given.deletes, wanted, savings.readings),
        yearly=yearly,
        yearly_mean=yearly_mean,
        outlook=rates.outlook,
        groups=() if untouched is None else query_groups(view, wanted, savings.readings, untouched),
        untouched=untouched,
        basis=_basis(given),
    )


def _table_facts(given: AdviceInput, view: TableView, outlook: Outlook) -> TableFacts:
    table, settings = given.table, given.settings
    properties = settings.metadata.properties
    refused, risks = given.damage or unwritable(table.schema, properties), _risks(given)
    present = _present(table, outlook)
    rewritable = np.full(len(table), not refused, dtype=np.bool_)
    for unfit in unfit_files(given):
        rewritable[unfit.rows] = False
    return TableFacts(
        view=view,
        refused=refused,
        rewritable=rewritable,
        refused_deletes=refused_deletes(given) | ambiguous(given.deletes.path),
        present=present,
        recent=present & _recent(table, settings),
        groups=tuple(table.groups()) if len(table) else (),
        risks=risks,
        moving=_moving(given, risks) & np.bool_(not refused),
        unbounded=unbounded_columns(table.schema, properties, settings.metadata.sorted_columns),
        drifts=Drifts(
            table, settings.ordering, settings.min_input_files, view.row_groups, view.group_file
        ),
    )
