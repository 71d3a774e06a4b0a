"""What becomes of a batch, by the answers of a catalog that lives in this test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.engines.answers import ACCEPTED, Answer, Kind
from reconciler.engines.commit import commit, fence
from reconciler.engines.commit.history import Committed
from reconciler.engines.commit.operations import Mark
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.errors import UnavailableError
from reconciler.plan.execution import Intent
from reconciler.table import summary_keys
from reconciler.table.retention import MAIN, Ref

UUID = "0b3c9a4e-0000-4000-8000-000000000001"
INTENT = Intent("u", ("n", "t"), "p-1", "p-1-a", 1, ("a01",), 1, "file:/t/data/layout-p-1-a",
                ("in",), (), "", (UUID,))  # fmt: skip


@dataclass
class Catalog:
    """A table of one branch. Each request of a commit gets the next of `script`: a kind of answer,
    and whether the snapshot arrives all the same."""

    script: list[tuple[Kind, bool]]
    line: list[SnapshotInfo] = field(default_factory=lambda: [SnapshotInfo(1, None, "append", {})])
    schema: int = 0
    sent: int = 0
    deleted: list[str] = field(default_factory=list)
    said: str = "disk full"
    name: str = "c.n.t"

    @property
    def errors(self) -> Any:
        full = lambda error: "full" in str(error)  # noqa: E731
        return SimpleNamespace(message=str, lost=lambda error: False, is_unwritable=full)

    def refresh(self) -> None: ...

    def uuid(self) -> str:
        return "u"

    def format_version(self) -> int:
        return 2

    def schema_id(self) -> int:
        return self.schema

    def head(self) -> int:
        return self.line[-1].id

    def snapshot(self, one: int) -> SnapshotInfo | None:
        return next((info for info in self.line if info.id == one), None)

    def ancestors(self) -> Iterator[SnapshotInfo]:
        return reversed(self.line)

    def added_since(self, base: int) -> Iterator[SnapshotInfo]:
        for info in reversed(self.line):
            if info.id == base:
                return
            yield info

    def main_log(self) -> list[int]:
        return [info.id for info in self.line]

    def is_ancestor(self, head: int, one: int) -> bool:
        return self.snapshot(one) is not None

    def refs(self) -> dict[str, Ref]:
        return {MAIN: Ref(MAIN, "branch", self.head())}

    def properties(self) -> dict[str, str]:
        return {}

    def manifests(self, one: int) -> dict[str, int]:
        return {f"m-{one}": one}

    def metadata_directory(self) -> str:
        return "file:/t/metadata"

    def listed(self, directory: str) -> dict[str, tuple[int, int]]:
        return {f"{directory}/{UUID}-m0.avro": (7, 0)}

    def delete_file(self, path: str) -> None:
        self.deleted.append(path)

    def begin(self, operation: Any) -> Change:
        return Change(self)

    def append(self, operation: str, summary: Mapping[str, str]) -> None:
        self.line.append(SnapshotInfo(self.head() + 1, self.head(), operation, summary))


@dataclass
class Change:
    catalog: Catalog
    uuid: str = UUID
    base: int = 1

    def send(self, operation: Any, base: int, summary: Mapping[str, str], guard: Any) -> Answer:
        table = self.catalog
        table.sent += 1
        allowed = guard.allows(table.ancestors())
        if allowed is None:
            return Answer(Kind.UNKNOWN, "it is there already", ValueError())
        if not allowed:
            return Answer(Kind.REFUSED, "a check", ValueError("a check"), True)
        kind, arrives = table.script.pop(0)
        if arrives:
            table.append("replace", summary)
        if kind is Kind.LOST_RACE:
            table.append("append", {})
        if kind is Kind.ACCEPTED:
            return ACCEPTED
        return Answer(kind, "said", OSError(table.said), kind is not Kind.UNKNOWN)

    def unwanted(self) -> list[str]:
        return ["left", f"m-{self.catalog.head()}"]


class Touched(Mark):
    """An operation that any change by others touches."""

    def conflict(self, table: Any, head: int, changing: Sequence[SnapshotInfo]) -> str:
        return f"{len(changing)} others"


def sent_to(catalog: Catalog, **changes: Any) -> commit.Sent:
    batch = commit.Batch(Mark(), commit.Base("u", 0, 1, 2), INTENT, ())
    table: Any = catalog
    return commit.send(table, replace(batch, **changes), commit.prepare(table, Mark()))


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RESEND_SECONDS", 0.0)


@pytest.mark.parametrize("kind", [Kind.ACCEPTED, Kind.UNKNOWN, Kind.LOST_RACE, Kind.REFUSED])
def test_what_arrived_is_committed_whatever_was_answered(kind: Kind) -> None:
    catalog = Catalog([(kind, True)])
    assert sent_to(catalog) == Committed(2)
    assert catalog.sent == 1
    assert catalog.snapshot(2).summary == {  # type: ignore[union-attr]
        summary_keys.PLAN_ID: "p-1",
        summary_keys.ACTION_IDS: "a01",
        summary_keys.ATTEMPT_ID: "p-1-a",
        summary_keys.BATCH: "1",
    }


def test_a_lost_race_is_tried_again_until_it_is_won() -> None:
    catalog = Catalog([(Kind.LOST_RACE, False)] * 3 + [(Kind.ACCEPTED, True)])
    assert sent_to(catalog) == Committed(5)
    assert catalog.sent == 4
    assert set(catalog.deleted) == {"left"}, "what no snapshot needs, and nothing else"


def test_a_batch_that_always_loses_is_given_up() -> None:
    catalog = Catalog([(Kind.LOST_RACE, False)] * commit.SENDS)
    found = sent_to(catalog)
    assert isinstance(found, commit.Refused) and not found.final
    assert catalog.sent == commit.SENDS


@pytest.mark.parametrize("kind", [Kind.UNKNOWN, Kind.LOST, Kind.ACCEPTED])
def test_what_may_have_arrived_is_not_sent_again_and_keeps_its_files(kind: Kind) -> None:
    catalog = Catalog([(kind, False)])
    found = sent_to(catalog)
    assert isinstance(found, commit.Unknown)
    assert (found.lost, found.asserted) == (kind is Kind.LOST, 1)
    assert (found.unwritable is not None) is (kind is Kind.UNKNOWN)
    assert (catalog.sent, catalog.deleted) == (1, [])


def test_a_failure_before_the_request_left_is_sent_again_and_no_conflict() -> None:
    catalog = Catalog([(Kind.FAILED, False), (Kind.ACCEPTED, True)], said="locked")
    assert sent_to(catalog) == Committed(2)
    full = sent_to(Catalog([(Kind.FAILED, False)]))
    assert isinstance(full, commit.Refused) and full.unwritable is not None
    assert full.final and not full.conflict


def test_what_is_denied_or_invalid_is_final() -> None:
    denied, invalid = (sent_to(Catalog([(kind, False)])) for kind in (Kind.DENIED, Kind.INVALID))
    assert isinstance(denied, commit.Refused) and denied.denied and denied.final
    assert isinstance(invalid, commit.Refused) and invalid.invalid and invalid.final


def test_the_guard_refuses_another_table_than_the_one_that_was_read() -> None:
    rolled_back = Catalog([(Kind.ACCEPTED, True)])
    found = sent_to(rolled_back, own=(9,))
    assert isinstance(found, commit.Refused) and found.rolled_back and found.conflict
    fenced = Catalog([(Kind.ACCEPTED, True)])
    fenced.append("append", {summary_keys.FENCE: "p-1-a/0"})
    found = sent_to(fenced)
    assert isinstance(found, commit.Refused) and found.fenced and not found.conflict
    changed = sent_to(Catalog([(Kind.ACCEPTED, True)], schema=1))
    assert isinstance(changed, commit.Refused) and changed.conflict
    deleting = Catalog([(Kind.ACCEPTED, True)])
    deleting.append("append", {"added-delete-files": "1"})
    found = sent_to(deleting, operation=Touched())
    assert isinstance(found, commit.Refused) and found.conflict
    assert deleting.script  # nothing reached the catalog
    gone = sent_to(Catalog([], [SnapshotInfo(4, None, "append", {})]))
    assert isinstance(gone, commit.Refused) and gone.conflict


def test_a_fence_stands_once_it_is_in_the_table() -> None:
    arrived: Any = Catalog([(Kind.UNKNOWN, True)])
    fence.append_mark(arrived, "p-1-a", 0)
    assert [one.summary for one in arrived.line][-1] == {summary_keys.FENCE: "p-1-a/0"}
    for kind, left in ((Kind.UNKNOWN, []), (Kind.LOST_RACE, ["left"]), (Kind.ACCEPTED, [])):
        refused: Any = Catalog([(kind, False)])
        with pytest.raises(UnavailableError):
            fence.append_mark(refused, "p-1-a", 0)
        assert refused.deleted == left


@pytest.mark.parametrize("batch", [1, 0])
def test_a_mark_that_has_expired_fences_a_batch_if_main_grew_beyond_its_base(batch: int) -> None:
    """Not a whole attempt, whose sender may live: it does not find the mark, and commits again."""
    grown: Any = Catalog([(Kind.ACCEPTED, False)])
    grown.refresh = lambda: grown.append("append", {})
    if batch:
        return fence.append_mark(grown, "p-1-a", batch)
    with pytest.raises(UnavailableError):
        fence.append_mark(grown, "p-1-a", batch)
    return None
