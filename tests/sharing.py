"""A pytest plugin (`-p tests.sharing --claims=DIRECTORY`): lanes that share a queue of tests.

A test that needs a JVM or the test cluster belongs to one lane. The others belong to all lanes, and
each lane takes the next file of them when it has time, the longest first, so that the lanes end
together. A lane has a file when it was the first to create the file's claim in the directory.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tests.cluster.fixtures import is_waiting, modules

OWN = frozenset({"spark", "cluster"})
"""Markers of the tests that belong to one lane."""

LONGEST = (
    "tests/demo/test_demo.py",
    "tests/loop/test_local_engine.py",
    "tests/cli/test_recommend.py",
    "tests/loop/test_recommendation.py",
    "tests/workload_log/test_hostile.py",
    "tests/advisor/test_stored.py",
    "tests/loop/test_credit.py",
    "tests/loop/test_maintenance.py",
    "tests/workload_log/test_histories.py",
    "tests/state/test_shared_state.py",
    "tests/loop/test_undo.py",
    "tests/loop/test_migration.py",
    "tests/cli/test_job.py",
    "tests/charts/test_ci.py",
    "tests/advisor/test_pto.py",
    "tests/loop/test_deletes.py",
    "tests/loop/test_local_partitions.py",
    "tests/render/test_markdown.py",
    "tests/state/test_query_rows.py",
    "tests/operator/test_importing.py",
    "tests/advisor/test_missing.py",
    "tests/cli/test_plan_apply.py",
    "tests/state/test_state.py",
    "tests/operator/test_live.py",
    "tests/cli/test_fleet.py",
    "tests/loop/test_replica_route.py",
    "tests/state/test_unreadable.py",
    "tests/cli/test_validate.py",
    "tests/cli/test_replay.py",
    "tests/replay/test_no_harm.py",
    "tests/catalog/test_sharers.py",
    "tests/rewrite/test_moves.py",
    "tests/operator/test_tenants.py",
    "tests/operator/test_convergence.py",
    "tests/advisor/test_lineitem.py",
    "tests/render/test_html.py",
    "tests/catalog/test_observe.py",
    "tests/loop/test_route.py",
    "tests/rewrite/test_rewriting.py",
    "tests/rewrite/test_witness.py",
    "tests/workload_log/test_law.py",
    "tests/workload_log/test_dialects.py",
    "tests/advisor/test_decide.py",
    "tests/engines/test_block_ids.py",
    "tests/advisor/test_slices.py",
    "tests/advisor/test_room.py",
    "tests/advisor/qdtree/test_woodblock.py",
    "tests/advisor/test_recommended_layouts.py",
    "tests/catalog/test_vended.py",
    "tests/loop/test_training.py",
    "tests/catalog/test_border.py",
    "tests/loop/test_step.py",
    "tests/advisor/test_windows.py",
    "tests/advisor/test_runs.py",
    "tests/operator/test_conflicts.py",
    "tests/demo/test_data.py",
    "tests/advisor/qdtree/test_two_trees.py",
    "tests/loop/test_approval.py",
    "tests/rewrite/test_shared_deletes.py",
    "tests/demo/test_witness.py",
    "tests/cli/test_workload_verbs.py",
    "tests/cli/test_shared.py",
    "tests/advisor/qdtree/test_trees.py",
    "tests/cli/test_undo.py",
    "tests/cli/test_observe.py",
    "tests/api/test_table_patterns.py",
    "tests/engines/test_random_tables.py",
    "tests/rewrite/test_decoded.py",
    "tests/engines/local/test_pool.py",
    "tests/loop/test_file_checks.py",
    "tests/loop/test_paused.py",
    "tests/demo/test_duckdb_team.py",
    "tests/advisor/test_sizes.py",
)
"""Files of shared tests that take most CPU, the longest first (see the report of `durations`): the
lanes begin with them, and `make check` leaves them out."""

File = TypeVar("File")
Tests = list[pytest.Item]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--claims", type=Path, help="directory that the lanes of one run share")


def pytest_configure() -> None:
    """Switch garbage collection off while tests are collected: what is made then stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Switch it on again, without the thousands of objects that exist by now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Pytest's own loop, except that each file is chosen when the one before it ends."""
    claims: Path | None = session.config.option.claims
    if claims is None or session.config.option.collectonly or session.testsfailed:
        return None
    own, shared = split(session.items)
    chosen = in_turn(own, shared, _waits, lambda tests: claim(claims, tests))
    items = itertools.chain.from_iterable(chosen)
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def split(items: Sequence[pytest.Item]) -> tuple[list[Tests], list[Tests]]:
    """The lane's own tests and the shared ones, by file and by the programs that they need."""
    own: dict[tuple[Path, tuple[str, ...]], Tests] = {}
    shared: dict[tuple[Path, tuple[str, ...]], Tests] = {}
    for item in items:
        marks = {marker.name for marker in item.iter_markers()}
        part = own if marks & OWN else shared
        part.setdefault((item.path, tuple(modules(item))), []).append(item)
    return list(own.values()), sorted(shared.values(), key=_rank)


def _rank(tests: Tests) -> int:
    """Return the place of a file among the longest; the others follow in their own order."""
    name = tests[0].nodeid.partition("::")[0]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def in_turn(
    own: Sequence[File],
    shared: Sequence[File],
    waits: Callable[[File], bool],
    claim: Callable[[File], bool],
) -> Iterator[File]:
    """Own files first. While the programs of all own files are being built, shared ones."""
    own, shared = list(own), list(shared)
    while own or shared:
        ready = [file for file in (*own, *shared) if not waits(file)]
        file = (ready or own or shared)[0]
        if file in own:
            own.remove(file)
            yield file
        else:
            shared.remove(file)
            if claim(file):
                yield file


def claim(claims: Path, tests: Tests) -> bool:
    """Whether no lane has claimed these tests before."""
    name = hashlib.sha256(tests[0].nodeid.encode()).hexdigest()
    try:
        (claims / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _waits(tests: Tests) -> bool:
    return is_waiting(tests[0])
