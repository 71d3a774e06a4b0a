"""Claims a table for an operator: the property `layout.owner`, set by compare-and-set.

If two operators claim a table at the same time, only one may get it. An SQL catalog compares the
table's metadata location, so that an assertion about the property holds at the moment of the
commit. A REST catalog has no assertion about properties: there a claim adds an empty snapshot and
asserts that the main branch has not moved since the owner was read, which only one of the two can
pass.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler.api.catalog_config import CatalogConfig
from reconciler.catalog.load import connect, load_table, within
from reconciler.catalog.not_found import describe
from reconciler.errors import UnavailableError
from reconciler.table.observation import quoted_name

if TYPE_CHECKING:
    from pyiceberg.table import Table

OWNER_PROPERTY = "layout.owner"
"""Table property by which an operator claims a table; its value names the owner."""

MOST_ATTEMPTS = 20
WAIT_SECONDS = 0.1
SETTLE_SECONDS = 2.0
"""Seconds before an unguarded claim (format v3 over REST) is read again."""

Result = TypeVar("Result")


def owner_of(config: CatalogConfig, identifier: tuple[str, ...], timeout: float = 30.0) -> str:
    """Return who claims the table now, "" if no one does."""
    return _owner(load_table(connect(config, timeout), config, identifier, timeout))


def claim(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    owner: str,
    *,
    expected: str = "",
    timeout: float = 30.0,
) -> str:
    """Claim a table that no one owns; return its owner afterwards, which is `owner` on success.

    expected: the owner whose table is taken over; any other owner keeps it.
    """

    def attempt(table: Table) -> str | None:
        present = _owner(table)
        if present == owner or present not in ("", expected):
            return present
        return _take(table, config, owner, present)

    return _repeated(config, identifier, attempt, timeout)


def _owner(table: Table) -> str:
    return table.properties.get(OWNER_PROPERTY, "")


def _repeated(
    config: CatalogConfig,
    identifier: tuple[str, ...],
    attempt: Callable[[Table], Result | None],
    timeout: float,
) -> Result:
    """Return the attempt's result. After a conflict with another commit the table is read again."""
    from pyiceberg.exceptions import CommitFailedException

    catalog = connect(config, timeout)
    for number in range(MOST_ATTEMPTS):
        table = load_table(catalog, config, identifier, timeout)

        def work(table: Table = table) -> Result | None:
            try:
                return attempt(table)
            except CommitFailedException:
                return None

        done = within(work, timeout, config)
        if done is not None:
            return done
        time.sleep(random.uniform(0.5, 1.5) * WAIT_SECONDS * min(number + 1, 10))
    raise UnavailableError(
        f'"{quoted_name(identifier)}" in catalog {describe(config)} changes too often',
        details=(f"its owner could not be set in {MOST_ATTEMPTS} attempts",),
        do="try again",
    )


def _take(table: Table, config: CatalogConfig, owner: str, present: str) -> str:
    from pyiceberg.table.update import SetPropertiesUpdate

    updates: tuple[Any, ...] = (SetPropertiesUpdate(updates={OWNER_PROPERTY: owner}),)
    if config.type == "sql":
        _commit(table, config, present, updates)
        return owner
    if table.format_version < 3:
        _commit_with_snapshot(table, config, present, updates, owner)
        return owner
    _commit(table, config, present, updates)
    time.sleep(SETTLE_SECONDS)
    return _owner(table.refresh())


def _commit_with_snapshot(
    table: Table, config: CatalogConfig, present: str, updates: tuple[Any, ...], owner: str
) -> None:
    """As _commit, with an empty snapshot, whose manifest list goes if the commit did not arrive."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AddSnapshotUpdate

    appended = _empty_snapshot(table, owner)
    try:
        _commit(table, config, present, (*updates, *appended))
    except CommitFailedException:
        known = table.refresh().metadata
        for update in appended:
            if not isinstance(update, AddSnapshotUpdate):
                continue
            if known.snapshot_by_id(update.snapshot.snapshot_id) is None:
                with contextlib.suppress(Exception):  # the file stays; the claim is what counts
                    table.io.delete(update.snapshot.manifest_list)
        raise


def _commit(table: Table, config: CatalogConfig, present: str, updates: tuple[Any, ...]) -> None:
    """Commit, only if the table is still as it was read. present: its owner."""
    from pyiceberg.table.refs import MAIN_BRANCH
    from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

    # pyiceberg's own transaction would rebase the snapshot on a newer parent and try again.
    requirements: tuple[Any, ...] = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        _asserted_owner(present)
        if config.type == "sql"
        else AssertRefSnapshotId.model_validate(
            {"ref": MAIN_BRANCH, "snapshot-id": table.metadata.current_snapshot_id}
        ),
    )
    table.catalog.commit_table(table, requirements, updates)


def _empty_snapshot(table: Table, owner: str) -> tuple[Any, ...]:
    """Return the updates of an append without files, which moves the main branch by one
    snapshot."""
    transaction = table.transaction()
    appended = transaction.update_snapshot(snapshot_properties={OWNER_PROPERTY: owner})
    updates, _ = appended.fast_append()._commit()
    return updates


def _asserted_owner(owner: str) -> Any:
    """Return the assertion that pyiceberg checks against the metadata that the SQL catalog then
    replaces."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import ValidatableTableRequirement

    class AssertOwner(ValidatableTableRequirement):
        type: str = "assert-owner"

        def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
            found = base_metadata.properties if base_metadata is not None else {}
            if found.get(OWNER_PROPERTY, "") != owner:
                raise CommitFailedException("the table was claimed meanwhile")

    return AssertOwner()
