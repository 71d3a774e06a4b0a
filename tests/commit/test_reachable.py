"""After an expiry only files that no snapshot needs are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.commit import manifest, updates
from reconciler.commit.reachable import Reached, reached, unneeded
from reconciler.commit.request import Request, requirements, send
from reconciler.commit.snapshot import CommitNames
from reconciler.commit.table import LiveTable
from reconciler.engines.answers import Kind
from reconciler.errors import FileMissingError
from tests.commit.committing import commit
from tests.commit.test_requests import Table, merged

ROOTS = ("file:///nowhere",)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "own")


def expire(live: LiveTable, *snapshots: int) -> None:
    state = live.state
    wanted = updates.expire(snapshots, {})
    answer = send(live, Request(state, wanted, requirements(state), CommitNames().uuid))
    assert answer.kind is Kind.ACCEPTED
    live.refresh()


def test_replaced_files_go_with_the_last_snapshot_that_has_them(table: Table) -> None:
    live = table.live()
    old = set(merged(live).removed)
    assert commit(live, merged(live)) is Kind.ACCEPTED
    live.refresh()
    before = reached(live)
    first, second, third, head = live.state.snapshots
    expire(live, first, second)
    gone = unneeded(live, before, reached(live), ROOTS)
    assert not old & gone.keys()  # the third snapshot has them
    assert {path for path in gone if "snap-" in path} == before.lists - reached(live).lists
    expire(live, third)
    gone = unneeded(live, before, reached(live), ROOTS)
    assert old <= gone.keys()
    for path, size in gone.items():
        place = Path(path.removeprefix("file://"))
        assert size in (-1, place.stat().st_size)
        place.unlink()
    assert live.state.head() == head
    assert table.rows() == [0, 1, 2]


def test_a_branch_keeps_what_it_has(table: Table) -> None:
    live = table.live()
    old = set(merged(live).removed)
    last = live.state.head()
    assert last is not None
    state = live.state
    wanted = updates.set_branch(state, "kept", last)
    assert send(live, Request(state, wanted, requirements(state), "u")).kind is Kind.ACCEPTED
    live.refresh()
    assert commit(live, merged(live)) is Kind.ACCEPTED
    live.refresh()
    before = reached(live)
    expire(live, *[one for one in live.state.snapshots if one not in (last, live.state.head())])
    assert not old & unneeded(live, before, reached(live), ROOTS).keys()
    assert table.rows() == [0, 1, 2]


def test_a_missing_manifest_list_of_what_expires_keeps_nothing_from_expiring(table: Table) -> None:
    live = table.live()
    assert commit(live, merged(live)) is Kind.ACCEPTED
    live.refresh()
    first, second, third, head = live.state.snapshots
    Path(live.state.snapshots[second]["manifest-list"].removeprefix("file://")).unlink()
    for expiring in ((), (first, third)):
        with pytest.raises(FileMissingError):
            reached(live, expiring)
    before = reached(live, (first, second, third))
    expire(live, first, second, third)
    gone = unneeded(live, before, reached(live, known=before), ROOTS)
    assert live.state.snapshots.keys() == {head} and gone
    for path in gone:
        Path(path.removeprefix("file://")).unlink()
    assert table.rows() == [0, 1, 2]


def test_manifests_are_decoded_one_after_another(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries of all of them would fill the memory."""
    live, decoded = table.live(), []
    real = manifest.read_names
    monkeypatch.setattr(
        manifest, "read_names", lambda data, one: decoded.append(one) or real(data, one)
    )
    asked = live.manifests(live.state.head())
    found = live.each_named(asked)
    assert len(asked) == 3 and not decoded
    for number in range(1, 4):
        assert len(next(found)) == 1 and len(decoded) == number


def test_a_missing_manifest_of_what_expired_keeps_its_files_alone(table: Table) -> None:
    live = table.live()
    assert commit(live, merged(live)) is Kind.ACCEPTED
    live.refresh()
    *old, _ = live.state.snapshots
    before = reached(live)
    expire(live, *old)
    after = reached(live, known=before)
    lost = sorted(before.manifests.keys() - after.manifests.keys())[0]
    whole = unneeded(live, before, after, ROOTS)
    Path(lost.removeprefix("file://")).unlink()
    assert whole.keys() - unneeded(live, before, after, ROOTS).keys()
    kept = next(iter(after.manifests))
    Path(kept.removeprefix("file://")).unlink()
    with pytest.raises(FileMissingError):
        unneeded(live, before, after, ROOTS)


def test_a_manifest_list_is_read_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    live, read = table.live(), []
    real = live._list
    monkeypatch.setattr(live, "_list", lambda path: read.append(path) or real(path))
    for n in range(3, 6):
        table.append(n)
    live.refresh()
    before = reached(live)
    assert sorted(read) == sorted(before.lists) and len(read) == 6
    expire(live, next(iter(live.state.snapshots)))
    table.append(6)
    live.refresh()
    after = reached(live, known=before)
    assert len(read) == 7 and after == reached(live)


def test_nothing_goes_where_nothing_expired(table: Table) -> None:
    live = table.live()
    assert unneeded(live, reached(live), reached(live), ROOTS) == {}


def test_a_file_that_the_head_has_in_another_spelling_stays(table: Table) -> None:
    live = table.live()
    before = reached(live)
    paths = [path for path in _content(live) if path.endswith(".parquet")]
    other = Reached(frozenset(), {}, {})
    respelled = {f"file:{path.removeprefix('file://')}": -1 for path in paths}
    after = Reached(frozenset(respelled), {}, {})
    root = (str(live.state.metadata["location"]),)
    assert set(paths) <= unneeded(live, before, other, root).keys()
    assert not set(paths) & unneeded(live, before, after, root).keys()


def test_statistics_go_with_the_last_snapshot_that_lists_them(table: Table) -> None:
    live = table.live()
    before = reached(live)
    held = Reached(before.lists, before.manifests, {"file:///s/a.stats": 9, "file:///s/b.stats": 7})
    kept = Reached(before.lists, before.manifests, {"file:///s/b.stats": 7})
    assert unneeded(live, held, kept, ROOTS) == {"file:///s/a.stats": 9}


def _content(live: LiveTable) -> list[str]:
    manifests = live.manifests(live.state.head())
    return [entry.file.path for entries in live.entries(manifests) for entry in entries]
