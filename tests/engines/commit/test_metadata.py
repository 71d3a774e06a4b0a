"""A change of the metadata that a catalog refuses ends as an error for people, whatever it said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.commit import errors
from reconciler.engines.answers import ACCEPTED, Answer, Kind
from reconciler.engines.commit import metadata, statistics
from reconciler.engines.snapshots import SnapshotInfo
from reconciler.errors import (
    EXIT_USER,
    AccessDeniedError,
    ReconcilerError,
    UnavailableError,
    UnknownCommitError,
    UserError,
)
from reconciler.plan.actions.state import ActionState, Validity


class Table:
    """Of one snapshot beside the head's parent, which has statistics; a catalog refuses changes."""

    shown, errors = "c.n.t", errors

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, 0

    def refresh(self) -> None: ...

    def facts(self) -> None: ...

    def head(self) -> int:
        return 2

    def ancestors(self) -> Any:
        return iter((SnapshotInfo(2, 1, "replace", {}), SnapshotInfo(1, None, "append", {})))

    def snapshot(self, one: int) -> Any:
        return SnapshotInfo(one, None, "append", {})

    def statistics(self) -> dict[int, dict[str, Any]]:
        return {1: {"snapshot-id": 1, "blob-metadata": [{"fields": [1, 2]}]}}

    def with_statistics(self, snapshot_id: int, document: Any) -> Any:
        return self.change()

    def change(self) -> Any:
        self.asked += 1
        return SimpleNamespace(before={}, after={}, send=lambda: self.answer)


REFUSED = {
    "denied": (Answer(Kind.DENIED, "403"), AccessDeniedError),
    "invalid": (Answer(Kind.INVALID, "400"), UserError),
    "full": (Answer(Kind.FAILED, "full", OSError(28, "No space left")), UnavailableError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_an_error_for_people(case: str) -> None:
    answer, kind = REFUSED[case]
    table: Any = Table(answer)
    with pytest.raises(kind) as caught:
        metadata.apply(table, lambda facts: ActionState(Validity.PENDING), table.change)
    assert isinstance(caught.value, ReconcilerError)
    if kind is UserError:
        assert caught.value.exit_code == EXIT_USER
        assert caught.value.said == ("400",)


def test_a_change_is_done_only_if_the_table_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may say that it took a change, and have done nothing."""
    monkeypatch.setattr(metadata, "PAUSE_SECONDS", 0.0)
    table: Any = Table(ACCEPTED)
    with pytest.raises(UnknownCommitError):
        metadata.apply(table, lambda facts: ActionState(Validity.PENDING), table.change)
    assert table.asked == metadata.RESENDS
    told = Table(ACCEPTED)
    done = lambda facts: ActionState(  # noqa: E731
        Validity.DONE if told.asked == 2 else Validity.PENDING
    )
    state, _ = metadata.apply(told, done, told.change)  # type: ignore[arg-type]
    assert (state.validity, told.asked) == (Validity.PENDING, 2)


@pytest.mark.parametrize("case", REFUSED)
def test_statistics_that_cannot_be_listed_end_nothing(case: str) -> None:
    table: Any = Table(REFUSED[case][0])
    said: list[str] = []
    statistics.carry(table, said.append)
    assert table.asked == 1
    assert len(said) == 1 and "2 columns" in said[0]
