"""A shape: all queries that ask one predicate with other literals, as arrays.

This is the one form of queries between the state and the what-if. The state reads and writes it,
the advisor judges it. `take`, `since` and `merge` are the only ways to cut and to join shapes, so
that no array is forgotten where a shape becomes smaller or larger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from reconciler.queries.calendar import PeriodClock
from reconciler.queries.predicate import Literal, Predicate, could_skip
from reconciler.queries.predicate_batch import SlotLiterals
from reconciler.table.filetable import Array, Float64, Int64
from reconciler.table.times import DAY_MS

MIN_SPAN_MS = DAY_MS
STALE_MS = 30 * DAY_MS
"""Age of the last query from which on plans are not approved automatically."""

ColumnSets = tuple[tuple[tuple[int, ...], float], ...]
"""Sets of field ids, each ascending, with their share of the weight: the heaviest first."""


@dataclass(frozen=True)
class Shape:
    """The queries of one predicate on one table. Arrays have shape [queries]."""

    shape_id: str
    """Id of the shape: hash of its predicate without literals."""
    predicate: Predicate
    """The predicate with slots for the literals."""
    column_sets: ColumnSets
    """The sets of columns that the queries read, each with its share of the weight. People ask the
    same question for other columns each time. A part of a shape keeps the sets of the whole."""
    literals: tuple[SlotLiterals, ...]
    """Per slot the literals of all queries: int64, float64 or S<w>[queries] for a scalar slot, an
    object array of byte strings if one of them ends in NUL, a tuple of tuples for an In slot."""
    offsets: tuple[Float64, ...]
    """Per slot float64[queries]: the distance of a moving literal to the time of its query, in the
    unit of its column or in periods if the slot has a clock; NaN for a fixed literal."""
    weight: Float64
    """float64[queries]: executions in the recorded window."""
    executions: Float64
    """float64[queries]: executions expected within the payback horizon, counted from the workload's
    end; as recorded until they are forecast."""
    event_ms: Int64
    """int64[queries]: time in epoch milliseconds."""
    recorded_bytes: Float64
    """float64[queries]: bytes read as the engine measured them, NaN if it did not."""
    position: Int64
    """int64[queries]: number that identifies the query among those of its table."""
    column_set: npt.NDArray[np.int32]
    """int32[queries]: which of `column_sets` the query reads."""
    full_scan: bool = False
    """Whether the queries could not be understood and count as reading the whole table."""
    unbound: Predicate | None = None
    """The whole predicate of a prepared statement whose values the log does not hold; None for
    other queries."""
    clocks: tuple[PeriodClock | None, ...] = ()
    """Per slot the clock that a detected offset counts from, None for event time; () if no offset
    was detected so."""
    elsewhere: float = 0.0
    """Share of the weight whose queries have conditions on other tables only."""
    grouped: float = 0.0
    """Share of the weight whose queries read the table grouped by partition."""
    merged: float = 0.0
    """Share of the weight that is MERGE statements into the table."""

    def __len__(self) -> int:
        return len(self.weight)

    @cached_property
    def projection(self) -> Mapping[int, float]:
        """Return, by field id in ascending order, the share of the queries that read the column."""
        shares: dict[int, float] = {}
        for fields, share in self.column_sets:
            for field in fields:
                shares[field] = shares.get(field, 0.0) + share
        everywhere = set[int].intersection(*(set(fields) for fields, _ in self.column_sets))
        return {
            field: 1.0 if field in everywhere else min(shares[field], 1.0)
            for field in sorted(shares)
        }

    @property
    def prunable(self) -> bool:
        return not self.full_scan and could_skip(self.predicate)

    @property
    def moves(self) -> npt.NDArray[np.bool_]:
        """bool[queries]: whether one of the query's literals moves with time."""
        found = np.zeros(len(self), dtype=np.bool_)
        for offsets in self.offsets:
            found |= ~np.isnan(offsets)
        return found

    @property
    def moving(self) -> bool:
        """Whether the shape has a literal that moves with time."""
        return bool(self.moves.any())

    def take(self, index: Array | slice) -> Shape:
        """Return these queries: a run of them, their numbers, or a mask."""
        return replace(
            self,
            literals=tuple(_taken(values, index) for values in self.literals),
            offsets=tuple(values[index] for values in self.offsets),
            weight=self.weight[index],
            executions=self.executions[index],
            event_ms=self.event_ms[index],
            recorded_bytes=self.recorded_bytes[index],
            position=self.position[index],
            column_set=self.column_set[index],
        )

    def since(self, first_ms: int, last_ms: int | None = None) -> Shape:
        """Return the queries from a time on, up to and with another one."""
        kept = self.event_ms >= first_ms
        if last_ms is not None:
            kept &= self.event_ms <= last_ms
        return self if kept.all() else self.take(kept)

    def by_columns(self) -> Iterator[tuple[tuple[int, ...], Shape]]:
        """Yield each set of columns with the queries that read it."""
        for place, (fields, _) in enumerate(self.column_sets):
            own = self.column_set == place
            if own.any():
                part = self if own.all() else self.take(own)
                sets = ((fields, 1.0),)
                none = np.zeros(len(part), dtype=np.int32)
                yield fields, replace(part, column_sets=sets, column_set=none)


def merge(parts: Sequence[Shape]) -> Shape:
    """Return the queries of all parts of one shape, one part after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    weight = np.concatenate([part.weight for part in parts])
    sets, column_set = _joined_sets(parts, weight)
    return replace(
        first,
        column_sets=sets,
        column_set=column_set,
        literals=tuple(
            _joined_literals(values) for values in zip(*(p.literals for p in parts), strict=True)
        ),
        offsets=tuple(
            np.concatenate(values) for values in zip(*(p.offsets for p in parts), strict=True)
        ),
        weight=weight,
        executions=np.concatenate([part.executions for part in parts]),
        event_ms=np.concatenate([part.event_ms for part in parts]),
        recorded_bytes=np.concatenate([part.recorded_bytes for part in parts]),
        position=np.concatenate([part.position for part in parts]),
        elsewhere=_joined_share(parts, [part.elsewhere for part in parts]),
        grouped=_joined_share(parts, [part.grouped for part in parts]),
        merged=_joined_share(parts, [part.merged for part in parts]),
    )


def in_order(shape: Shape) -> Shape:
    """Return the shape with its queries by time, those of one time by position."""
    event, position = shape.event_ms, shape.position
    later = np.diff(event)
    if bool((later > 0).all()):
        return shape
    if bool(((later > 0) | ((later == 0) & (position[1:] >= position[:-1]))).all()):
        return shape
    return shape.take(np.lexsort((position, event)))


def ranked_sets(
    sets: Sequence[tuple[int, ...]], column_set: npt.NDArray[np.int32], weight: Float64
) -> tuple[ColumnSets, npt.NDArray[np.int32]]:
    """Return the distribution of the sets that the queries read, and each query's place in it.

    sets: in any order; column_set: per query its place among them.
    """
    if len(sets) == 1:
        return ((sets[0], 1.0),), column_set
    own = np.bincount(column_set, weight, len(sets))
    total = float(own.sum()) or 1.0
    ranked = sorted(range(len(sets)), key=lambda place: (-own[place], sets[place]))
    places = np.empty(len(sets), dtype=np.int32)
    places[ranked] = np.arange(len(sets), dtype=np.int32)
    return tuple((sets[n], float(own[n]) / total) for n in ranked), places[column_set]


def literal_array(values: Sequence[Literal]) -> SlotLiterals:
    """Return the literals of one slot of some queries, of which there is at least one."""
    if isinstance(values[0], tuple):
        return tuple(v if isinstance(v, tuple) else (v,) for v in values)
    if isinstance(values[0], bytes):
        # numpy strips trailing NULs from S; an object array keeps them (`pruning`).
        kept = any(isinstance(v, bytes) and v.endswith(b"\0") for v in values)
        return np.array(values, dtype=object if kept else np.bytes_)
    kind = np.float64 if isinstance(values[0], float) else np.int64
    return np.array(values, dtype=kind)


def unrecorded_shape(
    shape_id: str,
    predicate: Predicate,
    column_sets: ColumnSets,
    literals: tuple[SlotLiterals, ...],
    weight: Float64,
    executions: Float64,
) -> Shape:
    """Return queries that nobody recorded: without times and without measures."""
    count = len(weight)
    unknown = np.full(count, np.nan)
    return Shape(
        shape_id=shape_id,
        predicate=predicate,
        column_sets=column_sets,
        literals=literals,
        offsets=(unknown,) * len(literals),
        weight=weight,
        executions=executions,
        event_ms=np.zeros(count, dtype=np.int64),
        recorded_bytes=unknown,
        position=np.arange(count, dtype=np.int64),
        column_set=np.zeros(count, dtype=np.int32),
    )


def shape_id(
    predicate: Predicate, unbound: Predicate | None = None, *, full_scan: bool = False
) -> str:
    """Return the hash of the predicate with `?` for literals (docs/design/definitions.md#fragment).

    full_scan: a query that was not understood is not of the shape of those without a condition.
    """
    text = _shape_text(predicate, unbound) + ("|full scan" if full_scan else "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=4096)
def _shape_text(predicate: Predicate, unbound: Predicate | None) -> str:
    return repr(predicate) if unbound is None else f"{predicate!r}|{unbound!r}"


@dataclass(frozen=True)
class Workload:
    """The recorded queries of one table."""

    shapes: tuple[Shape, ...]
    """The queries by shape, in the order of shape ids."""
    since_ms: int
    """Time of the first query, in epoch milliseconds."""
    until_ms: int
    """Time of the last query, in epoch milliseconds."""
    skipped: tuple[tuple[str, int], ...] = ()
    """(reason, number) of the log's records that were not used."""

    @property
    def queries(self) -> float:
        """Return the number of recorded executions: the sum of all weights."""
        return float(sum(shape.weight.sum() for shape in self.shapes))

    @property
    def span_ms(self) -> int:
        """Return the time from its first to its last query in milliseconds; a day if that is
        less."""
        return max(self.until_ms - self.since_ms, MIN_SPAN_MS)

    @property
    def empty(self) -> bool:
        return not self.shapes

    def stale(self, now_ms: int) -> bool:
        """Whether Automatic approval waits for newer queries."""
        return not self.empty and now_ms - self.until_ms > STALE_MS


def workload_of(shapes: Iterable[Shape], skipped: Sequence[tuple[str, int]] = ()) -> Workload:
    """Return the shapes of one table in order of shape id, their queries by time; parts of one
    shape are merged."""
    parts: dict[tuple[str, bool, str], list[Shape]] = {}
    for shape in shapes:
        if len(shape):
            key = (shape.shape_id, shape.full_scan, _kinds(shape.literals))
            parts.setdefault(key, []).append(shape)
    if not parts:
        return Workload((), 0, 0, tuple(skipped))
    found = tuple(in_order(merge(parts[key])) for key in sorted(parts))
    since = min(int(shape.event_ms[0]) for shape in found)
    until = max(int(shape.event_ms[-1]) for shape in found)
    return Workload(found, since, until, tuple(skipped))


def _kinds(literals: Sequence[SlotLiterals]) -> str:
    """Return a letter for each slot. A column whose type was widened may have another domain, whose
    literals are not put into one array with earlier ones."""
    kinds = (v.dtype.kind if isinstance(v, np.ndarray) else "l" for v in literals)
    return "".join(kinds).replace("O", "S")


def _taken(values: SlotLiterals, index: Array | slice) -> SlotLiterals:
    if isinstance(values, np.ndarray):
        return values[index]
    if isinstance(index, slice):
        return values[index]
    return tuple(values[int(i)] for i in np.arange(len(values))[index])


def _joined_literals(parts: Sequence[SlotLiterals]) -> SlotLiterals:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    return tuple(row for part in parts for row in part)


def _joined_sets(
    parts: Sequence[Shape], weight: Float64
) -> tuple[ColumnSets, npt.NDArray[np.int32]]:
    first = parts[0].column_sets
    if all(part.column_sets == first for part in parts):
        return first, np.concatenate([part.column_set for part in parts])
    places: dict[tuple[int, ...], int] = {}
    found = []
    for part in parts:
        own = [places.setdefault(fields, len(places)) for fields, _ in part.column_sets]
        found.append(np.array(own, dtype=np.int32)[part.column_set])
    return ranked_sets(list(places), np.concatenate(found), weight)


def _joined_share(parts: Sequence[Shape], shares: Sequence[float]) -> float:
    if len(set(shares)) == 1:
        return shares[0]
    weights = np.array([float(part.weight.sum()) for part in parts])
    return share_of(weights, np.array(shares))


def share_of(weight: Float64, marked: Array) -> float:
    """Return the share of the weight of the marked queries, or of parts by the share of each."""
    return float(weight @ marked) / max(float(weight.sum()), 1e-9)
