"""Data files that share deletes are compared by one task, as far as what they share costs more."""

from __future__ import annotations

from reconciler.engines.schedule.asking import _parts, shares
from reconciler.rewrite.comparison import Exchange, WitnessWork
from reconciler.rewrite.deletes import Delete
from reconciler.rewrite.files import DataFile, TableShape

MIB = 1 << 20


def _work(places: int, files: int, shared: int, keyed: bool = False) -> WitnessWork:
    """shared: delete files of each partition."""
    exchanges = []
    for place in range(places):
        deletes = tuple(
            Delete(f"{place}/d{n}", "PARQUET", 2, (0, str(place)), False,
                   keys=(1,) if keyed else (), length=MIB)
            for n in range(shared)
        )  # fmt: skip
        exchanges += [
            Exchange(DataFile(f"{place}/{n}", 10, 64 * MIB, deletes=deletes), (), frozenset())
            for n in range(files)
        ]
    return WitnessWork(TableShape((), {}, None, False), exchanges=tuple(exchanges))


def test_no_task_reads_again_more_than_it_has_of_its_own() -> None:
    parts, costs = _parts(_work(3, 100, 50), 16)
    assert [len(part) for part in parts] == [100] * 3, "positions alone are shared"
    assert costs == [100 * MIB] * 3
    parts, costs = _parts(_work(1, 100, 50, keyed=True), 16)
    assert len(parts) == 16, "key columns of 6.5 GB, of which each task reads 1 of 16"
    assert sorted(n for part in parts for n in part) == list(range(100))
    assert min(costs) > 6 * 65 * MIB
    assert len(_parts(_work(1, 100, 0), 16)[0]) == 100, "nothing is shared"


def test_parts_have_each_file_once_and_are_no_more_than_tasks() -> None:
    for number in (1, 2, 7, 100):
        for own in (0, 1, 10, 1_000):
            found = shares(number, own, 10, 8)
            assert len(found) <= min(8, number)
            assert sorted(n for part in found for n in part) == list(range(number))
            assert len(found) == 1 or own >= len(found) * 10
