"""No file that anybody refers to is removed, wherever and however the reference is written."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    UnauthorizedError,
)

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog import bounds, chains, sharers
from reconciler.catalog.orphans import find_orphans, unclaimed
from reconciler.table.orphans import Candidates, Listed, Orphans, Search
from tests.catalog import sharing
from tests.catalog.sharing import DAY, GARBAGE, KINDS, World
from tests.examples import seeds

NOW = 20_000 * DAY


def searched(world: World) -> Orphans:
    return find_orphans(world.config, ("lake", "t"), world.root / "cache", Search(2 * DAY), NOW)


def removed(world: World) -> Orphans:
    """Search, ask again as an executor does, and remove."""
    found = searched(world)
    uuid = str(world.catalog.load_table("lake.t").metadata.table_uuid)
    files, roots = [file.path for file in found.files], [f"file://{world.home}"]
    again = unclaimed(world.config, ("lake", "t"), uuid, roots, files, world.root / "c2")
    assert again.refused == "", again.refused
    for path in sorted(again.paths):
        sharing.unlink(world.home, path)
    return found


def holds(world: World) -> None:
    """Exactly the planted garbage is gone, and both readers find each table as its writer left
    it."""
    before = {path for path in world.root.rglob("*") if path.is_file() or path.is_symlink()}
    found = removed(world)
    assert found.refused == "", found.refused
    gone = {path for path in before if not path.is_symlink() and not path.exists()}
    assert {path for path in gone if "/cache/" not in str(path)} == world.planted
    for name, (ours, theirs) in world.read().items():
        assert ours == theirs == world.rows[name], name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_way_to_share_a_place_keeps_what_is_shared(
    tmp_path: Path, kind: Callable[[World], None]
) -> None:
    world = World.new(tmp_path / "w", 1)
    kind(world)
    for number, form in enumerate(GARBAGE):
        world.plant(form.format(number))
    world.aged()
    holds(world)


@pytest.mark.parametrize("seed", seeds(6))
def test_random_catalogs_lose_nothing_but_garbage(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    world = World.new(tmp_path / "w", seed)
    for kind in pick.sample(KINDS, pick.randint(3, 7)):
        kind(world)
    for number in range(pick.randint(1, 12)):
        world.plant(pick.choice(GARBAGE).format(number))
    world.aged()
    holds(world)


def world_with_garbage(tmp_path: Path, *kinds: Callable[[World], None]) -> World:
    world = World.new(tmp_path / "w", 1)
    for kind in kinds:
        kind(world)
    world.plant("data/garbage.parquet")
    world.aged()
    return world


def found_in(world: World) -> list[str]:
    return [Path(file.path).name for file in searched(world).files]


VALID = {"format-version": 2, "location": "file:/x", "snapshots": []}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("v1.metadata.json", b"{"),
        ("v1.metadata.json", b"[]"),
        ("v1.metadata.json", b"\xff\xfe"),
        ("v1.metadata.json", b"[" * 10_000),
        ("v1.metadata.json", json.dumps({**VALID, "format-version": 4}).encode()),
        ("v1.metadata.json", json.dumps({"format-version": 2}).encode()),
        ("v1.metadata.json", json.dumps({**VALID, "snapshots": [5]}).encode()),
        ("v1.gz.metadata.json", gzip.compress(json.dumps(VALID).encode())[:-9]),
        ("v1.metadata.json.gz", gzip.compress(b" " * 500_000)),
    ],
)
def test_a_metadata_file_that_cannot_be_read_refuses_the_removal(
    tmp_path: Path, name: str, body: bytes
) -> None:
    world = world_with_garbage(tmp_path)
    place = world.home / "data" / "deep" / name
    place.parent.mkdir()
    place.write_bytes(body)
    with bounds.limited(400_000):
        assert name in searched(world).refused
    place.unlink()
    assert found_in(world) == ["garbage.parquet"]


def test_what_a_lost_manifest_list_named_can_be_found_by_nobody(tmp_path: Path) -> None:
    world = world_with_garbage(tmp_path, sharing.dropped_and_created_again)
    for path in world.home.rglob("metadata/snap-*.avro"):
        table = world.catalog.load_table("lake.t")
        if path.name not in {Path(one.manifest_list).name for one in table.metadata.snapshots}:
            path.unlink()
    assert "garbage.parquet" in found_in(world)


def test_a_table_of_the_catalog_that_cannot_be_read_refuses_the_removal(tmp_path: Path) -> None:
    """Wherever it lies: without its metadata nobody knows."""
    world = world_with_garbage(tmp_path)
    far = world.table("lake.far", f"file://{world.root}/far")
    kept = Path(world.catalog.load_table("lake.far").metadata_location.removeprefix("file://"))
    body = kept.read_bytes()
    for damage in (lambda: kept.unlink(), lambda: kept.write_bytes(body[:-20])):
        damage()
        assert "lake.far" in searched(world).refused
    kept.write_bytes(body)
    assert found_in(world) == ["garbage.parquet"]
    assert far is not None and searched(world).asked.tables == 1


@pytest.mark.parametrize("bound", ["MOST_METADATA", "MOST_TABLES"])
def test_what_is_asked_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    world = world_with_garbage(tmp_path, sharing.renamed_and_created_again)
    monkeypatch.setattr(sharers, bound, 0)
    found = searched(world)
    assert found.files == () and found.refused


def test_only_tables_that_may_share_the_place_have_their_manifests_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with_garbage(tmp_path, sharing.nested_around, sharing.registered_files)
    for number in range(20):
        world.table(f"lake.far{number}", f"file://{world.root}/far{number}")
    read: list[str] = []
    honest = chains.files_of

    def counted(io: object, chain: chains.Chain, *parts: object) -> object:
        read.append(min(chain.roots))
        return honest(io, chain, *parts)  # type: ignore[arg-type]

    monkeypatch.setattr(sharers, "files_of", counted)
    monkeypatch.setattr(sharers, "CHEAP_SNAPSHOTS", 0)
    assert found_in(world) == ["garbage.parquet"]
    assert len(read) == 2 and searched(world).asked.tables == 22


class Rest:
    """A REST catalog as pyiceberg shows it: namespaces with tables; what fails, and how."""

    def __init__(self, tables: dict[tuple[str, ...], object]) -> None:
        self.tables, self.fails = tables, dict[object, Exception]()
        self.listings = 0

    def _ask(self, what: object) -> None:
        if what in self.fails:
            raise self.fails[what]

    def list_namespaces(self, parent: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        self._ask(("children", parent))
        size = len(parent) + 1
        return sorted({it[:size] for it in self.tables if it[:-1] and it[: size - 1] == parent
                       and len(it) > size})  # fmt: skip

    def list_tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        self.listings += 1
        self._ask(("tables", namespace))
        return [it for it in self.tables if it[:-1] == namespace]

    def load_table(self, name: tuple[str, ...]) -> object:
        self._ask(name)
        return self.tables[name]


def rest_world(tmp_path: Path) -> tuple[World, Rest, sharers.Sharers]:
    world = world_with_garbage(tmp_path, sharing.registered_files)
    ours, theirs = (world.catalog.load_table(f"lake.{it}") for it in ("t", "adds"))
    rest = Rest({("lake", "t"): ours, ("a", "b", "adds"): theirs})
    config = CatalogConfig("prod", "rest", {"type": "rest", "uri": "http://localhost:1"})
    cache = world.root / "cache"
    return world, rest, sharers.Sharers(config, rest, ("lake", "t"), ours.io, cache)


def asked_of(world: World, asking: sharers.Sharers) -> list[str]:
    paths = [world.home / "data" / name for name in ("added.parquet", "garbage.parquet")]
    left = Candidates([Listed(f"file://{path}", 1, 0) for path in paths], f"file://{world.home}")
    asking.strike(left, [f"file://{world.home}"], [], [])
    return [Path(file.path).name for file in left.oldest()]


def test_tables_of_nested_namespaces_are_asked(tmp_path: Path) -> None:
    world, _, asking = rest_world(tmp_path)
    assert asked_of(world, asking) == ["garbage.parquet"]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        (("tables", ("a", "b")), ForbiddenError("no")),
        (("tables", ("lake",)), NoSuchNamespaceError("hidden")),
        (("tables", ("a",)), RESTError("500")),
        (("children", ("a",)), ForbiddenError("no")),
        (("children", ()), UnauthorizedError("no")),
        (("children", ()), NotImplementedError("no such endpoint")),
        (("a", "b", "adds"), ForbiddenError("no")),
        (("a", "b", "adds"), NoSuchTableError("a table of another format")),
        (("a", "b", "adds"), ValueError("a type that is not known")),
        (("a", "b", "adds"), TimeoutError("too late")),
    ],
)
def test_what_a_server_does_not_show_refuses_the_removal(
    tmp_path: Path, what: object, error: Exception
) -> None:
    world, rest, asking = rest_world(tmp_path)
    rest.fails[what] = error
    with pytest.raises(sharers.Unasked):
        asked_of(world, asking)


def test_a_table_that_is_renamed_during_the_listing_is_asked(tmp_path: Path) -> None:
    """Into a namespace that was listed before."""
    world, rest, asking = rest_world(tmp_path)
    moved = rest.tables.pop(("a", "b", "adds"))
    rest.tables[("a", "b", "other")] = rest.tables[("lake", "t")]
    honest = rest.load_table

    def load(name: tuple[str, ...]) -> object:
        rest.tables[("a", "b", "moved")] = moved
        return honest(name)

    rest.load_table = load  # type: ignore[method-assign]
    assert asked_of(world, asking) == ["garbage.parquet"]


def test_a_table_that_is_dropped_during_the_listing_needs_nothing(tmp_path: Path) -> None:
    world, rest, asking = rest_world(tmp_path)

    def load(name: tuple[str, ...]) -> object:
        rest.tables.pop(name, None)
        raise NoSuchTableError("dropped")

    rest.load_table = load  # type: ignore[method-assign]
    assert "garbage.parquet" in asked_of(world, asking)
