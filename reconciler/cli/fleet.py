"""Looks at many tables for `top` and `report`: metadata, recorded queries and the ledger.

No footer and no data file is read and nothing is planned: plans that wait for approval are frozen
ones. Which tables the state knows is read once, the rest table by table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.errors import ReconcilerError
from reconciler.render.fleet_model import (
    WEEK_MS,
    Fleet,
    FleetPlan,
    FleetRewrite,
    FleetTable,
    worst_first,
)

if TYPE_CHECKING:
    from reconciler.advisor.measure.past_plan import PastPlan
    from reconciler.api.catalog_config import CatalogConfig
    from reconciler.api.documents import IcebergCatalog
    from reconciler.loop.local_actor import LocalActor
    from reconciler.plan.plan import Plan
    from reconciler.queries.shape import Workload
    from reconciler.table.observation import Observation


@dataclass(frozen=True, slots=True)
class Asked:
    """Which tables are looked at, and how."""

    config: CatalogConfig
    """The catalog."""
    levels: tuple[str, ...]
    """The namespace; () for the whole catalog."""
    documents: Sequence[IcebergCatalog]
    """The catalogs' documents under -f."""
    timeout: float
    """Seconds for the catalog to answer."""
    shared: bool = False
    """Whether the state is that in the catalog's own namespace."""
    include: Sequence[str] = ()
    """Patterns of which a table matches one; () for all tables."""
    exclude: Sequence[str] = ()
    """Patterns of which a table matches none."""


@dataclass(frozen=True, slots=True)
class _Look:
    actor: LocalActor
    """The state, the cache and the time limit."""
    rewritten: frozenset[str]
    """UUIDs of the tables that the ledger has outcomes of."""
    queried: frozenset[str] | None
    """UUIDs of the tables that have recorded queries; None: each is asked for."""
    deep: bool
    """Whether past rewrites and waiting plans are read."""
    now: dt.datetime
    """Time of the look."""


BATCH_TABLES, BATCH_FILES = 256, 1 << 18
"""Tables whose recorded queries are read in one scan; fewer if they have this many files. A scan of
many tables opens nearly all files of recorded queries, so that few scans are cheap."""


def look_at_fleet(
    asked: Asked, connection: Any, spaces: Sequence[tuple[str, ...]], *, deep: bool, quiet: bool
) -> tuple[Fleet, list[ReconcilerError]]:
    """Return the tables, the most wasteful first; one that cannot be read is reported, and the
    others are shown.

    spaces: every namespace of the catalog. deep: whether past rewrites and waiting plans are read,
    not only what ranks the tables.
    """
    from reconciler.cli.many_tables import looks_at
    from reconciler.cli.shared import actor_on
    from reconciler.render.observe_text import where_text
    from reconciler.table.observation import quoted_name

    config = asked.config
    names = _names(asked, connection, spaces)
    actor = actor_on(config, asked.documents, asked.timeout, asked.shared)
    entries = actor.store.ledger(None) if deep else ()
    rewritten = frozenset(entry.table_uuid for entry in entries)
    look = _Look(actor, rewritten, actor.store.queried(), deep, dt.datetime.now(dt.UTC))
    found: list[FleetTable] = []
    failed: list[tuple[tuple[str, ...], ReconcilerError]] = []
    looks = looks_at(connection, config, names, actor.cache, asked.timeout, failed, quiet=quiet)
    for batch in _batches(looks):
        found += _tables(look, batch)
    fleet = Fleet(
        where_text(config.name, asked.levels),
        int(look.now.timestamp() * 1000),
        worst_first(found),
        config.prices,
        failed=tuple((quoted_name((config.name, *name)), error.what) for name, error in failed),
    )
    return fleet, [error for _, error in failed]


def _batches(looks: Iterable[Observation]) -> Iterator[list[Observation]]:
    batch: list[Observation] = []
    for seen in looks:
        batch.append(seen)
        if len(batch) >= BATCH_TABLES or sum(len(one.files) for one in batch) >= BATCH_FILES:
            yield batch
            batch = []
    yield batch


def _names(
    asked: Asked, connection: Any, spaces: Sequence[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return the tables, without those of the reconciler's own state."""
    from reconciler.cli.many_tables import names_under
    from reconciler.cli.system_namespace import is_state

    names = names_under(
        connection, asked.config, asked.levels, spaces, asked.timeout, asked.include, asked.exclude
    )
    return [name for name in names if not is_state(asked.config, asked.documents, name[:-1])]


def _tables(look: _Look, batch: Sequence[Observation]) -> list[FleetTable]:
    """Return the tables of a batch. Their recorded queries are read in one scan."""
    from reconciler.queries.shape import workload_of

    uuids = {seen.uuid for seen in batch}
    asks = uuids if look.queried is None else uuids & look.queried
    shapes = look.actor.store.shapes_of_tables(asks) if asks else {}
    return [_table(look, seen, workload_of(shapes.get(seen.uuid, ()))) for seen in batch]


def _table(look: _Look, seen: Observation, workload: Workload) -> FleetTable:
    from reconciler.cli.history import plans_of
    from reconciler.plan.waste import mergeable, waste_of

    actor, small = look.actor, mergeable(seen)
    touched = (seen.files.delete_files > 0) | (seen.files.equality_deletes > 0)
    past = plans_of(actor, seen) if look.deep and seen.uuid in look.rewritten else []
    return FleetTable(
        name=seen.name,
        files=len(seen.files),
        bytes=seen.files.total_bytes,
        small=small,
        with_deletes=int(touched.sum()),
        waste=waste_of(seen, workload, small, actor.open_price(seen.uuid).bytes),
        files_week_ago=_files_at(seen, int(look.now.timestamp() * 1000) - WEEK_MS),
        waits=_waiting(look, seen) if look.deep else None,
        rewrites=tuple(map(rewrite_of, past)),
    )


def _files_at(seen: Observation, moment_ms: int) -> int | None:
    """Return the number of data files at a time in the past, as the snapshot of then says; None if
    it has expired or does not say."""
    for snapshot in seen.ancestry:
        if snapshot.timestamp_ms <= moment_ms:
            stated = snapshot.summary.get("total-data-files", "")
            return int(stated) if stated.isdecimal() else None
    return None


def _waiting(look: _Look, seen: Observation) -> FleetPlan | None:
    """Return the frozen plan that could be carried out now and that nobody has approved."""
    from reconciler.loop.propose import judged
    from reconciler.plan.prediction import total
    from reconciler.plan.standing import head_of, judge

    for plan in look.actor.store.standing_plans(seen.uuid):
        if judge(plan, head_of(seen), look.now).fallen or look.actor.approved(plan.id):
            continue
        _, pending = judged(plan, seen, look.now)
        if pending:
            left = total(item.predicted for item in pending)
            return FleetPlan(
                plan.id, int(plan.created.timestamp() * 1000), left.bytes_in, left.cpu_seconds,
                left.saving, _slower(plan),
            )  # fmt: skip
    return None


def _slower(plan: Plan) -> tuple[tuple[str, float, float], ...]:
    shapes: Sequence[Mapping[str, Any]] = plan.evidence.get("shapes") or ()
    return tuple(
        (str(one["text"]), float(one["bytesNow"]), float(one["bytesAfter"]))
        for one in shapes
        if one.get("worse")
    )


def rewrite_of(plan: PastPlan) -> FleetRewrite:
    return FleetRewrite(
        plan_id=plan.plan_id,
        at_ms=plan.at_ms,
        rewritten=plan.read_bytes,
        cost=plan.cost,
        cpu_seconds=plan.cpu_seconds,
        saved=None if plan.measured is None else plan.measured.table_least,
        harm=plan.harm,
    )
