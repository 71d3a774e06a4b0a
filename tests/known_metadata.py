"""Transactions of pyiceberg that tests write by compute the table's metadata once for each change.

pyiceberg applies all changes again, and copies the result deeply, whenever it looks at the metadata
of a transaction: about ten times for one append. That was a tenth of the CPU time of tests that
write tables. Nobody changes what they are given: a change makes another object.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Transaction
from pyiceberg.table.update import update_table_metadata

OF_PYICEBERG = Transaction.table_metadata
"""The property as pyiceberg has it, for tests that count what our own code makes of it."""


def compute_metadata_once() -> None:
    Transaction.table_metadata = property(_known)  # type: ignore[assignment, method-assign]


def _known(transaction: Any) -> Any:
    base, updates = transaction._table.metadata, transaction._updates
    known = transaction.__dict__.get("_known")
    if known is None or known[0] is not base or known[1] is not updates:
        known = base, updates, update_table_metadata(base, updates)
        transaction.__dict__["_known"] = known
    return known[2]
