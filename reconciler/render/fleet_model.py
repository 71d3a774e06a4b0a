"""The data of a fleet: one value per table, in the order in which people should look at them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reconciler.api.prices import Prices
from reconciler.plan.money import Usage, cost_of, reading
from reconciler.plan.waste import SmallFiles, Waste
from reconciler.table.times import DAY_MS

WEEK_MS = 7 * DAY_MS
MOST_WEEKS = 12
"""Weeks that the trend shows at most."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A frozen plan of a table that nobody has approved yet."""

    plan_id: str
    """The plan's id."""
    created_ms: int
    """When it was made, in epoch milliseconds."""
    rewrite_bytes: int
    """Bytes of the files that it would still rewrite."""
    cpu_seconds: float
    """CPU seconds that this is predicted to take."""
    saving: int
    """Bytes of reading that it is predicted to save over the payback horizon of 7 days."""
    slower: tuple[tuple[str, float, float], ...] = ()
    """Query shapes that would read more: (text, bytes now, bytes after) over the recorded
    window."""


@dataclass(frozen=True, slots=True)
class FleetRewrite:
    """A plan that was carried out at least in part."""

    plan_id: str
    """The plan's id."""
    at_ms: int
    """When it was carried out, in epoch milliseconds."""
    rewritten: int
    """Bytes of the files that it rewrote."""
    cost: float
    """What that cost, in bytes of reading."""
    cpu_seconds: float
    """CPU seconds that it took."""
    saved: float | None
    """What later queries did not read because of it, at least, in bytes of reading; None if no
    query has run since."""
    harm: bool
    """Whether the queries cost more after it than before."""


@dataclass(frozen=True, slots=True)
class FleetTable:
    """One table of a fleet."""

    name: str
    """The table's name with its catalog."""
    files: int
    """Number of data files."""
    bytes: int
    """Bytes of the data files."""
    small: SmallFiles
    """The small files that merging would make fewer."""
    with_deletes: int
    """Number of data files that have deletes."""
    waste: Waste
    """What is read and opened for nothing, per day."""
    files_week_ago: int | None = None
    """Number of data files 7 days ago; None if the retained snapshots do not say."""
    waits: FleetPlan | None = None
    """The frozen plan that waits for approval; None if none does."""
    rewrites: tuple[FleetRewrite, ...] = ()
    """The plans that were carried out, oldest first."""

    @property
    def spent(self) -> float:
        return sum(one.cost for one in self.rewrites)

    @property
    def saved(self) -> float | None:
        """What the rewrites saved at least; None if that was not measured of any."""
        known = [one.saved for one in self.rewrites if one.saved is not None]
        return sum(known) if known else None

    @property
    def growth(self) -> int | None:
        """How many data files the table has more than 7 days ago."""
        return None if self.files_week_ago is None else self.files - self.files_week_ago

    def wasted(self, prices: Prices) -> float:
        """Return the money that a day's waste costs."""
        return cost_of(prices, reading(self.waste.read_bytes, self.waste.openings))

    def spent_money(self, prices: Prices) -> float:
        """Return the money that the rewrites cost."""
        return sum(
            cost_of(prices, Usage(read_bytes=one.rewritten, cpu_seconds=one.cpu_seconds))
            for one in self.rewrites
        )


@dataclass(frozen=True, slots=True)
class Week:
    """The rewrites of 7 days, with what later queries have saved by them until now."""

    start_ms: int
    """Beginning of the week in epoch milliseconds."""
    rewritten: int
    """Bytes rewritten."""
    cost: float
    """What that cost, in bytes of reading."""
    saved: float | None
    """What was saved by them, in bytes of reading; None if nothing was measured."""
    plans: int
    """Number of plans."""


@dataclass(frozen=True)
class Fleet:
    """The tables of a catalog or namespace."""

    where: str
    """What the tables were asked of, as text."""
    now_ms: int
    """Time of the look, in epoch milliseconds."""
    tables: tuple[FleetTable, ...]
    """The tables, the most wasteful first."""
    prices: Prices | None = None
    """Prices of the catalog; None without any."""
    failed: tuple[tuple[str, str], ...] = field(default=())
    """Tables that could not be read, each with the reason."""

    @property
    def wasting(self) -> tuple[FleetTable, ...]:
        """The tables that waste a byte a day or more, the most wasteful first."""
        return tuple(table for table in self.tables if table.waste.cost >= 1)

    @property
    def idle(self) -> int:
        """The number of tables that waste less than a byte a day."""
        return len(self.tables) - len(self.wasting)

    @property
    def waste(self) -> float:
        return sum(table.waste.cost for table in self.tables)

    @property
    def spent(self) -> float:
        return sum(table.spent for table in self.tables)

    @property
    def saved(self) -> float | None:
        known = [table.saved for table in self.tables if table.saved is not None]
        return sum(known) if known else None

    @property
    def assumed(self) -> int:
        """The number of tables without recorded queries."""
        return sum(table.waste.queries is None for table in self.tables)


def worst_first(tables: Iterable[FleetTable]) -> tuple[FleetTable, ...]:
    """Sort by waste, then by bytes and by name."""
    return tuple(sorted(tables, key=lambda one: (-one.waste.cost, -one.bytes, one.name)))


def share_of_worst(tables: Sequence[FleetTable], number: int) -> float:
    """Return the part of all waste that the first tables have; 0 without waste."""
    every = sum(table.waste.cost for table in tables)
    return sum(table.waste.cost for table in tables[:number]) / every if every else 0.0


def weeks_of(tables: Iterable[FleetTable], now_ms: int) -> tuple[Week, ...]:
    """Return the last weeks in which something was rewritten and those between, oldest first."""
    by_week: dict[int, list[FleetRewrite]] = {}
    for table in tables:
        for one in table.rewrites:
            by_week.setdefault(max(now_ms - one.at_ms, 0) // WEEK_MS, []).append(one)
    first = min(max(by_week, default=-1), MOST_WEEKS - 1)
    return tuple(
        _week(by_week.get(number, []), now_ms - (number + 1) * WEEK_MS)
        for number in range(first, -1, -1)
    )


def _week(rewrites: Sequence[FleetRewrite], start_ms: int) -> Week:
    known = [one.saved for one in rewrites if one.saved is not None]
    return Week(
        start_ms,
        sum(one.rewritten for one in rewrites),
        sum(one.cost for one in rewrites),
        sum(known) if known else None,
        len(rewrites),
    )
