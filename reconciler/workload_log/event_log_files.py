"""Finds Spark event logs below a path: files, and directories of a rolling log."""

from __future__ import annotations

import json
from pathlib import Path

from reconciler.workload_log.importing import (
    Unreadable,
    lines_of,
    unpacked,
)
from reconciler.workload_log.packing import Log, open_log, packed_size

ROLLING = "eventlog_v2_"


def is_event_log(path: Log) -> bool:
    """Whether it is a rolling log's directory, or a file that starts with an event."""
    if isinstance(path, Path) and path.is_dir():
        return path.name.startswith(ROLLING)
    try:
        with open_log(path) as file:
            lines = lines_of(unpacked(file, packed_size(path)))
            first, _ = next(lines, (b"", False))
        return isinstance(json.loads(first or b"{}").get("Event"), str)
    except (ValueError, AttributeError, RecursionError, Unreadable):
        return False


def event_logs(directory: Path) -> list[Path]:
    """Return the logs in a directory: rolling ones as their directory, plain files as they are."""
    if directory.name.startswith(ROLLING):
        return [directory]
    return sorted(
        path
        for path in directory.iterdir()
        if not path.name.startswith((".", "appstatus_", "_"))
        and not path.name.endswith(".crc")
        and (path.is_file() or path.name.startswith(ROLLING))
    )
