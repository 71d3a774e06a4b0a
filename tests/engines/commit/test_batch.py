"""What is recorded of a refused batch, whatever becomes of the files that it left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.engines.answers import Kind
from reconciler.engines.commit import batch, cleanup, commit, metadata_files
from reconciler.engines.commit.operations import Mark
from reconciler.engines.schedule.run import Run
from reconciler.errors import AccessDeniedError
from reconciler.plan.execution import CONFLICT, FAILED, Event, Outcome
from tests.engines.commit.test_commit import Catalog

PREFIX = "file:/t/data/layout-p-1-a"
OUTPUTS = tuple(f"{PREFIX}/{n}.parquet" for n in range(3))


class Denies(Catalog):
    """A storage that denies the deletion of the second output."""

    def location(self) -> str:
        return "file:/t"

    def fresh(self) -> Denies:
        return self

    def delete_file(self, path: str) -> None:
        if path == OUTPUTS[1]:
            raise PermissionError(13, "denied", path)
        super().delete_file(path)


class Recorded:
    """A run on the table, with what it recorded."""

    def __init__(self, catalog: Catalog) -> None:
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        request: Any = SimpleNamespace(
            catalog=SimpleNamespace(name="c"), table=("n", "t"), table_uuid="u", plan_id="p-1",
            audit=None, allow_live_branches=False, reserve=None,
        )  # fmt: skip
        ledger: Any = SimpleNamespace(
            record_intent=lambda intent: None,
            record_outcomes=lambda intent, outcomes: self.outcomes.extend(outcomes),
        )
        backend: Any = SimpleNamespace(load=lambda *_: catalog, process_id=lambda: None)
        self.run = Run(request, backend, ledger, self.events.append, lambda: False)

    def send(self) -> bool:
        verified = Event("verified", "", "a01")
        part = batch.Part("a01", "a01", verified, ("in",), OUTPUTS, 9, 9, 9, 0.0, 0.0, 0.0)
        attempt: Any = SimpleNamespace(
            table=self.run.table, snapshot_id=1, id="p-1-a", prefix=PREFIX, sent=set()
        )
        return batch.send(self.run, attempt, 1, Mark(), (part,))


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RESEND_SECONDS", 0.0)


def test_a_refused_batch_is_recorded_although_a_file_of_it_cannot_be_removed() -> None:
    catalog = Denies([(Kind.REFUSED, False)])
    of = Recorded(catalog)
    assert not of.send()
    assert [one.state for one in of.outcomes] == [CONFLICT]
    assert not of.run.in_doubt
    assert {OUTPUTS[0], OUTPUTS[2]} <= set(catalog.deleted)
    phases = [one.phase for one in of.events]
    assert phases.count("left") == 1 and "removed" not in phases


def test_the_error_of_a_refused_batch_is_that_of_the_commit() -> None:
    catalog = Denies([(Kind.DENIED, False)])
    of = Recorded(catalog)
    with pytest.raises(AccessDeniedError):
        of.send()
    assert [one.state for one in of.outcomes] == [FAILED]
    assert not of.run.in_doubt and OUTPUTS[2] in catalog.deleted


def test_what_stays_is_an_error_only_for_what_closes_an_attempt() -> None:
    """The rest is deleted all the same."""

    class Full(Denies):
        def listed(self, directory: str) -> dict[str, tuple[int, int]]:
            return dict.fromkeys(OUTPUTS, (5, 0))

        def end_uploads(self, prefix: str) -> None: ...

        def referenced(self, prefix: str) -> set[str]:
            return set()

    catalog = Full([])
    table: Any = catalog
    found = cleanup.discard(table, dict.fromkeys(OUTPUTS, 5))
    assert (found.files, found.bytes) == (2, 10) and isinstance(found.error, PermissionError)
    catalog.deleted.clear()
    with pytest.raises(PermissionError):
        cleanup.remove_leftovers(table, PREFIX)
    assert catalog.deleted == [OUTPUTS[0], OUTPUTS[2]]


def test_files_of_commits_are_removed_as_far_as_that_is_allowed() -> None:
    class Keeps(Catalog):
        def listed(self, directory: str) -> dict[str, tuple[int, int]]:
            return {f"{directory}/{self.uuids}-m{n}.avro": (7, 0) for n in range(2)}

        def delete_file(self, path: str) -> None:
            if path.endswith("-m0.avro"):
                raise PermissionError(13, "denied", path)
            super().delete_file(path)

        uuids = "0b3c9a4e-0000-4000-8000-000000000002"

    table: Any = Keeps([])
    found = metadata_files.remove_of_commits(table, (Keeps.uuids,), 1)
    assert (found.files, found.bytes) == (1, 7) and isinstance(found.error, PermissionError)
