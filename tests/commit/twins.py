"""Two copies of one table: one is committed to by Iceberg's Java library, the other in Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.commit import fields
from reconciler.commit.live import LiveFiles
from reconciler.commit.manifest import DATA, File
from reconciler.commit.request import Request, requirements, send
from reconciler.commit.snapshot import AddedFile, CommitNames, SnapshotChange, SnapshotProducer
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.spark.session import iceberg
from tests.commit.committing import commit
from tests.commit.picture import Picture
from tests.copied_table import copied_table
from tests.spark.tables import Bench

_NUMBERS = itertools.count()
_MADE: dict[tuple[Any, ...], Any] = {}


class Twins:
    """`java` and `python` are the two sides."""

    def __init__(self, bench: Bench, catalog: Any, original: Any) -> None:
        self.bench = bench
        self.names = [f"twin{next(_NUMBERS)}_{side}" for side in ("java", "python")]
        for one in self.names:
            copied_table(catalog, original, f"jobs.{one}")
        self.java = bench.table(self.names[0])
        self.python = LiveTable(bench.config, ("jobs", self.names[1]))

    def live(self) -> LiveFiles:
        return LiveFiles(self.python, self.python.state.head(), self.bench.directory / "cache")

    def committed(self, change: SnapshotChange, make: Any = SnapshotProducer.make) -> None:
        assert commit(self.python, change, make=make) is Kind.ACCEPTED

    def updated(self, updates: Any) -> None:
        state = self.python.state
        answer = send(self.python, Request(state, updates, requirements(state), CommitNames().uuid))
        assert answer.kind is Kind.ACCEPTED, answer
        self.python.refresh()

    def differences(
        self, *, ordered: bool = True, plain: Callable[[Any], Any] = lambda value: value
    ) -> dict[str, Any]:
        """plain: applied to what is compared, to drop what is random."""
        sides = [LiveTable(self.bench.config, ("jobs", one)) for one in self.names]
        one, other = (Picture(side) for side in sides)
        found = differing(plain(other.metadata()), plain(one.metadata()))
        for branch in sides[0].state.refs:
            heads = [side.state.head(branch) for side in sides]
            lists = [plain(picture.manifests(head)) for picture, head in
                     zip((other, one), reversed(heads), strict=True)]  # fmt: skip
            if not ordered:
                lists = [
                    sorted(((line, sorted(held, key=repr)) for line, held in some), key=repr)
                    for some in lists
                ]
            found |= differing(*lists, at=f"manifests of {branch}")
        return found

    def entries(self, content: int = DATA) -> dict[str, tuple[str, int, File]]:
        """Live files: manifest, spec and file by path."""
        manifests = self.python.manifests(self.python.state.head())
        return {
            entry.file.path: (str(one[fields.M_PATH]), int(one[fields.M_SPEC]), entry.file)
            for one, entries in zip(manifests, self.python.entries(manifests), strict=True)
            for entry in entries
            if entry.status < 2 and one[fields.M_CONTENT] == content
        }

    def java_tasks(self) -> dict[str, Any]:
        """Java's scan tasks by path."""
        tasks = self.java.newScan().includeColumnStats().planFiles()
        found = {str(task.file().location()): task for task in iceberg.each(tasks)}
        tasks.close()
        return found


def filled(
    bench: Bench,
    catalog: Any,
    version: int,
    *,
    properties: str = "",
    deletes: bool = False,
    by: str = "day",
) -> Twins:
    """Twins of a table of four appends, with position deletes by partition if asked."""
    key = (str(bench.config.properties["uri"]), version, properties, deletes, by)
    if key not in _MADE:
        more = f", {properties}" if properties else ""
        name = bench.create(
            "id bigint, s string, d double, day int",
            f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', "
            f"'write.delete.granularity'='partition'{more}",
            by,
        )
        for n in range(4):
            bench.sql(
                f"INSERT INTO {bench.full(name)} SELECT id + {n * 10}, concat('value ', id), "
                "cast(id as double), cast(id % 2 as int) FROM range(0, 10)"
            )
        if deletes:
            bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (3, 4)")
            bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (13, 24)")
        _MADE[key] = catalog.load_table(("jobs", name))
    return Twins(bench, catalog, _MADE[key])


def differing(one: Any, other: Any, at: str = "") -> dict[str, Any]:
    """The places where two documents are not equal, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(key, one.get(key), other.get(key)) for key in {**one, **other}]
    elif (
        isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other)
    ):
        pairs = [(n, *both) for n, both in enumerate(zip(one, other, strict=True))]
    else:
        return {} if one == other else {at: (one, other)}
    found = {}
    for key, *both in pairs:
        found |= differing(*both, f"{at}/{key}")
    return found


def copied(path: str, entry: tuple[str, int, File]) -> AddedFile:
    """The entry of a file again, at another path."""
    return AddedFile(entry[1], File({**entry[2].values(), fields.PATH: path}))


def local(path: str) -> Path:
    return Path("/" + path.removeprefix("file:").lstrip("/"))
