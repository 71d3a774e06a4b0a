"""What an execution of a plan is given and what it reports: values and ports, no I/O.

`reconciler.jobs` executes requests; `reconciler.catalog` implements the ports (ledger and lease);
`reconciler.loop` and the CLI wire them together. jobs and catalog do not import each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.core.actions import Action


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """One Iceberg catalog, for pyiceberg and Spark alike.

    name: the name both sides use; it is data in SQL catalogs. type: "sql" | "rest".
    properties: pyiceberg's spelling, secrets included; never print or store them.
    source: where it was found, for messages ("--catalog", ".pyiceberg.yaml", ...).
    """

    name: str
    type: str
    properties: Mapping[str, str] = field(repr=False)
    source: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """The part of a plan to execute on one table, in one attempt at a time.

    table: identifier levels, last one the name. action_ids: per action its id within the plan
    ("a01"), written to snapshot summaries. base_snapshot_id: the snapshot the plan was made on.
    verify: "Full" | "Sampled" | "Counts". cpu_limit_seconds/bytes_limit: budget left, None = none.
    """

    catalog: CatalogConfig
    table: tuple[str, ...]
    table_uuid: str
    plan_id: str
    actions: tuple[Action, ...]
    action_ids: tuple[str, ...]
    base_snapshot_id: int | None
    verify: str = "Full"
    allow_live_branches: bool = False
    max_commits: int = 10


@dataclass(frozen=True, slots=True)
class Intent:
    """Write-ahead record of one commit batch, in the ledger before the commit is sent.

    attempt_id: planId + attempt number + read snapshot. prefix: the output directory of the
    attempt, every file below it is ours. outputs: data files to be added, verbatim.
    """

    table_uuid: str
    table: tuple[str, ...]
    plan_id: str
    attempt_id: str
    batch: int
    action_ids: tuple[str, ...]
    base_snapshot_id: int
    prefix: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action of one commit batch.

    state: "committed" | "conflict" | "failed" | "unknown". read_bytes/written_bytes: data file
    bytes; cpu_seconds: task CPU of read, sort, write and verification; seconds: wall clock.
    """

    attempt_id: str
    batch: int
    action_id: str
    state: str
    snapshot_id: int | None
    read_bytes: int
    written_bytes: int
    rows: int
    files_in: int
    files_out: int
    cpu_seconds: float
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of progress. phase: "read" | "sort" | "verify" | "commit" | "conflict" | ...

    The fields that a phase does not use keep their defaults; `text` is ready to print.
    """

    phase: str
    text: str
    action_id: str = ""
    group: int = 0
    groups: int = 0
    bytes: int = 0
    snapshot_id: int | None = None


class Ledger(Protocol):
    """The durable record of attempts (an Iceberg state table; see catalog.state)."""

    def record_intent(self, intent: Intent) -> None: ...

    def record_outcomes(self, intent: Intent, outcomes: tuple[Outcome, ...]) -> None: ...

    def open_intents(self, table_uuid: str) -> tuple[Intent, ...]:
        """Intents without an outcome, or whose outcome is unknown: to be resolved before work."""
        ...


class Lease(Protocol):
    """One attempt per table at a time (definitions: Lease)."""

    def acquire(self, table_uuid: str, attempt_id: str) -> None:
        """Raises BlockedError naming the holder when another live attempt holds it."""
        ...

    def renew(self) -> None:
        """Called every 20 s by a thread of the executor; raises BlockedError when it was lost."""
        ...

    def release(self) -> None: ...

    def writer_is_dead(self, table_uuid: str, attempt_id: str) -> bool:
        """True only if the process that ran the attempt is known to be gone (same boot)."""
        ...
