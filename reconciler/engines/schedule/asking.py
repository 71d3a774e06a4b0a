"""Asks the witness what files hold, in tasks of about equal size."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from reconciler.engines.schedule.attempt import Attempt
from reconciler.engines.schedule.refused import EngineError, ended
from reconciler.errors import (
    MemoryExhaustedError,
    UnavailableError,
)
from reconciler.rewrite.comparison import Exchange, WitnessResult, WitnessWork
from reconciler.rewrite.failures import BROKEN, ENDED, HOLDS, LOST, MEMORY, MISSING, Failure
from reconciler.rewrite.storage import local_path

FILE_COST = 1 << 20
"""Bytes that are read in the time that it takes to open a file."""
DROPPED = "Nothing of this group was committed; its files were removed."


class Unseen(Exception):
    """Raised for files that hold what the witness cannot compare."""

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        super().__init__(f"{failures[0].path}: {clause(failures[0])}")
        self.failures = failures


def clause(failure: Failure) -> str:
    """Return what is wrong, and in which column if it is in one."""
    return f'{failure.detail} in column "{failure.column}"' if failure.column else failure.detail


def look(attempt: Attempt, name: str, work: WitnessWork) -> WitnessResult:
    """Return what the files of the work hold together. name: of its Spark jobs.

    Raises Unseen, FileNotFoundError for a file that does not exist, MemoryExhaustedError, and
    UnavailableError where a storage gives an error.
    """
    cores = attempt.backend.cores
    parts, costs = _parts(work, cores)
    local = all(local_path(path) is not None for path in _paths(work))
    opening = None if local else attempt.opening()
    bins = [
        [number for at in members for number in parts[at]] for members in balanced(costs, cores)
    ]
    if not bins:
        return WitnessResult()
    seen = WitnessResult()
    for one in attempt.backend.witness(attempt, name, work, bins, sum(costs), opening):
        seen += one
    raise_first(attempt, seen.failures)
    return seen


def _parts(work: WitnessWork, tasks: int) -> tuple[list[Sequence[int]], list[int]]:
    """Return the numbers of files, or exchanges, in parts of which each is looked at by one task,
    and the bytes that each takes."""
    if not work.exchanges:
        return [[n] for n in range(len(work.files))], [f.size + FILE_COST for f in work.files]
    parts: list[Sequence[int]] = []
    costs: list[int] = []
    together: dict[Any, list[int]] = defaultdict(list)
    for number, one in enumerate(work.exchanges):
        shared = next((d for d in one.file.deletes if d.shared), None)
        together[number if shared is None else shared.partition_key].append(number)
    for members in together.values():
        some = [work.exchanges[number] for number in members]
        for part in shares(len(members), *_exchange_costs(some), tasks):
            parts.append([members[at] for at in part])
            costs.append(sum(_exchange_costs([some[at] for at in part])))
    return parts, costs


def _exchange_costs(exchanges: Sequence[Exchange]) -> tuple[int, int]:
    """Return the bytes that are read for each of the exchanges alone, and for all of them."""
    own, shared = 0, dict[str, int]()
    for one in exchanges:
        keyed = any(d.keys for d in one.file.deletes)
        own += one.file.size + FILE_COST if keyed else 0
        for delete in (*one.file.deletes, *one.after):
            if delete.shared:
                shared[delete.path] = delete.length + FILE_COST
            else:
                own += delete.length + FILE_COST
    return own, sum(shared.values())


def shares(number: int, own: int, shared: int, tasks: int) -> list[range]:
    """Return the numbers of data files in parts, one for each task, at most `tasks` of them.

    own: bytes that are read for one data file alone, of all of them. shared: bytes that every task
    reads again: there are only so many tasks that each reads no less of its own.
    """
    pieces = max(1, min(tasks, number, own // max(shared, 1)))
    return [range(at, number, pieces) for at in range(pieces)]


def raise_first(attempt: Attempt, failures: tuple[Failure, ...]) -> None:
    """Raise the error that the first failure calls for, as `look` does; nothing without one."""
    if not failures:
        return
    first = next((one for one in failures if one.kind != HOLDS), failures[0])
    if first.kind == MISSING:
        raise FileNotFoundError(2, "No such file or directory", first.path)
    if first.kind == MEMORY:
        raise MemoryExhaustedError(
            f"verification of {attempt.name} failed: there was too little memory to compare "
            f"{first.path or 'its files'}",
            details=(first.detail, DROPPED),
            do="free memory of the machine, or raise spec.engine.executors.memory in a cluster",
            path=first.path,
        )
    if first.kind in (ENDED, LOST):
        raise ended(f"verify {attempt.name}", first, DROPPED)
    if first.kind == BROKEN:
        raise EngineError(f"verify {attempt.name}", first.path, first.detail, first.said)
    if first.kind != HOLDS:
        raise UnavailableError(
            f"verification of {attempt.name} failed: {first.path or 'a file'} could not be read",
            details=(first.detail, DROPPED),
            do="check the storage, and the space in the temporary directory, then run it again",
        )
    raise Unseen(failures)


def _paths(work: WitnessWork) -> Iterable[str]:
    for file in work.files:
        yield file.path
        yield from (one.path for one in file.deletes)
    for exchange in work.exchanges:
        yield exchange.file.path
        yield from (one.path for one in (*exchange.file.deletes, *exchange.after))


def balanced(sizes: Sequence[int], tasks: int) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of the sizes in at most `tasks` bins of about equal sums, largest first
    (longest processing time first), none of them empty."""
    number = max(0, min(tasks, len(sizes)))
    bins: list[list[int]] = [[] for _ in range(number)]
    heap = [(0, 0, i) for i in range(number)]
    for item in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, files, i = heapq.heappop(heap)
        bins[i].append(item)
        heapq.heappush(heap, (load + sizes[item], files + 1, i))
    return tuple(tuple(found) for found in bins)
