"""No file that anybody refers to is removed, wherever and however the reference is written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reconciler.catalog.orphans import find_orphans, unclaimed
from reconciler.table.orphans import Orphans, Search
from tests.catalog import sharing
from tests.catalog.sharing import DAY, GARBAGE, KINDS, World

NOW = 20_000 * DAY


def searched(world: World) -> Orphans:
    return find_orphans(world.config, ("lake", "t"), world.root / "cache", Search(2 * DAY), NOW)


def removed(world: World) -> Orphans:
    """Search, ask again as an executor does, and remove."""
    found = searched(world)
    uuid = str(world.catalog.load_table("lake.t").metadata.table_uuid)
    again = unclaimed(
        world.config, ("lake", "t"), uuid, [file.path for file in found.files], world.root / "c2"
    )
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
    tmp_path: Path, kind: sharing.Callable[[World], None]
) -> None:
    world = World.new(tmp_path / "w", 1)
    kind(world)
    for number, form in enumerate(GARBAGE):
        world.plant(form.format(number))
    world.aged()
    holds(world)


@pytest.mark.parametrize("seed", range(12))
def test_random_catalogs_lose_nothing_but_garbage(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    world = World.new(tmp_path / "w", seed)
    for kind in pick.sample(KINDS, pick.randint(3, 7)):
        kind(world)
    for number in range(pick.randint(1, 12)):
        world.plant(pick.choice(GARBAGE).format(number))
    world.aged()
    holds(world)
