"""What one action of a plan is predicted to read, write, cost and save.

The advisor makes a prediction, a plan document shows it to its reviewers, budgets are charged by
it, and the ledger compares it with the outcome. A document holds integers and text, never floats,
because it is hashed; only this module knows the names that predictions have there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from reconciler.api.document_codec import camel
from reconciler.format import plural

if TYPE_CHECKING:
    from reconciler.queries.rewrite_cost import Throughput

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
LOST = {
    SKIPPING: "reading more data", OPENING: "opening more files", DENSER: "less dense storage",
}  # fmt: skip
"""What a part of a saving is called where it is a loss."""

BY_ARRIVAL = -1
"""Instead of a column: the order of arrival."""

PREDICTED = "predicted"
"""Where the document of a planned action holds its prediction."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one action; a field is None where the action has no such value.

    A change of metadata has a label and a reason only, and plans of older versions lack some
    fields.
    """

    label: str | None = None
    """The action in words."""
    reason: str | None = None
    """Why the action is planned."""
    layout: str | None = None
    """Hash of the target layout (`Rewrite.layout`)."""
    files_in: int | None = None
    """Number of input files, or of what `unit` names."""
    files_out: int | None = None
    """Number of output files."""
    groups: int | None = None
    """Number of groups that the action is executed in."""
    bytes_in: int | None = None
    """Bytes of the input files."""
    bytes_out: int | None = None
    """Bytes of the output files."""
    written_milli: int | None = None
    """Bytes written, in thousandths of the live bytes read. The plan and the execution derive the
    number of output files from it."""
    rows: int | None = None
    """Rows of the input files, without deleted ones."""
    cpu_millis: int | None = None
    """CPU time in milliseconds."""
    millis: int | None = None
    """Wall-clock time in milliseconds."""
    read_now: int | None = None
    """Bytes that the recorded window reads of the table without this action."""
    read_after: int | None = None
    """Bytes that the recorded window reads of the table with this action."""
    saving: int | None = None
    """Bytes of reading saved over the horizon."""
    saving_low: int | None = None
    """10th percentile of `saving`, on which the decision rests."""
    saving_opening: int | None = None
    """The part of `saving` that comes from opening fewer files."""
    saving_denser: int | None = None
    """The part of `saving` that comes from denser storage. The rest of it is data that is
    skipped."""
    cost: int | None = None
    """Cost of the rewrite in bytes of reading."""
    estimate: str | None = None
    """How `saving` is known: "exact", "sampled", "bound" or "none" (no queries). For removed files
    "exact" or "at most"."""
    evidence: str | None = None
    """What justifies the action: "drift", "objective", "workload", "deletes", "trial" or "undo"."""
    basis: str | None = None
    """Digest of the queries and settings from which a rewrite for the workload follows
    (`Situation.basis`)."""
    lead: int | None = None
    """Field id of the column in whose order rows are written, BY_ARRIVAL where they stay in the
    order in which they arrived; None in other orders."""
    unit: str | None = None
    """What `files_in` counts; None for data files."""
    removed_files: int | None = None
    """Number of files that are deleted because nothing needs them any more."""
    removed_bytes: int | None = None
    """Bytes of these files."""
    target_bytes: int | None = None
    """Bytes of an output file that the what-if chose; None for the table's own target."""
    text_bytes: int | None = None
    """Bytes of the strings and binaries in `rows`, without those that a dictionary holds; the key's
    text counts by `rewrite_cost.KEY_TEXT`."""
    columns: int | None = None
    """Number of columns of the table's schema."""
    kind: str | None = None
    """The action's `kind`."""
    policy: str | None = None
    """The policy whose budgets paid; the ledger's records have it."""
    by_spark: str | None = None
    """Why its rows go through Spark, which costs more; None if they do not."""
    undoes: str | None = None
    """Id of the plan that the action takes back."""
    held_under: str | None = None
    """Hash of the policy (`Plan.policy_hash`) under which the files that it leaves stay as they
    are: what was taken back is not done again."""
    foreign: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the document that this version does not know, by their name there."""

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
        """Return the bytes written per live byte read; 1 if a plan has no such value, or one that
        is not positive."""
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
    """Sums over predictions; an action without a value counts as 0."""

    files_in: int = 0
    """Number of input files."""
    files_out: int = 0
    """Number of output files."""
    groups: int = 0
    """Number of groups."""
    bytes_in: int = 0
    """Bytes of the input files."""
    bytes_out: int = 0
    """Bytes of the output files."""
    cpu_millis: int = 0
    """CPU time in milliseconds."""
    millis: int = 0
    """Wall-clock time in milliseconds."""
    saving: int = 0
    """Bytes of reading saved over the horizon."""
    saving_low: int = 0
    """Sum of the 10th percentiles of `saving`."""
    saving_opening: int = 0
    """The part of `saving` that comes from opening fewer files."""
    saving_denser: int = 0
    """The part of `saving` that comes from denser storage."""
    cost: int = 0
    """Cost of the rewrites in bytes of reading."""
    in_parts: int = 0
    """Number of predictions that say where their saving comes from."""
    through_spark: int = 0
    """Number of actions whose rows go through Spark."""

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

    def seconds(self, model: Throughput) -> float:
        """Return the seconds in which one process carries the actions out, the start of Java
        included."""
        return model.plan_seconds(self.millis / 1000, self.groups, self.through_spark)


def saved_text(parts: Sequence[tuple[int, str]]) -> str:
    """`read + open: 63 % of the saving by skipping data, 30 % by opening fewer files`; what is lost
    is `less 30 % for opening more files`. Parts below 1 % are left out."""
    (most, first), *others = ((share, name) for share, name in parts if abs(share) >= 1)
    rest = "".join(
        f", {share} % by {name}" if share > 0 else f", less {-share} % for {LOST[name]}"
        for share, name in others
    )
    return f"read + open: {most} % of the saving by {first}{rest}"


def total(predictions: Iterable[Prediction]) -> Total:
    """Return the sums over the actions of a plan, or over those that remain."""
    every = tuple(predictions)
    sums = {name: sum(getattr(item, name) or 0 for item in every) for name in _SUMMED}
    return Total(
        **sums,
        in_parts=sum(item.saving_opening is not None for item in every),
        through_spark=sum(item.by_spark is not None for item in every),
    )


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


_PLACES: Mapping[str, tuple[str, type]] = {
    "type" if item.name == "kind" else camel(item.name): (
        item.name,
        int if str(item.type).startswith("int") else str,
    )
    for item in fields(Prediction)
    if item.name != "foreign"
}
"""The field of each name in a document, and the type of its values, in the document's order."""

_values = attrgetter(*(place for place, _ in _PLACES.values()))
"""The values of a prediction's fields, in the order of a document."""

_SHRINKING = (
    "files_out", "groups", "bytes_out", "rows", "cpu_millis", "millis", "saving",
    "saving_opening", "saving_denser", "cost",
)  # fmt: skip
"""What shrinks with an action's inputs."""

_COUNTED = ("in_parts", "through_spark")
"""Fields of a total that count actions."""
_SUMMED = tuple(item.name for item in fields(Total) if item.name not in _COUNTED)
