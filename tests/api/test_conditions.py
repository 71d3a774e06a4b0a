"""The reason that a stalled table shows follows from the kind of the error, not from its words."""

from __future__ import annotations

import pytest

from reconciler.api.conditions import Reason, stalled_by
from reconciler.errors import (
    AccessDeniedError,
    KeyNotFoundError,
    TableDamagedError,
    TableNotFoundError,
    UnsupportedError,
    UserError,
)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (KeyNotFoundError, Reason.KEY_NOT_FOUND),
        (AccessDeniedError, Reason.ACCESS_DENIED),
        (TableNotFoundError, Reason.TABLE_NOT_FOUND),
        (TableDamagedError, Reason.TABLE_DAMAGED),
        (UnsupportedError, Reason.UNSUPPORTED_TABLE),
        (UserError, Reason.UNSUPPORTED_TABLE),
    ],
)
def test_an_error_has_one_reason(kind: type[UserError], reason: Reason) -> None:
    misleading = kind("the secret of clustering.keys cannot be read")
    assert stalled_by(misleading) is reason
