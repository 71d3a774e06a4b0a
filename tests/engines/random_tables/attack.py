"""One random table, on which others and the engine without a JVM work in turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from reconciler.errors import BlockedError, StalePlanError, UnsupportedError
from reconciler.plan.actions.state import Validity
from reconciler.plan.execution import Audit, ExecutionResult
from tests.engines.random_tables.actions import KINDS, Draw, Engine
from tests.engines.random_tables.invariants import Picture, check_commit, picture, untouched
from tests.engines.random_tables.tables import RandomTable

CANDIDATE = "candidate"
"""The branch on which batches wait."""


def attacked(
    catalog: Any,
    engine: Engine,
    seed: int,
    kinds: Sequence[str] = (),
    operations: int | None = None,
) -> Counter[str]:
    """Return how often each kind of action was carried out, and what was refused, by its words.

    kinds: of the actions, drawn if none are given. operations: of others before the first.
    """
    drawn = RandomTable(catalog, seed, 4 + seed % 9 if operations is None else operations)
    done: Counter[str] = Counter()
    before = picture(drawn)
    for kind in kinds or drawn.random.choices(list(KINDS), k=5):
        actions = KINDS[kind](Draw(drawn, engine))
        if not actions:
            continue
        late = drawn.random.random() < 0.25
        if late:  # the plan was made before this
            drawn.operate()
            before = picture(drawn)
        more = {"audit": Audit(CANDIDATE, "", "policy")} if kind == "wait" else {}
        try:
            result = engine.run(drawn, actions, **more)
        except (UnsupportedError, StalePlanError, BlockedError) as error:
            assert late or type(error) is not StalePlanError
            done[f"{kind} refused: {error.details[:1]}"] += 1
            after = picture(drawn)
            untouched(before, after)
            assert after.rows == before.rows
            continue
        after = picture(drawn)
        compare(drawn, before, after, kind)
        why = (
            "" if finished(kind, result) else f" not done: {[one.detail for one in result.actions]}"
        )
        done[kind + why] += 1
        if not late:
            states = [(one.state, one.detail) for one in result.actions]
            assert Validity.LOST not in [state for state, _ in states], states
        before = after
        if drawn.random.random() < 0.5:
            drawn.operate()
            before = picture(drawn)
    return done


def finished(kind: str, result: ExecutionResult) -> bool:
    return result.waiting > 0 if kind == "wait" else result.done


def compare(drawn: RandomTable, before: Picture, after: Picture, kind: str) -> None:
    """Assert that an action of this kind changed nothing else than it may."""
    waits = kind in ("wait", "publish", "discard")
    untouched(before, after, but=(CANDIDATE,) if waits else ())
    rows = {name: one for name, one in after.rows.items() if name in before.rows}
    if kind == "block column":
        known = len(before.metadata.schema().fields)
        rows = {name: Counter(row[:known] for row in one.elements()) for name, one in rows.items()}
    assert rows == {name: one for name, one in before.rows.items() if name in rows}
    for snapshot in after.metadata.snapshots:
        if snapshot.snapshot_id not in before.entries:
            check_commit(drawn, snapshot, before, after)
