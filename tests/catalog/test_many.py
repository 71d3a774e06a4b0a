"""Many tables are looked at at once, in order, and within a bound of what is decoded together."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reconciler.catalog import many
from reconciler.catalog.load import connect
from reconciler.catalog.manifest_reader import ManifestReader
from reconciler.catalog.many import MOST_FILES, Room, files_of, observe_many, tables_in
from reconciler.errors import ReconcilerError
from tests.state.test_shared_state import new_catalog

NAMES = [("a", f"t{number:02d}") for number in range(20)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Twenty tables; table n has n % 3 files."""
    config = new_catalog(tmp_path_factory.mktemp("lake"))
    catalog = connect(config)
    catalog.create_namespace("a")
    for number, name in enumerate(NAMES):
        table = catalog.create_table(name, pa.schema([("id", pa.int64())]))
        for _ in range(number % 3):
            table.append(pa.table({"id": [number]}))
    return config


def test_the_looks_come_in_order_and_a_lost_table_is_an_error_among_them(
    lake: Any, tmp_path: Path
) -> None:
    names = [*NAMES[:7], ("a", "gone"), *NAMES[7:]]
    looks = list(observe_many(connect(lake), lake, names, tmp_path))
    assert [name for name, _ in looks] == names
    lost = {name: seen for name, seen in looks if isinstance(seen, ReconcilerError)}
    assert set(lost) == {("a", "gone")}
    found = {name: seen for name, seen in looks if not isinstance(seen, ReconcilerError)}
    assert [len(found[name].files) for name in NAMES] == [n % 3 for n in range(20)]


def test_each_table_is_loaded_once_and_a_cached_manifest_is_not_read(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, loaded, fetched = connect(lake), [], []
    load, fetch = type(catalog).load_table, ManifestReader._fetch
    monkeypatch.setattr(
        type(catalog), "load_table", lambda self, name: loaded.append(name) or load(self, name)
    )
    monkeypatch.setattr(
        ManifestReader, "_fetch", lambda self, key: fetched.append(key[0]) or fetch(self, key)
    )
    for reads in (sum(n % 3 for n in range(20)), 0):
        loaded.clear()
        fetched.clear()
        assert len(list(observe_many(catalog, lake, NAMES, tmp_path))) == len(NAMES)
        assert sorted(loaded) == NAMES
        assert len(set(fetched)) == len(fetched) == reads


def test_only_so_many_looks_are_ahead_of_who_takes_them(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    one = many.observe_with

    def noted(*arguments: Any, **options: Any) -> Any:
        begun.append(arguments[2])
        return one(*arguments, **options)

    monkeypatch.setattr(many, "observe_with", noted)
    monkeypatch.setattr(many, "AHEAD", 3)
    looks = observe_many(connect(lake), lake, NAMES, tmp_path)
    for taken in range(1, 6):
        next(looks)
        assert len(begun) <= taken + 2
    looks.close()  # the rest is not looked at
    assert len(begun) < len(NAMES)


def test_a_part_above_the_bound_waits_until_it_is_alone() -> None:
    room, together, most, over = Room(10), [0], [0], []
    lock = threading.Lock()

    def hold(part: int) -> None:
        with room.of(part):
            with lock:
                together[0] += part
                most[0] = max(most[0], together[0])
                if together[0] > 10 and together[0] != 25:
                    over.append(together[0])
            with lock:
                together[0] -= part

    threads = [threading.Thread(target=hold, args=(part,)) for part in (4, 5, 25, 3, 6) * 20]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert (most[0], over) == (25, [])


def test_a_table_counts_by_its_summary_and_without_one_as_much_as_there_is_room(lake: Any) -> None:
    catalog = connect(lake)
    assert [files_of(catalog.load_table(name)) for name in NAMES[:3]] == [0, 1, 2]
    table = catalog.load_table(NAMES[1])
    table.current_snapshot().summary._additional_properties.clear()
    assert files_of(table) >= MOST_FILES


def test_the_tables_of_several_namespaces_are_listed(lake: Any) -> None:
    catalog = connect(lake)
    catalog.create_namespace("b")
    catalog.create_table("b.x", pa.schema([("id", pa.int64())]))
    assert tables_in(catalog, lake, [("b",), ("a",)], 30.0) == [("b", "x"), *NAMES]
    with pytest.raises(ReconcilerError):
        tables_in(catalog, lake, [("a",), ("c",)], 30.0)
