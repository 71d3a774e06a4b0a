"""Delete maintenance of a table while a Flink job upserts into it."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog

from reconciler.api.document_codec import from_document
from reconciler.api.documents import TableLayoutPolicy
from reconciler.errors import StalePlanError
from reconciler.loop.gating import Approvals
from reconciler.loop.local_actor import LocalActor
from reconciler.loop.ports import Target
from reconciler.loop.step import Step, StepResult, TableState, run_step, run_until_converged
from reconciler.plan.execution import Event
from reconciler.state.state import StateStore
from tests.flink.job import UpsertJob, checkpoints
from tests.spark.tables import Bench

ALL = Approvals(everything=True)


def policy_of(name: str, quiet: str, min_input_files: int) -> TableLayoutPolicy:
    """The defaults, which maintain deletes, but for these two."""
    policy = from_document(
        {
            "apiVersion": "layout.lakehouse.dev/v1alpha1",
            "kind": "TableLayoutPolicy",
            "metadata": {"name": "flink"},
            "spec": {
                "catalogRef": {"name": "rec"},
                "tables": {"include": [f"jobs.{name}"]},
                "layout": {"files": {"quietPeriod": quiet, "minInputFiles": min_input_files}},
            },
        }
    )
    assert isinstance(policy, TableLayoutPolicy)
    return policy


@dataclass
class Maintained:
    """A table under maintenance. overtaken: our commits that staged before a checkpoint of Flink
    and committed after it. kinds: actions carried out, by kind; conflicts: times one began anew."""

    bench: Bench
    name: str
    root: Path
    quiet: str = "15m"
    min_input_files: int = 5
    steps: list[StepResult] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    overtaken: int = 0
    stale: int = 0

    def __post_init__(self) -> None:
        config = self.bench.config
        catalog: Any = load_catalog(config.name, **dict(config.properties))
        self.table = catalog.load_table(("jobs", self.name))
        self.actor = LocalActor(
            StateStore(self.root / "state"), self.root / "cache", spark=self.bench.spark
        )

    def step(self, later: dt.timedelta = dt.timedelta()) -> Step:
        target = Target(self.bench.config, ("jobs", self.name))
        policy = policy_of(self.name, self.quiet, self.min_input_files)
        return Step(target, policy, "flink", lambda: dt.datetime.now(dt.UTC) + later)

    def beside(self, job: UpsertJob) -> None:
        """Plan and apply as long as the job runs. With files verified, wait for a checkpoint."""

        def on_event(event: Event) -> None:
            if event.phase == "verified":
                self.overtaken += self._await_checkpoint(job)

        while job.running:
            try:
                self.note(run_step(self.step(), self.actor, ALL, on_event, lambda: False))
            except StalePlanError:
                self.stale += 1
            if not self.steps or self.steps[-1].result is None:
                self._await_checkpoint(job)

    def converge(self) -> TableState:
        """The state after maintenance without the job, when the quiet period has passed."""
        later = self.step(dt.timedelta(hours=1))
        done = run_until_converged(
            later, self.actor, ALL, lambda event: None, lambda: False, self.note
        )
        return done.state

    def rows(self) -> dict[int, int]:
        """id -> number, by Spark. Raises on a row that is there twice."""
        found = self.bench.sql(f"SELECT id, n FROM {self.bench.full(self.name)}")
        rows = {row.id: row.n for row in found}
        assert len(rows) == len(found), "a row is there twice"
        return rows

    def snapshots(self) -> Sequence[Any]:
        found: Sequence[Any] = self.table.refresh().snapshots()
        return found

    def note(self, step: StepResult) -> None:
        self.steps.append(step)
        if step.result is not None:
            self.conflicts += step.result.conflicts
            for item in step.before.pending[: step.gate.count]:
                self.kinds[item.action.kind] += 1

    def _await_checkpoint(self, job: UpsertJob) -> bool:
        """Whether the job committed one before it ended."""
        before = len(checkpoints(self.table))
        while job.running:
            if len(checkpoints(self.table)) > before:
                return True
            time.sleep(0.05)
        return False
