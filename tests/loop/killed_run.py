"""A process that carries a plan out by the local engine, and is killed at a point of it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from reconciler.api.catalog_config import CatalogConfig

UNRECORDED = "after the commit, before its record"


def run_killed(config: CatalogConfig, name: str, phase: str, directory: Path) -> None:
    """Sort loop.`name` by day in a process that is killed at `phase` of its progress or UNRECORDED;
    its state lies below `directory`."""
    program = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from reconciler.api.catalog_config import CatalogConfig
        from reconciler.api.choices import EngineType
        from reconciler.loop.local_actor import LocalActor
        from reconciler.loop.step import run_until_converged
        from reconciler.plan.execution import COMMITTED
        from reconciler.state.state import StateStore
        from tests.loop.test_step import DECLARED, EVERYTHING, never, quiet, step_of

        def die(event):
            if event.phase == {phase!r}:
                os.kill(os.getpid(), signal.SIGKILL)

        record = StateStore.record_outcomes

        def recorded(self, intent, outcomes):
            if {phase!r} == {UNRECORDED!r} and any(one.state == COMMITTED for one in outcomes):
                os.kill(os.getpid(), signal.SIGKILL)
            record(self, intent, outcomes)

        StateStore.record_outcomes = recorded
        config = CatalogConfig(
            {config.name!r}, {config.type!r}, {dict(config.properties)!r}
        )
        directory = Path({str(directory)!r})
        actor = LocalActor(StateStore(directory / "state"), directory)
        actor.engine = EngineType.LOCAL
        step = step_of(config, {name!r}, **DECLARED)
        run_until_converged(step, actor, EVERYTHING, die, never, quiet)
    """)
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()
