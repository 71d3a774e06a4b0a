"""The input, the result and the ports of an execution of a plan: values and protocols, no I/O.

`reconciler.engines` executes requests; `reconciler.state` implements the ports (ledger and lease);
`reconciler.loop` and the CLI wire them together. engines and state do not import each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.api.catalog_config import CatalogConfig
from reconciler.api.choices import EngineType
from reconciler.plan.actions.base import Action
from reconciler.plan.actions.state import Validity
from reconciler.table.refusals import Refusal

SPARK_APP_PREFIX = "layoutctl"
"""The names of all our Spark applications begin with this; an import of event logs skips them."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Commits to a branch before main, by spec.safety."""

    branch: str
    """Branch to which each batch is committed first."""
    check: str = ""
    """Query that must return no row before a batch reaches main, "" for none."""
    waits: str = ""
    """The policy's hash, if a batch stays on the branch until a person approves it; else ""."""


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """The part of a plan to execute on one table, in one attempt at a time."""

    catalog: CatalogConfig
    """The catalog's connection."""
    table: tuple[str, ...]
    """Levels of the table's identifier, the name last."""
    table_uuid: str
    """UUID of the table; an execution on another table is refused."""
    plan_id: str
    """The plan's id."""
    actions: tuple[Action, ...]
    """The actions to execute, in plan order."""
    action_ids: tuple[str, ...]
    """Per action its id within the plan ("a01"), which snapshot summaries name."""
    base_snapshot_id: int | None
    """The snapshot that the plan was made on; None for an empty table."""
    verify: str = "Full"
    """How much of the written rows is compared: "Full", "Sampled" or "Counts"."""
    allow_live_branches: bool = False
    """Whether to rewrite a table that has branches other than main."""
    max_commits: int = 10
    """Most rewriting commits of one attempt."""
    max_attempts: int = 4
    """Most attempts, the first included. Each one after a conflict covers the inputs that are still
    valid."""
    backoff_seconds: float = 2.0
    """Seconds to wait before the second attempt, doubled for each later one."""
    group_bytes: int = 0
    """Bytes beyond which neighbouring groups are not merged; 0 to merge them as planned."""
    bytes_limit: int | None = None
    """Bytes that the budgets leave; None for no limit. An attempt that would read more than earlier
    ones, conflicts included, have left does not start."""
    cpu_limit_seconds: float | None = None
    """CPU seconds that the budgets leave; None for no limit."""
    written_shares: tuple[float, ...] = ()
    """Per action the bytes that the plan expects it to write per live byte read."""
    judged_snapshot_id: int | None = None
    """The snapshot on which the planner last found that the plan is valid; None for the base. The
    execution compares deletes with those of this snapshot."""
    audit: Audit | None = None
    """The branch and the check that each batch has to pass; None to commit to main at once."""
    engine: EngineType = EngineType.SPARK
    """Who carries it out: Local or Spark."""
    memory_bytes: int = 0
    """Memory of an executor, as the policy asks for it: what a run refuses may depend on it."""
    planned_bytes: tuple[int, ...] = ()
    """Per action the bytes that are reserved for it before the run."""
    reserve: Callable[[Used, int], str] | None = None
    """Reserves what repeated work reads before it begins; None where nothing is reserved. Takes
    what the outcomes of the run have measured, and the bytes that it will have read in all. Returns
    why the budgets do not leave that, "" once it is reserved."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the recorded outcomes of a run have measured."""

    read_bytes: int = 0
    """Bytes of content files that were read."""
    cpu_seconds: float = 0.0
    """CPU seconds of that."""


_MARK = "/layout-p-"
_PREFIX = re.compile(r"/layout-(p-[0-9a-f]+)-[^/]*/")


def plan_of_file(path: str) -> str:
    """Return the plan whose attempt wrote a content file, "" for another writer's
    (Intent.prefix)."""
    if _MARK not in path:  # most files of a large table; the search costs five times as much
        return ""
    found = _PREFIX.search(path)
    return found.group(1) if found else ""


def plans_of_files(paths: Sequence[str]) -> list[str]:
    """Return the same of many files. One search shows that none of them is of a plan."""
    if _MARK not in "".join(paths):
        return [""] * len(paths)
    return [plan_of_file(path) for path in paths]


@dataclass(frozen=True, slots=True)
class Intent:
    """Write-ahead record of one commit batch, in the ledger before the commit is sent.

    Batch 0 is the attempt itself. It is recorded before its first file is written, without inputs
    and outputs, and gets its outcome (ATTEMPT_CLOSED) once its prefix holds nothing that no
    snapshot references.
    """

    table_uuid: str
    """UUID of the table."""
    table: tuple[str, ...]
    """Levels of the table's identifier, the name last."""
    plan_id: str
    """The plan's id."""
    attempt_id: str
    """Plan id, time of the start and read snapshot; never used twice."""
    batch: int
    """Number of the batch within the attempt, 0 for the attempt itself."""
    action_ids: tuple[str, ...]
    """Ids of the actions that the batch has groups of."""
    base_snapshot_id: int
    """The snapshot that the rows were read from."""
    prefix: str
    """Output directory of the attempt; every file below it is ours."""
    inputs: tuple[str, ...]
    """Paths of the content files (data files, delete files) to be replaced, verbatim."""
    outputs: tuple[str, ...]
    """Paths of the content files to be added, verbatim."""
    writer: str = ""
    """The processes that may still send the commit, in a form that only
    `engines/schedule/processes` reads."""
    commits: tuple[str, ...] = ()
    """UUIDs in the names of the metadata files that its commits write."""


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
    """The outcome of one action of one commit batch."""

    attempt_id: str
    """The attempt that the batch belongs to."""
    batch: int
    """Number of the batch within the attempt."""
    action_id: str
    """Id of the action within the plan."""
    state: str
    """COMMITTED, WAITING, CONFLICT, FAILED or UNKNOWN_OUTCOME; ATTEMPT_CLOSED for batch 0."""
    snapshot_id: int | None
    """The snapshot that the commit created; None if there is none."""
    read_bytes: int
    """Bytes of the content files read."""
    written_bytes: int
    """Bytes of the content files written."""
    rows: int
    """Rows, or deleted positions, in the files written."""
    files_in: int
    """Number of files read."""
    files_out: int
    """Number of files written."""
    cpu_seconds: float
    """CPU seconds of the tasks that read, sort, write and verify."""
    seconds: float
    """Wall-clock time in seconds."""
    detail: str = ""
    """Why the batch is not committed, "" if it is."""
    verify_cpu_seconds: float = 0.0
    """The part of `cpu_seconds` that read the written files back."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The state of one action when the execution ends
    (docs/design/definitions.md#validity-per-action)."""

    action_id: str
    """Id of the action in its plan."""
    state: Validity
    """Its state. PENDING: the execution stopped before it, or conflicts left some inputs."""
    detail: str = ""
    """Why it is not done."""


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The result of an execution. Whether the plan succeeded is decided by a new observation."""

    attempts: tuple[str, ...]
    """Ids of the attempts, in order."""
    actions: tuple[ActionResult, ...]
    """The state of each action at the end."""
    outcomes: tuple[Outcome, ...]
    """The outcomes of every commit batch sent, in order."""
    commits: int
    """Number of batches that were committed."""
    conflicts: int
    """Number of conflicts with other writers."""
    stopped: bool
    """Whether `should_stop` ended the execution early."""
    seconds: float
    """Wall-clock seconds of the execution, without the start of Spark."""
    start_seconds: float | None = None
    """Seconds that Spark took to start; None if it ran already."""
    waiting: int = 0
    """Number of batches that wait on a branch for approval."""

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
    """CPU seconds per input byte rewritten over those per projected byte read
    (docs/design/definitions.md#rho)."""

    rewrite_cpu_per_byte: float
    """CPU seconds per byte of rewritten input."""
    read_cpu_per_byte: float
    """CPU seconds per projected byte read."""

    @property
    def ratio(self) -> float:
        return self.rewrite_cpu_per_byte / self.read_cpu_per_byte


@dataclass(frozen=True, slots=True)
class Event:
    """One line of progress. Fields that a phase does not use keep their defaults."""

    phase: str
    """In the order of a group's life "start", "verified", "commit" (about to be sent), "audit" (its
    check passed on the branch), "waiting" (it stays there), "committed" (the line that summarises a
    group); otherwise "conflict", "removed", "retry", "unknown", "fence", "resumed", "left",
    "property", "statistics", "skipped" or "stopped"."""
    text: str
    """The line, ready to print."""
    action_id: str = ""
    """Id of the action within the plan."""


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
        """Record files that no later plan may rewrite until what a refusal rests on changes."""
        ...


@dataclass(frozen=True, slots=True)
class DeadRun:
    """A run on a table whose process is known to be gone, and that did not record its end."""

    reservation: str
    """Id of its reservation."""
    begun: bool
    """Whether it has held the table's lease: without it, nothing is read or computed."""


class Lease(Protocol):
    """One attempt per table at a time (docs/design/definitions.md#lease)."""

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

    def enter(self, table_uuid: str, reservation: str) -> None:
        """Record that this process begins the run of a reservation, before that is made."""
        ...

    def leave(self, table_uuid: str, reservation: str) -> None:
        """Forget the run: its end is in the ledger."""
        ...

    def dead_runs(self, table_uuid: str) -> tuple[DeadRun, ...]:
        """Return the runs that entered and did not leave, as far as their processes are known to be
        gone."""
        ...
