"""What another release, damage or somebody else left in the state blocks no table, and gives back
no budget that was spent."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.errors import InternalError, StateError
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.reader import conflicts_key, orphans_key, rho_key
from reconciler.plan.budget import Budget, Charge, admit
from reconciler.plan.execution import COMMITTED, Intent, Outcome
from reconciler.plan.ledger import ReadCheck, Reservation
from reconciler.plan.prediction import Prediction
from reconciler.state import ledger_rows
from reconciler.state.ledger_rows import (
    INTENT,
    OUTCOME,
    PREDICTION,
    READ_CHECK,
    RESERVED,
    SETTLED,
    plain_row,
    row_of_intent,
    value_of,
)
from reconciler.state.records import MOST_SET_ASIDE
from reconciler.state.shared_state import SharedStore
from reconciler.state.state import StateStore
from reconciler.state.store import Store
from tests.examples import examples
from tests.state.test_shared_state import NAMESPACE, new_catalog
from tests.state.test_state import UUID, intent, outcome, plan

OTHER = "3f9a1c0b-77de-4c21-a0be-000000000002"
GARBAGE = [
    "", "{", "null", "[]", "7", "{}", "[" * 100_000, '{"apiVersion": "layout/v9"}', "\x00\xff",
    '{"a":' * 5000 + "1" + "}" * 5000,
]  # fmt: skip


FEW = 3


def each(texts: Sequence[Any]) -> Any:
    """Every text for the local store, the first of them for the shared one, whose calls of a
    catalog take most of the time: what can be read is decided by the same code for both."""
    cases = [("local", n) for n in range(len(texts))] + [("shared", n) for n in range(FEW)]
    return pytest.mark.parametrize(
        ("store", "text"),
        [(name, texts[n]) for name, n in cases],
        indirect=["store"],
        ids=[f"{name}-{n}" for name, n in cases],
    )


@pytest.fixture(params=["local", "shared"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return StateStore(tmp_path / "state")
    return SharedStore(new_catalog(tmp_path), NAMESPACE)


def damage(store: Store, plan_id: str, text: str) -> None:
    """Replace the stored body of a plan."""
    if isinstance(store, StateStore):
        with sqlite3.connect(store.directory / "state.db") as db:
            db.execute("UPDATE plans SET body = ? WHERE plan_id = ?", (text, plan_id))
        return
    assert isinstance(store, SharedStore)
    uri = store._records.get("plan", plan_id)["uri"]
    Path(uri.removeprefix("file://")).write_text(text)


@each(GARBAGE)
def test_an_unreadable_plan_is_set_aside_and_its_approval_is_void(
    store: Store, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = plan(1), plan(2, policy="another")
    for item in (first, other):
        store.put_plan(item)
        store.approve(item.id, "default/one")
    damage(store, first.id, text)
    assert store.standing_plans(UUID) == (other,)
    assert first.id in caplog.text
    assert store.standing_plan(UUID, first.policy_hash) is None
    assert store.get_plan(first.id) is None
    assert not store.approved(first.id) and not store.approved(first.id, "default/one")
    assert store.approved(other.id, "default/one")
    store.put_plan(first)  # planned again
    assert store.standing_plan(UUID, first.policy_hash) == first
    assert not store.approved(first.id)


def test_a_plan_under_the_name_of_an_approved_one_does_not_run(store: Store) -> None:
    """Its id is right for its content; it is not what was approved."""
    first, forged = plan(1), plan(9)
    store.put_plan(first)
    store.approve(first.id, "default/one")
    damage(store, first.id, json.dumps(forged.document(), separators=(",", ":"), sort_keys=True))
    assert store.get_plan(first.id) is None
    assert not store.approved(first.id)


def test_few_unreadable_plans_are_kept_and_little_of_each(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    for number in range(MOST_SET_ASIDE + 5):
        store.put_plan(plan(number))
        damage(store, plan(number).id, "x" * ((1 << 20) + 1))
        assert store.get_plan(plan(number).id) is None
    with sqlite3.connect(tmp_path / "state.db") as db:
        sizes = [size for (size,) in db.execute("SELECT length(body) FROM set_aside")]
    assert sizes == [1 << 20] * MOST_SET_ASIDE


# The ledger

FIELDS = {
    int: st.integers(0, 2**63 - 1),
    float: st.floats(0, 1e15),
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    tuple[str, ...]: st.lists(st.text(max_size=5), max_size=3).map(tuple),
}


@pytest.mark.parametrize("kind", [Intent, Outcome, ReadCheck, Reservation])
def test_every_value_of_the_ledger_is_read_back_as_it_was(kind: Any) -> None:
    @settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
    @given(st.builds(kind, **_plain(kind)))
    def holds(value: Any) -> None:
        name = {Intent: INTENT, Outcome: OUTCOME, ReadCheck: READ_CHECK, Reservation: RESERVED}
        assert value_of(plain_row(name[kind], "p", "a", asdict(value), UUID)) == value

    holds()


def _plain(kind: Any) -> dict[str, Any]:
    """Numbers of 64 bits that are not negative, as the ledger has them."""
    from typing import get_type_hints

    hints = get_type_hints(kind)
    return {name: FIELDS[hint] for name, hint in hints.items() if hint in FIELDS}


@pytest.mark.parametrize(
    "wrong",
    [
        {"read_bytes": True},
        {"read_bytes": -5},
        {"read_bytes": 2**64},
        {"cpu_seconds": float("nan")},
        {"state": 7},
    ],
)
def test_a_value_that_would_not_be_read_back_is_not_stored(tmp_path: Path, wrong: Any) -> None:
    store = StateStore(tmp_path)
    with pytest.raises(InternalError):
        store.record_outcomes(intent(), (replace(outcome(COMMITTED), **wrong),))
    assert store.ledger(UUID) == ()


def put(store: Store, row: dict[str, Any], body: str) -> None:
    """A row that some other writer stored."""
    store._record([{**row, "body": body}])


BODIES = [*GARBAGE[:6], '{"read_bytes": -9, "rewrite_bytes": -9}', '{"used_cpu_seconds": -1}']


@pytest.mark.parametrize("kind", [OUTCOME, RESERVED, SETTLED])
@each(BODIES)
def test_an_unreadable_row_spends_the_budget_of_its_table_only(
    store: Store, tmp_path: Path, kind: str, text: str
) -> None:
    if kind == SETTLED and text[:1] == "{" and "used" not in text and len(text) > 1:
        pytest.skip("this is how a settlement looks that used nothing beside its outcomes")
    held = Reservation("r1", UUID, plan(1).id, "team/facts", 5 << 30, 900.0)
    store.reserve(held)
    row = row_of_intent(OUTCOME, intent(), "a01", outcome(COMMITTED))
    if kind != OUTCOME:
        row = plain_row(kind, held.plan_id, "", {} if kind == SETTLED else asdict(held), UUID, "r1")
    put(store, row, text)
    budget = Budget("daily", per_seconds=86_400, max_rewrite_bytes=4 << 30)
    for table, fits in ((UUID, 0), (OTHER, 1)):
        policy = "team/facts" if table == UUID else "other/facts"
        spent = spent_of(store, policy, table)
        admitted = admit([Charge(1, 1.0)], [budget], spent, now())
        assert admitted.count == fits, (table, admitted)


def spent_of(store: Store, policy: str, table: str) -> Any:
    if isinstance(store, SharedStore):
        return store.spent(policy, table)
    return LocalActor(store, Path("unused")).spent(policy, table)


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@each(BODIES[:7])
def test_unreadable_rows_block_no_reading_of_a_ledger(store: Store, text: str) -> None:
    store.record_intent(intent())
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    for kind in (OUTCOME, PREDICTION, READ_CHECK, RESERVED, SETTLED):
        row = row_of_intent(
            OUTCOME, replace(intent(batch=2), attempt_id="a-9"), "a09", outcome(COMMITTED)
        )
        put(store, {**row, "kind": kind}, text)
    assert [entry.outcome for entry in store.ledger(UUID)] == [outcome(COMMITTED)]
    assert store.read_checks(UUID) == ()
    assert store.open_intents(UUID) == ()


def test_an_attempt_whose_outcome_cannot_be_read_is_settled_again(store: Store) -> None:
    store.record_intent(intent())
    put(store, row_of_intent(OUTCOME, intent(), "a01", outcome(COMMITTED)), "{")
    assert store.open_intents(UUID) == (intent(),)


def test_an_attempt_that_cannot_be_read_holds_its_table_while_its_writer_may_live(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, row_of_intent(INTENT, intent(), "", intent()), '{"version": 9}')
    with pytest.raises(StateError) as refused:
        store.open_intents(UUID)
    assert refused.value.do and intent().attempt_id in refused.value.details[0]
    assert store.open_intents(OTHER) == ()
    monkeypatch.setattr(ledger_rows, "WRITER_MS", -1)
    assert store.open_intents(UUID) == ()


NOTES = [None, 7, "x", [], {}, [[1]], {"price": 7}, {"openings": [1]}, {"data": "x"}, [None, -1]]


@each(NOTES)
def test_notes_of_any_content_leave_the_presets(store: Store, text: Any) -> None:
    reader = LocalActor(store, Path("unused"))
    empty = reader.history(UUID)
    for key in (rho_key(UUID), conflicts_key(UUID), orphans_key(UUID), f"openings:{UUID}",
                f"refused:{UUID}", "times of runs"):  # fmt: skip
        store.set_note(key, text)
    assert reader.history(UUID) == empty
    assert store.refusals(UUID) == {}


def test_a_note_that_is_no_json_counts_as_none(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.set_note("rho", [1.0])
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE notes SET body = '{'")
    assert store.note("rho") is None


def test_a_prediction_of_another_release_is_kept_and_not_used(store: Store) -> None:
    store.record_intent(intent())
    store.record_outcomes(intent(), (outcome(COMMITTED),))
    put(store, plain_row(PREDICTION, intent().plan_id, "a01", {}), '{"bytesIn": "many"}')
    (entry,) = store.ledger(UUID)
    assert entry.outcome.state == COMMITTED
    assert entry.predicted == Prediction(foreign={"bytesIn": "many"})
