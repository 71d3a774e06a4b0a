"""One attempt to carry out actions: the head that it reads, and the directory that it writes to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reconciler.rewrite.storage import Opening


@dataclass(frozen=True, slots=True)
class Attempt:
    """Values that all parts of an attempt share.

    id: names the attempt in summaries and paths. name: the table, for messages. table: the Java
    table as of the read snapshot. prefix: directory of all output. verify: the mode. catalog: its
    name in Spark. opening: how the witness opens files of another store. cancelled: is set when
    what runs is not needed any more.
    """

    spark: Any
    id: str
    name: str
    table: Any
    snapshot_id: int
    sequence_number: int
    prefix: str
    verify: str
    catalog: str
    opening: Callable[[], Opening]
    cancelled: threading.Event = field(default_factory=threading.Event)


def new_id(plan_id: str, table: Any) -> str:
    """Return planId + attempt + read snapshot; the attempt is a time, so that no id is used
    twice."""
    snapshot = table.currentSnapshot()
    return f"{plan_id}-{time.time_ns() // 1000:x}-{snapshot.snapshotId() if snapshot else 0}"
