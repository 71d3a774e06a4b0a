"""The reconcile of a catalog: the reason that an error of its listing becomes."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.errors import (
    AccessDeniedError,
    ReconcilerError,
    RedirectedError,
    RefusedAddressError,
    TableDamagedError,
    UnavailableError,
    UserError,
)
from reconciler.operator.catalog.reconcile import CatalogReconciler


@pytest.mark.parametrize(
    ("error", "reason", "stalls"),
    [
        (AccessDeniedError("no"), "AccessDenied", True),
        (UserError("the server says: refused the credentials"), "InvalidSpec", True),
        (UnavailableError("no"), "CatalogUnavailable", False),
        (RedirectedError("an answer leads elsewhere"), "CatalogUnavailable", False),
        (TableDamagedError("sent an unreadable answer"), "CatalogUnavailable", False),
        (RefusedAddressError("the document names a refused address"), "InvalidSpec", True),
    ],
)
def test_the_kind_of_an_error_and_not_its_text_gives_the_reason(
    error: ReconcilerError, reason: str, stalls: bool
) -> None:
    def listing() -> list[tuple[str, ...]]:
        raise error

    opened = SimpleNamespace(listing=listing)
    own: Any = SimpleNamespace(catalogs=SimpleNamespace(open=lambda *where: opened))
    problem = CatalogReconciler._looked(own, ("n", "c"), {})
    assert problem is not None
    assert (problem.reason, problem.stalls) == (reason, stalls)


def test_tables_with_another_mix_of_queries_are_decided_on_at_once() -> None:
    def layout(name: str) -> dict[str, Any]:
        spec = {"table": {"namespace": ["sales"], "name": name}}
        return {"metadata": {"namespace": "n", "name": name}, "spec": spec}

    due: list[tuple[str, float]] = []
    own: Any = SimpleNamespace(
        runtime=SimpleNamespace(
            index=SimpleNamespace(
                layouts_of_catalog=lambda *where: [layout("orders"), layout("visits")]
            ),
            enqueue=lambda key, at: due.append((key.name, at)),
        ),
        clock=lambda: dt.datetime.fromtimestamp(1_000, dt.UTC),
    )
    own._spread = lambda *given: CatalogReconciler._spread(own, *given)
    CatalogReconciler._decide_early(own, ("n", "c"), {("sales", "visits"), ("sales", "gone")})
    assert [name for name, _ in due] == ["visits"]
    assert due[0][1] <= 1_060.0
