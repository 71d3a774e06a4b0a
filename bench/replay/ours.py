"""This advisor as a policy, with exact footers and a sample of every file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.replay.table import SimulatedTable
from reconciler.advisor.advice import AdviceInput, Settings
from reconciler.advisor.decide import decide
from reconciler.plan.actions.base import Action
from reconciler.queries.shape import Workload

ROWS_PER_FILE = 128
"""Sampled rows of each file."""


def ours(table: SimulatedTable, work: Workload, settings: Settings) -> Sequence[Action]:
    """Carry out what the advisor plans."""
    files = table.file_table()
    sample = table.sample(np.arange(len(files)), ROWS_PER_FILE)
    advice = decide(AdviceInput(files, work, settings, table.row_groups(), sample))
    return [item.action for item in advice.actions]
