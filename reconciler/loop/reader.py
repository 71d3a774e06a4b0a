"""The reading part of a step's I/O: catalog, state store, footers and sketches; it starts no work.

Implements `ports.Ports` and what `step.Actor` reads and records. One machine
(`loop.local_actor`) and the operator (`loop.operator_actor`) share it. It keeps nothing of any
table between two calls.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reconciler.advisor.measure.credit import Credit, Price
from reconciler.advisor.qdtree.woodblock import Training
from reconciler.catalog.claim import OWNER_PROPERTY
from reconciler.catalog.file_forms import FormCache, read_forms, through
from reconciler.catalog.footers import read_row_groups
from reconciler.catalog.listing import changed_ms
from reconciler.catalog.load import data_file_io
from reconciler.catalog.observe import observe_table
from reconciler.catalog.orphans import find_orphans
from reconciler.catalog.replica import seen_replica
from reconciler.catalog.sketch_reader import ReadSketches, read_directly
from reconciler.catalog.spec_use import unused_specs
from reconciler.loop.credit_record import record_written, replaced_files, update_credits
from reconciler.loop.file_checks import MOST_FOOTERS, Checked, refused_forms, sizes_of
from reconciler.loop.history import History
from reconciler.loop.ports import OpenWork, RecordedQueries, Target
from reconciler.loop.training import Trees, trained_trees
from reconciler.plan.actions.base import Action
from reconciler.plan.conflicts import Conflicts
from reconciler.plan.ledger import ReadCheck, Reservation, charged
from reconciler.plan.plan import Plan, PlannedAction
from reconciler.plan.undo import held_files
from reconciler.queries.coverage import coverage
from reconciler.queries.excluded import excluded_fields, without_fields
from reconciler.queries.first_rows import with_first_rows
from reconciler.queries.moving_windows import with_movement
from reconciler.queries.open_price import OpenPrice
from reconciler.queries.rewrite_cost import run_times
from reconciler.queries.shape import workload_of
from reconciler.state.movements import stored_movements
from reconciler.state.openings import open_price
from reconciler.state.sketch import SketchedFiles, sample_rows
from reconciler.state.store import Store
from reconciler.state.typed_body import typed
from reconciler.table.filetable import FileTable, Int64
from reconciler.table.observation import Observation
from reconciler.table.orphans import Listing, Orphans, Search
from reconciler.table.refusals import Refusal
from reconciler.table.replica import SeenReplica
from reconciler.table.sample import RowGroups, RowSample

RUN_TIMES = "times of runs"
"""The note of what executions took, of all tables."""


@dataclass
class Reader:
    """Reads what a proposal needs of tables, their state and their queries."""

    store: Store
    """The state that executions and imports have recorded."""
    cache: Path
    """Directory of what was read of manifests and footers before."""
    timeout: float = 30.0
    """Seconds for the catalog to answer."""
    claims_as: str = ""
    """The name under which this process holds claims."""
    exclude_columns: tuple[str, ...] = ()
    """Names of columns whose conditions are not used, nor their values sketched."""
    read_sketches: ReadSketches = read_directly
    """Reads the sample of a whole table."""

    def observe(self, target: Target) -> Observation:
        return observe_table(
            target.catalog, target.identifier, self.cache,
            timeout=self.timeout, recent_ms=target.recent_ms,
        )  # fmt: skip

    def orphans(
        self,
        target: Target,
        table_uuid: str,
        search: Search,
        now_ms: int,
        under_way: Collection[str],
    ) -> Orphans:
        """List the storage where that is due; what found nothing is recorded, and not repeated for
        a day."""
        last = self.store.note_as(orphans_key(table_uuid), _listing)
        if last is not None:
            due = last.next_ms(search)
            if now_ms < due:
                return Orphans(listed=False, next_ms=due)
        found = find_orphans(
            target.catalog, target.identifier, self.cache, search, now_ms,
            under_way=under_way, timeout=self.timeout,
        )  # fmt: skip
        if found.files or found.refused:
            return found
        self.store.set_note(
            orphans_key(table_uuid),
            {"atMs": now_ms, "olderThanMs": search.older_than_ms, "prefix": search.prefix},
        )
        return replace(found, next_ms=Listing(now_ms, search).next_ms(search))

    def unused_specs(self, target: Target, candidates: Collection[int]) -> frozenset[int]:
        return unused_specs(
            target.catalog, target.identifier, self.cache, candidates, timeout=self.timeout
        )

    def replica(self, target: Target, name: str) -> SeenReplica:
        levels = (*target.identifier[:-1], name)
        return seen_replica(target.catalog, levels, self.timeout)

    def recorded_queries(self, observation: Observation) -> RecordedQueries:
        excluded = excluded_fields(self.exclude_columns, observation.schema)
        known = (without_fields(one, excluded) for one in self.store.shapes(observation.uuid))
        skipped = tuple(sorted(self.store.skips(observation.uuid).items()))
        recorded = with_movement(
            workload_of(known, skipped),
            observation.schema,
            stored_movements(self.store, observation.uuid),
        )
        workload = with_first_rows(recorded, observation.files)
        return RecordedQueries(workload, coverage(workload, observation.files), recorded)

    def footers(self, target: Target, observation: Observation, files: Int64) -> RowGroups:
        return read_row_groups(
            target.catalog,
            observation.files,
            files,
            identifier=target.identifier,
            timeout=self.timeout,
        )

    def sketch(
        self, target: Target, observation: Observation, files: Int64, columns: Sequence[int]
    ) -> RowSample:
        return sample_rows(self.sketched_files(target, observation), files, columns)

    def sketched_files(self, target: Target, observation: Observation) -> SketchedFiles:
        """Return the table's files, whose sketches are kept in the state store."""
        return SketchedFiles(
            target.catalog,
            observation.files,
            store=self.store,
            table_uuid=observation.uuid,
            identifier=target.identifier,
            timeout=self.timeout,
        )

    def trained(self, table_uuid: str, wanted: Sequence[Training]) -> Trees:
        return trained_trees(self.store, self.cache, table_uuid, wanted)

    def sketched(self, table_uuid: str, paths: Sequence[str]) -> Collection[str]:
        return self.store.sketched(table_uuid, paths)

    def refusals(self, target: Target, observation: Observation) -> Mapping[str, Refusal]:
        known = FormCache(self.cache).known(observation.uuid, sizes_of(observation).items())
        every = self.store.refusals(observation.uuid)
        recorded = {path: one for path, one in every.items() if one.holds(target.memory_bytes)}
        for one in self._restored(target, observation, recorded.values()):
            del recorded[one.path]
        return {**refused_forms(observation, known), **recorded}

    def _restored(
        self, target: Target, observation: Observation, refused: Iterable[Refusal]
    ) -> list[Refusal]:
        """Return the refusals of damaged files of the table that have changed since."""
        paths = {*map(str, observation.files.path), *map(str, observation.delete_files.path)}
        damaged = [one for one in refused if one.changed_ms and one.path in paths]
        if not damaged:
            return []
        io = data_file_io(target.catalog, target.identifier, self.timeout)
        return [one for one in damaged if changed_ms(io, one.path) != one.changed_ms]

    def check_files(
        self, target: Target, observation: Observation, paths: Sequence[str]
    ) -> Checked:
        """Read the footers that no earlier look has read; as many as one look may."""
        sizes, cache = sizes_of(observation), FormCache(self.cache)
        known = cache.known(observation.uuid, [(path, sizes[path]) for path in paths])
        fresh = [(path, sizes[path]) for path in paths if path not in known][:MOST_FOOTERS]
        if fresh:
            io = data_file_io(target.catalog, target.identifier, self.timeout)
            files = observation.files
            rows = dict(zip(map(str, files.path), files.records.tolist(), strict=True))
            read = read_forms(fresh, through(io, rows))
            cache.keep(observation.uuid, sizes, read)
            known |= read
        refused = refused_forms(observation, known)
        return Checked(refused, len(paths), len(paths) - len(known))

    def history(self, table_uuid: str) -> History:
        entries = self.store.ledger(table_uuid)
        undone = any(entry.predicted.undoes for entry in entries)
        return History(
            entries=entries,
            held=held_files(entries, self.store.intents(table_uuid)) if undone else {},
            checks=self.store.read_checks(table_uuid),
            rho=self.store.note_as(rho_key(table_uuid), ratios) or (),
            runs=self.store.note_as(RUN_TIMES, run_times) or (),
            open_price=self.open_price(table_uuid),
            conflicts=self._conflicts(table_uuid),
        )

    def credits(
        self, observation: Observation, queries: RecordedQueries, history: History
    ) -> Mapping[str, Credit]:
        price = Price(history.open_price.bytes)
        return update_credits(
            self.store, observation, history.entries, queries.recorded.shapes, price, now_ms()
        )

    def replaced(self, observation: Observation, history: History) -> tuple[FileTable, ...]:
        return replaced_files(self.store, observation, history.entries, now_ms())

    def _conflicts(self, table_uuid: str) -> Conflicts:
        read = partial(typed, Conflicts)
        return self.store.note_as(conflicts_key(table_uuid), read) or Conflicts()

    def record_conflicts(
        self, table_uuid: str, lost: Collection[Action], done: Collection[Action]
    ) -> None:
        known = self._conflicts(table_uuid)
        now = known.after(lost, done)
        if now != known:
            self.store.set_note(conflicts_key(table_uuid), asdict(now))

    def open_price(self, table_uuid: str) -> OpenPrice:
        return open_price(self.store, table_uuid)

    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None:
        return self.store.standing_plan(table_uuid, policy_hash)

    def work(self, table_uuid: str) -> OpenWork:
        """Return what is planned for the table, or not settled yet."""
        attempts = self.store.open_intents(table_uuid)
        return OpenWork(self.store.standing_plans(table_uuid), attempts)

    def put_plan(self, plan: Plan) -> None:
        self.store.put_plan(plan)

    def approved(self, plan_id: str, policy: str | None = None) -> bool:
        return self.store.approved(plan_id, policy)

    def owner(self, observation: Observation) -> str:
        """Return who else claims the table, "" if no one does."""
        found = observation.properties.get(OWNER_PROPERTY, "")
        return "" if found == self.claims_as else found

    def automatic_spent(
        self, table_uuid: str, since: dt.datetime, approved: Collection[str], besides: str = ""
    ) -> int:
        # Reservations are read first: one that is settled meanwhile then counts, instead of
        # nothing.
        held = self.store.reservations(table_uuid)
        found = charged(self.store.ledger(table_uuid), held, besides)
        now = dt.datetime.now(dt.UTC)
        return sum(
            item.spent.rewrite_bytes
            for item in found
            if item.at(now).at >= since
            and item.plan_id not in approved
            and not self.approved(item.plan_id)
        )

    def reserve(self, reservation: Reservation) -> None:
        self.store.reserve(reservation)

    def settle(self, reservation: Reservation) -> bool:
        open_intents = bool(self.store.open_intents(reservation.table_uuid))
        if not open_intents:
            self.store.settle(reservation)
        return not open_intents

    def record_start(
        self, plan: Plan, actions: Sequence[PlannedAction], files: FileTable, policy: str
    ) -> None:
        predicted = {item.id: replace(item.predicted, policy=policy) for item in actions}
        self.store.record_predictions(plan.id, predicted)
        row_of = {str(path): row for row, path in enumerate(files.path)}

        def inputs(item: PlannedAction) -> FileTable:
            rows = sorted(row_of[path] for path in item.action.inputs if path in row_of)
            return files.take(np.array(rows, dtype=np.int64))

        self.store.record_old_zone_maps(plan.id, ((item.id, inputs(item)) for item in actions))

    def record_written(self, observation: Observation) -> None:
        record_written(self.store, observation, now_ms())

    def record_check(self, table_uuid: str, check: ReadCheck) -> None:
        self.store.record_read_check(table_uuid, check)

    def outputs(self, table_uuid: str, plan_id: str) -> tuple[str, ...]:
        """Return the data files that the plan's committed batches added."""
        committed = {
            (entry.outcome.attempt_id, entry.outcome.batch)
            for entry in self.store.ledger(table_uuid)
            if entry.committed and entry.plan_id == plan_id
        }
        return tuple(
            path
            for intent in self.store.intents(table_uuid)
            if (intent.attempt_id, intent.batch) in committed
            for path in intent.outputs
        )


def now_ms() -> int:
    return int(time.time() * 1000)


def ratios(note: Any) -> tuple[float, ...]:
    """Return the measured ratios of a note. Raises ValueError or TypeError if they are none."""
    found = tuple(float(value) for value in note)
    if not all(0.0 < value < math.inf for value in found):
        raise ValueError("a ratio is not positive")
    return found


def _listing(note: Any) -> Listing | None:
    """Return the last listing that a note holds. Raises ValueError, KeyError or TypeError if it
    holds none."""
    prefix = note["prefix"]
    if not isinstance(prefix, str):
        raise ValueError("its prefix is no text")
    return Listing(int(note["atMs"]), Search(int(note["olderThanMs"]), prefix))


def orphans_key(table_uuid: str) -> str:
    """Return the key of the note with a table's last listing that found no orphan."""
    return f"orphans:{table_uuid}"


def conflicts_key(table_uuid: str) -> str:
    """Return the key of the note with a table's conflicts in a row."""
    return f"conflicts:{table_uuid}"


def rho_key(table_uuid: str) -> str:
    """Return the key of the note with a table's measurements of rho."""
    return f"rho:{table_uuid}"
