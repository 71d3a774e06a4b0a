"""The reconciler's own state: recorded queries, sketches, ledger, plans, leases.

`Store` is the interface of every state store; `StateStore` is in the user's state directory: SQLite
for what needs compare-and-set (leases, plans, cursors), Iceberg tables for what grows (queries,
sketches, ledger). `state.shared_state` has the one in a catalog. Several processes may share a
store, and one may be killed at any moment.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from reconciler.errors import UserError
from reconciler.plan.plan import Plan, stored_form
from reconciler.queries.shape import Shape
from reconciler.state.lease import SqliteLease
from reconciler.state.records import Records, StoredText
from reconciler.state.set_aside import parse_stored, warn_set_aside
from reconciler.state.state_tables import (
    LocalBackend,
    StateTables,
)
from reconciler.state.store import Store


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return $LAYOUTCTL_STATE, else layoutctl below $XDG_STATE_HOME or ~/.local/state."""
    env = os.environ if environ is None else environ
    if env.get("LAYOUTCTL_STATE"):
        return Path(env["LAYOUTCTL_STATE"]).expanduser().absolute()
    home = env.get("XDG_STATE_HOME") or str(
        Path(env.get("HOME", "~")).expanduser() / ".local/state"
    )
    return Path(home) / "layoutctl"


def cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of decoded manifests, which can be removed at any time.

    $LAYOUTCTL_CACHE, else layoutctl below $XDG_CACHE_HOME or ~/.cache.
    """
    env = os.environ if environ is None else environ
    if env.get("LAYOUTCTL_CACHE"):
        return Path(env["LAYOUTCTL_CACHE"]).expanduser().absolute()
    home = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME", "~")).expanduser() / ".cache")
    return Path(home) / "layoutctl"


class StateStore(Store):
    """State below a directory: everything outside the Iceberg tables is SQLite."""

    def __init__(self, directory: Path):
        self.directory = directory
        self._records = Records(directory / "state.db")
        super().__init__(StateTables(LocalBackend(directory, self._records)))

    def shapes_of_tables(self, table_uuids: Collection[str]) -> dict[str, tuple[Shape, ...]]:
        """As any store; it may be written, so that rows of an earlier version are taken over."""
        self.take_over_old_rows()
        return super().shapes_of_tables(table_uuids)

    def lease(self) -> SqliteLease:
        return SqliteLease(self._records)

    def put_plan(self, plan: Plan) -> None:
        text = stored_form(plan).decode()
        self._records.put_plan(plan.id, plan.table_uuid, plan.policy_hash, text)

    def get_plan(self, plan_id: str) -> Plan | None:
        return self._readable(self._records.get_plan(plan_id))

    def standing_plan(self, table_uuid: str, policy_hash: str) -> Plan | None:
        return self._readable(self._records.standing_plan(table_uuid, policy_hash))

    def standing_plans(self, table_uuid: str) -> tuple[Plan, ...]:
        found = map(self._readable, self._records.standing_plans(table_uuid))
        return tuple(plan for plan in found if plan is not None)

    def _readable(self, stored: StoredText | None) -> Plan | None:
        """Return the plan; one that cannot be read is set aside, and the table is planned again."""
        if stored is None:
            return None
        try:
            plan = parse_stored(stored.body)
            if (plan.id, plan.table_uuid, plan.policy_hash) == (
                stored.plan_id, stored.table_uuid, stored.policy_hash,
            ):  # fmt: skip
                return plan
            why = f"it is plan {plan.id} of table {plan.table_uuid}"
        except UserError as error:
            why = "; ".join((error.what, *error.details))
        approved = self._records.set_aside(stored.plan_id, why)
        warn_set_aside(stored.plan_id, stored.table_uuid, why, approved)
        return None

    def approve(self, plan_id: str, policy: str) -> None:
        self._records.approve(plan_id, policy)

    def approved(self, plan_id: str, policy: str | None = None) -> bool:
        return self._records.approved(plan_id, policy)

    def cursor(self, source: str) -> str | None:
        return self._records.cursor(source)

    def set_cursor(self, source: str, value: str) -> None:
        self._records.set_cursor(source, value)

    def record_skips(self, table_uuid: str | None, counts: Mapping[str, int]) -> None:
        self._records.record_skips(table_uuid, counts)

    def skips(self, table_uuid: str | None) -> dict[str, int]:
        return self._records.skips(table_uuid)

    def note(self, key: str) -> Any:
        return self._records.note(key)

    def set_note(self, key: str, value: Any) -> None:
        self._records.set_note(key, value)
