"""Compares plans with those of the base of a pull request: per table new, changed, same or gone.

The base is the output of `layoutctl plan -o json` for its documents. Two plans are the same when
they do the same to the same files; ids, dates, policies and predictions do not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from reconciler.errors import UserError
from reconciler.plan.prediction import PREDICTED, predictions_of, total

Document = Mapping[str, Any]


class Change(Enum):
    """What a pull request does to the work that is planned for a table."""

    NEW = "new"
    CHANGED = "changed"
    SAME = "same"
    GONE = "gone"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Against:
    """The plans of the base that a pull request is compared with."""

    plans: Mapping[str, Document]
    """The plans by table name."""
    failed: frozenset[str]
    """Names of the tables that the base's documents could not plan."""
    gone: tuple[tuple[str, int], ...] = ()
    """Tables that only the base plans work for, with the bytes that it would rewrite; largest
    first."""

    def of(self, document: Document) -> Change:
        """Return how this plan differs from the base's plan of the same table."""
        if ".".join(document["table"]) in self.failed:
            return Change.UNKNOWN
        base = self.plans.get(_name(document))
        before, now = _work(base) if base else [], _work(document)
        if before == now:
            return Change.SAME if now else Change.NOTHING
        if not before:
            return Change.NEW
        return Change.CHANGED if now else Change.GONE

    def beside(self, documents: Iterable[Document], failed: Iterable[str]) -> Against:
        """Return the comparison with the plans of the change. failed: tables that the change could
        not plan, of which nothing is known."""
        busy = {_name(document) for document in documents if document["actions"]}
        unknown = set(failed)
        gone = [
            (name, _rewritten(document))
            for name, document in self.plans.items()
            if document["actions"] and name not in busy
            and ".".join(document["table"]) not in unknown
        ]  # fmt: skip
        ordered = tuple(sorted(gone, key=lambda item: (-item[1], item[0])))
        return Against(self.plans, self.failed, ordered)

    def elsewhere(self, documents: Sequence[Document]) -> bool:
        """Whether work is gone from tables other than those of these plans."""
        names = {_name(document) for document in documents}
        return any(name not in names for name, _ in self.gone)


def read_base(path: Path) -> Against:
    """Return the plans in a file that `layoutctl plan -o json` wrote. Raises UserError."""
    try:
        body = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}", do="name the output of `plan -o json`"
        ) from error
    except (ValueError, RecursionError) as error:
        raise _unfit(path, "it is not valid JSON") from error
    try:
        many = body["kind"] == "LayoutPlanList"
        items = body["items"] if many else [body]
        if any(item["kind"] != "LayoutPlan" for item in items):
            raise _unfit(path, "it holds a document that is not a LayoutPlan")
        plans = {_name(item): item for item in items}
        for item in items:
            _work(item)
            _rewritten(item)
        failed = {".".join(each["table"]) for each in (body["errors"] if many else ())}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unfit(path, "it is not a LayoutPlan or a LayoutPlanList") from error
    return Against(plans, frozenset(failed))


def _unfit(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} cannot be compared with: {why}",
        do="write it with `layoutctl plan -f BASE -o json`",
    )


def _name(document: Document) -> str:
    return ".".join([document["catalog"], *document["table"]])


def _work(document: Document) -> list[dict[str, Any]]:
    """Return what a plan does: its actions without their ids and predictions, in a fixed order."""
    actions = [
        {key: value for key, value in item.items() if key not in ("id", PREDICTED)}
        for item in document["actions"]
    ]
    return sorted(actions, key=lambda item: json.dumps(item, sort_keys=True))


def _rewritten(document: Document) -> int:
    return total(predictions_of(document["actions"])).bytes_in
