"""Keeps what past rewrites of a table have saved by later queries, in the state store.

Recorded queries are removed after a time. What rewrites saved by them is added up before that
(`closed`), and the sum stays. It does not depend on when, how often or by which process a table is
looked at.
`advisor.measure.credit` does the measuring, `past_rewrites` finds the files before and after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from reconciler.advisor.measure.credit import NEVER, Credit, PastRewrite, Price, credit_of
from reconciler.loop.past_rewrites import (
    Batches,
    BatchKey,
    LedgerFiles,
    batches_of,
    new_files,
    rewrites_of,
    still_counting,
)
from reconciler.plan.ledger import LedgerEntry
from reconciler.queries.shape import Shape
from reconciler.state.store import Store
from reconciler.state.typed_body import typed
from reconciler.table.filetable import FileTable
from reconciler.table.observation import Observation
from reconciler.table.times import DAY_MS

OPEN_MS = 60 * DAY_MS
"""Milliseconds after its run within which a query may still be imported and count. Queries are kept
for longer."""

STEP_MS = 7 * DAY_MS
"""Queries are added up for good in spans of at least this length."""


def saved_key(table_uuid: str) -> str:
    """Return the key of the note with what past rewrites of a table have saved."""
    return f"saved:{table_uuid}"


def update_credits(
    store: Store,
    observation: Observation,
    entries: Sequence[LedgerEntry],
    queries: Sequence[Shape],
    price: Price,
    now_ms: int,
) -> dict[str, Credit]:
    """Measure what each plan has saved, keep that in the store, and return it by plan id.

    Plans whose saving is unknown are missing. Nothing is measured if neither the table nor the
    ledger nor the queries have changed since the last time.
    """
    if not any(entry.written for entry in entries):
        return {}
    noted = store.note_as(saved_key(observation.uuid), _noted) or _CreditNote("", 0, {}, {})
    until, due = noted.until_ms, now_ms - OPEN_MS
    version = _version(observation, entries, queries, price)
    if noted.version == version and due - until < STEP_MS:
        return dict(noted.plans)
    rewrites = _recorded_rewrites(store, observation, entries, now_ms)
    closed: ClosedSums = noted.closed
    if due - until >= STEP_MS:
        closed = _added(closed, rewrites, _between(queries, until, due), price)
        until = due
    found = _by_plan(_added(closed, rewrites, _between(queries, until, NEVER), price))
    store.set_note(
        saved_key(observation.uuid),
        {
            "version": version,
            "untilMs": until,
            "closed": [[*key, plan, astuple(one)] for key, (plan, one) in closed.items()],
            "plans": {plan: astuple(one) for plan, one in found.items()},
        },
    )
    return found


ClosedSums = Mapping[BatchKey, tuple[str, Credit]]
"""What each batch has saved, with its plan."""


@dataclass(frozen=True, slots=True)
class _CreditNote:
    """What the state store keeps of past savings."""

    version: str
    """Hash of what the savings were measured from."""
    until_ms: int
    """Time in epoch milliseconds; earlier queries are counted in `closed`."""
    closed: ClosedSums
    """Savings by queries before `until_ms`, per batch."""
    plans: Mapping[str, Credit]
    """Savings of each plan, by plan id."""


def _noted(note: Any) -> _CreditNote:
    """Return the value of a note. Raises ValueError, KeyError or TypeError if it holds none."""
    return _CreditNote(
        version=str(note["version"]),
        until_ms=int(note["untilMs"]),
        closed={
            (str(attempt), int(batch)): (str(plan), _credit(body))
            for attempt, batch, plan, body in note["closed"]
        },
        plans={str(plan): _credit(body) for plan, body in note["plans"].items()},
    )


def _credit(body: Any) -> Credit:
    names = [item.name for item in fields(Credit)]
    return typed(Credit, dict(zip(names, body, strict=True)))


def _recorded_rewrites(
    store: Store,
    observation: Observation,
    entries: Sequence[LedgerEntry],
    now_ms: int,
) -> dict[BatchKey, PastRewrite]:
    """Record the files of past rewrites that are new in the table, so that they are known when they
    are gone. Return the past rewrites that still count."""
    batches = still_counting(batches_of(entries, store.intents(observation.uuid)))
    written = _record_new_files(store, observation, batches, now_ms)
    inputs = store.old_zone_maps_of({intent.plan_id for intent, _ in batches.values()})
    return rewrites_of(LedgerFiles(batches, inputs, written), observation, now_ms)


def replaced_files(
    store: Store, observation: Observation, entries: Sequence[LedgerEntry], now_ms: int
) -> tuple[FileTable, ...]:
    """Return the data files of other writers that past rewrites of a table replaced, as far as the
    ledger keeps their bounds. Files that are new in the table are recorded as well."""
    if not any(entry.written for entry in entries):
        return ()
    rewrites = _recorded_rewrites(store, observation, entries, now_ms).values()
    parts = [
        files.take(np.flatnonzero(~files.layout_written))
        for one in rewrites
        for files in one.before
    ]
    return tuple(part for part in parts if len(part))


def record_written(store: Store, observation: Observation, now_ms: int) -> None:
    """Record the data files that commits of ours added, as far as they are in the table and not
    recorded yet. A later rewrite may replace them before anybody asks what they saved."""
    entries = store.ledger(observation.uuid)
    batches = batches_of(entries, store.intents(observation.uuid) if entries else ())
    _record_new_files(store, observation, batches, now_ms)


def _record_new_files(
    store: Store, observation: Observation, batches: Batches, now_ms: int
) -> dict[BatchKey, tuple[int, FileTable]]:
    """Record the data files that the batches added and that are not recorded yet. Return, by batch,
    when its files were recorded, and the files."""
    known = store.written_zone_maps(observation.uuid) if batches else {}
    for key, (intent, _) in batches.items():
        files = None if key in known else new_files(intent, observation)
        if files is not None:
            store.record_written(intent, files)
            known[key] = now_ms, files
    return known


def _added(
    known: ClosedSums,
    rewrites: Mapping[BatchKey, PastRewrite],
    queries: Sequence[Shape],
    price: Price,
) -> dict[BatchKey, tuple[str, Credit]]:
    """Return the sums with what these queries did not read."""
    found = dict(known)
    for key, rewrite in rewrites.items():
        own = credit_of(rewrite, queries, price)
        found[key] = rewrite.plan_id, own.plus(found[key][1]) if key in found else own
    return found


def _by_plan(known: ClosedSums) -> dict[str, Credit]:
    found: dict[str, Credit] = {}
    for plan, one in known.values():
        found[plan] = found[plan].plus(one) if plan in found else one
    return found


def _between(queries: Sequence[Shape], after_ms: int, until_ms: int) -> list[Shape]:
    parts = (one.since(after_ms + 1, until_ms) for one in queries)
    return [part for part in parts if len(part)]


def _version(
    observation: Observation,
    entries: Sequence[LedgerEntry],
    queries: Sequence[Shape],
    price: Price,
) -> str:
    """Return what the measurement depends on, as a hash."""
    digest = hashlib.sha256(
        f"{observation.snapshot_id} {observation.schema.schema_id} {price}".encode()
    )
    for entry in entries:
        done = entry.outcome
        digest.update(f"{done.attempt_id} {done.batch} {done.action_id} {done.state}".encode())
    for one in queries:
        digest.update(one.shape_id.encode())
        for values in (one.position, one.event_ms, one.weight):
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
