"""The input, the result and the ports of an execution of a plan: values and protocols, no I/O.

`reconciler.spark` executes requests; `reconciler.state` implements the ports (ledger and lease);
`reconciler.loop` and the CLI wire them together. spark and state do not import each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.api.catalog_config import CatalogConfig
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import Validity
from reconciler.table.refusals import Refusal

SPARK_APP_PREFIX = "layoutctl"
"""The names of all our Spark applications begin with this; an import of event logs skips them."""


@dataclass(frozen=True, slots=True)
class Audit:
    """spec.safety: each batch is committed to the branch first.

    check: it reaches main only if this query returns no row, "" without one. waits: the policy's
    hash, if a batch stays on the branch until a person approves it, else "".
    """

    branch: str
    check: str = ""
    waits: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """The part of a plan to execute on one table, in one attempt at a time.

    table: identifier levels, the last one is the name. action_ids: per action its id within the
    plan ("a01"), written to snapshot summaries. base_snapshot_id: the snapshot that the plan was
    made on.
    judged_snapshot_id: the snapshot on which the planner last found that the plan stands; the
    execution compares deletes with those of this snapshot. None: the base.
    verify: "Full" | "Sampled" | "Counts". max_commits: rewriting commits of one attempt.
    max_attempts: attempts in all, the first included; each one after a conflict covers the inputs
    that are still valid. backoff_seconds: wait before the second attempt, doubled for each later
    one.
    group_bytes: beyond which neighbouring groups are not merged, 0 = as the plan merges them.
    bytes_limit, cpu_limit_seconds: what the budgets leave. No attempt may start that would read
    more than what is left after earlier reads, conflicts included. None = no limit.
    written_shares: per action the bytes that the plan expects it to write per live byte it reads.
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
    max_attempts: int = 4
    backoff_seconds: float = 2.0
    group_bytes: int = 0
    bytes_limit: int | None = None
    cpu_limit_seconds: float | None = None
    written_shares: tuple[float, ...] = ()
    judged_snapshot_id: int | None = None
    audit: Audit | None = None


_PREFIX = re.compile(r"/layout-(p-[0-9a-f]+)-[^/]*/")


def plan_of_file(path: str) -> str:
    """Return the plan whose attempt wrote a content file, "" for another writer's
    (Intent.prefix)."""
    if "/layout-p-" not in path:  # most files of a large table; the search costs five times as much
        return ""
    found = _PREFIX.search(path)
    return found.group(1) if found else ""


@dataclass(frozen=True, slots=True)
class Intent:
    """Write-ahead record of one commit batch, in the ledger before the commit is sent.

    attempt_id: planId + attempt number + read snapshot, never used twice. prefix: the output
    directory of the attempt; every file below it is ours. inputs, outputs: content files (data
    files, delete files) to be replaced and added, verbatim. Batch 0 is the attempt itself: recorded
    before its first file is written, without inputs and outputs, and given its outcome
    (ATTEMPT_CLOSED) once its prefix holds nothing that no snapshot references. writer: the
    processes that may still send the commit, opaque.
    commits: UUIDs in the names of the metadata files that its commits write.
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
    writer: str = ""
    commits: tuple[str, ...] = ()


COMMITTED = "committed"
WAITING = "waiting"
"""Committed to a branch, where it stays until a person approves it."""
CONFLICT = "conflict"
FAILED = "failed"
UNKNOWN_OUTCOME = "unknown"
ATTEMPT_CLOSED = "closed"
"""State of the single outcome of batch 0: it measures nothing and belongs to no action."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one action of one commit batch.

    state: COMMITTED | WAITING | CONFLICT | FAILED | UNKNOWN_OUTCOME (ATTEMPT_CLOSED for batch 0).
    read_bytes/written_bytes: of content files; rows: in the files written, rows or deleted
    positions; cpu_seconds: task CPU of read, sort, write and
    verification; verify_cpu_seconds: the part of it that read the written files back; seconds: wall
    clock.
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
    verify_cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The state of one action when the execution ends (definitions: "Validity is per action").

    PENDING: the execution stopped before it, or conflicts left some inputs. remaining: inputs that
    are still valid. detail: why it is not done.
    """

    action_id: str
    state: Validity
    remaining: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The result of an execution. Whether the plan succeeded is decided by a new observation, not
    by this.

    outcomes: of every commit batch sent, in order. stopped: `should_stop` ended it early. seconds:
    wall clock of all of it, after start_seconds of starting Spark; None if it ran already. waiting:
    batches that it left on a branch for approval.
    """

    attempts: tuple[str, ...]
    actions: tuple[ActionResult, ...]
    outcomes: tuple[Outcome, ...]
    commits: int
    conflicts: int
    stopped: bool
    seconds: float
    start_seconds: float | None = None
    waiting: int = 0

    @property
    def read_bytes(self) -> int:
        return sum(outcome.read_bytes for outcome in self.outcomes)

    @property
    def cpu_seconds(self) -> float:
        return sum(outcome.cpu_seconds for outcome in self.outcomes)

    @property
    def done(self) -> bool:
        return all(action.state is Validity.DONE for action in self.actions)


def figures(done: ExecutionResult | None) -> dict[str, int | float]:
    """Return what the reports of `apply` and of a driver pod say of an execution; zeros of none."""
    return {
        "commits": done.commits if done else 0,
        "conflicts": done.conflicts if done else 0,
        "waiting": done.waiting if done else 0,
        "rewrittenBytes": done.read_bytes if done else 0,
        "cpuSeconds": round(done.cpu_seconds, 3) if done else 0.0,
        "seconds": round(done.seconds, 3) if done else 0.0,
    }


@dataclass(frozen=True, slots=True)
class MeasuredRho:
    """definitions: rho. CPU seconds per input byte rewritten over those per projected byte read."""

    rewrite_cpu_per_byte: float
    read_cpu_per_byte: float

    @property
    def ratio(self) -> float:
        return self.rewrite_cpu_per_byte / self.read_cpu_per_byte


@dataclass(frozen=True, slots=True)
class Event:
    """One line of progress; `text` is ready to print.

    phase, in the order of a group's life: "start", "written", "verified", "commit" (about to be
    sent), "audit" (its check passed on the branch), "waiting" (it stays there), "committed" (the
    line that summarises a group); otherwise "conflict", "removed", "retry", "unknown", "fence",
    "resumed", "left", "property", "skipped", "stopped". Fields that a phase does not use keep
    their defaults.
    """

    phase: str
    text: str
    action_id: str = ""
    group: int = 0
    groups: int = 0
    bytes: int = 0
    snapshot_id: int | None = None


def attempt_started_ms(attempt_id: str) -> int | None:
    """Return when the attempt began, read from its id: plan, microseconds in hex, read snapshot.

    None for an id that is not ours.
    """
    try:
        return int(attempt_id.rsplit("-", 2)[1], 16) // 1000
    except (IndexError, ValueError):
        return None


class Ledger(Protocol):
    """The durable record of attempts (an Iceberg state table; see state.state)."""

    def record_intent(self, intent: Intent) -> None: ...

    def record_outcomes(self, intent: Intent, outcomes: tuple[Outcome, ...]) -> None: ...

    def open_intents(self, table_uuid: str) -> tuple[Intent, ...]:
        """Return intents without an outcome or with an unknown one: they are settled before any
        work."""
        ...

    def outputs_of(self, table_uuid: str) -> frozenset[str]:
        """Return the content files that the recorded batches of the table were to add."""
        ...

    def record_refusals(self, table_uuid: str, found: Iterable[Refusal]) -> None:
        """Record files that no later plan may rewrite until the table refers to others."""
        ...


class Lease(Protocol):
    """One attempt per table at a time (definitions: Lease)."""

    def acquire(self, table_uuid: str, attempt_id: str) -> None:
        """Take the lease. Raises BlockedError naming the holder if another live attempt holds
        it."""
        ...

    def renew(self) -> None:
        """Renew the lease; a thread of the executor calls it every 20 s. Raises BlockedError if it
        was lost."""
        ...

    def release(self) -> None: ...

    def writer_is_dead(self, table_uuid: str, attempt_id: str) -> bool:
        """Return True only if the process that ran the attempt is known to be gone (same boot)."""
        ...
