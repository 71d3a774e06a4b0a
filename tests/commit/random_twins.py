"""Changes drawn at random for a random table, made by Iceberg's Java library and in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.commit import fields
from reconciler.commit.local_table import LocalTable
from reconciler.commit.manifest import DELETES, File
from reconciler.commit.snapshot import AddedFile
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Answer, Kind
from reconciler.engines.commit.operations import (
    Mark,
    NewManifests,
    RemoveDeletes,
    RewriteFiles,
    RowDelta,
)
from reconciler.engines.manifests import WrittenFile
from reconciler.errors import ReconcilerError
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.partition_specs import AddSpec, SwitchSpec
from reconciler.plan.actions.roll_back import RollBack
from reconciler.spark.commit.table import JavaTable
from reconciler.spark.session import iceberg, streams
from reconciler.table.deletes import PartitionKey
from tests.commit.twins import Twins
from tests.engines.random_tables.actions import Draw
from tests.engines.random_tables.tables import RandomTable
from tests.spark.tables import Bench


@dataclass
class Sides:
    """Both sides of twins as executors see them, and what they answered."""

    twins: Twins
    random: Any
    """Draws what is changed."""

    def __post_init__(self) -> None:
        bench, python = self.twins.bench, self.twins.python
        name = bench.full(self.twins.names[0])
        self.java = JavaTable(bench.spark, name, self.twins.java)
        self.python = LocalTable(python, bench.directory / "cache")
        self.of_java: dict[str, Any] = {}
        self.entries: Mapping[str, tuple[str, int, File]] = {}
        self.oldest = ""  # the data file of the lowest sequence number

    @property
    def both(self) -> tuple[JavaTable, LocalTable]:
        return self.java, self.python

    def look(self) -> None:
        """Read the entries of both heads."""
        for side in self.both:
            side.refresh()
        self.twins.python.refresh()
        scan = self.twins.java.newScan().includeColumnStats().planFiles()
        self.of_java = {str(one.file().location()): one.file() for one in iceberg.each(scan)}
        scan.close()
        self.entries = self.twins.entries()
        python = self.twins.python
        ages = {
            entry.file.path: entry.sequence or 0
            for entries in python.entries(python.manifests(python.state.head()))
            for entry in entries if entry.status < 2 and entry.file.path in self.entries
        }  # fmt: skip
        self.oldest = min(ages, key=lambda path: ages[path], default="")

    def send(self, operations: Sequence[Any], branch: str = "main") -> str:
        """Send an operation by each side; return why neither took it, "" if both did."""
        answers = list[Answer]()
        for side, operation in zip(self.both, operations, strict=True):
            head = side.head() or 0
            answers.append(
                side.begin(operation, branch).send(operation, head, {"layout.plan-id": "p"}, None)
            )
        return same_answer(answers)

    def some(self, many: Sequence[Any], least: int = 1) -> list[Any]:
        return sorted(self.random.sample(many, self.random.randrange(least, len(many) + 1)))

    def copies(self, paths: Sequence[str]) -> tuple[list[WrittenFile], list[WrittenFile]]:
        """The entries of data files again, at other paths."""
        files = self.twins.bench.spark._jvm.org.apache.iceberg.DataFiles
        java, python = [], []
        for path in paths:
            _, spec_id, file = self.entries[path]
            new = f"{path}.copy"
            spec = self.twins.java.specs().get(spec_id)
            made = files.builder(spec).copy(self.of_java[path]).withPath(new).build()
            entry = AddedFile(spec_id, File({**file.values(), fields.PATH: new}))
            rows = int(file.values()[fields.RECORDS])
            java.append(WrittenFile(made, new, rows, 1, PartitionKey(spec_id, "")))
            python.append(WrittenFile(entry, new, rows, 1, PartitionKey(spec_id, "")))
        return java, python

    def positions(self, path: str) -> tuple[WrittenFile, WrittenFile]:
        """The entry of a position delete file in the partition of a data file."""
        _, spec_id, file = self.entries[path]
        new, spec = f"{path}.deletes", self.twins.java.specs().get(spec_id)
        made = self.twins.bench.spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(spec)
        made = made.ofPositionDeletes().withPath(new).withFormat("parquet")
        made = made.withFileSizeInBytes(77).withRecordCount(2)
        if spec.isPartitioned():
            made = made.withPartition(self.of_java[path].partition())
        values = {
            fields.CONTENT: 1, fields.PATH: new, fields.FORMAT: "PARQUET", fields.RECORDS: 2,
            fields.PARTITION: file.values().get(fields.PARTITION), fields.SIZE: 77,
        }  # fmt: skip
        key = PartitionKey(spec_id, "")
        java = WrittenFile(made.build(), new, 2, 77, key)
        return java, WrittenFile(AddedFile(spec_id, File(values)), new, 2, 77, key)


def same_answer(answers: Sequence[Answer]) -> str:
    taken = [one.kind is Kind.ACCEPTED for one in answers]
    assert len(set(taken)) == 1 or answers[1].kind is Kind.UNSENT, answers
    return "" if all(taken) else answers[1].why


def _rewritten(sides: Sides, branch: str = "main") -> str | None:
    """The oldest file stays: without it Java drops delete files that we keep, since it does not
    look at the sequence number that new files keep."""
    free = sorted(sides.entries.keys() - {sides.oldest})
    if not free:
        return None
    gone = sides.some(free)
    added = sides.copies(sides.some(gone, 0))
    head = sides.python.head() or 0
    sequence = sides.python.snapshot(head).sequence_number  # type: ignore[union-attr]
    return sides.send([
        RewriteFiles(side.tasks(head, gone), own, sequence)
        for side, own in zip(sides.both, added, strict=True)
    ], branch)  # fmt: skip


def _rewritten_on_a_branch(sides: Sides) -> str | None:
    return _rewritten(sides, "audit")


def _row_delta(sides: Sides) -> str | None:
    if sides.python.format_version() < 2 or not sides.entries:
        return None
    head = sides.python.head() or 0
    known = sorted({one.path for one in sides.python.delete_files(head)})
    gone = sides.some(known, 0) if known else []
    path = sides.random.choice(sorted(sides.entries))
    added = [[one] for one in sides.positions(path)]
    if gone and sides.random.random() < 0.5:
        added = [[], []]
    made = []
    for side, own in zip(sides.both, added, strict=True):
        removed = [one for one in side.delete_files(head) if one.path in gone]
        made.append(RowDelta(side.tasks_under(head, gone), own, removed))  # type: ignore[arg-type]
    return sides.send(made)


def _removed_deletes(sides: Sides) -> str | None:
    head = sides.python.head() or 0
    known = sorted({one.path for one in sides.python.delete_files(head)})
    if not known:
        return None
    gone = sides.some(known)
    return sides.send([
        RemoveDeletes([one for one in side.delete_files(head) if one.path in gone])
        for side in sides.both
    ])  # fmt: skip


def _mark(sides: Sides) -> str | None:
    return sides.send([Mark(), Mark()], sides.random.choice(["main", "audit"]))


def _manifests(sides: Sides) -> str | None:
    found = sorted(
        str(one[fields.M_PATH]) for one in sides.twins.python.manifests(sides.python.head())
        if one[fields.M_CONTENT] != DELETES
    )  # fmt: skip
    if not found:
        return None
    some, groups = sides.some(found), sides.python.grouped(sides.random.randrange(1, 4))
    of_java = streams.numbers(sides.java.spark, groups)
    return sides.send([NewManifests(some, of_java), NewManifests(some, groups)])


OPERATIONS: Mapping[str, Callable[[Sides], str | None]] = {
    "rewrite": _rewritten, "rewrite on a branch": _rewritten_on_a_branch,
    "row delta": _row_delta, "removed deletes": _removed_deletes, "mark": _mark,
    "manifests": _manifests,
}  # fmt: skip
METADATA = ("properties", "order", "specs", "remove specs", "expire", "block column", "roll back")


class Tables:
    """What `Draw` asks of an engine."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def table(self, drawn: RandomTable) -> LocalTable:
        live = LiveTable(self._bench.config, ("loop", drawn.name))
        return LocalTable(live, self._bench.directory / "cache")


def metadata_actions(drawn: RandomTable, bench: Bench, kind: str) -> list[Action]:
    """Actions of a kind that change metadata alone."""
    draw = Draw(drawn, Tables(bench))  # type: ignore[arg-type]
    if kind == "specs":
        return [one for one in draw.migrate() if isinstance(one, AddSpec | SwitchSpec)]
    if kind == "roll back":
        line = list(draw.table.ancestors())
        return [RollBack(snapshot_id=drawn.random.choice(line[1:]).id, over=line[0].id)] \
            if len(line) > 1 else []  # fmt: skip
    make: dict[str, Callable[[], list[Action]]] = {
        "properties": draw.properties, "order": draw.order, "remove specs": draw.remove_specs,
        "expire": draw.expire, "block column": draw.block_column,
    }  # fmt: skip
    return make[kind]()


def changed(sides: Sides, actions: Sequence[Action]) -> str:
    """Make each change by both sides; return why neither took one."""
    for action in actions:
        made, refused = [], []
        for side in sides.both:
            side.refresh()
            try:
                change = side.change(action)
            except ReconcilerError as error:
                refused.append(str(error))
                continue
            answer = change.send()
            made.append((answer, change.before, change.after))
        assert len(made) != 1, (action, made, refused)
        if not made:
            return refused[0]
        why = same_answer([answer for answer, _, _ in made])
        assert made[0][1:] == made[1][1:]
        if why:
            return why
    return ""


def twinned(catalog: Any, bench: Bench, seed: int) -> Counter[str]:
    """Make each kind of change on twins of one random table; return how often each was made."""
    drawn, done = RandomTable(catalog, seed, 3 + seed % 9), Counter[str]()
    for kind in (*OPERATIONS, *METADATA):
        twins = Twins(bench, catalog, drawn.table.refresh())
        sides = Sides(twins, drawn.random)
        if kind in OPERATIONS:
            sides.look()
            why = OPERATIONS[kind](sides)
        else:
            actions = metadata_actions(drawn, bench, kind)
            why = changed(sides, actions) if actions else None
        if why is None:
            continue
        done[f"{kind} refused: {why}" if why else kind] += 1
        if not why:
            twins.python.refresh()
            found = twins.differences(ordered=kind != "manifests")
            assert not found, (seed, kind, found)
    return done
