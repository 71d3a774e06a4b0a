"""The form in which a store keeps the refused files of a table: grouped by what they have in
common, because thousands of files of one writer are refused for one reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reconciler.table.refusals import Refusal, by_kind

MOST_KEPT = 20_000
"""Refused files that are kept of one table. Further ones replace earlier ones."""


def refusals_from(groups: Sequence[Mapping[str, Any]]) -> dict[str, Refusal]:
    """Return the refusals of a table by path, from what `with_refusals` returned."""
    return {
        path: Refusal(
            path, reason, column, detail, group.get("changed", {}).get(path, 0),
            group.get("under", ""),
        )
        for group in groups
        for reason, column, detail in [group["kind"]]
        for path in group["paths"]
    }  # fmt: skip


def with_refusals(known: Mapping[str, Refusal], found: Iterable[Refusal]) -> list[dict[str, Any]]:
    """Return the groups of known refusals with others added; of a file the latest one counts."""
    known = dict(known)
    for one in found:
        known.pop(one.path, None)
        known[one.path] = one
    kept = list(known.values())[-MOST_KEPT:]
    return [
        {
            "kind": list(kind),
            "under": under,
            "paths": [one.path for one in ones],
            "changed": {one.path: one.changed_ms for one in ones if one.changed_ms},
        }
        for under in sorted({one.under for one in kept})
        for kind, ones in by_kind(one for one in kept if one.under == under).items()
    ]
