"""Actions drawn at random for a random table, and carried out by the engine without a JVM."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyiceberg import types as t

from reconciler.api.choices import EngineType
from reconciler.commit.engine import LocalBackend
from reconciler.commit.local_table import LocalTable
from reconciler.engines.local import machine
from reconciler.engines.local.pool import Pool
from reconciler.engines.schedule.execute import execute
from reconciler.plan.actions.audited import Discard, Publish
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.delete_maintenance import (
    CompactDeletes,
    ConvertDeletes,
    RemoveDanglingDeletes,
)
from reconciler.plan.actions.expire_snapshots import ExpireSnapshots
from reconciler.plan.actions.migrate import Migrate
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec, wanted_spec_id
from reconciler.plan.actions.remove_orphans import RemoveOrphans
from reconciler.plan.actions.remove_specs import RemoveSpecs
from reconciler.plan.actions.rewrite import ApplyDeletes, BinPack, Cluster
from reconciler.plan.actions.rewrite_manifests import RewriteManifests
from reconciler.plan.actions.roll_back import RollBack
from reconciler.plan.actions.set_block_column import SetBlockColumn
from reconciler.plan.actions.set_properties import SetProperties
from reconciler.plan.actions.set_sort_order import SetSortOrder
from reconciler.plan.execution import ExecutionRequest, ExecutionResult
from reconciler.plan.ordering import ARRIVAL, Hilbert, Lexicographic, Ordering, by_tree
from reconciler.table.audits import waiting_batches
from reconciler.table.block_ids import COLUMN
from reconciler.table.cut_tree import Cut, Tree, made
from reconciler.table.schema import SortColumn, SpecField, spec_terms
from reconciler.table.summary_keys import PLAN_ID
from tests.engines.random_tables.tables import RandomTable
from tests.engines.random_tables.values import Random, in_domain, random_value
from tests.spark.ledger import FileLease, FileLedger

_numbers = itertools.count(1)


@dataclass
class Engine:
    """Carries actions out; its processes serve many tables."""

    config: Any
    directory: Path
    pool: Pool

    def __post_init__(self) -> None:
        self.said: list[str] = []
        here = machine.of_this("")
        cache = self.directory / "cache"
        self.backend = LocalBackend(self.pool, here, cache, self.said.append)
        self.ledger = FileLedger(self.directory / "ledger.db")
        self.lease = FileLease(self.directory / "leases.db")

    def table(self, drawn: RandomTable) -> LocalTable:
        return self.backend.load(self.config, ("loop", drawn.name))

    def run(
        self, drawn: RandomTable, actions: list[Action], on_event: Any = lambda _: None,
        **more: Any,
    ) -> ExecutionResult:  # fmt: skip
        table = self.table(drawn)
        request = ExecutionRequest(
            catalog=self.config, table=("loop", drawn.name), table_uuid=table.uuid(),
            plan_id=f"p-{next(_numbers):016x}", actions=tuple(actions),
            action_ids=tuple(f"a{n:02}" for n in range(len(actions))),
            base_snapshot_id=table.head(), allow_live_branches=True, backoff_seconds=0.0,
            engine=EngineType.LOCAL, memory_bytes=1 << 30,
            written_shares=(1.0,) * len(actions), **more,
        )  # fmt: skip
        return execute(request, self.backend, self.ledger, self.lease, on_event, lambda: False)


@contextmanager
def engine(config: Any, directory: Path) -> Iterator[Engine]:
    with Pool(2) as pool:
        yield Engine(config, directory, pool)


def random_tree(random: Random, columns: Sequence[t.NestedField]) -> Tree:
    """A tree of some of these columns, with cuts at NULL and NaN too."""

    def node(depth: int) -> Any:
        if not depth:
            return None
        one = random.choice(columns)
        value = in_domain(one.field_type, random_value(random, one.field_type))
        if random.random() < 0.1:
            value = None
        special = value is None or value != value
        cut = Cut(one.field_id, value, not special and random.random() < 0.5)
        return cut, node(random.randrange(depth)), node(random.randrange(depth))

    root = node(4)
    leaves = made(root, []).nodes.count(-1)
    return made(
        root, [random.choice([0, *(one.field_id for one in columns)]) for _ in range(leaves)]
    )


class Draw:
    """Draws actions for a table as it is now; [] where a kind has nothing to do."""

    def __init__(self, drawn: RandomTable, engine: Engine) -> None:
        self.drawn, self.random, self.engine = drawn, drawn.random, engine
        self.table = engine.table(drawn)
        head = self.table.head()
        self.live = None if head is None else self.table.live(head)

    def partition(self, least: int) -> tuple[int, tuple[Any, ...], list[str]] | None:
        """A partition with so many data files, and some of its files."""
        assert self.live is not None
        files, found = self.live.files, []
        for number, (spec_id, values) in enumerate(files.partitions):
            own = sorted(set(files.path[np.flatnonzero(files.partition == number)].tolist()))
            if len(own) >= least:
                found.append((spec_id, tuple(values), own))
        if not found:
            return None
        spec_id, values, own = self.random.choice(found)
        some = own
        if self.random.random() < 0.5:
            some = self.random.sample(own, self.random.randrange(least, len(own) + 1))
        return spec_id, values, sorted(some)

    def ordering(self) -> Ordering:
        columns = [
            one for one in self.drawn.table.schema().fields
            if isinstance(one.field_type, t.PrimitiveType)
        ]  # fmt: skip
        some = self.random.sample(columns, min(len(columns), self.random.choice([1, 2])))
        directions = [self.random.choice(["asc", "desc"]) for _ in some]
        key = tuple(
            SortColumn(one.field_id, direction)
            for one, direction in zip(some, directions, strict=True)
        )
        kind = self.random.random()
        if kind < 0.3:
            return ARRIVAL
        if kind > 0.8:
            return by_tree(random_tree(Random(kind), columns))
        if kind < 0.5 and len(some) == 2:
            return Hilbert(tuple(SortColumn(one.field_id) for one in some))
        return Lexicographic(key)

    def rewrite(self, kind: Any, least: int = 1) -> list[Action]:
        found = self.partition(least)
        if found is None:
            return []
        spec_id, values, inputs = found
        return [
            kind(
                tuple(inputs), spec_id, values, self.ordering(),
                self.random.choice([0, 2_000, 1 << 20]), self.random.choice([0, 1_000]),
            )
        ]  # fmt: skip

    def pack(self) -> list[Action]:
        return self.rewrite(BinPack, 2)

    def cluster(self) -> list[Action]:
        return self.rewrite(Cluster)

    def apply_deletes(self) -> list[Action]:
        return self.rewrite(ApplyDeletes)

    def deletes(self, *, equality: bool) -> Iterator[tuple[int, tuple[Any, ...], list[str]]]:
        """Delete files of a kind by partition, those that apply to something."""
        if self.live is None:
            return
        deletes, groups = self.live.deletes, {}
        for n in range(len(deletes)):
            if bool(deletes.equality[n]) == equality and len(deletes.reaches(n, self.live.files)):
                key = int(deletes.spec_id[n]), repr(deletes.partition[n])
                groups.setdefault(key, (deletes.partition[n], []))[1].append(str(deletes.path[n]))
        for (spec_id, _), (values, paths) in groups.items():
            yield spec_id, tuple(values), sorted(paths)

    def convert(self) -> list[Action]:
        found = list(self.deletes(equality=True))
        return [ConvertDeletes(tuple(paths), spec, values) for spec, values, paths in found]

    def compact(self) -> list[Action]:
        found = list(self.deletes(equality=False))
        return [CompactDeletes(tuple(paths), spec, values) for spec, values, paths in found]

    def dangling(self) -> list[Action]:
        if self.live is None:
            return []
        deletes, made = self.live.deletes, list[Action]()
        for n in range(len(deletes)):
            if not len(deletes.reaches(n, self.live.files)):
                spec_id, values = int(deletes.spec_id[n]), tuple(deletes.partition[n])
                made.append(RemoveDanglingDeletes((str(deletes.path[n]),), spec_id, values))
        return made

    def manifests(self) -> list[Action]:
        head = self.table.head()
        if head is None:
            return []
        inputs = [
            one.manifest_path
            for one in self.drawn.table.snapshot_by_id(head).manifests(self.drawn.table.io)
            if int(one.content) == 0 and (one.added_files_count or one.existing_files_count)
        ]
        if len(inputs) < 2:
            return []
        return [RewriteManifests(tuple(sorted(inputs)), self.random.randrange(1, 4))]

    def expire(self) -> list[Action]:
        metadata = self.drawn.table.metadata
        needed = {one.snapshot_id for one in metadata.refs.values()}
        free = [one.snapshot_id for one in metadata.snapshots if one.snapshot_id not in needed]
        some = [one for one in free if self.random.random() < 0.7]
        return [ExpireSnapshots(tuple(sorted(some)), 0, 1)] if some else []

    def orphans(self) -> list[Action]:
        place, made = Path(self.drawn.table.location().removeprefix("file://")), []
        for name in ("data/old.parquet", "data/x=1/old.parquet", "metadata/old-m0.avro"):
            path = place / name.replace("old", f"old{uuid.uuid4()}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
            made.append(f"file://{path}")
        for path in place.rglob("*"):
            os.utime(path, (0, 0))
        return [RemoveOrphans(tuple(sorted(made)), 1)]

    def properties(self) -> list[Action]:
        known = self.drawn.table.properties
        name = self.random.choice(
            ["write.target-file-size-bytes", "write.parquet.row-group-size-bytes"]
        )
        return [
            SetProperties(((name, known.get(name)),), ((name, str(self.random.randrange(10**6))),))
        ]

    def order(self) -> list[Action]:
        terms = self.table.facts().metadata.sort_terms
        key = self.ordering().key
        return [SetSortOrder(key, terms)] if key else []

    def spec_fields(self) -> tuple[SpecField, ...]:
        made = {}
        for _ in range(self.random.choice([0, 1, 1, 2])):
            drawn = self.drawn._transform()
            if drawn is not None:
                made[drawn[0].field_id] = SpecField(drawn[0].field_id, str(drawn[1]))
        return tuple(made.values())

    def migrate(self) -> list[Action]:
        fields = self.spec_fields()
        specs = self.table.facts().metadata.specs
        old = self.drawn.table.metadata.default_spec_id
        wanted = wanted_spec_id(specs, old, spec_terms(fields))
        made: list[Action] = []
        accepted = ("DynamicOverwrites", "EqualityDeletes")
        if wanted not in specs:
            made.append(AddSpec(wanted, fields, old, accepted))
        if self.live is not None:
            by_spec: dict[int, set[str]] = {}
            for path, spec in zip(self.live.files.path, self.live.files.spec_id, strict=True):
                by_spec.setdefault(int(spec), set()).add(str(path))
            for spec, paths in sorted(by_spec.items()):
                if spec != wanted:
                    made.append(Migrate(
                        tuple(sorted(paths)), spec, (), self.ordering(), 0, 0, wanted, fields
                    ))  # fmt: skip
        if wanted != old:
            made.append(SwitchSpec(wanted, fields, old, accepted))
        return made

    def remove_specs(self) -> list[Action]:
        metadata = self.drawn.table.metadata
        used = {
            manifest.partition_spec_id
            for one in metadata.snapshots for manifest in one.manifests(self.drawn.table.io)
        }  # fmt: skip
        specs = set(metadata.specs())
        free = specs - used - {metadata.default_spec_id, max(specs)}
        return [RemoveSpecs(tuple(sorted(free)), 0)] if free else []

    def publish(self) -> list[Action]:
        return [
            Publish(one.inputs, one.branch, one.snapshot_id)
            for one in waiting_batches(self.table.log())
        ]

    def discard(self) -> list[Action]:
        found = waiting_batches(self.table.log())
        by_branch: dict[str, list[int]] = {}
        for one in found:
            by_branch.setdefault(one.branch, []).append(one.snapshot_id)
        return [Discard(name, tuple(sorted(some))) for name, some in sorted(by_branch.items())]

    def roll_back(self) -> list[Action]:
        """Take back the head, if it is of ours."""
        table, reader = self.drawn.table, self.drawn.reader
        head = table.current_snapshot()
        if head is None or PLAN_ID not in head.summary.additional_properties:
            return []
        if table.snapshot_by_id(head.parent_snapshot_id or 0) is None:
            return []
        new, old = (
            {one.path for one in reader.entries(table, number)}
            for number in (head.snapshot_id, head.parent_snapshot_id)
        )
        return [
            RollBack(
                tuple(sorted(new - old)), head.parent_snapshot_id, head.snapshot_id,
                tuple(sorted(old - new)),
            )
        ]  # fmt: skip

    def block_column(self) -> list[Action]:
        if COLUMN in self.table.properties() or self.table.format_version() < 2:
            return []
        return [SetBlockColumn(f"block{next(_numbers)}")]


KINDS: dict[str, Callable[[Draw], list[Action]]] = {
    "pack": Draw.pack, "cluster": Draw.cluster, "apply": Draw.apply_deletes,
    "convert": Draw.convert, "compact": Draw.compact, "dangling": Draw.dangling,
    "manifests": Draw.manifests, "expire": Draw.expire, "orphans": Draw.orphans,
    "properties": Draw.properties, "order": Draw.order, "migrate": Draw.migrate,
    "remove specs": Draw.remove_specs, "block column": Draw.block_column,
    "wait": Draw.cluster, "publish": Draw.publish, "discard": Draw.discard,
    "roll back": Draw.roll_back,
}  # fmt: skip
