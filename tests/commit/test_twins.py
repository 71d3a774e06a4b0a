"""One commit by Iceberg's Java library and one in Python, from the same table, are the same."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from reconciler.commit import fields
from reconciler.commit.manifest import DATA, File
from reconciler.commit.snapshot import Added, Change
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.spark.session import iceberg
from tests.commit.committing import commit
from tests.commit.picture import Picture
from tests.copied_table import copied_table
from tests.spark.tables import Bench

_NUMBERS = itertools.count()


class Twins:
    """Two copies of a table: `java` is committed to by Java, `python` by us."""

    def __init__(self, bench: Bench, catalog: Any, name: str) -> None:
        self.bench = bench
        original = catalog.load_table(("jobs", name))
        self.names = [f"twin{next(_NUMBERS)}_{side}" for side in ("java", "python")]
        for one in self.names:
            copied_table(catalog, original, f"jobs.{one}")
        self.java = bench.table(self.names[0])
        self.python = LiveTable(bench.config, ("jobs", self.names[1]))

    def seen(self) -> list[LiveTable]:
        return [LiveTable(self.bench.config, ("jobs", one)) for one in self.names]

    def assert_same(self) -> None:
        sides = self.seen()
        one, other = (Picture(side) for side in sides)
        for branch in sides[0].state.refs:
            heads = [side.state.head(branch) for side in sides]
            assert differing(other.manifests(heads[1]), one.manifests(heads[0])) == {}
        assert differing(other.metadata(), one.metadata()) == {}

    def rows(self) -> list[Counter[str]]:
        return [self.bench.rows(one) for one in self.names]

    def entries(self, content: int = DATA) -> dict[str, tuple[str, int, File]]:
        """Live files: manifest, spec and file by path."""
        manifests = self.python.manifests(self.python.state.head())
        return {
            entry.file.path: (str(one[fields.M_PATH]), int(one[fields.M_SPEC]), entry.file)
            for one, entries in zip(manifests, self.python.entries(manifests), strict=True)
            for entry in entries
            if entry.status < 2 and (one[fields.M_CONTENT] == content)
        }

    def java_files(self) -> dict[str, Any]:
        """Java's scan tasks by path."""
        scan = self.java.newScan().includeColumnStats()
        tasks = scan.planFiles()
        found = {str(task.file().location()): task for task in iceberg.each(tasks)}
        tasks.close()
        return found


@pytest.fixture
def twins(bench: Bench, iceberg_catalog: Any) -> Any:
    return lambda name: Twins(bench, iceberg_catalog, name)


def differing(one: Any, other: Any, at: str = "") -> dict[str, Any]:
    """The places where two documents are not equal, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(key, one.get(key), other.get(key)) for key in {**one, **other}]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(n, *both) for n, both in enumerate(zip(one, other, strict=True))]
    else:
        return {} if one == other else {at: (one, other)}
    found = {}
    for key, *both in pairs:
        found |= differing(*both, f"{at}/{key}")
    return found


def copied(path: str, entry: tuple[str, int, File]) -> Added:
    """The entry of a file again, at another path."""
    return Added(entry[1], File({**entry[2].values(), fields.PATH: path}))


def filled(bench: Bench, version: int, *, properties: str = "", deletes: bool = False) -> str:
    """A partitioned table of four appends, with position deletes by partition if asked."""
    more = f", {properties}" if properties else ""
    name = bench.create(
        "id bigint, s string, d double, day int",
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        f"'write.delete.granularity'='partition'{more}",
        "day",
    )
    for n in range(4):
        bench.sql(
            f"INSERT INTO {bench.full(name)} SELECT id + {n * 10}, concat('value ', id), "
            "cast(id as double), cast(id % 2 as int) FROM range(0, 10)"
        )
    if deletes:
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (3, 4)")
        bench.sql(f"DELETE FROM {bench.full(name)} WHERE id IN (13, 24)")
    return name


MERGED = "'commit.manifest.min-count-to-merge'='2'"
LISTED = "'write.summary.partition-limit'='10'"
UNMERGED = "'commit.manifest-merge.enabled'='false'"


@pytest.mark.parametrize(
    ("version", "properties"), [(2, MERGED), (2, LISTED), (2, UNMERGED), (1, MERGED)]
)
def test_replaced_files(bench: Bench, twins: Any, version: int, properties: str) -> None:
    both = twins(filled(bench, version, properties=properties, deletes=version > 1))
    live = both.entries()
    gone = sorted(path for path in live if "day=0" in path)[:2]
    tasks = both.java_files()
    files = bench.spark._jvm.org.apache.iceberg.DataFiles
    update = both.java.newRewrite().validateFromSnapshot(both.java.currentSnapshot().snapshotId())
    if version > 1:
        update.dataSequenceNumber(both.java.currentSnapshot().sequenceNumber())
    for path in gone:
        update.deleteFile(tasks[path].file())
    for path in gone:
        copy = files.builder(both.java.spec()).copy(tasks[path].file()).withPath(f"{path}.copy")
        update.addFile(copy.build())
    update.set("layout.plan-id", "p")
    update.commit()
    change = Change(
        "replace",
        added=[copied(f"{path}.copy", live[path]) for path in gone],
        sequence=both.python.state.metadata.get("last-sequence-number"),
        removed={path: live[path][0] for path in gone},
        summary={"layout.plan-id": "p"},
    )
    assert commit(both.python, change) is Kind.ACCEPTED
    both.assert_same()
