"""Random tables that share places, garbage between them, and what everybody reads afterwards.

The model is kept apart from what is tested: the rows that each writer gave, and the garbage that
the test planted itself. Two readers that share no code read every table and every metadata chain.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reconciler.api.catalog_config import CatalogConfig
from reconciler.demo import witness

DAY = 86_400_000
IDS = pa.schema([("id", pa.int64())])


def rows_of(ids: range | list[int]) -> pa.Table:
    return pa.table({"id": pa.array(list(ids), pa.int64())})


@dataclass
class World:
    """A catalog with one table that is cleaned, `lake.t`, and others. chains: metadata files that
    no catalog names; rows: of each table and chain; planted: garbage, of which nobody knows."""

    root: Path
    catalog: Any
    config: CatalogConfig
    pick: random.Random
    rows: dict[str, Counter[int]] = field(default_factory=dict)
    chains: dict[str, str] = field(default_factory=dict)
    planted: set[Path] = field(default_factory=set)
    numbers: int = 0

    @classmethod
    def new(cls, root: Path, seed: int) -> World:
        from pyiceberg.catalog.sql import SqlCatalog

        (root / "wh").mkdir(parents=True)
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"file://{root}/wh",
        }
        config = CatalogConfig("prod", "sql", properties, source="test")
        catalog = SqlCatalog("prod", **properties)
        catalog.create_namespace("lake")
        catalog.create_namespace(("lake", "deep"))
        made = cls(root, catalog, config, random.Random(seed))
        made.table("lake.t", str(made.home))
        return made

    @property
    def home(self) -> Path:
        return self.root / "wh" / "lake" / "t"

    def table(self, name: str, location: str, **properties: str) -> Any:
        made = self.catalog.create_table(name, IDS, location=location, properties=properties)
        self.rows[name] = Counter()
        for _ in range(self.pick.randint(1, 2)):
            self.append(name)
        return made

    def append(self, name: str) -> None:
        ids = range(self.numbers, self.numbers + 5)
        self.numbers += 5
        self.catalog.load_table(name).append(rows_of(ids))
        self.rows[name].update(ids)

    def parquet(self, path: Path) -> list[int]:
        """Write a file of five rows, as a job would that registers it afterwards."""
        ids = list(range(self.numbers, self.numbers + 5))
        self.numbers += 5
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows_of(ids), path)
        return ids

    def register(self, name: str, written: str, ids: list[int]) -> None:
        self.catalog.load_table(name).add_files([written], check_duplicate_files=False)
        self.rows[name].update(ids)

    def plant(self, below: str) -> None:
        path = self.home / below
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        self.planted.add(path)

    def chain(self, name: str, location: str) -> None:
        """Let go of a table: its metadata file is all that knows of it."""
        self.chains[name] = location
        self.rows[name] = self.rows.get(name) or Counter()

    def aged(self) -> None:
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                os.utime(path, (0, 0))

    def read(self) -> dict[str, tuple[Counter[int], Counter[int]]]:
        """Return what pyiceberg and DuckDB read of every table and chain."""
        from pyiceberg.table import StaticTable

        duck, found = witness.connect(), {}
        for name in self.rows:
            known = self.chains.get(name)
            table = StaticTable.from_metadata(known) if known else self.catalog.load_table(name)
            location = known or table.metadata_location
            ours = Counter(table.scan().to_arrow()["id"].to_pylist())
            if location.endswith(".gz.metadata.json"):
                found[name] = ours, ours
                continue
            scanned = duck.execute(f"select id from iceberg_scan('{location}')").fetchall()
            found[name] = ours, Counter(row[0] for row in scanned)
        return found


def renamed_and_created_again(world: World) -> None:
    world.catalog.rename_table("lake.t", "lake.t_old")
    world.rows["lake.t_old"] = world.rows.pop("lake.t")
    world.table("lake.t", str(world.home))


def dropped_and_created_again(world: World) -> None:
    location = world.catalog.load_table("lake.t").metadata_location
    world.catalog.drop_table("lake.t")
    world.rows["dropped"] = world.rows.pop("lake.t")
    world.chains["dropped"] = location
    world.table("lake.t", str(world.home))


def nested_within(world: World) -> None:
    below = world.pick.choice(["data/inner", "inner", "metadata/inner", "data/a b/inner"])
    world.table("lake.deep.inner", str(world.home / below))


def nested_around(world: World) -> None:
    world.table("lake.outer", str(world.home.parent))
    ids = world.parquet(world.home / "data" / "of-outer.parquet")
    world.register("lake.outer", f"file://{world.home}/data/of-outer.parquet", ids)


def paths_below(world: World) -> None:
    name = world.pick.choice(["write.data.path", "write.folder-storage.path",
                              "write.object-storage.path"])  # fmt: skip
    elsewhere, below = world.root / "elsewhere", world.home / "data" / "sub"
    properties = {name: f"file:{below}"}
    world.table("lake.paths", str(elsewhere), **properties)
    if name != "write.data.path":  # which pyiceberg does not write to
        ids = world.parquet(below / "x.parquet")
        world.register("lake.paths", f"file:{below}/x.parquet", ids)


def metadata_below(world: World) -> None:
    path = f"file:{world.home}/metadata/other"
    world.table("lake.meta", str(world.root / "meta"), **{"write.metadata.path": path})


def registered_files(world: World) -> None:
    world.table("lake.adds", str(world.root / "adds"))
    ids = world.parquet(world.home / "data" / "added.parquet")
    world.register("lake.adds", f"file://{world.home}/data/added.parquet", ids)


def written_otherwise(world: World) -> None:
    """The table's own files, and another's, by every spelling that readers take."""
    link = world.root / "link"
    if not link.exists():
        link.symlink_to(world.home, target_is_directory=True)
    for number, form in enumerate(
        ("file://{home}/data//{name}", "file:{home}/./data/{name}",
         "file://{home}/metadata/../data/{name}", "file://{link}/data/{name}", "{home}/data/{name}")
    ):  # fmt: skip
        name = f"odd-{number}-{world.numbers}.parquet"
        ids = world.parquet(world.home / "data" / name)
        written = form.format(home=world.home, link=link, name=name)
        world.register("lake.t", written, ids)


def linked_files(world: World) -> None:
    """A link below the table leads to its own file, another out of it."""
    real = world.home / "data" / f"real-{world.numbers}.parquet"
    ids = world.parquet(real)
    link = world.home / "data" / f"alias-{world.numbers}.parquet"
    link.symlink_to(real)
    world.register("lake.t", f"file://{link}", ids)
    away = world.root / "away"
    away.mkdir(exist_ok=True)
    (away / "a.parquet").write_bytes(b"another's")
    if not (world.home / "data" / "out").exists():
        (world.home / "data" / "out").symlink_to(away, target_is_directory=True)


def registered_elsewhere(world: World) -> None:
    """The table goes on under another catalog, from one of its states."""
    from pyiceberg.catalog.sql import SqlCatalog

    uri = f"sqlite:///{world.root}/second.db"
    second = SqlCatalog("second", uri=uri, warehouse=f"file://{world.root}/wh")
    second.create_namespace_if_not_exists("far")
    here = world.catalog.load_table("lake.t").metadata_location
    far = second.register_table("far.t", here)
    ids = list(range(world.numbers, world.numbers + 5))
    world.numbers += 5
    far.append(rows_of(ids))
    world.rows["far.t"] = world.rows["lake.t"] + Counter(ids)
    world.chains["far.t"] = second.load_table("far.t").metadata_location


def of_another_catalog_in_the_database(world: World) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    uri = f"sqlite:///{world.root}/catalog.db"
    beside = SqlCatalog("beside", uri=uri, warehouse=f"file://{world.root}/beside")
    beside.create_namespace("ns")
    made = beside.create_table("ns.t", IDS, location=str(world.root / "beside" / "t"))
    ids = world.parquet(world.home / "data" / "beside.parquet")
    made.add_files([f"file://{world.home}/data/beside.parquet"])
    world.rows["beside"] = Counter(ids)
    world.chains["beside"] = beside.load_table("ns.t").metadata_location


def hadoop_table(world: World) -> None:
    """A table without a catalog in the same place: versions, a hint, gzip."""
    world.table("lake.h", str(world.root / "hadoop"))
    table = world.catalog.load_table("lake.h")
    ids = world.parquet(world.home / "data" / "hadoop.parquet")
    table.add_files([f"file://{world.home}/data/hadoop.parquet"])
    world.rows["lake.h"].update(ids)
    location = world.catalog.load_table("lake.h").metadata_location.removeprefix("file://")
    body = Path(location).read_bytes()
    zipped = world.pick.random() < 0.5
    name = "v3.gz.metadata.json" if zipped else "v3.metadata.json"
    target = world.home / "metadata" / name
    target.write_bytes(gzip.compress(body) if zipped else body)
    (target.parent / "version-hint.text").write_text("3")
    world.catalog.drop_table("lake.h")
    world.rows["hadoop"] = world.rows.pop("lake.h")
    world.chains["hadoop"] = f"file://{target}"


def with_branch_and_history(world: World) -> None:
    table = world.catalog.load_table("lake.t")
    if table.current_snapshot() is None:
        return
    head = table.metadata.current_snapshot_id
    table.manage_snapshots().create_branch(head, f"b{world.numbers}").commit()
    world.append("lake.t")


def a_view(world: World) -> None:
    below = world.home / "metadata" / "v" / "metadata"
    below.mkdir(parents=True, exist_ok=True)
    body = {"view-uuid": "x", "format-version": 1, "location": "file:/v", "versions": []}
    (below / "00000-x.metadata.json").write_text(json.dumps(body))


KINDS: tuple[Callable[[World], None], ...] = (
    renamed_and_created_again,
    dropped_and_created_again,
    nested_within,
    nested_around,
    paths_below,
    metadata_below,
    registered_files,
    written_otherwise,
    linked_files,
    registered_elsewhere,
    of_another_catalog_in_the_database,
    hadoop_table,
    with_branch_and_history,
    a_view,
)
GARBAGE = (
    "data/garbage-{}.parquet", "data/k=1/garbage {}.parquet", "metadata/garbage-{}-m0.avro",
    "metadata/snap-garbage-{}.avro", "metadata/garbage-{}.stats", "data/garbage%20{}.orc",
    "data/inner/data/garbage-{}.parquet", "data/garbage-{}-deletes.puffin",
)  # fmt: skip


def unlink(root: Path, path: str) -> None:
    """Remove a file by the path that a search returned, which must be below the root."""
    place = Path("/" + path.removeprefix("file:").lstrip("/"))
    assert root in place.parents, path
    place.unlink()


def clear(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
