"""What one action of a plan is predicted to read, write, cost and save.

The advisor makes a prediction, a plan document shows it to its reviewers, budgets are charged by
it, and the ledger compares it with the outcome. A document holds integers and text, never floats,
because it is hashed; only this module knows the names that predictions have there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from reconciler.format import plural

UNKNOWN = -1
"""A number that could not be estimated."""

LARGEST = 2**63 - 1
"""The greatest integer of a document, whose readers have 64 bits, and the least with the other
sign."""

DELETE_FILES = "delete files"
MANIFESTS = "manifests"
"""The units of predictions for actions that replace delete files or manifests."""

SKIPPING = "skipping data"
OPENING = "opening fewer files"
DENSER = "denser storage"
"""What a saving comes from."""

PREDICTED = "predicted"
"""Where the document of a planned action holds its prediction."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one action; None where it has no such value.

    A change of metadata has a label and a reason only; plans of older versions lack some fields.
    label: the action in words. reason: why it is planned. layout: `Rewrite.layout`.
    bytes_in, rows: of its input files, rows without deleted ones. written_milli: bytes written, in
    thousandths of the live bytes read; the number of output files follows from it, for the plan as
    for the execution. cpu_millis, millis: CPU time and time, in milliseconds.
    read_now, read_after: bytes that the recorded window reads of the table without and with this
    action. saving: bytes of reading saved over the horizon; saving_low: its 10th percentile, which
    decides. saving_opening, saving_denser: its parts from opening fewer files and from denser
    storage; the rest is data that is skipped. cost: of the rewrite, in bytes of reading.
    estimate: "exact" | "sampled" | "bound" | "none" (no queries). evidence: "drift" | "objective" |
    "workload" | "deletes" | "trial". basis: digest of the queries and settings that a rewrite for
    the workload follows from (`Situation.basis`). unit: what `files_in` counts, None for data
    files. kind: the action's `kind`. policy: in the ledger, whose budgets paid.
    target_bytes: the size of files that the what-if chose, None for the table's own.
    text_bytes: of the strings and binaries of `rows`, without those that a dictionary holds, and as
    the key's text counts (`rewrite_cost.KEY_TEXT`); columns: of the table's schema.
    removed_files, removed_bytes: files deleted because nothing needs them any more; the estimate is
    then "exact" | "at most".
    by_spark: why its rows go through Spark, which costs more, None if they do not or are none.
    foreign: what a document holds besides, by its name there.
    """

    label: str | None = None
    reason: str | None = None
    layout: str | None = None
    files_in: int | None = None
    files_out: int | None = None
    groups: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    written_milli: int | None = None
    rows: int | None = None
    cpu_millis: int | None = None
    millis: int | None = None
    read_now: int | None = None
    read_after: int | None = None
    saving: int | None = None
    saving_low: int | None = None
    saving_opening: int | None = None
    saving_denser: int | None = None
    cost: int | None = None
    estimate: str | None = None
    evidence: str | None = None
    basis: str | None = None
    unit: str | None = None
    removed_files: int | None = None
    removed_bytes: int | None = None
    target_bytes: int | None = None
    text_bytes: int | None = None
    columns: int | None = None
    kind: str | None = None
    policy: str | None = None
    by_spark: str | None = None
    foreign: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_document(cls, body: Mapping[str, Any]) -> Prediction:
        """Inverse of `document`. A field of another type than ours is kept, but not used."""
        known: dict[str, Any] = {}
        foreign: dict[str, Any] = {}
        for name, value in body.items():
            place = _PLACES.get(name)
            if place is not None and type(value) is place[1]:
                known[place[0]] = value
            else:
                foreign[name] = value
        return cls(**known, foreign=foreign)

    def document(self) -> dict[str, Any]:
        """The prediction as plan documents and the ledger hold it: what it has no value for is
        left out."""
        pairs = zip(_PLACES, _values(self), strict=True)
        body = {name: value for name, value in pairs if value is not None}
        return {**body, **self.foreign} if self.foreign else body

    @property
    def rewrites(self) -> bool:
        """Whether files are rewritten; a change of metadata costs nothing."""
        return self.files_in is not None

    @property
    def rewrites_data(self) -> bool:
        """Whether the files that are replaced are data files."""
        return self.rewrites and self.unit is None

    @property
    def written_share(self) -> float:
        """Bytes written per live byte read; 1 where a plan has none, or one that is not
        positive."""
        milli = self.written_milli or 0
        return milli / 1000 if milli > 0 else 1.0

    @property
    def by_columns(self) -> bool:
        """Whether the number of output files follows from how their columns are stored, not only
        from the inputs' size."""
        return self.written_share != 1.0

    @property
    def rewrite_bytes(self) -> int:
        return self.bytes_in or 0

    @property
    def cpu_seconds(self) -> float:
        return (self.cpu_millis or 0) / 1000

    def charged(self) -> Prediction:
        """Return what budgets and the order of tables use, without the rest."""
        return Prediction(
            bytes_in=self.bytes_in, cpu_millis=self.cpu_millis,
            saving=self.saving, saving_low=self.saving_low,
        )  # fmt: skip

    def left(self, files: int, size: int, of: int) -> Prediction:
        """Return the prediction for the rest of the action: `files` of its `of` inputs, with
        `size` bytes."""
        share = size / max(self.rewrite_bytes, 1)
        label = f"{self.label} ({files} of its {plural(of, 'file')} left)"
        rest: dict[str, Any] = {
            name: math.ceil(value * share)
            for name in _SHRINKING
            if (value := getattr(self, name)) is not None and value >= 0
        }
        return replace(self, label=label, files_in=files, bytes_in=size, **rest)


@dataclass(frozen=True, slots=True)
class Total:
    """The sums of predictions, fields as theirs; an action without a value counts as 0. in_parts:
    number of predictions that say what their saving comes from."""

    files_in: int = 0
    files_out: int = 0
    groups: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_millis: int = 0
    millis: int = 0
    saving: int = 0
    saving_opening: int = 0
    saving_denser: int = 0
    cost: int = 0
    in_parts: int = 0

    @property
    def saved_by(self) -> tuple[tuple[int, str], ...] | None:
        """Percentages of the saving by what it comes from, the greatest first; None without a
        saving, or where it is not known."""
        if self.saving <= 0 or not self.in_parts:
            return None
        parts = {
            SKIPPING: self.saving - self.saving_opening - self.saving_denser,
            OPENING: self.saving_opening,
            DENSER: self.saving_denser,
        }
        shares = [(round(100 * part / self.saving), name) for name, part in parts.items()]
        return tuple(sorted(shares, reverse=True))

    @property
    def cpu_seconds(self) -> float:
        return self.cpu_millis / 1000


def total(predictions: Iterable[Prediction]) -> Total:
    """Return the sums over the actions of a plan, or over those that remain."""
    every = tuple(predictions)
    sums = {name: sum(getattr(item, name) or 0 for item in every) for name in _SUMMED}
    return Total(**sums, in_parts=sum(item.saving_opening is not None for item in every))


def predictions_of(actions: Iterable[Mapping[str, Any]]) -> list[Prediction]:
    """Return the predictions in the documents of planned actions."""
    return [Prediction.from_document(action[PREDICTED]) for action in actions]


def label_of(action: Mapping[str, Any]) -> str:
    """Return what the document of a planned action calls it: its label, else its type; and why its
    rows go through Spark, if they do."""
    predicted = Prediction.from_document(action[PREDICTED])
    label = str(action["type"]) if predicted.label is None else predicted.label
    return f"{label} (through Spark: {predicted.by_spark})" if predicted.by_spark else label


def whole(value: float) -> int:
    """Return the value rounded to an integer, at most LARGEST; UNKNOWN if it is not finite."""
    if not math.isfinite(value):
        return UNKNOWN
    return max(-LARGEST, min(LARGEST, round(value)))


def millis(seconds: float) -> int:
    return whole(seconds * 1000)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_PLACES: Mapping[str, tuple[str, type]] = {
    "type" if item.name == "kind" else _camel(item.name): (
        item.name,
        int if str(item.type).startswith("int") else str,
    )
    for item in fields(Prediction)
    if item.name != "foreign"
}
"""By name in a document, in its order: the field, and the type of its values."""

_values = attrgetter(*(place for place, _ in _PLACES.values()))
"""The values of a prediction's fields, in the order of a document."""

_SHRINKING = (
    "files_out", "groups", "bytes_out", "rows", "cpu_millis", "millis", "saving",
    "saving_opening", "saving_denser", "cost",
)  # fmt: skip
"""What shrinks with an action's inputs."""

_SUMMED = tuple(item.name for item in fields(Total) if item.name != "in_parts")
