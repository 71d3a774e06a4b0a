"""What disturbs work at one moment: its process ends, or its snapshots expire before the answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler.engines.schedule import processes
from reconciler.errors import StalePlanError
from reconciler.plan.execution import COMMITTED, ExecutionRequest
from reconciler.table import summary_keys
from tests.gateway import TWICE, Gateway
from tests.spark.tables import Bench, dead_writer


class Killed(BaseException):
    """Stands for the end of the process."""


@contextlib.contextmanager
def killed_at(place: Any, step: str) -> Iterator[pytest.MonkeyPatch]:
    """The work in the block must call `place.step`, and ends there; its writer counts as dead.

    What is patched further through the given value holds until the end of the block.
    """

    def end(*parts: object, **more: object) -> Any:
        raise Killed

    writer = dead_writer()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(processes, "own_identity", lambda jvm: writer)
        patched.setattr(place, step, end)
        with pytest.raises(Killed):
            yield patched


def expires_between(
    bench: Bench, gateway: Gateway, request: ExecutionRequest, commits: Callable[[], object]
) -> None:
    """Run the request, whose commit arrives twice. Between the answers another writer `commits` and
    expires every other snapshot, that of the batch included; the ledger must say committed."""

    def expires() -> None:
        commits()
        bench.expire(request.table[-1])

    gateway.before_answer = expires
    gateway.fails(TWICE, summary_keys.ATTEMPT_ID)
    with contextlib.suppress(StalePlanError):  # the plan's snapshot has expired
        bench.run(request)
    assert bench.ledger.outcomes()[-1].state == COMMITTED
